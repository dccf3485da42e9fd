// SPDX-License-Identifier: MIT
// Fixture of tests about registered memory: a program with one file and registered memory.
#pragma once

#include "program.hpp"

constexpr size_t frame = 65536;

class Registered : protected Fakes
{
protected:
	explicit Registered(size_t file_size) : bytes(some_bytes(file_size)), fd(system.program_fd(bytes, O_RDWR))
	{
		peerdma.file = bytes;
	}
	int register_memory(const void *base, size_t size) { return library.register_buffer(base, size, 0).err; }
	CUfileHandle_t file()
	{
		if (!fh)
			fh = register_file(library, fd);
		return fh;
	}
	peerdma_cufile_route explain(const void *base, size_t size)
	{
		peerdma_cufile_route route = {};
		EXPECT_EQ(library.router.explain(file(), base, size, 0, 0, route), 0);
		return route;
	}
	uint64_t ios(enum peerdma_cufile_why why)
	{
		peerdma_cufile_counts counts = {};
		library.router.accounting().counts(counts);
		return counts.ios[why];
	}
	// Once the program has closed everything, the library must hold nothing.
	void let_go()
	{
		close_all(library);
		EXPECT_TRUE(peerdma.pinned.empty()) << "memory stays registered";
		EXPECT_EQ(peerdma.open_files, 0) << "a file of libpeerdma's leaked";
		EXPECT_EQ(cuda.pinned, 0) << "pinned memory leaked, or something bounced";
	}

	const std::string bytes;
	int fd;
	CUfileHandle_t fh = nullptr;
	char *memory = nullptr;
};
