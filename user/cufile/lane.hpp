// SPDX-License-Identifier: MIT
//
// A lane is what one thread needs to move bytes between files and the memory of one CUDA context: a stream, and pinned
// slabs that take turns, so that the disk fills one while the GPU empties another. Nobody who has a lane waits for
// anybody who wants one, so there may be few of them and nothing hangs.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>

#include "seams.hpp"

namespace cufile
{

inline constexpr unsigned slabs_per_lane = 8;
inline constexpr uint64_t slab_bytes = 512 * 1024;
inline constexpr uint64_t lane_bytes = slabs_per_lane * slab_bytes;
inline constexpr unsigned most_lanes = 32;

class Lane
{
public:
	// In the calling thread's context, which is this one. A CUresult.
	static int make(Cuda &cuda, Context context, std::unique_ptr<Lane> &out);
	Lane(Cuda &cuda, Context context) : cuda_(cuda), context_(context) {}
	~Lane();
	Lane(const Lane &) = delete;
	Lane &operator=(const Lane &) = delete;

	Context context() const { return context_; }
	Stream stream() const { return stream_; }
	Event event(unsigned slab) const { return events_[slab]; }
	char *slab(unsigned slab) const { return memory_ + slab * slab_bytes; }

private:
	Cuda &cuda_;
	const Context context_;
	Stream stream_ = nullptr;
	Event events_[slabs_per_lane]{};
	char *memory_ = nullptr;
	bool pinned_ = false; // else it is plain memory, which works, slower
};

class Lanes
{
public:
	Lanes(Cuda &cuda, unsigned most) : cuda_(cuda), most_(most) {}
	~Lanes();
	Lanes(const Lanes &) = delete;
	Lanes &operator=(const Lanes &) = delete;

	// Waits while all lanes are taken. The calling thread is in the context. A CUresult.
	int take(Context context, std::unique_ptr<Lane> &out);
	// broken: a call failed in its context; it is not used again.
	void give(std::unique_ptr<Lane> lane, bool broken);
	unsigned made();

private:
	// Destroys a lane, in its context.
	void destroy(std::unique_ptr<Lane> lane);

	Cuda &cuda_;
	const unsigned most_;
	std::mutex lock_; // protects all below
	std::condition_variable given_;
	std::list<std::unique_ptr<Lane>> idle_; // last used first
	unsigned made_ = 0;
};

} // namespace cufile
