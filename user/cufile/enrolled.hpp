// SPDX-License-Identifier: MIT
//
// Memory of the CUDA driver's that is registered with the kernel, which then moves a file's bytes straight to and from
// it. The kernel takes whole frames: more than the program registered, as far as nobody asks for it. The memory stays the
// program's, which may free it at any time; it may then be given out once more, at the same address and elsewhere in the
// GPU. So each I/O asks whether it is still the same.
//
// The vendor's module of the kernel takes it by its address. Where it does not, or is not there, the memory may come as a
// dma-buf: also what cuMemMap() has mapped, in pieces that can each be exchanged for another.
//
// So comes memory of other vendors' GPUs, of which CUDA is not asked. The dma-buf keeps it, whoever frees it.
#pragma once

#include <map>
#include <memory>

#include "pinned.hpp"
#include "seams.hpp"

namespace cufile
{

class Enrolled
{
public:
	// All of a range, of memory of this device. 0 or -errno; reason: enum peerdma_reason, if the kernel gave one.
	// 1: there is no room for it in pinned, which the library's own memory does not count in.
	static int make(Cuda &cuda, Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out,
			uint32_t &reason, Pinned *pinned = nullptr, int device = -1);
	// Of memory of another vendor's, likewise; -ENOENT: it is none.
	static int adopt(Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out, uint32_t &reason,
			 Pinned &pinned);
	Enrolled(Peer &peer, const Allocation &allocation) : peer_(peer), allocation_(allocation) {}
	~Enrolled();
	Enrolled(const Enrolled &) = delete;
	Enrolled &operator=(const Enrolled &) = delete;

	bool has(const void *address, uint64_t size) const;
	bool foreign() const { return !allocation_.id; }
	// Whether it is still the memory that was registered: all of it, or a range.
	bool is_there(Cuda &cuda) const;
	bool is_there(Cuda &cuda, const void *address, uint64_t size) const;
	Place place(const void *address) const;

private:
	int import(Cuda &cuda, const void *base, uint64_t size, uint32_t &reason);
	bool find_pieces(Cuda &cuda);

	Peer &peer_;
	const Allocation allocation_;         // of CUDA's; none
	std::map<uint64_t, uint64_t> pieces_; // the driver's number of each, by where it begins
	// Immutable once make() is through.
	uint64_t start_ = 0, end_ = 0; // of the frames, but not beyond the allocation
	Place place_;                  // of the first frame
	uint64_t first_ = 0;
	Pinned *pinned_ = nullptr; // that counts it
	uint64_t bytes_ = 0;
	int device_ = -1;
};

} // namespace cufile
