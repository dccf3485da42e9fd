// SPDX-License-Identifier: MIT
//
// Reads the data of a view by chunks, each of which must have the checksum that the header has for it
// (PEERDMA_VIEW_OPEN_VERIFY).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/view/view.hpp"

namespace peerdma_impl
{

// Of one read of elements, the parts of which follow each other.
class CheckedChunk
{
public:
	// Fills `to` with bytes of the view's data, from `offset` on, and adds what was read for that to result.read. Returns
	// 0 or -errno; -EBADMSG: a checksum is wrong, and result.misfit and out_why say where.
	int read(const struct peerdma_view &view, uint64_t offset, uint64_t len, std::byte *to,
		 struct peerdma_view_result &result);

private:
	static constexpr uint64_t none = UINT64_MAX;

	std::unique_ptr<std::byte[]> memory_; // for a chunk of which a part is needed
	uint64_t held_ = none;                // the chunk that is there
};

} // namespace peerdma_impl
