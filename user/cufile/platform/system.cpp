// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cufile/platform/descriptor.hpp"
#include "cufile/platform/numa_affinity.hpp"
#include "cufile/platform/real_dependencies.hpp"

namespace cufile
{
namespace
{

constexpr size_t max_file = 16 << 20; // bytes; a list of mounts may be long

template <class Result> Result check(Result rc) { return rc < 0 ? -errno : rc; }

// Turns SIGPIPE of a write to a pipe without a reader into an error. A signal that was pending before stays pending.
class WithoutPipeSignal
{
public:
	WithoutPipeSignal()
	{
		sigset_t pending;
		sigemptyset(&pipe_);
		sigaddset(&pipe_, SIGPIPE);
		sigemptyset(&pending);
		sigpending(&pending);
		ours_ = !sigismember(&pending, SIGPIPE);
		if (ours_)
			pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
	}
	~WithoutPipeSignal()
	{
		if (ours_)
			pthread_sigmask(SIG_SETMASK, &before_, nullptr);
	}
	WithoutPipeSignal(const WithoutPipeSignal &) = delete;
	WithoutPipeSignal &operator=(const WithoutPipeSignal &) = delete;

	// Consumes the signal that a write has raised.
	void take()
	{
		constexpr struct timespec now = {};
		while (ours_ && ::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR)
			continue;
	}

private:
	sigset_t pipe_{}, before_{};
	bool ours_;
};

class RealSystem final : public System
{
public:
	constexpr RealSystem() = default;

	int open(const char *path, int flags) override { return high(check(::open(path, flags))); }
	int close(int fd) override { return check(::close(fd)); }
	int dup(int fd) override { return check(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }
	int ask_module(int fd) override
	{
		struct peerdma_info info = {};
		info.size = sizeof(info);
		const int rc = check(::ioctl(fd, PEERDMA_INFO, &info));
		return !rc && info.out_abi != PEERDMA_ABI_VERSION ? -EPROTONOSUPPORT : rc;
	}
	int open_flags(int fd) override { return check(::fcntl(fd, F_GETFL)); }
	int fstat(int fd, struct stat &st) override { return check(::fstat(fd, &st)); }
	int identity(int fd, struct stat &st) override { return peerdma_impl::identity_of(fd, st); }
	off_t seek(int fd, off_t to) override { return peerdma_impl::seek_to(fd, to, SEEK_SET); }
	off_t position(int fd) override { return peerdma_impl::seek_to(fd, 0, SEEK_CUR); }
	// Marks by the description's owner, which gets its signals. Files only send those of leases, which go to the
	// process by default.
	bool mark(int fd) override
	{
		struct f_owner_ex owner = {};
		if (::fcntl(fd, F_GETOWN_EX, &owner) < 0)
			return false;
		if (owner.pid)
			return owner.type == F_OWNER_PID && owner.pid == ::getpid();
		owner = {F_OWNER_PID, ::getpid()};
		::fcntl(fd, F_SETOWN_EX, &owner);
		return false;
	}
	int64_t copy(void *to, const void *from, uint64_t size) override
	{
		const struct iovec here = {to, size}, there = {const_cast<void *>(from), size};
		const ssize_t n = ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0);
		return n < 0 ? -errno : static_cast<uint64_t>(n) < size ? -EFAULT : n;
	}

	int direct_limits(int fd, DirectLimits &limits) override
	{
		// Older headers lack the members, older kernels the answer; the default suits every disk. The struct is
		// 256 bytes in the ABI, the members are at 0x98 and 0x9c.
		constexpr unsigned dioalign = 0x2000;
		alignas(8) char answer[256] = {};
		limits = {4096, 4096};
		if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, dioalign, answer) < 0)
			return 0;
		const auto word = [&](size_t at) {
			uint32_t value;
			__builtin_memcpy(&value, answer + at, sizeof(value));
			return value;
		};
		if (word(0) & dioalign)
			limits = {word(0x98), word(0x9c)};
		return 0;
	}

	int64_t pages_cached(int fd, uint64_t offset, uint64_t size) override
	{
		// cachestat(2) of Linux 6.5; older headers lack it.
		constexpr long number = 451;
		const uint64_t range[2] = {offset, size};
		uint64_t answer[5] = {};
		return ::syscall(number, fd, range, answer, 0) < 0 ? -errno : static_cast<int64_t>(answer[0]);
	}

	int64_t pread(int fd, void *to, uint64_t size, uint64_t offset) override
	{
		return check(::pread(fd, to, size, static_cast<off_t>(offset)));
	}
	int64_t pwrite(int fd, const void *from, uint64_t size, uint64_t offset) override
	{
		return check(::pwrite(fd, from, size, static_cast<off_t>(offset)));
	}

