// SPDX-License-Identifier: MIT
#include "view/chunk.hpp"

#include <cstring>

#include <fmt/format.h>

#include "view/layout.hpp"

namespace view
{

namespace
{

// File elements that are read and reduced at once. They fit into the second-level cache.
constexpr uint64_t piece_elements = 1 << 15;
// File elements that are fetched at once.
constexpr uint64_t fetched_elements = 16 * piece_elements;
static_assert(2 * piece_elements * sizeof(int64_t) <= Reducer::most_buffer_bytes);
static_assert(piece_elements % group_elements == 0);

} // namespace

ElementRange elements_of(const Codec &codec, uint64_t count, uint64_t begin, uint64_t end)
{
	// A group of reduced elements takes as many bytes as an element has bits. Chunks begin and end within groups.
	const uint64_t end_group = (end + codec.bits - 1) / codec.bits;
	return {begin / codec.bits * group_elements, std::min(end_group * group_elements, count)};
}

void Reducer::reduce_chunk(uint64_t chunk, std::byte *to, Buffers &buffers) const
{
	const uint64_t begin = chunk * sum_bytes, end = begin + chunk_bytes(chunk);
	const ElementRange all = elements_of(codec_, from_.elements(), begin, end);
	const auto fetch = [&](uint64_t first) {
		if (first < all.end)
			from_.will_read(first, std::min(fetched_elements, all.end - first));
	};
	fetch(all.first);
	for (uint64_t first = all.first; first < all.end; first += piece_elements) {
		if ((first - all.first) % fetched_elements == 0)
			fetch(first + fetched_elements);
		reduce_piece(first, std::min(piece_elements, all.end - first), buffers);
		const uint64_t at = first / group_elements * codec_.bits; // of the data
		const uint64_t from = std::max(at, begin), until = std::min(at + buffers.groups.size(), end);
		std::memcpy(to + (from - begin), buffers.groups.data() + (from - at), until - from);
	}
}

void Reducer::reduce_piece(uint64_t first, uint64_t count, Buffers &buffers) const
{
	buffers.file.resize(count * codec_.element_bytes());
	buffers.groups.resize(codec_.reduced_bytes(count));
	from_.read(first, buffers.file);
	const uint64_t reduced = reduce(codec_, buffers.file, buffers.groups.data());
	if (reduced == count)
		return;
	const Sequence::Place at = from_.place(first + reduced);
	throw Misfit(fmt::format("{}: element {} is {}, which does not fit into {}", from_.files()[at.file]->name(),
				 at.element, value_text(codec_.element, buffers.file, reduced), codec_.name()),
		     at);
}

} // namespace view
