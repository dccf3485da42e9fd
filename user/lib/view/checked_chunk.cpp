// SPDX-License-Identifier: MIT
#include "lib/view/checked_chunk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include "lib/boundary.hpp"

namespace peerdma_impl
{
namespace
{

// A device may name its files as it likes.
std::string printable(std::string name)
{
	std::ranges::replace_if(
		name, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
	return name;
}

// Which elements are in a chunk, at least in part, and the file that the first is of.
void describe(const struct peerdma_view &view, uint64_t chunk, struct peerdma_view_result &result)
{
	const uint64_t start = chunk * view::sum_bytes;
	const uint64_t end = std::min(start + view::sum_bytes, view.packed_bytes(view.elements));
	// A view has 2^60 bytes at most.
	const uint64_t first = start * 8 / view.codec.bits;
	const uint64_t last = std::min((end * 8 - 1) / view.codec.bits, view.elements - 1);
	uint64_t before = 0;
	std::string file;
	for (const view::FileEntry &entry : view.checks->files) {
		if (first - before < entry.elements) {
			file = ", file '" + printable(entry.name) + "' from its element " +
			       std::to_string(first - before);
			break;
		}
		before += entry.elements;
	}
	const std::string why = "chunk " + std::to_string(chunk) + " does not have its checksum: elements " +
				std::to_string(first) + " to " + std::to_string(last) + file;
	result.misfit = first;
	copy_text(result.out_why, why.data(), why.size());
}

} // namespace

int CheckedChunk::read(const struct peerdma_view &view, uint64_t offset, uint64_t len, std::byte *to,
		       struct peerdma_view_result &result)
{
	const uint64_t all = view.packed_bytes(view.elements);
	while (len) {
		const uint64_t chunk = offset / view::sum_bytes, start = chunk * view::sum_bytes;
		const uint64_t size = std::min(view::sum_bytes, all - start),
			       here = std::min(len, start + size - offset);
		const bool is_whole = here == size;
		if (!is_whole && !memory_)
			memory_.reset(new std::byte[view::sum_bytes]);
		std::byte *const bytes = is_whole ? to : memory_.get();
		if (is_whole || held_ != chunk) {
			if (!is_whole)
				held_ = none;
			if (const int rc = view.read_bytes(view.data_offset + start, size, bytes); rc < 0)
				return rc;
			result.read += size;
			if (view::crc32c({bytes, size}) != view.checks->sums[chunk]) {
				describe(view, chunk, result);
				return -EBADMSG;
			}
			if (!is_whole)
				held_ = chunk;
		}
		if (!is_whole)
			std::memcpy(to, bytes + (offset - start), here);
		to += here;
		offset += here;
		len -= here;
	}
	return 0;
}

} // namespace peerdma_impl
