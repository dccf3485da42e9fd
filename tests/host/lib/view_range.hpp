// SPDX-License-Identifier: MIT
//
// What a test reads of a view.
#pragma once

#include <cstdint>

#include "peerdma.hpp"

inline peerdma_view_read_args range(void *to, uint64_t first, uint64_t count, uint32_t as = PEERDMA_VIEW_AS_FILE)
{
	auto full = peerdma::detail::sized<peerdma_view_read_args>();
	full.to = to;
	full.first = first;
	full.count = count;
	full.as = as;
	return full;
}
