// SPDX-License-Identifier: MIT
#include "view/crc32c.hpp"

#include <algorithm>
#include <climits>

#include <isa-l/crc.h>

namespace view
{

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before)
{
	uint32_t crc = ~before;
	// The library counts in int.
	while (!bytes.empty()) {
		const size_t here = std::min<size_t>(bytes.size(), INT_MAX);
		// It does not write; its type is of before const.
		crc = crc32_iscsi(reinterpret_cast<unsigned char *>(const_cast<std::byte *>(bytes.data())),
				  static_cast<int>(here), crc);
		bytes = bytes.subspan(here);
	}
	return ~crc;
}

} // namespace view
