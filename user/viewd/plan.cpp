// SPDX-License-Identifier: MIT
#include "viewd/plan.hpp"

#include <algorithm>
#include <utility>

#include "viewd/chunk_cache.hpp"

namespace viewd
{

Plan::Plan(std::vector<Range> ranges) : ranges_(std::move(ranges))
{
	next_begin_ = ranges_.empty() ? 0 : ranges_[0].begin;
	fill();
}

void Plan::fill()
{
	while (upcoming_.size() < looked_at && next_range_ < ranges_.size()) {
		const uint64_t chunk = next_begin_ / ChunkCache::chunk_size;
		const uint64_t end = std::min(ranges_[next_range_].end, (chunk + 1) * ChunkCache::chunk_size);
		upcoming_.push_back({next_range_, chunk, end});
		next_begin_ = end;
		if (end == ranges_[next_range_].end && ++next_range_ < ranges_.size())
			next_begin_ = ranges_[next_range_].begin;
	}
}

bool Plan::on_read(uint64_t begin, uint64_t end)
{
	if (begin == end)
		return false;
	// A part counts as read with its last byte. One that the plan has twice is read twice.
	const auto holds = [&](const Part &part) {
		return begin / ChunkCache::chunk_size == part.chunk && begin < part.end;
	};
	const auto begun = std::ranges::find_if(upcoming_, [&](const Part &part) { return !part.read && holds(part); });
	if (begun != upcoming_.end())
		begun->begun = true;
	reads_++;
	size_t behind = 0; // the last one that was read
	for (size_t i = 0; i < upcoming_.size(); i++) {
		Part &part = upcoming_[i];
		if (part.read || part.end <= begin || part.end > end)
			continue;
		const bool is_again =
			std::any_of(upcoming_.begin(), upcoming_.begin() + static_cast<long>(i),
				    [&](const Part &other) { return other.end == part.end && other.read == reads_; });
		if (is_again)
			continue;
		part.read = reads_;
		behind = i + 1;
	}
	const bool is_part = behind || std::ranges::any_of(upcoming_, holds);
	size_t passed = behind > out_of_order ? behind - out_of_order : 0;
	while (passed < upcoming_.size() && upcoming_[passed].read)
		passed++;
	upcoming_.erase(upcoming_.begin(), upcoming_.begin() + static_cast<long>(passed));
	ahead_ -= std::min(ahead_, passed);
	fill();
	return is_part;
}

// Parts of one chunk, one after the other, are one to prefetch.
bool Plan::is_same_chunk(size_t i) const { return i && upcoming_[i - 1].chunk == upcoming_[i].chunk; }

std::optional<uint64_t> Plan::next(uint64_t most)
{
	uint64_t unread = 0;
	bool is_being_read = false;
	for (size_t i = 0; i < ahead_; i++) {
		unread += !upcoming_[i].read && !is_same_chunk(i);
		is_being_read |= upcoming_[i].begun && !upcoming_[i].read;
	}
	while (most && ahead_ < upcoming_.size() && unread < most + is_being_read) {
		const Part &part = upcoming_[ahead_++];
		if (!part.read && !is_same_chunk(ahead_ - 1))
			return part.chunk;
	}
	return std::nullopt;
}

} // namespace viewd