	int make_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out) override
	{
		return kernel_ring(depth, memory, bytes, out);
	}

	int read_file(const std::string &path, std::string &out) override
	{
		out.clear();
		// Never blocks on a FIFO or on a kernel file that waits for an event.
		const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		if (fd < 0)
			return fd;
		struct stat st;
		int rc = fstat(fd, st);
		if (rc == 0 && !S_ISREG(st.st_mode))
			rc = -EINVAL;
		char chunk[4096];
		while (rc >= 0 && (rc = check(static_cast<int>(::read(fd, chunk, sizeof(chunk))))) != 0) {
			if (rc > 0)
				out.append(chunk, static_cast<size_t>(rc));
			if (out.size() > max_file)
				rc = -EFBIG;
			if (rc == -EINTR)
				rc = 0;
		}
		::close(fd);
		return rc;
	}

	int write_file(const std::string &path, std::string_view text) override
	{
		struct stat st = {}, link;
		int rc = check(::stat(path.c_str(), &st));
		const bool there = rc == 0;
		// The rename would replace a dangling link.
		if (!there && ::lstat(path.c_str(), &link) == 0)
			return rc;
		if (there && !S_ISREG(st.st_mode))
			return -EINVAL;
		if (there && ::access(path.c_str(), W_OK) < 0)
			return -errno;
		// The draft is beside the file, not beside a link to it.
		char resolved[PATH_MAX];
		const std::string target = ::realpath(path.c_str(), resolved) ? resolved : path;
		std::string draft;
		int fd = -EEXIST;
		for (unsigned i = 0; fd == -EEXIST; i++) {
			draft = target + ".peerdma-" + std::to_string(::getpid()) + '-' + std::to_string(i);
			fd = high(check(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
		}
		if (fd < 0)
			return fd;
		rc = there ? check(::fchmod(fd, st.st_mode & 0777)) : 0;
		if (rc == 0)
			rc = append(fd, text);
		const int closed = close(fd);
		if (rc == 0)
			rc = closed < 0 ? closed : rename(draft, target);
		if (rc < 0)
			::unlink(draft.c_str());
		return rc;
	}
	int read_link(const std::string &path, std::string &out) override
	{
		char target[4096];
		const int rc = check(static_cast<int>(::readlink(path.c_str(), target, sizeof(target))));
		out.assign(target, rc > 0 ? static_cast<size_t>(rc) : 0);
		return rc < 0 ? rc : 0;
	}
	int list(const std::string &path, std::vector<std::string> &names) override
	{
		const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *const folder = fd < 0 ? nullptr : ::fdopendir(fd);
		if (!folder) {
			const int rc = fd < 0 ? fd : -errno;
			if (fd >= 0)
				close(fd);
			return rc;
		}
		while (const struct dirent *entry = ::readdir(folder))
			if (entry->d_name != std::string_view(".") && entry->d_name != std::string_view(".."))
				names.emplace_back(entry->d_name);
		::closedir(folder);
		return 0;
	}
	int open_log(const std::string &path) override
	{
		return high(check(
			::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0666)));
	}
	int append(int fd, std::string_view text) override
	{
		const int own = without_waiting(fd);
		const int rc = append_to(own < 0 ? fd : own, text);
		if (own >= 0)
			::close(own);
		return rc;
	}
	int rename(const std::string &from, const std::string &to) override
	{
		return check(std::rename(from.c_str(), to.c_str()));
	}
	std::optional<std::string> variable(const char *name) override
	{
		// Not for setuid programs: one of the variables is the path of a log.
		const char *value = ::secure_getenv(name);
		return value ? std::optional<std::string>(value) : std::nullopt;
	}
	int cpus(Cpus &out) override
	{
		CpuMask mask;
		const int rc = check(::sched_getaffinity(0, CpuMask::bytes, mask.get()));
		out = mask.cpus();
		return rc;
	}
	int set_affinity(const Cpus &cpus) override
	{
		const CpuMask mask(cpus);
		return check(::sched_setaffinity(0, CpuMask::bytes, mask.get()));
	}
	int prefer_node(int node) override
	{
		// As in linux/mempolicy.h; glibc has no wrappers.
		constexpr int by_default = 0, preferred = 1;
		if (node < 0)
			return check(static_cast<int>(::syscall(SYS_set_mempolicy, by_default, nullptr, 0)));
		int now = 0;
		if (::syscall(SYS_get_mempolicy, &now, nullptr, 0, nullptr, 0) < 0)
			return -errno;
		if (now != by_default)
			return -EBUSY;
		constexpr size_t bits = sizeof(unsigned long) * 8;
		unsigned long nodes[1024 / bits] = {};
		if (static_cast<size_t>(node) >= sizeof(nodes) * 8)
			return -EINVAL;
		nodes[static_cast<size_t>(node) / bits] = 1UL << static_cast<size_t>(node) % bits;
		return check(static_cast<int>(::syscall(SYS_set_mempolicy, preferred, nodes, sizeof(nodes) * 8)));
	}
	uint64_t now_ns() override
	{
		struct timespec now;
		::clock_gettime(CLOCK_MONOTONIC, &now);
		return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
	}
	int pid() override { return ::getpid(); }

private:
	// Standard error may be a pipe or terminal without a reader, and its flags are the program's, so a write could
	// block. Returns a nonblocking description of the same file, or -errno if that is not possible or not needed.
	int without_waiting(int fd)
	{
		struct stat st;
		const int flags = open_flags(fd);
		if (flags < 0 || flags & O_NONBLOCK || fstat(fd, st) < 0)
			return -EBADF;
		if (!S_ISFIFO(st.st_mode) && !(S_ISCHR(st.st_mode) && ::isatty(fd)))
			return -EINVAL;
		char path[32];
		std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	}

	int append_to(int fd, std::string_view text)
	{
		WithoutPipeSignal quiet;
		while (!text.empty()) {
			// For files that could not be reopened. A ready pipe has room for PIPE_BUF bytes.
			struct pollfd ready = {fd, POLLOUT, 0};
			if (::poll(&ready, 1, 0) == 0)
				return -EAGAIN;
			const int rc = check(
				static_cast<int>(::write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF))));
			if (rc == -EPIPE)
				quiet.take();
			if (rc < 0 && rc != -EINTR)
				return rc;
			text.remove_prefix(rc > 0 ? static_cast<size_t>(rc) : 0);
		}
		return 0;
	}

	// Moves a descriptor away from 0, 1 and 2, as dup().
	int high(int fd)
	{
		if (fd < 0 || fd > 2)
			return fd;
		const int other = dup(fd);
		::close(fd);
		return other;
	}
};

// constinit: without static constructors, those of other libraries may use it.
constinit RealSystem the_system;

} // namespace

System &real_system() { return the_system; }

} // namespace cufile
