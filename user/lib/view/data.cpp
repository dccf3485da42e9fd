// SPDX-License-Identifier: MIT
//
// Elements of a view in host memory, in their reduced form.
#include <algorithm>
#include <cerrno>
#include <span>

#include "common/nt_copy.hpp"
#include "lib/view/checked_chunk.hpp"
#include "lib/view/view.hpp"
#include "view/layout.hpp"

using namespace peerdma_impl;

peerdma_view::Bytes peerdma_view::bytes_of(uint64_t first, uint64_t count) const
{
	// first * bits may need more than 64 bits.
	const uint64_t groups = first / view::group_elements, rest = first % view::group_elements * codec.bits;
	const uint64_t from = groups * codec.bits + rest / 8;
	const auto skip = static_cast<unsigned>(rest % 8);
	const uint64_t end = view::packed_bytes(first + count, codec.bits);
	return {data_offset + from, end - from, skip};
}

int peerdma_view::read_bytes(uint64_t offset, uint64_t len, std::byte *to) const
{
	while (len) {
		if (!own.is_there(sys))
			return -EBADF;
		const int64_t n = sys.pread(own.fd, to, len, offset);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n ? static_cast<int>(n) : -ENODATA;
		to += n;
		offset += static_cast<uint64_t>(n);
		len -= static_cast<uint64_t>(n);
	}
	return 0;
}

int peerdma_view::load(uint64_t first, uint64_t count, std::byte *to, Reader reader, Scratch &scratch,
		       CheckedChunk &chunk, struct peerdma_view_result &result) const
{
	const Bytes bytes = bytes_of(first, count);
	int rc = 0;
	if (is_reduced_here()) {
		rc = reduce(first, count, to, reader, scratch, result);
	} else if (is_checked()) {
		rc = chunk.read(*this, bytes.offset - data_offset, bytes.len, to, result);
	} else {
		rc = read_bytes(bytes.offset, bytes.len, to);
		result.read += rc ? 0 : bytes.len;
	}
	result.host = result.read;
	if (rc == -ENODATA)
		result.reason = PEERDMA_REASON_END_OF_FILE;
	return rc;
}

int peerdma_view::try_read(uint64_t offset, uint64_t len) const
{
	std::byte bytes[4096];
	for (uint64_t done = 0; done < len; done += sizeof(bytes))
		if (const int rc = read_bytes(offset + done, std::min<uint64_t>(sizeof(bytes), len - done), bytes);
		    rc < 0)
			return rc;
	return 0;
}

// A block that cannot be read, or a file that has become shorter, is an error here and, without PEERDMA_VIEW_OPEN_MAP's
// guarantee, a signal later.
int peerdma_view::populate(uint64_t offset, uint64_t len) const
{
	for (uint64_t part = offset / populate_bytes; part * populate_bytes < offset + len; part++) {
		if (populated[part].load(std::memory_order_relaxed))
			continue;
		const uint64_t start = part * populate_bytes;
		const int rc = sys.populate(mapping + start, std::min(populate_bytes, mapping_len - start));
		// That is so of a block that cannot be read, too: a read tells them apart.
		if (rc == -EFAULT) {
			const uint64_t from = std::max(offset, start),
				       end = std::min(offset + len, start + populate_bytes);
			const int read = try_read(from, end - from);
			return read ? read : -ENODATA;
		}
		if (rc < 0)
			return rc;
		populated[part].store(true, std::memory_order_relaxed);
	}
	return 0;
}

// Page by page, fetching one ahead: the processor itself stops at a page's end, where no neighbour in memory follows.
uint64_t peerdma_view::reduce_mapped(const std::byte *from, uint64_t count, std::byte *to) const
{
	constexpr size_t page = 4096, ahead = 2 * page, line = 64;
	static_assert(page / sizeof(uint64_t) % view::group_elements == 0);
	const size_t size = codec.element_bytes(), most = page / size;
	const std::byte *const end = mapping + mapping_len;
	for (uint64_t done = 0; done < count; done += most) {
		const std::byte *const here = from + done * size;
		for (size_t at = ahead; at < ahead + page && at < static_cast<size_t>(end - here); at += line)
			__builtin_prefetch(here + at);
		const uint64_t n = std::min<uint64_t>(most, count - done);
		const uint64_t fit = view::reduce(codec, std::span(here, n * size), to + packed_bytes(done));
		if (fit < n)
			return done + fit;
	}
	return count;
}

// By parts that begin with a group of the packed elements.
int peerdma_view::reduce(uint64_t first, uint64_t count, std::byte *to, Reader reader, Scratch &scratch,
			 struct peerdma_view_result &result) const
{
	const size_t size = codec.element_bytes();
	const uint64_t most = reduce_bytes / size;
	static_assert(reduce_bytes / sizeof(uint64_t) % view::group_elements == 0);
	for (uint64_t done = 0; done < count;) {
		const uint64_t here = std::min(most, count - done), offset = (first + done) * size, len = here * size;
		std::byte *const target = to + packed_bytes(done);
		std::byte *const packed = reader == Reader::device ? scratch.packed() : target;
		if (const int rc = mapping ? populate(offset, len) : read_bytes(offset, len, scratch.file()); rc < 0)
			return rc;
		const uint64_t fit = mapping ? reduce_mapped(mapping + offset, here, packed) :
					       view::reduce(codec, std::span(scratch.file(), len), packed);
		result.read += len;
		if (fit < here) {
			result.misfit = first + done + fit;
			return -ERANGE;
		}
		if (packed != target)
			nt_copy(reinterpret_cast<char *>(target), reinterpret_cast<const char *>(packed),
				packed_bytes(here));
		done += here;
	}
	return 0;
}
