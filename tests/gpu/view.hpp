// SPDX-License-Identifier: MIT
//
// What programs that read views into a GPU need: libpeerdma, loaded by dlopen, and the driver's calls of streams.
#pragma once

#include "gpu.hpp"
#include "peerdma.h"

struct Peerdma {
	void *const self;
	decltype(&peerdma_view_open) open = find_in(self, "peerdma_view_open");
	decltype(&peerdma_view_read) read = find_in(self, "peerdma_view_read");
	decltype(&peerdma_view_close) close = find_in(self, "peerdma_view_close");

	explicit Peerdma(const char *path) : self(load(path, RTLD_LOCAL)) {}
};

struct StreamCuda : Cuda {
	int (*make_stream)(void **, unsigned) = find("cuStreamCreate");
	int (*wait)(void *) = find("cuStreamSynchronize");
	int (*fill)(unsigned long long, unsigned char, size_t) = find("cuMemsetD8_v2");
	// In the order of a stream.
	int (*call_later)(void *, void (*)(void *), void *) = find("cuLaunchHostFunc");
	int (*fill_later)(unsigned long long, unsigned char, size_t, void *) = find("cuMemsetD8Async");
	int (*copy_later)(unsigned long long, unsigned long long, size_t, void *) = find("cuMemcpyDtoDAsync_v2");
};
