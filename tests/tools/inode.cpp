// SPDX-License-Identifier: MIT
//
// inode FILE cut BUF_OFF: FILE is truncated under a read from 400 bytes behind a page boundary, after the read has
// checked the file's length, to 100 bytes behind that boundary. Prints result and bytes of the read.
//
// inode FILE hold read|write: holds the file's lock, for reading or writing, for as long as it lives, by a direct read
// into, or a write(2) from, a page of its own memory that never arrives. Prints its pid, and a line when it has the lock.
//
// inode FILE indirect: a file of ext4, of one extent, loses its extents, as by chattr -e.
//
// inode FILE: a write from a buffer to FILE while another process is blocked in a write(2) to it. That process holds
// the file's lock and waits for a page of its own memory, which never arrives (userfaultfd), as with a FUSE filesystem
// that does not answer. When both wait, prints the buffer's id and that process's pid. On SIGUSR1 destroys the buffer.
// In the end prints result and bytes of the write, and the result of destroying.
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

#include "guest.hpp"
#include "raw.hpp"

namespace
{

constexpr size_t page = 4096;

/// Never returns. told: receives a byte as soon as the lock is held.
[[noreturn]] void hold_for_ever(const char *path, bool write, int told)
{
	::prctl(PR_SET_PDEATHSIG, SIGKILL);
	const int file = ::open(path, write ? O_WRONLY : O_RDONLY | O_DIRECT);
	const int faults = int(::syscall(SYS_userfaultfd, O_CLOEXEC));
	uffdio_api api{};
	api.api = UFFD_API;
	void *memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uffdio_register range{};
	range.range = {reinterpret_cast<uintptr_t>(memory), page};
	range.mode = UFFDIO_REGISTER_MODE_MISSING;
	if (faults < 0 || ::ioctl(faults, UFFDIO_API, &api) || ::ioctl(faults, UFFDIO_REGISTER, &range))
		raw::die("userfaultfd");
	if (file < 0)
		raw::die(path);
	std::thread([=] {
		uffd_msg message;
		if (::read(faults, &message, sizeof(message)) == sizeof(message))
			(void)!::write(told, "x", 1);
	}).detach();
	(void)!(write ? ::pwrite(file, memory, page, 0) : ::pread(file, memory, page, 0));
	raw::die("the page came");
}

struct Holder {
	pid_t pid;
	int told;

	Holder(const char *path, bool write)
	{
		int ends[2];
		if (::pipe2(ends, O_CLOEXEC))
			raw::die("pipe");
		pid = ::fork();
		if (!pid)
			hold_for_ever(path, write, ends[1]);
		::close(ends[1]);
		told = ends[0];
	}

	void wait_for_lock() const
	{
		char byte;
		if (::read(told, &byte, 1) != 1)
			raw::die("no fault");
	}
};

pid_t start_writer(const char *path)
{
	const Holder holder(path, true);
	holder.wait_for_lock();
	return holder.pid;
}

int hold(const char *path, bool write)
{
	const Holder holder(path, write);
	std::printf("%d\n", int(holder.pid));
	std::fflush(stdout);
	holder.wait_for_lock();
	std::puts("has the lock");
	std::fflush(stdout);
	::waitpid(holder.pid, nullptr, 0);
	return 0;
}

int lose_extents(const char *path)
{
	const int file = raw::open_file(path);
	int flags = 0;
	if (::ioctl(file, FS_IOC_GETFLAGS, &flags))
		raw::die(path);
	flags &= ~FS_EXTENT_FL;
	if (::ioctl(file, FS_IOC_SETFLAGS, &flags))
		raw::die("indirect");
	return 0;
}

/// How often the task has begun to sleep, if it is in an uninterruptible sleep; else -1.
long sleeps_of(pid_t task)
{
	std::ifstream in("/proc/self/task/" + std::to_string(task) + "/status");
	const std::string voluntary = "voluntary_ctxt_switches:";
	bool asleep = false;
	for (std::string line; std::getline(in, line);) {
		asleep = asleep || line.starts_with("State:\tD");
		if (line.starts_with(voluntary))
			return asleep ? std::stol(line.substr(voluntary.size())) : -1;
	}
	return -1;
}

/// One sleep of 100 ms or more: a page fault or the search for a route is shorter.
bool is_asleep(pid_t task)
{
	const long before = sleeps_of(task);
	std::this_thread::sleep_for(std::chrono::milliseconds(100));
	return before >= 0 && sleeps_of(task) == before;
}

/// Truncate and read wait for the file's lock, in this order.
int cut(const char *path, uint64_t buf_off)
{
	const int file = ::open(path, O_RDWR | O_CLOEXEC), dev = raw::open_device();
	const auto buf = raw::buffer(dev, 4 * page);
	auto req = raw::io(file, buf.out_buf_id, page + 400, buf_off, page);
	// Caches the route for the read that follows.
	if (file < 0 || raw::call(dev, PEERDMA_READ, req) || req.out_done != page)
		raw::die(path);
	const pid_t writer = start_writer(path);
	std::atomic<pid_t> task = 0;
	const auto waits = [&] {
		return guest::within(std::chrono::seconds(20), [&] { return task && is_asleep(task); });
	};
	std::thread cutting([&] {
		task = pid_t(::syscall(SYS_gettid));
		(void)!::ftruncate(file, page + 100);
	});
	if (!waits())
		raw::die("nobody cuts");
	task = 0;
	int result = 1;
	std::atomic<bool> over = false;
	std::thread reading([&] {
		task = pid_t(::syscall(SYS_gettid));
		result = raw::call(dev, PEERDMA_READ, req);
		over = true;
	});
	if (!waits())
		raw::die("nobody reads");
	::kill(writer, SIGKILL);
	if (!guest::within(std::chrono::seconds(20), [&] { return over.load(); })) {
		std::puts("it does not end");
		std::fflush(stdout);
		::raise(SIGKILL);
	}
	cutting.join();
	reading.join();
	std::printf("%d %llu\n", result, req.out_done);
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 4 && !std::strcmp(argv[2], "cut"))
		return cut(argv[1], std::strtoull(argv[3], nullptr, 0));
	if (argc == 4 && !std::strcmp(argv[2], "hold"))
		return hold(argv[1], !std::strcmp(argv[3], "write"));
	if (argc == 3 && !std::strcmp(argv[2], "indirect"))
		return lose_extents(argv[1]);
	if (argc != 2)
		return 2;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, nullptr);
	const int file = raw::open_file(argv[1]);
	const int dev = raw::open_device();
	const auto buf = raw::buffer(dev, page);
	const pid_t writer = start_writer(argv[1]);
	pid_t task = 0;
	int result = 0, destroyed = 1;
	auto req = raw::io(file, buf.out_buf_id, 0, 0, page);
	std::thread writing([&] {
		task = pid_t(::syscall(SYS_gettid));
		result = raw::call(dev, PEERDMA_WRITE, req);
	});
	if (!guest::within(std::chrono::seconds(20), [&] { return task && is_asleep(task); }))
		raw::die("it does not wait");
	std::printf("%u %d\n", buf.out_buf_id, int(writer));
	std::fflush(stdout);
	std::thread([&] {
		for (int signal; !sigwait(&set, &signal);)
			destroyed = raw::destroy(dev, buf.out_buf_id);
	}).detach();
	writing.join();
	guest::within(std::chrono::seconds(2), [&] { return destroyed <= 0; });
	std::printf("%d %llu %d\n", result, req.out_done, destroyed);
	std::fflush(stdout);
	return 0;
}
