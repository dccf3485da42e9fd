// SPDX-License-Identifier: MIT
// The place of a pointer into a buffer of libpeerdma's.
#pragma once

#include <cstdint>
#include <optional>

#include "peerdma.h"

/// Bytes from the start of the published BAR; nothing if no buffer is there.
inline std::optional<uint64_t> bar_offset(const void *memory)
{
	struct peerdma_buf *buffer = nullptr;
	uint64_t offset = 0;
	struct peerdma_buf_info info = {};
	info.size = sizeof(info);
	if (peerdma_buf_at(memory, &buffer, &offset) || peerdma_buf_query(buffer, &info))
		return std::nullopt;
	return info.bar_offset + offset;
}
