// SPDX-License-Identifier: MIT
#include "viewd/read_ahead.hpp"

#include <algorithm>
#include <utility>

#include "viewd/chunk_cache.hpp"

namespace viewd
{

ChunkRange ReadAhead::on_read(uint64_t begin, uint64_t end, uint64_t most)
{
	constexpr uint64_t chunk = ChunkCache::chunk_size;
	time_++;
	// The one that it follows most closely. One that is over takes the last reads of its pass that come late, and no others.
	const auto distance = [&](const Stream &one) { return std::max(one.next, begin) - std::min(one.next, begin); };
	const auto rank = [&](const Stream &one) { return std::pair(one.next >= data_bytes_, distance(one)); };
	Stream *found = nullptr;
	for (Stream &one : streams_)
		if (one.time && distance(one) <= slack && (!found || rank(one) < rank(*found)))
			found = &one;
	if (!found) {
		*std::ranges::min_element(streams_, {}, &Stream::time) = {end, 0, 0, time_};
		return {};
	}
	Stream &stream = *found;
	stream.time = time_;
	// A request is no step forward if it was sent before and came late.
	if (end <= stream.next)
		return {};
	const bool is_next_chunk = end / chunk > stream.next / chunk;
	stream.next = end;
	if (end >= data_bytes_) {
		stream.window = 0;
		return {};
	}
	if (!stream.window)
		stream.window = 1;
	else if (is_next_chunk)
		stream.window *= 2;
	stream.window = std::min(most, stream.window);
	const uint64_t behind = (end + chunk - 1) / chunk, chunks = (data_bytes_ + chunk - 1) / chunk;
	const ChunkRange range = {std::max(behind, stream.ahead), std::min(behind + stream.window, chunks)};
	if (range.empty())
		return {};
	stream.ahead = range.end;
	return range;
}

size_t ReadAhead::active() const
{
	return static_cast<size_t>(std::ranges::count_if(
		streams_, [this](const Stream &stream) { return stream.window && stream.time + recent > time_; }));
}

} // namespace viewd
