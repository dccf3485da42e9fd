// SPDX-License-Identifier: MIT
//
// What programs that read views into a GPU need: libpeerdma, loaded by dlopen, and the driver's calls of streams.
#pragma once

#include "gpu.hpp"
#include "peerdma.h"

struct Peerdma {
	decltype(&peerdma_view_open) open;
	decltype(&peerdma_view_read) read;
	decltype(&peerdma_view_close) close;

	explicit Peerdma(const char *path)
	{
		void *const self = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!self)
			die(dlerror());
		get(self, open, "peerdma_view_open");
		get(self, read, "peerdma_view_read");
		get(self, close, "peerdma_view_close");
	}
};

struct StreamCuda : Cuda {
	int (*make_stream)(void **, unsigned);
	int (*wait)(void *);
	int (*fill)(unsigned long long, unsigned char, size_t);

	StreamCuda()
	{
		get(driver, make_stream, "cuStreamCreate");
		get(driver, wait, "cuStreamSynchronize");
		get(driver, fill, "cuMemsetD8_v2");
	}
};
