// SPDX-License-Identifier: MIT
//
// The ranges of a view that will be read, in this order, as somebody has said beforehand; how far the reads are in them; and which
// chunks to prefetch for those that come next.
//
// Reads need not come exactly in order. One that is of the plan but further than others moves the position on too: what was left out by
// then is not waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "view/protocol.hpp"

namespace viewd
{

class Plan
{
public:
	// Bytes [begin, end) of the data, at least one.
	struct Range {
		uint64_t begin = 0, end = 0;
		bool operator==(const Range &) const = default;
	};
	static constexpr size_t max_ranges = view::max_planned_ranges; // 16 MiB

	explicit Plan(std::vector<Range> ranges);

	// A read of bytes [begin, end) of the data arrives. Returns whether it is of what comes next; one of no bytes is not.
	bool on_read(uint64_t begin, uint64_t end);
	// The next chunk to prefetch, if there are fewer than `most` that this has returned and that were not read yet, beside one that is
	// being read.
	std::optional<uint64_t> next(uint64_t most);

	size_t length() const { return ranges_.size(); }
	size_t position() const { return upcoming_.empty() ? length() : upcoming_.front().range; } // ranges before it
	bool is_done() const { return upcoming_.empty(); }

private:
	// The part of a range that is in one chunk.
	struct Part {
		size_t range;
		uint64_t chunk;
		uint64_t end; // byte of the data
		bool begun = false;
		uint64_t read = 0; // which read has read it, counted from 1; 0: none yet
	};
	// How many parts are looked at for a read; and how many that were not read may lie before one that was.
	static constexpr size_t looked_at = 256, out_of_order = 32;

	void fill();
	bool is_same_chunk(size_t i) const;

	const std::vector<Range> ranges_;
	std::deque<Part> upcoming_; // from the position on
	size_t ahead_ = 0;          // of upcoming_ that were prefetched
	size_t next_range_ = 0;     // the first part that is not in upcoming_
	uint64_t next_begin_ = 0;
	uint64_t reads_ = 0;
};

} // namespace viewd
