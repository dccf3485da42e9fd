// SPDX-License-Identifier: MIT
#include "lane.hpp"

#include "inside.hpp"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <new>

namespace cufile
{
namespace
{

constexpr size_t most_dead = 16;

} // namespace

int Lane::make(Cuda &cuda, Context context, bool large, std::unique_ptr<Lane> &out)
{
	std::unique_ptr<Lane> lane(new (std::nothrow) Lane(cuda, context, large));
	if (!lane)
		return CUDA_ERROR_OUT_OF_MEMORY;
	int rc = cuda.create_stream(&lane->stream_);
	if (rc) {
		lane->stream_ = nullptr;
		return rc;
	}
	for (Event &event : lane->events_) {
		rc = cuda.create_event(&event);
		if (rc) {
			event = nullptr;
			return rc;
		}
	}
	void *memory = nullptr;
	lane->pinned_ = cuda.alloc_pinned(lane->bytes(), &memory) == 0;
	// The driver stages what is not pinned: slow, but no reason to fail.
	if (!lane->pinned_)
		memory = std::aligned_alloc(4096, lane->bytes());
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lane->memory_ = static_cast<char *>(memory);
	Allocation made;
	if (lane->pinned_ && !cuda.allocation(memory, made))
		lane->id_ = made.id;
	out = std::move(lane);
	return 0;
}

bool Lane::is_there() const
{
	Allocation now;
	return !id_ || (!cuda_.allocation(memory_, now) && now.id == id_);
}

void Lane::forget(std::unique_ptr<Lane> lane)
{
	lane->ring.reset();
	for (Scratch &scratch : lane->scratches)
		scratch = {};
	if (!lane->pinned_)
		std::free(lane->memory_);
	static_cast<void>(lane.release());
}

Lane::~Lane()
{
	ring.reset();
	// After a failure copies may be under way, from and to the slabs.
	if (stream_)
		cuda_.wait_stream(stream_);
	for (Event event : events_)
		if (event)
			cuda_.destroy_event(event);
	if (stream_)
		cuda_.destroy_stream(stream_);
	if (pinned_)
		cuda_.free_pinned(memory_);
	else
		std::free(memory_);
}

// A quarter is for small lanes: what is short is not to wait for what is long.
Lanes::Lanes(Cuda &cuda, System &system, uint64_t bytes, unsigned depth)
	: cuda_(cuda), system_(system), near_(system, cuda),
	  most_{static_cast<unsigned>(std::clamp<uint64_t>(bytes / 4 / small_lane, 1, most_small_lanes)),
		static_cast<unsigned>(std::min<uint64_t>((bytes - bytes / 4) / large_lane, most_large_lanes))},
	  depth_(depth)
{
	for (const bool large : {false, true})
		idle_[large].reserve(most_[large]);
	dead_.reserve(most_dead);
}

Lanes::~Lanes()
{
	for (auto &idle : idle_)
		for (auto &lane : idle)
			destroy_now(std::move(lane));
	bury();
}

void Lanes::destroy(std::unique_ptr<Lane> lane)
{
	if (stream_waits) {
		const std::lock_guard guard(lock_);
		if (dead_.size() < dead_.capacity()) {
			dead_.push_back(std::move(lane));
			return;
		}
	}
	destroy_now(std::move(lane));
}

void Lanes::bury()
{
	for (;;) {
		std::unique_ptr<Lane> lane;
		{
			const std::lock_guard guard(lock_);
			if (dead_.empty())
				return;
			lane = std::move(dead_.back());
			dead_.pop_back();
		}
		destroy_now(std::move(lane));
	}
}

void Lanes::destroy_now(std::unique_ptr<Lane> lane)
{
	Inside inside(cuda_);
	if (!lane->is_there() || inside.enter(lane->context()))
		Lane::forget(std::move(lane));
	lane.reset();
}

bool Lanes::reserve(Context context, bool large, std::unique_ptr<Lane> &found, std::unique_ptr<Lane> &old)
{
	auto &idle = idle_[large];
	for (size_t i = idle.size(); i--;) {
		if (idle[i]->context() != context)
			continue;
		std::unique_ptr<Lane> lane = std::move(idle[i]);
		idle.erase(idle.begin() + static_cast<ptrdiff_t>(i));
		if (lane->is_there()) {
			found = std::move(lane);
			return true;
		}
		Lane::forget(std::move(lane));
		made_[large]--;
	}
	if (made_[large] < most_[large]) {
		made_[large]++;
		return true;
	}
	if (idle.empty())
		return false;
	old = std::move(idle.front());
	idle.erase(idle.begin());
	return true;
}

int Lanes::take(Context context, bool large, std::unique_ptr<Lane> &out)
{
	bool beyond = false;
	std::unique_ptr<Lane> old;
	{
		std::unique_lock guard(lock_);
		if (!dead_.empty() && !stream_waits) {
			old = std::move(dead_.back());
			dead_.pop_back();
			guard.unlock();
			destroy_now(std::move(old));
			guard.lock();
		}
		for (;;) {
			if (large && reserve(context, true, out, old))
				break;
			if (reserve(context, false, out, old)) {
				large = false;
				break;
			}
			if (Holding::here()) {
				beyond = true;
				large = false;
				break;
			}
			given_.wait(guard);
		}
	}
	if (out)
		return 0;
	if (old)
		destroy(std::move(old));
	const Near::Memory here(near_);
	const int rc = Lane::make(cuda_, context, large, out);
	if (!rc)
		out->beyond = beyond;
	if (rc && !beyond) {
		{
			std::lock_guard guard(lock_);
			made_[large]--;
		}
		given_.notify_one();
	}
	return rc;
}

void Lanes::give(std::unique_ptr<Lane> lane, bool broken)
{
	const bool large = lane->large();
	// Memory that is not pinned has no id: the next lane may have pinned memory.
	broken = broken || !lane->id_known();
	if (lane->beyond)
		return destroy(std::move(lane)); // nobody has been waiting for this one
	if (broken)
		destroy(std::move(lane));
	{
		std::lock_guard guard(lock_);
		if (broken)
			made_[large]--;
		else
			idle_[large].push_back(std::move(lane));
	}
	// Whoever wants a lane of another context or size may take this one down; who waits for a small one is not to be
	// left waiting because the one who was told could not use a large one.
	given_.notify_all();
}

int Lanes::make_ring(void *memory, uint64_t bytes, std::unique_ptr<Ring> &out)
{
	const int rc = system_.make_ring(depth_, memory, bytes, out);
	if (rc < 0)
		ring_backoff_.failed(system_.now_ns());
	else
		ring_backoff_.worked();
	rings_ = rc;
	return rc;
}

int Lanes::rings()
{
	const int known = rings_;
	if (!known || known == -ENOSYS || known == -EPERM || (known < 0 && !ring_backoff_.is_due(system_.now_ns())))
		return known;
	std::unique_ptr<Ring> trial;
	return make_ring(nullptr, 0, trial);
}

Ring *Lanes::ring(Lane &lane)
{
	if (rings_ < 0)
		return nullptr;
	if (!lane.ring)
		make_ring(lane.memory(), lane.bytes(), lane.ring);
	return lane.ring.get();
}

unsigned Lanes::made()
{
	std::lock_guard guard(lock_);
	return made_[false] + made_[true];
}

} // namespace cufile
