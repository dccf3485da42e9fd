// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "common/queue.hpp"

namespace peerdma_impl
{

// Size limits: above the largest file of sysfs or procfs that is read without its own limit, for example /proc/cpuinfo
// of 1000 CPUs; and for files written by people.
constexpr uint64_t file_limit = 8 << 20, written_limit = 1 << 20;

// All calls of the library to the operating system. Virtual, so that its decisions are tested without a device, without
// root, and with faults that a real machine does not produce on demand. All return -errno.
class Syscalls
{
public:
	virtual int open(const char *path, int flags) = 0;
	virtual int close(int fd) = 0;
	virtual int dup(int fd) = 0;
	virtual int ioctl(int fd, unsigned long request, void *arg) = 0;
	// Shared, for reading and writing; *out is written on success only.
	virtual int mmap(int fd, uint64_t offset, uint64_t len, void **out) = 0;
	virtual int munmap(void *addr, uint64_t len) = 0;
	// Of a file from its start on, for reading; *out is written on success only.
	virtual int map_file(int, uint64_t, void **) { return -EOPNOTSUPP; }
	// Reads the pages of such a mapping, where the kernel can: -EFAULT if the file ends before or cannot be read.
	virtual int populate(void *, uint64_t) { return 0; }
	// Copies to memory that may go away: -EFAULT then, where a copy by the CPU would raise SIGBUS.
	virtual int store(void *, const void *, uint64_t) { return -EOPNOTSUPP; }
	virtual int open_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<Queue> &out) = 0;
	virtual int64_t pread(int fd, void *to, uint64_t len, uint64_t offset) = 0;
	virtual int64_t pwrite(int fd, const void *from, uint64_t len, uint64_t offset) = 0;
	virtual int fsync(int fd) = 0;
	// The flags of fcntl(F_GETFL).
	virtual int open_flags(int fd) = 0;
	virtual int fstat(int fd, struct stat &st) = 0;
	// Device, inode and type only; the kernel's does not ask a server (common/descriptor.hpp).
	virtual int identity(int fd, struct stat &st) { return fstat(fd, st); }
	// The position of an open file description. I/O at an offset does not change it.
	virtual off_t seek(int fd, off_t to) = 0;
	virtual off_t position(int fd) = 0;
	virtual int access(const std::string &path, int mode) = 0;
	// Reads a whole file to its end: the sizes that sysfs and procfs report are not those of the contents. Never
	// waits for a writer. After an error @out is empty.
	//   -EISDIR a directory   -ESPIPE a FIFO, a socket or a device, which is not opened   -EFBIG above @most bytes
	virtual int read_bounded(const std::string &path, uint64_t most, std::string &out) = 0;
	int read_file(const std::string &path, std::string &out) { return read_bounded(path, file_limit, out); }
	// One write(2): a sysfs attribute accepts its value whole or not at all.
	virtual int write_file(const std::string &path, std::string_view value) = 0;
	virtual int read_link(const std::string &path, std::string &out) = 0;
	// Bytes, by seeking to the end.
	virtual int64_t size_of(int fd) = 0;
	// A function of a library that the process has loaded; nullptr if it is not there.
	virtual void *function(const char *library, const char *name) = 0;
	virtual int list_dir(const std::string &path, std::vector<std::string> &out) = 0;

protected:
	// Not virtual, and never called through the base. With a virtual destructor the real Syscalls would be
	// destroyed at exit, and a later peerdma_close() would crash.
	~Syscalls() = default;
};

// The implementation that calls the kernel.
Syscalls &kernel_syscalls();

// The text for an error of read_bounded() itself; nullptr if the errno is the system's.
const char *refusal(int rc);

// The implementation in use: the kernel's, except in host tests, which link another definition.
Syscalls &system_calls();

} // namespace peerdma_impl
