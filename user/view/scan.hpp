// SPDX-License-Identifier: MIT
//
// The scan before a view is published: whether each element fits, into how many bits, and the CRC of each chunk. It may take
// hours; what it has found so far can be saved, and it goes on from there if no file has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "view/chunk.hpp"
#include "view/codec.hpp"
#include "view/header.hpp"
#include "view/source.hpp"

namespace view
{

// A file is not as it was when the scan began.
struct Changed : std::runtime_error {
	using std::runtime_error::runtime_error;
};

class Scan
{
public:
	// codec: nullopt: the fewest bits that hold each integer. `files` outlives the scan. Throws SourceError.
	Scan(const Sequence &files, std::optional<Codec> codec);

	// Goes on for about as many bytes of the files. Returns whether all is done. Throws SourceError, Misfit or Changed.
	bool advance(uint64_t bytes);

	// How far it is, in elements. Without a codec each element is read twice.
	uint64_t steps_done() const;
	uint64_t steps() const { return files_.elements() * (wanted_ ? 1 : 2); }
	const std::vector<Identity> &identities() const { return identities_; } // of the files, when they were opened
	Header header() const;                                                  // when all is done
	uint64_t least_header_bytes() const;                                    // at any time

	// What it has found so far; and the opposite. resume() returns false if these bytes are not of a scan of the same files, unchanged
	// since, for the same codec; nothing has changed then.
	std::string save() const;
	bool resume(const std::string &saved);

private:
	ElementRange next() const;
	void measure();
	void sum();
	void check_unchanged(size_t begin, size_t end) const; // files
	void check_unchanged(const ElementRange &elements) const;
	void check_after_error(const ElementRange &elements) const;

	const Sequence &files_;
	const std::optional<Codec> wanted_;
	std::vector<Identity> identities_;
	size_t checked_ = 0; // files that were checked in turn
	// The first pass, if the codec is not known:
	uint64_t measured_ = 0; // elements
	unsigned bits_ = 1;     // that they need
	// The second:
	std::optional<Reducer> reducer_; // with codec_
	Reducer::Buffers reducer_buffers_;
	Codec codec_;
	std::vector<uint32_t> sums_; // of the chunks that are done
	std::vector<std::byte> buffer_;
};

} // namespace view
