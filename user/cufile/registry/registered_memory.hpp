// SPDX-License-Identifier: MIT
//
// CUDA memory that a program has registered, as far as the kernel has registered it for direct I/O. It is a view of
// shared runs of frames (frame_table.hpp). The program may free the memory at any time, and the driver may reuse its
// address for other memory. So each I/O checks that it is the same.
//
// The GPU vendor's kernel module takes memory by address. Without it, memory is imported as a dma-buf. This includes
// memory of cuMemMap(), whose pieces may be replaced or added later.
//
// Memory of other vendors' GPUs is imported as well, without CUDA. The dma-buf keeps it after it is freed.
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
	// Registers a range of memory of this device, or the mapped part of it. 0 or -errno; reason: enum
	// peerdma_reason if the kernel gave one. 1: max_device_pinned_mem_size_kb has no room for it. After a shortage
	// of descriptors or memory out is set but empty, and extend() tries again.
	static int create(FrameTable &frames, Cuda &cuda, const void *base, uint64_t size,
			  std::shared_ptr<RegisteredMemory> &out, uint32_t &reason, int device = -1);
	// The same for other vendors' memory. -ENOENT: it belongs to no vendor.
	static int import_foreign(FrameTable &frames, const void *base, uint64_t size,
				  std::shared_ptr<RegisteredMemory> &out, uint32_t &reason);
	RegisteredMemory(FrameTable &frames, int device, bool foreign)
		: frame_table_(frames), device_(device), foreign_(foreign)
	{
	}
	RegisteredMemory(const RegisteredMemory &) = delete;
	RegisteredMemory &operator=(const RegisteredMemory &) = delete;

	// Registers memory in the range that was mapped after create(), or that met a shortage. Results as create(). A
	// refusal is final; after a shortage it tries again later (-EAGAIN).
	int extend(Cuda &cuda, uint64_t now_ns, const void *address, uint64_t size, uint32_t &reason);

	bool covers(const void *address, uint64_t size) const
	{
		return bytes_from(address) >= size && bytes_from(address);
	}
	// Registered bytes from an address on, without a gap.
	uint64_t bytes_from(const void *address) const;
	bool foreign() const { return foreign_; }
	// True if it still is the memory that was registered: all of it, or a range.
	bool is_valid(Cuda &cuda) const;
	bool is_valid(Cuda &cuda, const void *address, uint64_t size) const;
	// Its size reaches to the end of the run; longer I/O is split.
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
	uint64_t short_id_ = 0;                    // immutable after create(): the allocation that met a shortage
	std::mutex extending_;                     // serializes extend(); held across calls of CUDA and the kernel
	mutable std::mutex lock_;                  // protects extent_; each extent is immutable
	std::shared_ptr<const Extent> extent_ = std::make_shared<Extent>();
	uint64_t refused_id_ = 0; // protected by extending_: the allocation that was refused, and why
	int refused_ = 0;
	uint32_t refused_reason_ = 0;
	Backoff backoff_; // after a shortage
};

} // namespace cufile
