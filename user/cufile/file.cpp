// SPDX-License-Identifier: MIT
#include "file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include <fcntl.h>

namespace cufile
{
namespace
{

// What one system call moves at most (MAX_RW_COUNT), rounded down to any block.
constexpr uint64_t max_call = 0x7ff00000;

// Opens the same file once more. What leads to a descriptor is a link, and a file without a name has none to be made
// under.
int again(System &system, int fd, int flags, int more = 0)
{
	char path[32];
	std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	flags &= O_ACCMODE | O_SYNC | O_DSYNC | O_NOATIME;
	return system.open(path, flags | more | O_CLOEXEC | O_NOCTTY);
}

// A number of bytes, or the most that there are: "max", or no such file.
uint64_t bytes_in(System &system, const std::string &path)
{
	std::string text;
	uint64_t bytes = UINT64_MAX;
	system.read_file(path, text);
	std::from_chars(text.data(), text.data() + text.size(), bytes);
	return bytes;
}

// What the page cache has room for: the machine's memory, or as much of it as the cgroups let this process have.
uint64_t cache_room(System &system)
{
	uint64_t room = UINT64_MAX;
	std::string text;
	system.read_file("/proc/meminfo", text);
	constexpr std::string_view total = "MemTotal:";
	const size_t at = text.find_first_of("0123456789", std::min(text.find(total), text.size()));
	if (at != std::string::npos) {
		std::from_chars(text.data() + at, text.data() + text.size(), room);
		room *= 1024;
	}
	// "0::/path", and each cgroup above it. In a container only its own is seen, as the root.
	system.read_file("/proc/self/cgroup", text);
	const size_t colons = text.find("0::/");
	if (colons == std::string::npos)
		return room;
	std::string path = text.substr(colons + 3, text.find('\n', colons) - colons - 3);
	for (;;) {
		if (path == "/")
			path.clear();
		room = std::min(room, bytes_in(system, "/sys/fs/cgroup" + path + "/memory.max"));
		if (path.empty())
			return room;
		path.resize(path.rfind('/'));
	}
}

// Past the page cache there is nobody who reads ahead.
constexpr uint64_t long_read = 256 * 1024;
// Below it nobody need ask how much memory there is.
constexpr uint64_t least_large = 256 * 1024 * 1024;

} // namespace

CUfileOpError SystemFile::open(System &system, int fd, bool odirect, std::shared_ptr<SystemFile> &out)
{
	const int flags = system.open_flags(fd);
	struct stat st = {};
	if (flags < 0 || system.fstat(fd, st) < 0)
		return CU_FILE_INVALID_VALUE;
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return CU_FILE_INVALID_FILE_TYPE;
	if (flags & (O_APPEND | O_PATH))
		return CU_FILE_INVALID_FILE_OPEN_FLAG;
	auto file = std::make_shared<SystemFile>(system, flags);
	int own = again(system, fd, flags, flags & O_DIRECT);
	if (own < 0) // no /proc, or no right to
		own = file->shared_ = system.dup(fd);
	if (own < 0)
		return CU_FILE_GETNEWFD_FAILED;
	if (flags & O_DIRECT) {
		file->direct_ = own;
	} else {
		file->cached_ = own;
		const bool large = file->readable() && static_cast<uint64_t>(st.st_size) > least_large &&
				   static_cast<uint64_t>(st.st_size) > cache_room(system);
		if (odirect || large)
			file->direct_ = std::max(-1, again(system, own, flags, O_DIRECT));
	}
	file->past_ = file->direct_ >= 0 && (odirect || flags & O_DIRECT);
	if (file->direct_ >= 0)
		system.direct_limits(file->direct_, file->limits_);
	if (file->large() && !file->says_what_is_cached()) {
		system.close(file->direct_);
		file->direct_ = -1;
	}
	out = std::move(file);
	return CU_FILE_SUCCESS;
}

SystemFile::~SystemFile()
{
	if (direct_ >= 0)
		system_.close(direct_);
	if (cached_ >= 0)
		system_.close(cached_);
}

bool SystemFile::readable() const { return (flags_ & O_ACCMODE) != O_WRONLY; }
bool SystemFile::writable() const { return (flags_ & O_ACCMODE) != O_RDONLY; }
bool SystemFile::appends() const
{
	if (shared_ < 0)
		return false;
	const int now = system_.open_flags(shared_);
	return now < 0 || now & O_APPEND;
}

int SystemFile::cached()
{
	const int known = cached_.load(std::memory_order_acquire);
	if (known >= 0)
		return known;
	std::lock_guard guard(lock_);
	if (cached_ < 0) {
		const int fd = again(system_, direct_, flags_);
		if (fd < 0)
			return fd;
		cached_.store(fd, std::memory_order_release);
	}
	return cached_;
}

// Of a file system whose pages lie elsewhere (overlayfs), and to who may not write the file, the kernel says nothing.
bool SystemFile::says_what_is_cached() const
{
	char byte;
	return limits_.memory && limits_.offset && system_.pread(cached_, &byte, 1, 0) == 1 &&
	       system_.pages_cached(cached_, 0, 1) > 0;
}

bool SystemFile::is_past(uint64_t offset, uint64_t size) const
{
	if (past_ || direct_ < 0 || not_past_.load(std::memory_order_relaxed))
		return past_;
	// As it begins so it is.
	constexpr uint64_t most = 1024 * 1024;
	return size >= long_read && system_.pages_cached(cached_, offset, std::min(size, most)) == 0;
}

uint64_t SystemFile::aligned(const void *memory, uint64_t size, uint64_t offset) const
{
	if (!limits_.memory || !limits_.offset)
		return 0;
	if (reinterpret_cast<uintptr_t>(memory) % limits_.memory || offset % limits_.offset)
		return 0;
	return size - size % limits_.offset;
}

template <class Memory, class Call>
int64_t SystemFile::move(bool past, Memory *memory, uint64_t size, uint64_t offset, Call &&call)
{
	uint64_t done = 0;
	while (done < size) {
		const uint64_t straight = past ? aligned(memory + done, size - done, offset + done) : 0;
		const int fd = straight ? direct_ : cached();
		if (fd < 0)
			return done ? static_cast<int64_t>(done) : fd;
		const uint64_t part = std::min(straight ? straight : size - done, max_call);
		const int64_t n = call(fd, memory + done, part, offset + done);
		if (n == -EINTR)
			continue;
		// The program did not ask for this way: what it cannot do the other can.
		if (n < 0 && straight && !past_) {
			not_past_.store(true, std::memory_order_relaxed);
			past = false;
			continue;
		}
		if (n < 0)
			return done ? static_cast<int64_t>(done) : n;
		done += static_cast<uint64_t>(n);
		// Past the page cache a file's last block comes back short: no need to ask once more.
		if (!n || (straight && static_cast<uint64_t>(n) % limits_.offset))
			break;
	}
	return static_cast<int64_t>(done);
}

int64_t SystemFile::read_by(bool past, void *to, uint64_t size, uint64_t offset)
{
	return move(past, static_cast<char *>(to), size, offset,
		    [&](int fd, char *at, uint64_t part, uint64_t from) { return system_.pread(fd, at, part, from); });
}

int64_t SystemFile::read(void *to, uint64_t size, uint64_t offset)
{
	return read_by(is_past(offset, size), to, size, offset);
}

int64_t SystemFile::read_cached(void *to, uint64_t size, uint64_t offset) { return read_by(false, to, size, offset); }

File::Apart SystemFile::apart(uint64_t offset, uint64_t size) const
{
	if (only_self_.load(std::memory_order_relaxed) || !limits_.memory || !limits_.offset)
		return {};
	if (!is_past(offset, size))
		return {.cached = true};
	return {direct_, limits_.memory, limits_.offset};
}

int64_t SystemFile::go_on(void *to, uint64_t size, uint64_t offset, int64_t came)
{
	if (came < 0) {
		const int64_t n = read(to, size, offset);
		// A file system that knows pread() and not all that io_uring does with it.
		if (n > 0 && (came == -EINVAL || came == -EOPNOTSUPP || came == -EFAULT))
			only_self_.store(true, std::memory_order_relaxed);
		return n;
	}
	const auto done = static_cast<uint64_t>(came);
	// As in move(): the end of the file.
	if (done == size || !done || done % limits_.offset)
		return came;
	const int64_t n = read(static_cast<char *>(to) + done, size - done, offset + done);
	return came + std::max<int64_t>(n, 0);
}

int64_t SystemFile::write(const void *from, uint64_t size, uint64_t offset)
{
	return move(
		past_, static_cast<const char *>(from), size, offset,
		[&](int fd, const char *at, uint64_t part, uint64_t to) { return system_.pwrite(fd, at, part, to); });
}

namespace
{

// Such a function may return -errno, or -1 and errno. One that throws is not to take a lane, or the program, with it.
template <class Call> int64_t ask(uint64_t size, Call &&call)
{
	uint64_t done = 0;
	while (done < size) {
		errno = 0;
		ssize_t n;
		try {
			n = call(done);
		} catch (...) {
			n = -CU_FILE_INTERNAL_ERROR;
		}
		if (n < 0) {
			const int64_t error = n != -1 ? n : errno ? -errno : -EIO;
			return done ? static_cast<int64_t>(done) : error;
		}
		if (!n)
			break;
		if (static_cast<uint64_t>(n) > size - done)
			return -EIO;
		done += static_cast<uint64_t>(n);
	}
	return static_cast<int64_t>(done);
}

} // namespace

int64_t UserFile::read(void *to, uint64_t size, uint64_t offset)
{
	return ask(size, [&](uint64_t done) {
		return ops_.read(handle_, static_cast<char *>(to) + done, size - done,
				 static_cast<off_t>(offset + done), nullptr);
	});
}

int64_t UserFile::write(const void *from, uint64_t size, uint64_t offset)
{
	return ask(size, [&](uint64_t done) {
		return ops_.write(handle_, static_cast<const char *>(from) + done, size - done,
				  static_cast<off_t>(offset + done), nullptr);
	});
}

} // namespace cufile
