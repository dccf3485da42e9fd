// SPDX-License-Identifier: MIT
#include "common/syscalls.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/descriptor.hpp"

namespace peerdma_impl
{
namespace
{

int check(int rc) { return rc < 0 ? -errno : rc; }

// 0 if read_bounded() may read it, else -errno.
int readable(const struct stat &st, uint64_t most)
{
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
	return static_cast<uint64_t>(st.st_size) > most ? -EFBIG : 0;
}

constexpr int madvise_populate_read = 22; // MADV_POPULATE_READ of Linux 5.14
constexpr uint64_t pipe_bytes = 65536;

class KernelSyscalls final : public Syscalls
{
public:
	constexpr KernelSyscalls() = default;

	// 0600: for O_TMPFILE only. 3: as in dup().
	int open(const char *path, int flags) override
	{
		const int fd = check(::open(path, flags, 0600));
		if (fd < 0 || fd >= 3)
			return fd;
		const int other = dup(fd);
		::close(fd);
		return other;
	}
	int close(int fd) override { return check(::close(fd)); }
	// 3: a program that closed its standard streams must not get our descriptor in their place.
	int dup(int fd) override { return check(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }
	int ioctl(int fd, unsigned long request, void *arg) override { return check(::ioctl(fd, request, arg)); }
	int mmap(int fd, uint64_t offset, uint64_t len, void **out) override
	{
		void *addr = ::mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
		if (addr == MAP_FAILED)
			return -errno;
		*out = addr;
		return 0;
	}
	int munmap(void *addr, uint64_t len) override { return check(::munmap(addr, len)); }
	int map_file(int fd, uint64_t len, void **out) override
	{
		void *addr = ::mmap(nullptr, len, PROT_READ, MAP_SHARED, fd, 0);
		if (addr == MAP_FAILED)
			return -errno;
		*out = addr;
		return 0;
	}
	int populate(void *addr, uint64_t len) override
	{
		const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
		const uintptr_t start = reinterpret_cast<uintptr_t>(addr) / page * page;
		const size_t all = reinterpret_cast<uintptr_t>(addr) + len - start;
		// Kernels before 5.14 do not know it.
		if (::madvise(reinterpret_cast<void *>(start), all, madvise_populate_read) < 0 && errno != EINVAL)
			return -errno;
		return 0;
	}
	// The kernel copies, through a pipe.
	int store(void *to, const void *from, uint64_t len) override
	{
		int ends[2];
		// The user may be allowed small pipes only: O_NONBLOCK writes as much as there is room for.
		if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
			return -errno;
		int rc = 0;
		for (int &end : ends)
			rc = std::min(rc, move_up(end));
		auto *at = static_cast<char *>(to);
		const auto *source = static_cast<const char *>(from);
		while (!rc && len) {
			const ssize_t in = ::write(ends[1], source, std::min<uint64_t>(len, pipe_bytes));
			for (ssize_t out = 0; in > 0 && !rc && out < in;) {
				const ssize_t n = ::read(ends[0], at + out, static_cast<size_t>(in - out));
				rc = n < 0 ? -errno : 0;
				out += n;
			}
			rc = in < 0 ? -errno : rc;
			at += in;
			source += in;
			len -= rc ? 0 : static_cast<uint64_t>(in);
		}
		for (const int end : ends)
			::close(end);
		return rc;
	}
	int open_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<Queue> &out) override
	{
		return kernel_queue(dev, depth, one_thread, out);
	}
	int64_t pread(int fd, void *to, uint64_t len, uint64_t offset) override
	{
		ssize_t n = ::pread(fd, to, len, static_cast<off_t>(offset));
		return n < 0 ? -errno : n;
	}
	int64_t pwrite(int fd, const void *from, uint64_t len, uint64_t offset) override
	{
		ssize_t n = ::pwrite(fd, from, len, static_cast<off_t>(offset));
		return n < 0 ? -errno : n;
	}
	int fsync(int fd) override { return check(::fsync(fd)); }
	int open_flags(int fd) override { return check(::fcntl(fd, F_GETFL)); }
	int fstat(int fd, struct stat &st) override { return check(::fstat(fd, &st)); }
	int identity(int fd, struct stat &st) override { return identity_of(fd, st); }
	off_t seek(int fd, off_t to) override { return seek_to(fd, to, SEEK_SET); }
	off_t position(int fd) override { return seek_to(fd, 0, SEEK_CUR); }
	int access(const std::string &path, int mode) override { return check(::access(path.c_str(), mode)); }

