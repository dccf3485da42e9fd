// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace peerdma_impl
{

// lseek(2), or -errno.
inline off_t seek_to(int fd, off_t to, int whence)
{
	const off_t at = ::lseek(fd, to, whence);
	return at < 0 ? -errno : at;
}

// A descriptor of the library's. The number is not the file: a program that closes all descriptors closes ours as well,
// and the next file that anybody opens has the number. So each use asks first.
//
// All I/O is at offsets, so the position of a description of our own is free to identify it: no other description of this
// process has the same. All else (a block device, a description that is shared with the program) is identified by device and
// inode.
//
// System: what calls the operating system, Syscalls or a library's own.
struct Descriptor {
	int fd = -1;
	off_t position = -1; // -1: by device and inode
	dev_t device = 0;
	ino_t inode = 0;

	explicit operator bool() const { return fd >= 0; }

	// own: the description is ours alone.
	template <class System> void identify(System &system, bool own)
	{
		struct stat st = {};
		if (system.fstat(fd, st) < 0)
			return;
		device = st.st_dev;
		inode = st.st_ino;
		// lseek() of a block device waits for its buffered reads.
		if (!own || !S_ISREG(st.st_mode))
			return;
		const off_t wanted = next_position();
		if (system.seek(fd, wanted) == wanted)
			position = wanted;
	}

	template <class System> bool is_there(System &system) const
	{
		if (position >= 0)
			return system.position(fd) == position;
		struct stat st = {};
		return system.fstat(fd, st) == 0 && is_of(st);
	}

	// The same file, by whatever description.
	bool is_of(const struct stat &st) const { return st.st_dev == device && st.st_ino == inode; }

	// Closes it, unless the program has.
	template <class System> void close(System &system)
	{
		if (fd >= 0 && is_there(system))
			system.close(fd);
		fd = -1;
	}

private:
	// Twice the same only after 2^30: what is at a small position by chance must not look like ours. Two libraries of one
	// process, each with a count of its own, begin at different places.
	static off_t next_position()
	{
		static std::atomic<uint32_t> count{0};
		constexpr uint32_t odd = 0x9e3779b1, bits = 30;
		const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&count) >> 4);
		return static_cast<off_t>(((place + ++count) * odd) & ((1u << bits) - 1));
	}
};

} // namespace peerdma_impl
