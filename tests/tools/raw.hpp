// SPDX-License-Identifier: MIT
// The plain ABI for test programs, without a library.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uapi/peerdma.h"

namespace raw
{

[[noreturn]] inline void die(const std::string &what)
{
	std::fprintf(stderr, "%s: %m\n", what.c_str());
	std::exit(1);
}

/// Writes to a file of the kernel.
inline void put(const std::string &path, const std::string &what)
{
	std::ofstream out(path);
	out << what << std::flush;
	if (!out.good())
		die(path);
}

inline int open_file(const std::string &path, int flags = O_RDWR)
{
	const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

inline int open_device() { return open_file("/dev/peerdma"); }

/// The ioctl's result: 0 or -errno.
template <typename T> int call(int dev, unsigned long cmd, T &arg) { return ::ioctl(dev, cmd, &arg) ? -errno : 0; }

template <typename T> T sized()
{
	T arg{};
	arg.size = sizeof(arg);
	return arg;
}

/// The n-th provider, from 0.
inline peerdma_provider_query provider(int dev, int n = 0)
{
	auto query = sized<peerdma_provider_query>();
	do {
		query.provider_id = query.out_provider_id + 1;
		if (call(dev, PEERDMA_PROVIDER_QUERY, query))
			die("no provider");
	} while (n--);
	return query;
}

inline peerdma_buf_alloc alloc(int dev, uint32_t provider_id, uint64_t len, uint32_t flags = 0)
{
	auto req = sized<peerdma_buf_alloc>();
	req.flags = flags;
	req.provider_id = provider_id;
	req.len = len;
	errno = -call(dev, PEERDMA_BUF_ALLOC, req);
	return req;
}

/// A buffer of the first provider.
inline peerdma_buf_alloc buffer(int dev, uint64_t len)
{
	const auto buf = alloc(dev, provider(dev).out_provider_id, len);
	if (!buf.out_buf_id)
		die("buffer");
	return buf;
}

/// Maps bytes of a buffer; offset counts from the start of the device node.
inline char *map(int dev, uint64_t offset, uint64_t len, int prot = PROT_READ | PROT_WRITE)
{
	void *at = ::mmap(nullptr, len, prot, MAP_SHARED, dev, off_t(offset));
	if (at == MAP_FAILED)
		die("mmap");
	return static_cast<char *>(at);
}

/// Maps the whole buffer.
inline char *map(int dev, const peerdma_buf_alloc &buf, int prot = PROT_READ | PROT_WRITE)
{
	return map(dev, buf.out_mmap_offset, buf.len, prot);
}

inline int destroy(int dev, uint32_t id)
{
	auto req = sized<peerdma_destroy>();
	req.id = id;
	return call(dev, PEERDMA_DESTROY, req);
}

/// Registers the file and returns its id for PEERDMA_IO_FILE_ID; 0 and errno on failure.
inline uint32_t add_file(int dev, int fd)
{
	auto req = sized<peerdma_file_add>();
	req.fd = fd;
	errno = -call(dev, PEERDMA_FILE_ADD, req);
	return req.out_file_id;
}

inline peerdma_io io(int fd, uint32_t buf_id, uint64_t file_off, uint64_t buf_off, uint64_t len)
{
	auto req = sized<peerdma_io>();
	req.fd = fd;
	req.buf_id = buf_id;
	req.file_off = file_off;
	req.buf_off = buf_off;
	req.len = len;
	return req;
}

/// FAR_DISK names a drive reached by soft-RoCE: the CPU copies, and plain system calls cannot use a GPU's pages.
inline bool by_software() { return std::getenv("FAR_DISK"); }

/// The bytes that the module did not copy.
inline uint64_t straight(const peerdma_io &done) { return by_software() ? done.out_host : done.out_direct; }

} // namespace raw
