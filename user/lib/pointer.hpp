// SPDX-License-Identifier: MIT
//
// Makes a dma-buf of device memory given by its address. Each vendor's own library tells whether the memory is its own
// and exports it. The library is asked only if the process has loaded it; nothing here loads one. Building needs no
// vendor header: the declarations follow the vendors' documentation.
#pragma once

#include <cstdint>
#include <functional>

#include "peerdma.h"

namespace peerdma_impl
{

// A function of a library that the process has loaded; nullptr if it is not loaded or has no such function.
using Find = std::function<void *(const char *library, const char *function)>;

struct Range {
	uint64_t start = 0, len = 0;

	uint64_t end() const { return start + len; }
};

// The range that contains asked and lies in the allocation. It begins at a page and is whole units of 64 KiB long.
// False if there is no such range.
bool frames_around(const Range &asked, const Range &allocation, uint64_t page, Range &out);

struct Pointer {
	Range asked;
	void *ze_context; // Level Zero only; nullptr: the driver's default context
	uint64_t page;    // bytes, of a CPU page
};

struct Handle {
	enum peerdma_memory memory = PEERDMA_MEMORY_UNKNOWN;
	int result = 0;       // of the vendor's call that failed
	int fd = -1;          // the dma-buf
	bool ours = false;    // we close it; otherwise the vendor's library keeps it
	uint64_t at_most = 0; // maximum bytes of the dma-buf if it covers only the allocation; 0: any
	uint64_t off = 0;     // of the range in the dma-buf
	Range range;          // of addresses, around the requested range
};

// Returns enum peerdma_reason; out.memory and out.result are written on failure too.
uint32_t dmabuf_of(const Find &find, const Pointer &pointer, Handle &out);

} // namespace peerdma_impl
