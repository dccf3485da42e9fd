// SPDX-License-Identifier: MIT
#include "cufile/registry/file.hpp"

#include "cufile/platform/backoff.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>

namespace cufile
{
namespace
{

// The most that one system call moves (MAX_RW_COUNT), rounded down to any block size.
constexpr uint64_t max_call = 0x7ff00000;

// Opens the same file again through the /proc link of the descriptor, which also works for unlinked files.
int again(System &system, int fd, int flags, int more = 0)
{
	char path[32];
	std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	flags &= O_ACCMODE | O_SYNC | O_DSYNC | O_NOATIME;
	int rc;
	do
		rc = system.open(path, flags | more | O_CLOEXEC | O_NOCTTY);
	while (rc == -EINTR);
	return rc;
}

// A number of bytes; UINT64_MAX for "max" or a missing file.
uint64_t bytes_in(System &system, const std::string &path)
{
	std::string text;
	uint64_t bytes = UINT64_MAX;
	system.read_file(path, text);
	std::from_chars(text.data(), text.data() + text.size(), bytes);
	return bytes;
}

// Capacity of the page cache: the machine's memory, or this process's limit by cgroups.
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
	// "0::/path", then each parent. In a container its own cgroup appears as the root.
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

// There is no read-ahead past the page cache.
constexpr uint64_t long_read = 256 * 1024;
// Below this size the amount of memory does not matter.
constexpr uint64_t least_large = 256 * 1024 * 1024;

} // namespace

int SystemFile::reopen(int fd, int more, Descriptor &out)
{
	const int own = again(system_, fd, flags_, more);
	if (own < 0)
		return own;
	out.fd = own;
	return out.identify_or_close(system_, true);
}

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
	file->bypass_cache_ = flags & O_DIRECT;
	Descriptor &main = file->bypass_cache_ ? file->direct_ : file->cached_;
	int rc = file->reopen(fd, flags & O_DIRECT, main);
	if (rc < 0 && !is_shortage(rc)) { // no /proc, or no permission
		rc = main.fd = system.dup(fd);
		file->shared_ = true;
		if (rc >= 0)
			rc = main.identify_or_close(system, false);
	}
	if (rc < 0)
		return CU_FILE_GETNEWFD_FAILED;
	// Another thread may have closed the program's descriptor and opened another file by its number.
	if (main.device != st.st_dev || main.inode != st.st_ino)
		return CU_FILE_INVALID_VALUE;
	// Open all descriptors now: an I/O that met a shortage of them midway could not report its progress.
	if (file->bypass_cache_)
		rc = file->reopen(main.fd, 0, file->cached_);
	else if (!file->shared_ && (odirect || file->is_large(st)))
		rc = file->reopen(main.fd, O_DIRECT, file->direct_);
	if (is_shortage(rc))
		return CU_FILE_GETNEWFD_FAILED;
	file->bypass_cache_ = file->direct_ && (odirect || flags & O_DIRECT);
	if (file->direct_)
		system.direct_limits(file->direct_.fd, file->limits_);
	out = std::move(file);
	return CU_FILE_SUCCESS;
}

SystemFile::~SystemFile()
{
	direct_.close(system_);
	cached_.close(system_);
}

bool SystemFile::readable() const { return (flags_ & O_ACCMODE) != O_WRONLY; }
bool SystemFile::writable() const { return (flags_ & O_ACCMODE) != O_RDONLY; }

int64_t SystemFile::check_write(uint64_t offset, uint64_t size) const
{
	if (shared_) {
		const int now = system_.open_flags(main().fd);
		if (now < 0 || now & O_APPEND)
			return -CU_FILE_INVALID_FILE_OPEN_FLAG;
	}
	// Partial blocks would need a read-modify-write, which overwrites concurrent writes of others.
	return !cached_ && size && (offset | size) % block() ? -EINVAL : 0;
}

