// SPDX-License-Identifier: MIT
#include "viewd/turns.hpp"

#include <algorithm>
#include <utility>

namespace viewd
{

// With the mutex held.
bool Turns::is_free(uint64_t storage) const
{
	const Clock::time_point now = Clock::now();
	const auto counts = [&](const Taken &turn) { return now - turn.since < patience_; };
	const auto is_of_it = [&](const Taken &turn) { return storage && turn.storage == storage; };
	return std::cmp_less(std::ranges::count_if(taken_, counts), most_) &&
	       std::cmp_less(std::ranges::count_if(taken_, is_of_it), most_);
}

Turn::Turn(Turns &turns, uint64_t storage, const std::atomic<bool> &stop) : turns_(turns), place_(turns.taken_.end())
{
	std::unique_lock lock(turns_.mutex_);
	// One that is late gives back nothing, so time tells.
	while (!stop && !turns_.is_free(storage))
		turns_.given_back_.wait_for(lock, std::chrono::milliseconds(100));
	if (!stop)
		place_ = turns_.taken_.insert(turns_.taken_.end(), {storage, Turns::Clock::now()});
}

Turn::~Turn()
{
	if (!*this)
		return;
	{
		const std::lock_guard lock(turns_.mutex_);
		turns_.taken_.erase(place_);
	}
	turns_.given_back_.notify_all();
}

} // namespace viewd
