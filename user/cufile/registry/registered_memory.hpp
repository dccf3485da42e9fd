// SPDX-License-Identifier: MIT
//
// Memory of the CUDA driver's that a program has registered, as far as the kernel has it too, which then moves a file's
// bytes straight to and from it. It is a view of runs of frames that registrations share (frames.hpp). The memory stays the
// program's, which may free it at any time; it may then be given out once more, at the same address and elsewhere in the
// GPU. So each I/O asks whether it is still the same.
//
// The vendor's module of the kernel takes it by its address. Where it does not, or is not there, the memory may come as a
// dma-buf: also what cuMemMap() has mapped, in pieces that can each be exchanged for another, and that may come later.
//
// So comes memory of other vendors' GPUs, of which CUDA is not asked. The dma-buf keeps it even after it is freed.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cufile/platform/backoff.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/frame_table.hpp"

namespace cufile
{

class RegisteredMemory
{
public:
	// A range of memory of this device, or what of it is mapped, if that is some of it. 0 or -errno; reason: enum
	// peerdma_reason, if the kernel gave one. 1: max_device_pinned_mem_size_kb has no room for it. On a shortage of
	// descriptors or memory @out is set too, and empty: extend() tries again.
	static int create(FrameTable &frames, Cuda &cuda, const void *base, uint64_t size,
			  std::shared_ptr<RegisteredMemory> &out, uint32_t &reason, int device = -1);
	// Of memory of another vendor's, likewise; -ENOENT: it is none.
	static int import_foreign(FrameTable &frames, const void *base, uint64_t size,
				  std::shared_ptr<RegisteredMemory> &out, uint32_t &reason);
	RegisteredMemory(FrameTable &frames, int device, bool foreign)
		: frame_table_(frames), device_(device), foreign_(foreign)
	{
	}
	RegisteredMemory(const RegisteredMemory &) = delete;
	RegisteredMemory &operator=(const RegisteredMemory &) = delete;

	// Takes what was mapped after create() where that range lies, or what create() met a shortage for. As create(); what was refused
	// is not asked for again, and after a shortage only later (-EAGAIN).
	int extend(Cuda &cuda, uint64_t now_ns, const void *address, uint64_t size, uint32_t &reason);

	bool covers(const void *address, uint64_t size) const
	{
		return bytes_from(address) >= size && bytes_from(address);
	}
	// Bytes from there that it has without a gap.
	uint64_t bytes_from(const void *address) const;
	bool foreign() const { return foreign_; }
	// Whether it is still the memory that was registered: all of it, or a range.
	bool is_valid(Cuda &cuda) const;
	bool is_valid(Cuda &cuda, const void *address, uint64_t size) const;
	// Its size is that to the end of the run; what is longer goes in parts.
	BufferLocation location(const void *address) const;

private:
	struct Extent {
		std::vector<RunPart> parts; // by address
		std::vector<std::shared_ptr<const Pieces>> pieces;
	};

	int add(Cuda &cuda, uint64_t start, uint64_t size, uint32_t &reason);
	void add_extent(std::vector<RunPart> parts, std::shared_ptr<const Pieces> pieces);
	std::shared_ptr<const Extent> extent() const;

	FrameTable &frame_table_;
	const int device_;
	const bool foreign_;
	std::pair<uint64_t, uint64_t> registered_; // immutable after create()
	uint64_t short_id_ = 0;                    // likewise: the allocation that create() met a shortage for
	std::mutex extending_;    // one at a time; held across calls, which I/O waits for that wants the same memory
	mutable std::mutex lock_; // protects extent_, of which each is immutable
	std::shared_ptr<const Extent> extent_ = std::make_shared<Extent>();
	uint64_t refused_id_ = 0; // with extending_: what the last extend() could not take, and why
	int refused_ = 0;
	uint32_t refused_reason_ = 0;
	Backoff backoff_; // after a shortage
};

} // namespace cufile