// False if the kernel does not report what is cached: without direct I/O, on a filesystem with pages elsewhere
// (overlayfs), and if the process may not write the file.
bool SystemFile::is_large(const struct stat &st) const
{
	const auto size = static_cast<uint64_t>(st.st_size);
	return readable() && size > least_large && size > cache_room(system_) && says_what_is_cached();
}

bool SystemFile::says_what_is_cached() const
{
	DirectLimits limits;
	char byte;
	system_.direct_limits(cached_.fd, limits);
	return limits.memory && limits.offset && system_.pread(cached_.fd, &byte, 1, 0) == 1 &&
	       system_.pages_cached(cached_.fd, 0, 1) > 0;
}

bool SystemFile::bypasses_cache(uint64_t offset, uint64_t size) const
{
	if (bypass_cache_ || !direct_ || direct_refused_.load(std::memory_order_relaxed))
		return bypass_cache_;
	// The beginning stands for the whole range.
	constexpr uint64_t most = 1024 * 1024;
	return size >= long_read && system_.pages_cached(cached_.fd, offset, std::min(size, most)) == 0;
}

uint64_t SystemFile::whole_blocks_len(const void *memory, uint64_t size, uint64_t offset) const
{
	if (!limits_.memory || !limits_.offset)
		return 0;
	if (reinterpret_cast<uintptr_t>(memory) % limits_.memory || offset % limits_.offset)
		return 0;
	return size - size % limits_.offset;
}

namespace
{

// Memory aligned for direct I/O.
class Blocks
{
public:
	explicit Blocks(uint64_t bytes) : memory_(static_cast<char *>(std::aligned_alloc(65536, bytes))) {}
	~Blocks() { std::free(memory_); }
	Blocks(const Blocks &) = delete;
	Blocks &operator=(const Blocks &) = delete;
	char *get() const { return memory_; }

private:
	char *const memory_;
};

constexpr uint64_t blocks_bytes = 128 * 1024; // a multiple of any block

} // namespace

int64_t SystemFile::read_blocks(void *to, uint64_t size, uint64_t offset)
{
	const uint64_t skip = offset % block(), part = std::min(size, blocks_bytes - skip);
	const uint64_t whole = (skip + part + block() - 1) / block() * block();
	const Blocks blocks(blocks_bytes);
	if (!blocks.get())
		return -ENOMEM;
	const int64_t n = system_.pread(direct_.fd, blocks.get(), whole, offset - skip);
	if (n <= static_cast<int64_t>(skip))
		return std::min<int64_t>(n, 0);
	return system_.copy(to, blocks.get() + skip, std::min(static_cast<uint64_t>(n) - skip, part));
}

// From unaligned memory to whole blocks of the file.
int64_t SystemFile::write_blocks(const void *from, uint64_t size, uint64_t offset)
{
	const uint64_t part = std::min(size, blocks_bytes);
	if ((offset | part) % block())
		return -EINVAL;
	const Blocks blocks(blocks_bytes);
	if (!blocks.get())
		return -ENOMEM;
	const int64_t n = system_.copy(blocks.get(), from, part);
	return n < 0 ? n : system_.pwrite(direct_.fd, blocks.get(), part, offset);
}

template <bool write, class Memory, class Call, class Blocks>
int64_t SystemFile::transfer_all(bool past, Memory *memory, uint64_t size, uint64_t offset, Call &&call,
				 Blocks &&blocks)
{
	uint64_t done = 0;
	while (done < size) {
		const uint64_t straight = past ? whole_blocks_len(memory + done, size - done, offset + done) : 0;
		const Descriptor &by = straight || !cached_ ? direct_ : cached_;
		const uint64_t part = std::min(straight ? straight : size - done, max_call);
		const int64_t n = !by.is_there(system_) ? -EBADF :
				  straight || cached_   ? call(by.fd, memory + done, part, offset + done) :
							  blocks(memory + done, part, offset + done);
		if (n == -EINTR)
			continue;
		// The program did not ask for direct I/O: fall back to the page cache.
		if (n < 0 && straight && !bypass_cache_) {
			if (n == -EINVAL || n == -EOPNOTSUPP)
				direct_refused_.store(true, std::memory_order_relaxed);
			past = false;
			continue;
		}
		if (n < 0)
			return result_after_error(write, done, n);
		// A short count need not be the end of file; only 0 of a read is.
		if (!n && write)
			return -EIO;
		if (!n)
			break;
		done += static_cast<uint64_t>(n);
	}
	return static_cast<int64_t>(done);
}