	int read_bounded(const std::string &path, uint64_t most, std::string &out) override
	{
		out.clear();
		struct stat st = {};
		// Checked before opening: opening alone starts some devices, for example a watchdog.
		int rc = check(::stat(path.c_str(), &st));
		rc = rc < 0 ? rc : readable(st, most);
		if (rc < 0)
			return rc;
		// O_NONBLOCK: the file may have been replaced by a FIFO, and some files of procfs wait for data.
		const int fd = check(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
		if (fd < 0)
			return fd;
		rc = check(::fstat(fd, &st));
		rc = rc < 0 ? rc : readable(st, most);
		char chunk[4096];
		while (rc >= 0 && (rc = check(static_cast<int>(::read(fd, chunk, sizeof(chunk))))) != 0) {
			if (rc > 0)
				out.append(chunk, static_cast<size_t>(rc));
			if (out.size() > most)
				rc = -EFBIG;
			else if (rc == -EINTR)
				rc = 0;
		}
		::close(fd);
		if (rc < 0)
			out.clear();
		return rc;
	}

	int write_file(const std::string &path, std::string_view value) override
	{
		int fd = check(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
		if (fd < 0)
			return fd;
		int rc = check(static_cast<int>(::write(fd, value.data(), value.size())));
		::close(fd);
		return rc < 0 ? rc : 0;
	}

	int read_link(const std::string &path, std::string &out) override
	{
		char target[4096];
		ssize_t n = ::readlink(path.c_str(), target, sizeof(target));
		if (n < 0)
			return -errno;
		out.assign(target, static_cast<size_t>(n));
		return 0;
	}

	int64_t size_of(int fd) override { return seek_to(fd, 0, SEEK_END); }

	// Does not keep a reference: the process has memory of this library, so it stays loaded.
	void *function(const char *library, const char *name) override
	{
		void *const loaded = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
		void *const found = loaded ? ::dlsym(loaded, name) : nullptr;
		if (loaded)
			::dlclose(loaded);
		return found;
	}

	int list_dir(const std::string &path, std::vector<std::string> &out) override
	{
		out.clear();
		DIR *dir = ::opendir(path.c_str());
		if (!dir)
			return -errno;
		while (const dirent *entry = ::readdir(dir)) {
			std::string_view name = entry->d_name;
			if (name != "." && name != "..")
				out.emplace_back(name);
		}
		::closedir(dir);
		std::sort(out.begin(), out.end());
		return 0;
	}

private:
	// 3: as in dup(). Returns 0 or -errno; the descriptor is open in both cases.
	int move_up(int &fd)
	{
		const int other = fd < 3 ? dup(fd) : fd;
		if (other >= 0 && other != fd)
			::close(std::exchange(fd, other));
		return std::min(other, 0);
	}
};

// constinit: the library has no static constructors, so static constructors of other libraries may use it.
constinit KernelSyscalls the_kernel_syscalls;

} // namespace

Syscalls &kernel_syscalls() { return the_kernel_syscalls; }

const char *refusal(int rc)
{
	switch (rc) {
	case -EISDIR:
		return "it is a directory";
	case -ESPIPE:
		return "it is not a regular file";
	case -EFBIG:
		return "it is too large";
	}
	return nullptr;
}

} // namespace peerdma_impl
