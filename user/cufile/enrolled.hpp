// SPDX-License-Identifier: MIT
//
// Memory of the CUDA driver's that is registered with the kernel, which then moves a file's bytes straight to and from
// it. The kernel takes whole frames: more than the program registered, as far as nobody asks for it. The memory stays the
// program's, which may free it at any time; it may then be given out once more, at the same address and elsewhere in the
// GPU. So each I/O asks whether it is still the same.
#pragma once

#include <memory>

#include "seams.hpp"

namespace cufile
{

class Enrolled
{
public:
	// All of a range. 0 or -errno; reason: enum peerdma_reason, if the kernel gave one.
	static int make(Cuda &cuda, Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out,
			uint32_t &reason);
	Enrolled(Peer &peer, const Allocation &allocation) : peer_(peer), allocation_(allocation) {}
	~Enrolled();
	Enrolled(const Enrolled &) = delete;
	Enrolled &operator=(const Enrolled &) = delete;

	bool has(const void *address, uint64_t size) const;
	// Whether it is still the memory that was registered.
	bool is_there(Cuda &cuda) const;
	Place place(const void *address) const;

private:
	Peer &peer_;
	const Allocation allocation_;
	// Immutable once make() is through.
	uint64_t start_ = 0, end_ = 0; // of the frames, but not beyond the allocation
	Place place_;                  // of the first frame
	uint64_t first_ = 0;
};

} // namespace cufile
