// SPDX-License-Identifier: MIT
//
// A lane is what bytes take from a file to the memory of one CUDA context, or back: a stream, and pinned memory that
// whoever has the lane cuts into slabs. A GPU moves few large copies much faster than many small ones, so there are
// two sizes: large lanes for what is long, of which there are few, and small ones. Nobody who has a lane waits for
// anybody who wants one, so nothing hangs: where a file system of the program's own calls us while we have a lane for
// it, it gets a small one that is beyond all limits, if there is no other, and that is taken down when it is given back.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backoff.hpp"
#include "condition.hpp"
#include "near.hpp"
#include "scratch.hpp"

namespace cufile
{

inline constexpr unsigned lane_slabs = 2; // one is filled while the other is copied
inline constexpr unsigned most_slabs = 4; // of a large lane, if reads are under way in all the others
// In front of a slab, so that what begins within a block of the file lies as it does there.
inline constexpr uint64_t slab_slack = 4096;
inline constexpr uint64_t small_slab = 1 << 20, large_slab = 8 << 20;
inline constexpr uint64_t small_lane = small_slab + 2 * slab_slack; // one slab, or two halves
inline constexpr uint64_t large_lane = lane_slabs * (large_slab + slab_slack);
inline constexpr unsigned most_small_lanes = 32, most_large_lanes = 8;

class Lane
{
public:
	// In the calling thread's context, which is this one. A CUresult.
	static int make(Cuda &cuda, Context context, bool large, std::unique_ptr<Lane> &out);
	Lane(Cuda &cuda, Context context, bool large) : cuda_(cuda), context_(context), large_(large) {}
	~Lane();
	Lane(const Lane &) = delete;
	Lane &operator=(const Lane &) = delete;

	Context context() const { return context_; }
	bool large() const { return large_; }
	uint64_t bytes() const { return large_ ? large_lane : small_lane; }
	Stream stream() const { return stream_; }
	Event event(unsigned slab) const { return events_[slab]; }
	char *memory() const { return memory_; }
	// Not if its context was destroyed: all of it is gone then, and another context may be where that was.
	bool is_there() const;
	// Without an id is_there() cannot tell its context from a later one at the same address.
	bool id_known() const { return id_; }
	// What its context has taken along is forgotten.
	static void forget(std::unique_ptr<Lane> lane);
	// Reads into its memory; nullptr until Lanes::ring().
	std::unique_ptr<Ring> ring;
	bool beyond = false; // the limits: it is not kept
	// Of the threads that read into its memory: each has one of its own, or none.
	Scratch scratches[8];

private:
	Cuda &cuda_;
	const Context context_;
	const bool large_;
	Stream stream_ = nullptr;
	Event events_[most_slabs]{};
	char *memory_ = nullptr;
	bool pinned_ = false; // else it is plain memory, which works, slower
	uint64_t id_ = 0;     // of the pinned memory; 0: not known
};

class Lanes
{
public:
	// Not more pinned memory than so many bytes, but for one small lane. depth: of each ring.
	Lanes(Cuda &cuda, System &system, uint64_t bytes, unsigned depth);
	~Lanes();
	Lanes(const Lanes &) = delete;
	Lanes &operator=(const Lanes &) = delete;

	// The calling thread has a lane, or moves what is on one.
	class Holding
	{
	public:
		Holding() { count_++; }
		~Holding() { count_--; }
		Holding(const Holding &) = delete;
		Holding &operator=(const Holding &) = delete;
		static bool here() { return count_; }

	private:
		static inline thread_local unsigned count_ = 0;
	};
	// A small one if no large one is to be had. Waits while all lanes are taken, but for who is Holding. The calling
	// thread is in the context. A CUresult.
	int take(Context context, bool large, std::unique_ptr<Lane> &out);
	// What the calling thread does, a stream waits for.
	static inline thread_local bool stream_waits = false;
	// broken: a call failed in its context; it is not used again. Nor is a lane without an id.
	void give(std::unique_ptr<Lane> lane, bool broken);
	unsigned made();
	// The calling thread, which is one of ours, runs next to the device from now on, as its lanes' memory lies.
	void settle(int device) { near_.settle(device); }
	// 0, or why there are no rings now: -errno. A kernel that has none is not asked again.
	int rings();
	// The lane's, made when it is first wanted; nullptr: there are no rings now.
	Ring *ring(Lane &lane);

private:
	// One that is idle, or room for a new one; old is then to be taken down first. With lock_.
	bool reserve(Context context, bool large, std::unique_ptr<Lane> &found, std::unique_ptr<Lane> &old);
	// Destroys a lane, in its context. Freeing waits for all streams: if one of them waits for the calling thread, it is left to
	// others.
	void destroy(std::unique_ptr<Lane> lane);
	void destroy_now(std::unique_ptr<Lane> lane);
	int make_ring(void *memory, uint64_t bytes, std::unique_ptr<Ring> &out);
	void bury();

	Cuda &cuda_;
	System &system_;
	Near near_;
	const unsigned most_[2]; // small, large
	const unsigned depth_;
	std::atomic<int> rings_{1}; // 0, -errno, or 1: nobody has asked
	Backoff ring_backoff_;
	std::mutex lock_; // protects all below
	Condition given_;
	std::vector<std::unique_ptr<Lane>> idle_[2]; // last used last; with room for all
	std::vector<std::unique_ptr<Lane>> dead_;    // that are left to others; with room for some
	unsigned made_[2]{};
};

} // namespace cufile
