// SPDX-License-Identifier: MIT
#include "viewd/read_ahead.hpp"

#include <algorithm>

#include "viewd/chunk_cache.hpp"

namespace viewd
{

ChunkRange ReadAhead::on_read(uint64_t begin, uint64_t end, uint64_t most)
{
	constexpr uint64_t chunk = ChunkCache::chunk_size;
	time_++;
	const auto found = std::ranges::find_if(streams_, [&](const Stream &stream) {
		return stream.time && begin + slack >= stream.next && begin <= stream.next + slack;
	});
	if (found == streams_.end()) {
		*std::ranges::min_element(streams_, {}, &Stream::time) = {end, 0, 0, time_};
		return {};
	}
	Stream &stream = *found;
	stream.time = time_;
	// A request is no step forward if it was sent before and came late.
	if (end <= stream.next)
		return {};
	stream.next = end;
	if (end >= data_bytes_) {
		stream = {};
		return {};
	}
	stream.window = std::min(most, stream.window ? stream.window * 2 : 1);
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
