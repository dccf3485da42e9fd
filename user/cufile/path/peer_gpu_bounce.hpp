// SPDX-License-Identifier: MIT
//
// Bounce memory on a GPU that the drive reaches, for I/O of a GPU that it does not reach. Bytes go directly between the
// file and this memory, and by a GPU copy between it and the other GPU. Host memory is not used.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cufile/platform/backoff.hpp"
#include "cufile/platform/condition.hpp"
#include "cufile/registry/registered_memory.hpp"

namespace cufile
{

struct Request;

inline constexpr uint64_t peer_slab_bytes = 2 << 20;
// Room before a slab, so that a transfer keeps its offset within a file block. A multiple of any block.
inline constexpr uint64_t peer_slab_slack = 64 << 10;
inline constexpr unsigned peer_slabs = 8, peer_slabs_per_io = 2; // per GPU; limit per I/O
inline constexpr uint64_t peer_buffer_bytes = peer_slabs * (peer_slab_slack + peer_slab_bytes);

class PeerGpuBounce
{
public:
	PeerGpuBounce(const Dependencies &deps, int device) : deps_(deps), device_(device) {}
	~PeerGpuBounce();
	PeerGpuBounce(const PeerGpuBounce &) = delete;
	PeerGpuBounce &operator=(const PeerGpuBounce &) = delete;

	// Location of the memory, which the first call allocates and registers. 0 or -errno. After a shortage of memory
	// or descriptors a later call tries again.
	int location(BufferLocation &out);
	// True if the program has reset the context, which frees the memory for reuse, or has closed the descriptor
	// that registered it.
	bool is_lost();
	// Transfers all of a request. Waits while all slabs are in use. -ENODEV: the kernel has released the memory,
	// and nothing was transferred. result: of the last part that failed or was not direct, else of the first.
	int64_t transfer(const Request &request, struct peerdma_io_result &result);

private:
	struct Slab {
		uint64_t at = 0; // in the memory
		Stream stream = nullptr;
		bool in_use = false;
	};
	class SlabLease;
	class Transfer;

	// Call with lock_ held.
	int create();
	void destroy();
	int allocate();
	int register_memory();
	bool is_valid() const;

	const Dependencies deps_;
	const int device_;
	std::mutex lock_; // protects state_ and Slab::in_use; what create() creates is immutable afterwards
	Condition released_;
	int state_ = 1; // 1: not created yet; 0, or -errno
	Backoff backoff_;
	Context context_ = nullptr;
	char *memory_ = nullptr;
	uint64_t id_ = 0;         // of the allocation
	BufferLocation location_; // of its first byte
	FrameTable frame_table_{deps_.peerdma};
	std::shared_ptr<RegisteredMemory> registration_;
	Slab slabs_[peer_slabs];
};

// One for each device, until it is lost.
class PeerGpuBounces
{
public:
	explicit PeerGpuBounces(const Dependencies &deps) : deps_(deps) {}
	std::shared_ptr<PeerGpuBounce> for_device(int device);

private:
	const Dependencies deps_;
	std::mutex lock_; // protects peer_gpus_
	std::vector<std::shared_ptr<PeerGpuBounce>> peer_gpus_;
};

} // namespace cufile
