// SPDX-License-Identifier: MIT
//
// Recognizes sequential reads of a view and says which chunks to prefetch. Streams are told apart by their offsets: the block
// layer does not say which client a request is of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace viewd
{

// Chunks [begin, end).
struct ChunkRange {
	uint64_t begin = 0, end = 0;
	bool empty() const { return begin >= end; }
	bool operator==(const ChunkRange &) const = default;
};

class ReadAhead
{
public:
	explicit ReadAhead(uint64_t data_bytes) : data_bytes_(data_bytes) {}

	// A read of bytes [begin, end) of the data arrives. Returns what to prefetch: at most `most` chunks behind it.
	ChunkRange on_read(uint64_t begin, uint64_t end, uint64_t most);
	// Streams that were recognized, read from among the last requests and did not reach the end.
	size_t active() const;

private:
	struct Stream {
		uint64_t next = 0;   // byte behind the highest that was read
		uint64_t ahead = 0;  // chunk behind the last one to be prefetched
		uint64_t window = 0; // chunks; 0: not recognized yet, or over
		uint64_t time = 0;   // of the last read; 0: unused
	};
	static constexpr size_t max_streams = 256;
	// Requests of one stream that arrive in another order: how far they lie apart, and how many in a row are one.
	static constexpr uint64_t slack = 2 << 20;
	static constexpr uint64_t recent = max_streams; // requests

	const uint64_t data_bytes_;
	uint64_t time_ = 0;
	std::array<Stream, max_streams> streams_;
};

} // namespace viewd
