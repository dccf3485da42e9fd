// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "condition.hpp"
#include "job.hpp"

namespace cufile
{

// The requests of a batch and how they ended. Each is told exactly once, however little memory there is: what has begun
// needs none to end. Who cancels and then submits anew is told of the new ones only, and has room for as many as ever: a program
// that takes its cookies again could not tell the old ones from them.
class Batch
{
public:
	explicit Batch(unsigned capacity) : capacity_(capacity) { events_.reserve(capacity); }

	unsigned capacity() const { return capacity_; }
	// So many more, which these jobs hold, or an error. After a cancel what has begun ends first: the new ones may go to the same
	// places.
	CUfileOpError begin(unsigned nr, const std::vector<std::weak_ptr<Job>> &jobs);
	// Of those.
	void finish(const CUfileIOEvents_t &event);
	// Takes back what has not begun. told(cookies of one job, from the index) makes the events.
	std::vector<std::pair<std::shared_ptr<Job>, size_t>> cancel();
	// Up to nr events, and how many, after at least min of them or the deadline (of a clock that is not set; negative: none).
	// CU_FILE_INVALID_VALUE: there are fewer than min to come. Who must wait for all, however long it takes, may as well
	// help with each job first.
	CUfileOpError fetch(unsigned min, unsigned &nr, int64_t timeout_ns, const std::function<void(Job &)> &help,
			    CUfileIOEvents_t *out);
	// Until nothing is under way.
	void drain();

private:
	std::vector<std::shared_ptr<Job>> jobs(); // with lock_

	const unsigned capacity_;
	std::mutex lock_; // protects all below
	Condition ended_;
	size_t wanted_ = SIZE_MAX; // by who waits for the fewest events
	unsigned under_way_ = 0;   // begun and not ended
	bool cancelled_ = false;   // and nothing was begun since
	std::vector<CUfileIOEvents_t> events_;
	std::vector<std::weak_ptr<Job>> jobs_;
};

} // namespace cufile
