// SPDX-License-Identifier: MIT
#include "cufile/path/nt_copy.hpp"

#include <algorithm>

#include "common/nt_copy.hpp"

namespace cufile
{

int64_t NtReader::read(File &file, char *to, uint64_t size, uint64_t offset, Share share)
{
	constexpr uint64_t least = 32 * 1024;
	if (!peerdma_impl::has_nt_copy || share == Share::none || size < least || !file.copied())
		return file.read(to, size, offset);
	if (!memory_)
		memory_.reset(static_cast<char *>(std::aligned_alloc(4096, bytes)));
	if (!memory_)
		return file.read(to, size, offset);
	uint64_t done = 0;
	bool by_it = true;
	while (done < size) {
		const uint64_t part = std::min(size - done, bytes);
		const int64_t n = file.read(by_it ? memory_.get() : to + done, part, offset + done);
		if (n < 0)
			return n;
		if (by_it)
			peerdma_impl::nt_copy(to + done, memory_.get(), static_cast<uint64_t>(n));
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < part)
			break;
		by_it = share == Share::all || !by_it;
	}
	return static_cast<int64_t>(done);
}

} // namespace cufile
