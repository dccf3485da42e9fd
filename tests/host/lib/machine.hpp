// SPDX-License-Identifier: MIT
// Fixture of libpeerdma's tests: a machine in memory with one provider, and what a test opens on it.
#pragma once

#include <gtest/gtest.h>

#include "fake_syscalls.hpp"
#include "peerdma.hpp"

// Provider 1 is 1 MiB at 0000:01:00.0. What the test has opened is closed at its end, and nothing may be left then.
class Machine : public ::testing::Test
{
protected:
	Machine() { sys.add_provider(0, 0x0100, 2, 0, 1 << 20); }
	~Machine() override
	{
		peerdma_buf_destroy(buf);
		peerdma_file_close(file);
		peerdma_close(device);
		EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
		EXPECT_TRUE(sys.file_ids.empty()) << "a registered file leaked";
		EXPECT_TRUE(sys.buffers.empty()) << "a buffer leaked";
		EXPECT_TRUE(sys.mappings.empty()) << "a mapping leaked";
	}

	FakeSyscalls sys;
	struct peerdma_device *device = nullptr;
	struct peerdma_file *file = nullptr;
	struct peerdma_buf *buf = nullptr;
};
