// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

// Device, inode and type of an open file. Does not ask the server of a file that is not local: fstat(2) would, and would wait
// for a server that is gone. Returns 0 or -errno.
inline int identity_of(int fd, struct stat &st)
{
	struct statx found = {};
	if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &found) < 0)
		return -errno;
	st = {};
	st.st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
	st.st_ino = found.stx_ino;
	st.st_mode = found.stx_mode;
	return 0;
}

// A descriptor owned by the library. Its number may come to name another file: a program that closes all descriptors
// closes ours too, and the next file to be opened gets the number. Every use therefore checks the descriptor first.
//
// All I/O passes offsets, so the position of an open file description that is ours alone is free. It holds a number
// that no other description of this process has. Other descriptions (a block device, one shared with the program) are
// identified by device and inode.
//
// System: the class that makes the system calls, Syscalls or a library's own.
struct Descriptor {
	int fd = -1;
	off_t position = -1; // -1: identified by device and inode
	dev_t device = 0;
	ino_t inode = 0;

	explicit operator bool() const { return fd >= 0; }

	// own: no other descriptor shares the open file description. Returns 0 or -errno.
	template <class System> int identify(System &system, bool own)
	{
		struct stat st = {};
		if (const int rc = system.identity(fd, st); rc < 0)
			return rc;
		device = st.st_dev;
		inode = st.st_ino;
		// lseek() of a block device waits for its buffered reads.
		if (!own || !S_ISREG(st.st_mode))
			return 0;
		const off_t wanted = next_position();
		if (system.seek(fd, wanted) == wanted)
			position = wanted;
		return 0;
	}

	// The same; closes a descriptor that cannot be identified, which close() would take for another file's.
	template <class System> int identify_or_close(System &system, bool own)
	{
		const int rc = identify(system, own);
		if (rc < 0)
			system.close(std::exchange(fd, -1));
		return rc;
	}

	template <class System> bool is_there(System &system) const
	{
		if (position >= 0)
			return system.position(fd) == position;
		struct stat st = {};
		return system.identity(fd, st) == 0 && is_of(st);
	}

	// The same file, through any open file description.
	bool is_of(const struct stat &st) const { return st.st_dev == device && st.st_ino == inode; }

	// Closes it unless the program already has.
	template <class System> void close(System &system)
	{
		if (fd >= 0 && is_there(system))
			system.close(fd);
		fd = -1;
	}

private:
	// Repeats only after 2^30 numbers. The numbers are spread, so that a small position of another file does not
	// look like ours. Two libraries in one process have separate counts and start at different numbers.
	static off_t next_position()
	{
		static std::atomic<uint32_t> count{0};
		constexpr uint32_t odd = 0x9e3779b1, bits = 30;
		const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&count) >> 4);
		return static_cast<off_t>(((place + ++count) * odd) & ((1u << bits) - 1));
	}
};

} // namespace peerdma_impl
