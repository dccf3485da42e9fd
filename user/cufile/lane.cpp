// SPDX-License-Identifier: MIT
#include "lane.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace cufile
{

int Lane::make(Cuda &cuda, Context context, std::unique_ptr<Lane> &out)
{
	std::unique_ptr<Lane> lane(new (std::nothrow) Lane(cuda, context));
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
	lane->pinned_ = cuda.alloc_pinned(lane_bytes, &memory) == 0;
	// The driver stages what is not pinned: slow, but no reason to fail.
	if (!lane->pinned_)
		memory = std::aligned_alloc(4096, lane_bytes);
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lane->memory_ = static_cast<char *>(memory);
	out = std::move(lane);
	return 0;
}

Lane::~Lane()
{
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

Lanes::~Lanes()
{
	for (auto &lane : idle_)
		destroy(std::move(lane));
}

void Lanes::destroy(std::unique_ptr<Lane> lane)
{
	bool entered;
	// A context that is gone has taken all of it along.
	if (cuda_.enter(lane->context(), entered)) {
		(void)lane.release();
		return;
	}
	lane.reset();
	if (entered)
		cuda_.leave();
}

int Lanes::take(Context context, std::unique_ptr<Lane> &out)
{
	std::unique_ptr<Lane> old;
	{
		std::unique_lock guard(lock_);
		for (;;) {
			const auto found = std::find_if(idle_.begin(), idle_.end(),
							[&](const auto &lane) { return lane->context() == context; });
			if (found != idle_.end()) {
				out = std::move(*found);
				idle_.erase(found);
				return 0;
			}
			if (made_ < most_)
				break;
			if (!idle_.empty()) {
				old = std::move(idle_.back());
				idle_.pop_back();
				made_--;
				break;
			}
			given_.wait(guard);
		}
		made_++;
	}
	if (old)
		destroy(std::move(old));
	const int rc = Lane::make(cuda_, context, out);
	if (rc) {
		{
			std::lock_guard guard(lock_);
			made_--;
		}
		given_.notify_one();
	}
	return rc;
}

void Lanes::give(std::unique_ptr<Lane> lane, bool broken)
{
	if (broken)
		destroy(std::move(lane));
	{
		std::lock_guard guard(lock_);
		if (broken)
			made_--;
		else
			idle_.push_front(std::move(lane));
	}
	// One is enough: whoever wants a lane of another context may take this one down.
	given_.notify_one();
}

unsigned Lanes::made()
{
	std::lock_guard guard(lock_);
	return made_;
}

} // namespace cufile
