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
	// A read in stream order. The library has pointers to all of it until the stream gets there.
	struct StreamRead {
		size_t size;
		off_t from = 0, to = 0;
		ssize_t result = 0;
	};
	int submit(void *base, StreamRead &io)
	{
		return library.streams.submit(file(), base, &io.size, &io.from, &io.to, &io.result, nullptr, false).err;
	}
	void run_stream()
	{
		for (const auto &io : cuda.in_stream)
			io.call(io.arg);
	}
	// Reads so much three times into registered memory, as one batch.
	void read_by_batch(size_t size)
	{
		CUfileBatchHandle_t batch = nullptr;
		ASSERT_EQ(library.create_batch(&batch, 3).err, 0);
		CUfileIOParams_t parts[3];
		for (unsigned i = 0; i < 3; i++)
			parts[i] = batch_io(file(), memory, size, i * size, i * size);
		ASSERT_EQ(library.batches.submit(batch, 3, parts).err, 0);
		CUfileIOEvents_t events[3];
		unsigned n = 3;
		ASSERT_EQ(library.batches.status(batch, 3, &n, events, nullptr).err, 0);
		EXPECT_EQ(n, 3u);
		EXPECT_EQ(bytes.compare(0, 3 * size, memory, 3 * size), 0);
		library.batches.destroy(batch);
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
