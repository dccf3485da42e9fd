// SPDX-License-Identifier: MIT
//
// A bounce buffer is pinned host memory with a stream. Bytes pass through it between a file and the memory of one CUDA
// context. Its holder cuts it into slabs. A GPU does few large copies much faster than many small ones, so the pool has
// a few large buffers for long requests and more small ones.
//
// A thread that holds a buffer never waits for another one; this rules out deadlock. If a user-space filesystem calls
// the library while its caller holds a buffer and none is free, the pool creates a small one over the limit and
// destroys it on release.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/nt_copy.hpp"
#include "cufile/platform/backoff.hpp"
#include "cufile/platform/condition.hpp"
#include "cufile/platform/numa_affinity.hpp"

namespace cufile
{

inline constexpr unsigned bounce_slabs = 2;         // one is filled while the other is copied
inline constexpr unsigned max_slabs_per_buffer = 4; // of a large buffer, if reads are in flight in all the others
// Room before a slab, so that a read keeps its offset within a file block.
inline constexpr uint64_t slab_slack = 4096;
inline constexpr uint64_t small_slab = 1 << 20, large_slab = 8 << 20;
inline constexpr uint64_t small_buffer = small_slab + 2 * slab_slack; // one slab, or two halves
inline constexpr uint64_t large_buffer = bounce_slabs * (large_slab + slab_slack);
inline constexpr unsigned max_small_buffers = 32, max_large_buffers = 8;

class BounceBuffer
{
public:
	// The calling thread must be in the context. Returns a CUresult.
	static int make(Cuda &cuda, Context context, bool large, std::unique_ptr<BounceBuffer> &out);
	BounceBuffer(Cuda &cuda, Context context, bool large) : cuda_(cuda), context_(context), large_(large) {}
	~BounceBuffer();
	BounceBuffer(const BounceBuffer &) = delete;
	BounceBuffer &operator=(const BounceBuffer &) = delete;

	Context context() const { return context_; }
	bool large() const { return large_; }
	uint64_t bytes() const { return large_ ? large_buffer : small_buffer; }
	Stream stream() const { return stream_; }
	Event event(unsigned slab) const { return events_[slab]; }
	char *memory() const { return memory_; }
	// False if the context was destroyed, which frees its memory; another context may have the same address.
	bool is_valid() const;
	// Without an id is_valid() cannot tell its context from a later one at the same address.
	bool id_known() const { return id_; }
	// Frees nothing through CUDA: the context has been destroyed.
	static void abandon(std::unique_ptr<BounceBuffer> buffer);
	// nullptr until BounceBufferPool::ring() is called.
	std::unique_ptr<Ring> ring;
	bool over_limit = false; // of the pool: destroyed on release
	// One for each of the first threads that read into the memory.
	NtReader nt_readers[8];

private:
	Cuda &cuda_;
	const Context context_;
	const bool large_;
	Stream stream_ = nullptr;
	Event events_[max_slabs_per_buffer]{};
	char *memory_ = nullptr;
	bool pinned_ = false; // else plain memory, which is slower
	uint64_t id_ = 0;     // of the pinned memory; 0: not known
};

class BounceBufferPool
{
public:
	// bytes: limit of pinned memory; one small buffer is always allowed. depth: of each ring.
	BounceBufferPool(Cuda &cuda, System &system, uint64_t bytes, unsigned depth);
	~BounceBufferPool();
	BounceBufferPool(const BounceBufferPool &) = delete;
	BounceBufferPool &operator=(const BounceBufferPool &) = delete;

	// While one lives, the calling thread holds a buffer or works on one.
	class Holder
	{
	public:
		Holder() { count_++; }
		~Holder() { count_--; }
		Holder(const Holder &) = delete;
		Holder &operator=(const Holder &) = delete;
		static bool here() { return count_; }

	private:
		static inline thread_local unsigned count_ = 0;
	};
	// Returns a small buffer if no large one is free. Waits while all are in use, unless the calling thread is a
	// Holder. The calling thread must be in the context. Returns a CUresult.
	int acquire(Context context, bool large, std::unique_ptr<BounceBuffer> &out);
	// True while a stream waits for the calling thread.
	static inline thread_local bool stream_waits = false;
	// broken: a call failed in its context. Broken buffers and buffers without an id are destroyed.
	void release(std::unique_ptr<BounceBuffer> buffer, bool broken);
	unsigned nr_created();
	// Moves the calling thread, a worker, to the CPUs next to the device and its buffers; -1 undoes it.
	void bind_thread(int device) { numa_.bind_thread(device); }
	// 0, or -errno if rings cannot be created now. A kernel without io_uring is not asked again.
	int uring_state();
	// Creates the buffer's ring on the first call. nullptr if rings cannot be created now.
	Ring *ring(BounceBuffer &buffer);

private:
	// Call with lock_ held. Finds an idle buffer or room for a new one. The caller destroys old first.
	bool reserve(Context context, bool large, std::unique_ptr<BounceBuffer> &found,
		     std::unique_ptr<BounceBuffer> &old);
	// Enters the context. Freeing waits for all streams, so if one of them waits for the calling thread another
	// thread frees the buffer.
	void destroy(std::unique_ptr<BounceBuffer> buffer);
	void destroy_now(std::unique_ptr<BounceBuffer> buffer);
	int make_ring(void *memory, uint64_t bytes, std::unique_ptr<Ring> &out);
	void destroy_deferred();

	Cuda &cuda_;
	System &system_;
	NumaAffinity numa_;
	const unsigned max_[2]; // small, large
	const unsigned depth_;
	std::atomic<int> uring_state_{1}; // 0, -errno, or 1: not tried yet
	Backoff uring_backoff_;
	std::mutex lock_; // protects all below
	Condition released_;
	std::vector<std::unique_ptr<BounceBuffer>> idle_[2];  // most recently used last; capacity for all
	std::vector<std::unique_ptr<BounceBuffer>> deferred_; // for other threads to destroy; bounded
	unsigned created_[2]{};
};

} // namespace cufile
