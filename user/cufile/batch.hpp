// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "job.hpp"

namespace cufile
{

// The requests of a batch and how they ended. Each is told exactly once.
class Batch
{
public:
	explicit Batch(unsigned capacity) : capacity_(capacity) {}

	// Room for so many more, or an error.
	CUfileOpError reserve(unsigned nr);
	// A job of this batch's that holds so many of the reserved.
	void begin(std::shared_ptr<Job> job);
	// Of reserved ones.
	void finish(const CUfileIOEvents_t &event);
	// Takes back what has not begun. told(cookies of one job, from the index) makes the events.
	std::vector<std::pair<std::shared_ptr<Job>, size_t>> cancel();
	// Up to max events, after at least min of them or the deadline (of a clock that is not set; negative: none).
	// CU_FILE_INVALID_VALUE: there are fewer than min to come. Who must wait for all, however long it takes, may as well
	// help with each job first.
	CUfileOpError fetch(unsigned min, unsigned max, int64_t timeout_ns, const std::function<void(Job &)> &help,
			    std::vector<CUfileIOEvents_t> &out);
	// Until nothing is under way.
	void drain();

private:
	std::vector<std::shared_ptr<Job>> jobs(); // with lock_

	const unsigned capacity_;
	std::mutex lock_; // protects all below
	std::condition_variable ended_;
	size_t wanted_ = SIZE_MAX; // by who waits for the fewest events
	unsigned under_way_ = 0;   // reserved and not ended
	std::deque<CUfileIOEvents_t> events_;
	std::vector<std::weak_ptr<Job>> jobs_;
};

} // namespace cufile
