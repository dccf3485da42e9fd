// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace cli
{

// A histogram of request latencies in ns. 64 buckets per power of two: a percentile is at most 1/64 too large, for any
// number of requests. The maximum is exact.
class Latencies
{
public:
	void add(uint64_t ns)
	{
		buckets_[index_of(ns)]++;
		count_++;
		max_ = std::max(max_, ns);
	}
	void add(const Latencies &others)
	{
		for (size_t i = 0; i < buckets_.size(); i++)
			buckets_[i] += others.buckets_[i];
		count_ += others.count_;
		max_ = std::max(max_, others.max_);
	}

	uint64_t count() const { return count_; }
	uint64_t max() const { return max_; }
	// The latency that this percentage of the requests did not exceed; 0 if there were no requests.
	uint64_t percentile(double percent) const
	{
		const auto want = static_cast<uint64_t>(std::ceil(static_cast<double>(count_) * percent / 100));
		uint64_t seen = 0;
		for (size_t i = 0; i < buckets_.size() && count_; i++)
			if ((seen += buckets_[i]) >= want && seen)
				return std::min(last_of(i), max_);
		return max_;
	}

private:
	static constexpr unsigned bits = 6;
	static constexpr uint64_t each = 1u << bits;

	// Below 2 * 64 each value has its own bucket.
	static size_t index_of(uint64_t ns)
	{
		const unsigned width = static_cast<unsigned>(std::bit_width(ns));
		const unsigned shift = width > bits + 1 ? width - bits - 1 : 0;
		return shift * each + (ns >> shift);
	}
	static uint64_t last_of(size_t index)
	{
		const uint64_t shift = index < 2 * each ? 0 : index / each - 1;
		return ((index - shift * each + 1) << shift) - 1;
	}

	std::array<uint64_t, (64 - bits) *each + each> buckets_ = {};
	uint64_t count_ = 0, max_ = 0;
};

} // namespace cli
