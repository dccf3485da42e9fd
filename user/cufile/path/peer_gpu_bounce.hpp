// SPDX-License-Identifier: MIT
//
// A peer_gpu is memory of a GPU that the file's device reaches, for bytes of a GPU that it does not: they go directly between
// the file and the peer_gpu, and by the GPUs' own copy between the peer_gpu and their location. No host memory is in between.
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
// In front of a slab, so that what begins within a block of the file lies as it does there. A multiple of any block.
inline constexpr uint64_t peer_slab_slack = 64 << 10;
inline constexpr unsigned peer_slabs = 8, peer_slabs_per_io = 2; // of a peer_gpu; what one I/O has at most
inline constexpr uint64_t peer_buffer_bytes = peer_slabs * (peer_slab_slack + peer_slab_bytes);

class PeerGpuBounce
{
public:
	PeerGpuBounce(const Dependencies &deps, int device) : deps_(deps), device_(device) {}
	~PeerGpuBounce();
	PeerGpuBounce(const PeerGpuBounce &) = delete;
	PeerGpuBounce &operator=(const PeerGpuBounce &) = delete;

	// Where the kernel has it. It is made when it is first wanted: 0, or why there is none, -errno. After a shortage of
	// memory or descriptors it is tried again.
	int location(BufferLocation &out);
	// Its memory went with the context, which the program has reset: the address may be another allocation's by now. Or the
	// program has closed the descriptor by which the kernel has it.
	bool is_lost();
	// Moves all of a request. Waits while all slabs are in_use. -ENODEV: the kernel has it no more, and nothing was moved.
	// result: of what went between the file and here, that of the part that says most.
	int64_t transfer(const Request &request, struct peerdma_io_result &result);

private:
	struct Slab {
		uint64_t at = 0; // in the memory
		Stream stream = nullptr;
		bool in_use = false;
	};
	// What one I/O has of it.
	class SlabLease;
	class Transfer;

	// With lock_.
	int create();
	void destroy();
	int allocate();
	int register_memory();
	bool is_valid() const;

	const Dependencies deps_;
	const int device_;
	std::mutex lock_; // protects state_ and who has which slab; what create() makes is immutable after
	Condition released_;
	int state_ = 1; // 1: nobody has asked; 0, or -errno
	Backoff backoff_;
	Context context_ = nullptr;
	char *memory_ = nullptr;
	uint64_t id_ = 0;         // of the allocation
	BufferLocation location_; // of its first byte
	FrameTable frame_table_{deps_.peerdma};
	std::shared_ptr<RegisteredMemory> registration_;
	Slab slabs_[peer_slabs];
};

// One for each device, until it is gone.
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