int64_t SystemFile::read_by(bool past, void *to, uint64_t size, uint64_t offset)
{
	return transfer_all<false>(
		past, static_cast<char *>(to), size, offset,
		[&](int fd, char *at, uint64_t part, uint64_t from) { return system_.pread(fd, at, part, from); },
		[&](char *at, uint64_t part, uint64_t from) { return read_blocks(at, part, from); });
}

int64_t SystemFile::read(void *to, uint64_t size, uint64_t offset)
{
	return read_by(bypasses_cache(offset, size), to, size, offset);
}

int64_t SystemFile::read_cached(void *to, uint64_t size, uint64_t offset) { return read_by(false, to, size, offset); }

File::UringTarget SystemFile::uring_target(uint64_t offset, uint64_t size) const
{
	if (no_uring_.load(std::memory_order_relaxed) || !limits_.memory || !limits_.offset)
		return {};
	if (!bypasses_cache(offset, size))
		return {.cached = true};
	if (!direct_.is_there(system_))
		return {}; // read() reports it
	return {direct_.fd, limits_.memory, limits_.offset};
}

int64_t SystemFile::finish_short_read(void *to, uint64_t size, uint64_t offset, int64_t came)
{
	if (came < 0) {
		const int64_t n = read(to, size, offset);
		// The filesystem supports pread() but not all of what io_uring does with it.
		if (n > 0 && (came == -EINVAL || came == -EOPNOTSUPP || came == -EFAULT))
			no_uring_.store(true, std::memory_order_relaxed);
		return n;
	}
	const auto done = static_cast<uint64_t>(came);
	// End of file, as in transfer_all().
	if (done == size || !done)
		return came;
	const int64_t n = read(static_cast<char *>(to) + done, size - done, offset + done);
	return n < 0 ? n : came + n;
}

int64_t SystemFile::write(const void *from, uint64_t size, uint64_t offset)
{
	return transfer_all<true>(
		bypass_cache_, static_cast<const char *>(from), size, offset,
		[&](int fd, const char *at, uint64_t part, uint64_t to) { return system_.pwrite(fd, at, part, to); },
		[&](const char *at, uint64_t part, uint64_t to) { return write_blocks(at, part, to); });
}

namespace
{

constexpr ssize_t largest_error = 5999; // errno or CUfileOpError

// The function may return -errno, or -1 and set errno. It may throw, which must not leak a buffer or end the program.
template <class Call> int64_t ask(bool write, uint64_t size, Call &&call)
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
		if (n == -1 && errno)
			n = -errno;
		// A write that moves nothing is an error: writes have no end of file.
		if (n == -1 || n < -largest_error || (write && !n))
			n = -EIO;
		if (n < 0)
			return result_after_error(write, done, n);
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
	return ask(false, size, [&](uint64_t done) {
		return ops_.read(handle_, static_cast<char *>(to) + done, size - done,
				 static_cast<off_t>(offset + done), nullptr);
	});
}

int64_t UserFile::write(const void *from, uint64_t size, uint64_t offset)
{
	return ask(true, size, [&](uint64_t done) {
		return ops_.write(handle_, static_cast<const char *>(from) + done, size - done,
				  static_cast<off_t>(offset + done), nullptr);
	});
}

} // namespace cufile
