// SPDX-License-Identifier: MIT
#include "cufile/async/batch.hpp"

#include <algorithm>
#include <chrono>

namespace cufile
{

CUfileOpError Batch::begin(unsigned nr, const std::vector<std::weak_ptr<Job>> &jobs)
{
	std::unique_lock guard(lock_);
	if (!nr || nr > capacity_)
		return CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	if (cancelled_)
		ended_.wait(guard, [&] { return !under_way_ || !cancelled_; });
	const size_t taken = cancelled_ ? 0 : under_way_ + events_.size();
	if (nr > capacity_ - std::min<size_t>(capacity_, taken))
		return CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	std::erase_if(jobs_, [](const auto &old) { return old.expired(); });
	jobs_.insert(jobs_.end(), jobs.begin(), jobs.end());
	if (cancelled_)
		events_.clear();
	cancelled_ = false;
	under_way_ += nr;
	return CU_FILE_SUCCESS;
}

void Batch::complete_request(const CUfileIOEvents_t &event)
{
	std::lock_guard guard(lock_);
	events_.push_back(event);
	under_way_--;
	if (events_.size() < wanted_ && under_way_)
		return;
	wanted_ = SIZE_MAX;
	// With the lock held: a caller that waits for the last event may destroy the batch.
	ended_.notify_all();
}

std::vector<std::shared_ptr<Job>> Batch::jobs()
{
	std::vector<std::shared_ptr<Job>> live;
	for (const auto &weak : jobs_)
		if (auto job = weak.lock())
			live.push_back(std::move(job));
	return live;
}

std::vector<std::pair<std::shared_ptr<Job>, size_t>> Batch::cancel()
{
	std::vector<std::shared_ptr<Job>> live;
	{
		std::lock_guard guard(lock_);
		live = jobs();
	}
	std::vector<std::pair<std::shared_ptr<Job>, size_t>> cut;
	cut.reserve(live.size());
	// Must not fail for lack of memory from here on.
	{
		std::lock_guard guard(lock_);
		cancelled_ = true;
	}
	for (auto &job : live) {
		const size_t from = job->cancel();
		if (from < job->nr_requests())
			cut.emplace_back(std::move(job), from);
	}
	return cut;
}

CUfileOpError Batch::fetch(unsigned min, unsigned &nr, int64_t timeout_ns, const std::function<void(Job &)> &help,
			   CUfileIOEvents_t *out)
{
	if (min > nr)
		return CU_FILE_INVALID_VALUE;
	std::unique_lock guard(lock_);
	if (cancelled_ && min) {
		nr = 0;
		return CU_FILE_SUCCESS;
	}
	if (timeout_ns < 0 && under_way_ && min >= under_way_ + events_.size()) {
		auto live = jobs();
		guard.unlock();
		for (const auto &job : live)
			help(*job);
		live.clear(); // the last reference of a job may close files
		guard.lock();
	}
	// Fewer events than min may be left, or another thread may fetch some.
	const auto enough = [&] { return events_.size() >= min || !under_way_; };
	const auto until =
		std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::max<int64_t>(timeout_ns, 0));
	auto status = std::cv_status::no_timeout;
	while (!enough() && status == std::cv_status::no_timeout) {
		wanted_ = std::min<size_t>(wanted_, min);
		if (timeout_ns < 0)
			ended_.wait(guard);
		else
			status = ended_.wait_until(guard, until);
	}
	nr = static_cast<unsigned>(std::min<size_t>(nr, events_.size()));
	std::copy_n(events_.begin(), nr, out);
	events_.erase(events_.begin(), events_.begin() + nr);
	return CU_FILE_SUCCESS;
}

void Batch::drain()
{
	std::unique_lock guard(lock_);
	ended_.wait(guard, [&] { return !under_way_; });
}

} // namespace cufile
