// SPDX-License-Identifier: MIT
//
// The data of a view by chunks, for each of which the header has a CRC.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "view/codec.hpp"
#include "view/header.hpp"
#include "view/source.hpp"

namespace view
{

// An element that a view's codec cannot hold.
struct Misfit : std::runtime_error {
	Misfit(const std::string &what, Sequence::Place at) : std::runtime_error(what), place(at) {}
	Sequence::Place place;
};

// Elements [first, end), of which the first begins with a group.
struct ElementRange {
	uint64_t first, end;
};

// The elements of `count` that hold bytes [begin, end) of a view's data.
ElementRange elements_of(const Codec &codec, uint64_t count, uint64_t begin, uint64_t end);

// Reduces chunks. Several threads may use it, each with buffers of its own.
class Reducer
{
public:
	static constexpr uint64_t most_buffer_bytes = 512 << 10;
	// They grow to most_buffer_bytes together.
	struct Buffers {
		std::vector<std::byte> file, groups;
	};

	Reducer(Codec codec, const Sequence &from)
		: codec_(codec), from_(from), data_bytes_(codec.reduced_bytes(from.elements()))
	{
	}

	uint64_t data_bytes() const { return data_bytes_; }
	// The bytes of a chunk: all of the last one that there are.
	uint64_t chunk_bytes(uint64_t chunk) const { return std::min(sum_bytes, data_bytes_ - chunk * sum_bytes); }
	// Writes chunk_bytes() of `to`. Throws SourceError or Misfit.
	void reduce_chunk(uint64_t chunk, std::byte *to, Buffers &buffers) const;

private:
	// Reduces file elements that begin with a group into buffers.groups.
	void reduce_piece(uint64_t first, uint64_t count, Buffers &buffers) const;

	const Codec codec_;
	const Sequence &from_;
	const uint64_t data_bytes_;
};

} // namespace view
