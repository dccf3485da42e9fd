// SPDX-License-Identifier: MIT
// Setup that a program does before its first I/O, with the library on in-memory dependencies (fake_dependencies.hpp).
#pragma once

#include <gtest/gtest.h>

#include "cufile/api/library.hpp"
#include "fake_dependencies.hpp"
#include "random_bytes.hpp"

/// The library on in-memory dependencies.
struct Fakes {
	FakeSystem system;
	FakeCuda cuda;
	FakePeerdma peerdma;
	cufile::Library library{{system, cuda, peerdma}};
};

inline std::string some_bytes(size_t n)
{
	std::string bytes(n, '\0');
	char *const to = bytes.data(); // not by operator[], which is a call at -O0
	for (size_t i = 0; i < n; i++)
		to[i] = static_cast<char>(i * 7 + i / 251);
	return bytes;
}

inline CUfileDescr_t descr_of(int fd, int type = CU_FILE_HANDLE_TYPE_OPAQUE_FD)
{
	CUfileDescr_t descr = {};
	descr.type = static_cast<CUfileFileHandleType>(type);
	descr.handle.fd = fd;
	return descr;
}

inline CUfileHandle_t register_file(cufile::Library &library, int fd)
{
	const CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t fh = nullptr;
	EXPECT_EQ(library.register_file(&fh, &descr).err, 0);
	return fh;
}

inline CUfileIOParams_t batch_io(CUfileHandle_t fh, void *base, size_t size, off_t from, off_t to = 0,
				 void *cookie = nullptr, int opcode = CUFILE_READ)
{
	CUfileIOParams_t io = {};
	io.mode = CUFILE_BATCH;
	io.opcode = static_cast<CUfileOpcode_t>(opcode);
	io.fh = fh;
	io.cookie = cookie;
	io.u.batch = {base, from, to, size};
	return io;
}

inline void close_all(cufile::Library &library)
{
	while (library.driver.use_count())
		library.driver.close();
}
