// SPDX-License-Identifier: MIT
#include "cufile/registry/frame_table.hpp"

#include <algorithm>
#include <cerrno>

namespace cufile
{

FrameRun::~FrameRun()
{
	if (first.buffer)
		frame_table_.peerdma_.release(first.buffer);
	if (charged_)
		frame_table_.pin_quota_->refund(device_, charged_);
	// Last, so that waiting threads find these frames free.
	frame_table_.remove(*this);
}

bool share_a_file(const FrameRun &one, const FrameRun &other)
{
	return one.first.provider == other.first.provider && one.first.device == other.first.device;
}

bool FrameRun::charge(uint64_t bytes)
{
	if (!frame_table_.pin_quota_)
		return true;
	if (!frame_table_.pin_quota_->charge(device_, bytes))
		return false;
	charged_ += bytes;
	return true;
}

// A range that one thread registers or examines.
class FrameTable::Claim
{
public:
	// Waits for other claims and for runs that are being released. found: the runs in the range.
	Claim(FrameTable &frames, uint64_t start, uint64_t end, std::vector<Found> &found) : frame_table_(frames)
	{
		std::unique_lock guard(frame_table_.lock_);
		while (frame_table_.is_claimed(start, end) || !frame_table_.collect(start, end, found)) {
			const uint64_t seen = frame_table_.changes_;
			guard.unlock();
			found.clear(); // may release a run, which takes the lock
			guard.lock();
			frame_table_.changed_.wait(guard, [&] { return frame_table_.changes_ != seen; });
		}
		frame_table_.claims_.emplace_back(range_ = {start, end});
	}
	~Claim()
	{
		const std::lock_guard guard(frame_table_.lock_);
		frame_table_.claims_.erase(std::find(frame_table_.claims_.begin(), frame_table_.claims_.end(), range_));
		frame_table_.changes_++;
		frame_table_.changed_.notify_all();
	}
	Claim(const Claim &) = delete;
	Claim &operator=(const Claim &) = delete;

private:
	FrameTable &frame_table_;
	std::pair<uint64_t, uint64_t> range_;
};

bool FrameTable::is_claimed(uint64_t start, uint64_t end) const
{
	return std::any_of(claims_.begin(), claims_.end(),
			   [&](const auto &claim) { return claim.first < end && start < claim.second; });
}

// False if a run is being released, or has no user and is about to be.
bool FrameTable::collect(uint64_t start, uint64_t end, std::vector<Found> &found)
{
	auto next = entries_.upper_bound(start);
	if (next != entries_.begin())
		--next;
	for (; next != entries_.end() && next->first < end; ++next) {
		if (next->second.end <= start)
			continue;
		found.push_back(
			{{std::max(start, next->first), std::min(end, next->second.end), next->second.run.lock()}, {}});
		for (const auto &user : users_[next->second.which])
			if (auto pieces = user.lock())
				found.back().users.push_back(std::move(pieces));
		if (!found.back().part.run || found.back().users.empty())
			return false;
	}
	return true;
}

void FrameTable::remove_range(uint64_t start, uint64_t end)
{
	auto next = entries_.upper_bound(start);
	if (next != entries_.begin())
		--next;
	while (next != entries_.end() && next->first < end) {
		if (next->second.end <= start) {
			++next;
			continue;
		}
		if (next->second.end > end) {
			entries_.emplace(end, next->second);
			next->second.end = end;
		}
		if (next->first < start) {
			next->second.end = start;
			++next;
		} else {
			next = entries_.erase(next);
		}
	}
}

void FrameTable::add(const std::shared_ptr<FrameRun> &run)
{
	const std::lock_guard guard(lock_);
	users_[run.get()];
	remove_range(run->start, run->end);
	entries_.emplace(run->start, Entry{run->end, run, run.get()});
}

void FrameTable::remove(const FrameRun &run)
{
	const std::lock_guard guard(lock_);
	auto next = entries_.lower_bound(run.start);
	while (next != entries_.end() && next->first < run.end) {
		if (next->second.which == &run)
			next = entries_.erase(next);
		else
			++next;
	}
	users_.erase(&run);
	changes_++;
	changed_.notify_all();
}

void FrameTable::add_users(const std::vector<RunPart> &parts, const std::shared_ptr<const Pieces> &pieces)
{
	const std::lock_guard guard(lock_);
	for (const RunPart &part : parts) {
		auto &all = users_[part.run.get()];
		std::erase_if(all, [](const auto &one) { return one.expired(); });
		all.push_back(pieces);
	}
}

int FrameTable::pin_range(uint64_t start, uint64_t end, uint64_t slack, int device, Source &source,
			  const std::shared_ptr<const Pieces> &pieces, std::vector<RunPart> &out, uint32_t &reason)
{
	std::vector<RunPart> all; // released after the claim if it fails
	std::vector<Found> found;
	const Claim claim(*this, start - std::min(start, slack), end + slack, found);
	uint64_t at = start;
	const auto pin_until = [&](uint64_t until) {
		while (at < until) {
			auto run = std::make_shared<FrameRun>(*this, device);
			const int rc = source.pin(at, until, *run, reason);
			if (rc)
				return rc;
			if (!all.empty() && !share_a_file(*all.back().run, *run))
				return -EXDEV;
			add(run);
			all.push_back({run->start, run->end, run});
			at = run->end;
		}
		return 0;
	};
	for (const auto &[part, users] : found) {
		const RunPart wanted = {std::max(start, part.start), std::min(end, part.end), part.run};
		if (wanted.start >= wanted.end)
			continue;
		if (!peerdma_.is_valid(wanted.run->first) || !source.is_same(wanted, users)) {
			const std::lock_guard guard(lock_);
			remove_range(wanted.start, wanted.end);
			continue;
		}
		const int rc = pin_until(wanted.start);
		if (rc)
			return rc;
		if (!all.empty() && !share_a_file(*all.back().run, *wanted.run))
			return -EXDEV;
		all.push_back(wanted);
		at = std::max(at, wanted.end);
	}
	const int rc = pin_until(end);
	if (rc)
		return rc;
	add_users(all, pieces);
	out = std::move(all);
	return 0;
}

} // namespace cufile
