// SPDX-License-Identifier: MIT
//
// Device memory by its address: whose it is, and a dma-buf of it. Each vendor's own library says so, and no header of one is
// needed to build this: what is declared is what their documentation has. A library is asked if the process has loaded it,
// by whatever it is that allocated the memory, and is never loaded here: an address of one that is not there is no address.
#pragma once

#include <cstdint>
#include <functional>

#include "peerdma.h"

namespace peerdma_impl
{

// A function of a library that the process has loaded; nullptr: there is none.
using Find = std::function<void *(const char *library, const char *function)>;

struct Range {
	uint64_t start = 0, len = 0;

	uint64_t end() const { return start + len; }
};

// Range of addresses in units of 64 KiB, from a page on: around what is asked for, and in the allocation. False: there is
// no such.
bool frames_around(const Range &asked, const Range &allocation, uint64_t page, Range &out);

struct Pointer {
	Range asked;
	void *ze_context; // of Level Zero: nullptr: that of its driver
	uint64_t page;    // bytes, of the CPU's
};

struct Handle {
	enum peerdma_memory memory = PEERDMA_MEMORY_UNKNOWN;
	int result = 0;       // of the vendor's call that refused
	int fd = -1;          // the dma-buf
	bool ours = false;    // to be closed: else the vendor's library keeps it
	uint64_t at_most = 0; // bytes that it may have, if it has to be of the allocation alone
	uint64_t off = 0;     // of the range in it
	Range range;          // of addresses, around what was asked for
};

// Returns enum peerdma_reason; out.memory and out.result are written on failure too.
uint32_t dmabuf_of(const Find &find, const Pointer &pointer, Handle &out);

} // namespace peerdma_impl
