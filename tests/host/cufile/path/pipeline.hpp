// SPDX-License-Identifier: MIT
// The library with device memory that it reaches through bounce buffers alone, and I/O with lengths around each boundary.
#pragma once

#include <string>
#include <utility>

#include "program.hpp"

constexpr size_t mib = 1 << 20, room = 9 * mib;

/// An I/O of `size` bytes, from this offset of what it reads to that of what it writes.
struct Shape {
	size_t size, from, to;
};

class Pipeline : protected Fakes
{
protected:
	explicit Pipeline(std::string device)
	{
		cuda.present = true;
		cuda.device = std::move(device);
	}
	~Pipeline()
	{
		close_all(library);
		EXPECT_EQ(cuda.pinned, 0) << "pinned memory leaked";
		EXPECT_EQ(system.rings.live, 0u) << "a ring leaked";
	}
	// little: the pool has one small buffer.
	void configure(size_t threads, bool little)
	{
		const size_t one = 4, count = 1;
		EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, threads).err, 0);
		if (little) {
			EXPECT_EQ(library.driver.set_slabs(cufile::posix_pool, &one, &count, 1).err, 0);
		}
	}
};
