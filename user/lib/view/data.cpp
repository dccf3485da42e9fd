// SPDX-License-Identifier: MIT
//
// Elements of a view in host memory, in their reduced form.
#include <algorithm>
#include <cerrno>
#include <span>

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

int peerdma_view::load(uint64_t first, uint64_t count, std::byte *to, Scratch &scratch, uint64_t &read,
		       uint64_t &misfit) const
{
	if (is_reduced_here())
		return reduce(first, count, to, scratch, read, misfit);
	const Bytes bytes = bytes_of(first, count);
	const int rc = read_bytes(bytes.offset, bytes.len, to);
	read += rc ? 0 : bytes.len;
	return rc;
}

// By parts that begin with a group of the packed elements.
int peerdma_view::reduce(uint64_t first, uint64_t count, std::byte *to, Scratch &scratch, uint64_t &read,
			 uint64_t &misfit) const
{
	const size_t size = codec.element_bytes();
	const uint64_t most = reduce_bytes / size;
	static_assert(reduce_bytes / sizeof(uint64_t) % view::group_elements == 0);
	for (uint64_t done = 0; done < count;) {
		const uint64_t here = std::min(most, count - done), offset = (first + done) * size, len = here * size;
		const std::byte *from = mapping ? mapping + offset : scratch.get();
		// A block that cannot be read, or a file that has become shorter, is an error here and, without
		// PEERDMA_VIEW_OPEN_MAP's guarantee, a signal later.
		const int rc = mapping ? sys.populate(mapping + offset, len) : read_bytes(offset, len, scratch.get());
		if (rc < 0)
			return rc == -EFAULT ? -ENODATA : rc;
		const uint64_t fit = view::reduce(codec, std::span(from, len), to + packed_bytes(done));
		read += len;
		if (fit < here) {
			misfit = first + done + fit;
			return -ERANGE;
		}
		done += here;
	}
	return 0;
}
