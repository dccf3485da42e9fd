// SPDX-License-Identifier: MIT
//
// A buffer is what bytes take from a file to the memory of one CUDA context, or back: a stream, and pinned memory that
// whoever has the buffer cuts into slabs. A GPU moves few large copies much faster than many small ones, so there are
// two sizes: large bounce_buffers for what is long, of which there are few, and small ones. Nobody who has a buffer waits for
// anybody who wants one, so nothing hangs: where a file system of the program's own calls us while we have a buffer for
// it, it gets a small one that is over_limit all limits, if there is no other, and that is taken down when it is given back.
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
inline constexpr unsigned max_slabs_per_buffer = 4; // of a large buffer, if reads are under way in all the others
// In front of a slab, so that what begins within a block of the file lies as it does there.
inline constexpr uint64_t slab_slack = 4096;
inline constexpr uint64_t small_slab = 1 << 20, large_slab = 8 << 20;
inline constexpr uint64_t small_buffer = small_slab + 2 * slab_slack; // one slab, or two halves
inline constexpr uint64_t large_buffer = bounce_slabs * (large_slab + slab_slack);
inline constexpr unsigned max_small_buffers = 32, max_large_buffers = 8;

class BounceBuffer
{
public:
	// In the calling thread's context, which is this one. A CUresult.
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
	// Not if its context was destroyed: all of it is gone then, and another context may be where that was.
	bool is_valid() const;
	// Without an id is_valid() cannot tell its context from a later one at the same address.
	bool id_known() const { return id_; }
	// What its context has taken along is forgotten.
	static void abandon(std::unique_ptr<BounceBuffer> buffer);
	// Reads into its memory; nullptr until BounceBufferPool::ring().
	std::unique_ptr<Ring> ring;
	bool over_limit = false; // the limits: it is not kept
	// Of the threads that read into its memory: each has one of its own, or none.
	NtReader nt_readers[8];

private:
	Cuda &cuda_;
	const Context context_;
	const bool large_;
	Stream stream_ = nullptr;
	Event events_[max_slabs_per_buffer]{};
	char *memory_ = nullptr;
	bool pinned_ = false; // else it is plain memory, which works, slower
	uint64_t id_ = 0;     // of the pinned memory; 0: not known
};

class BounceBufferPool
{
public:
	// Not more pinned memory than so many bytes, but for one small buffer. depth: of each ring.
	BounceBufferPool(Cuda &cuda, System &system, uint64_t bytes, unsigned depth);
	~BounceBufferPool();
	BounceBufferPool(const BounceBufferPool &) = delete;
	BounceBufferPool &operator=(const BounceBufferPool &) = delete;

	// The calling thread has a buffer, or moves what is on one.
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
	// A small one if no large one is to be had. Waits while all bounce_buffers are taken, but for who is Holder. The calling
	// thread is in the context. A CUresult.
	int acquire(Context context, bool large, std::unique_ptr<BounceBuffer> &out);
	// What the calling thread does, a stream waits for.
	static inline thread_local bool stream_waits = false;
	// broken: a call failed in its context; it is not used again. Nor is a buffer without an id.
	void release(std::unique_ptr<BounceBuffer> buffer, bool broken);
	unsigned nr_created();
	// The calling thread, which is one of ours, runs next to the device from now on, as its bounce_buffers' memory lies.
	void bind_thread(int device) { numa_.bind_thread(device); }
	// 0, or why there are no rings now: -errno. A kernel that has none is not asked again.
	int uring_state();
	// The buffer's, made when it is first wanted; nullptr: there are no rings now.
	Ring *ring(BounceBuffer &buffer);

private:
	// One that is idle, or room for a new one; old is then to be taken down first. With lock_.
	bool reserve(Context context, bool large, std::unique_ptr<BounceBuffer> &found,
		     std::unique_ptr<BounceBuffer> &old);
	// Destroys a buffer, in its context. Freeing waits for all streams: if one of them waits for the calling thread, it is left to
	// others.
	void destroy(std::unique_ptr<BounceBuffer> buffer);
	void destroy_now(std::unique_ptr<BounceBuffer> buffer);
	int make_ring(void *memory, uint64_t bytes, std::unique_ptr<Ring> &out);
	void destroy_deferred();

	Cuda &cuda_;
	System &system_;
	NumaAffinity numa_;
	const unsigned max_[2]; // small, large
	const unsigned depth_;
	std::atomic<int> uring_state_{1}; // 0, -errno, or 1: nobody has asked
	Backoff uring_backoff_;
	std::mutex lock_; // protects all below
	Condition released_;
	std::vector<std::unique_ptr<BounceBuffer>> idle_[2];  // last used last; with room for all
	std::vector<std::unique_ptr<BounceBuffer>> deferred_; // that are left to others; with room for some
	unsigned created_[2]{};
};

} // namespace cufile
