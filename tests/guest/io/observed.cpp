// SPDX-License-Identifier: MIT
//
// observed FILE: the effects of a read and a write of FILE that others can see, by the ioctl and by a ring: inotify
// events, and this process's I/O counters in /proc.
#include <cstring>
#include <fstream>
#include <poll.h>
#include <sys/inotify.h>

#include "../../tools/command.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;
constexpr unsigned len = 8192;

/// Returns all events so far on the file; stops when no more arrive.
uint32_t events(int watcher)
{
	uint32_t all = 0;
	char buf[4096];
	for (pollfd ready{watcher, POLLIN, 0}; ::poll(&ready, 1, 200) > 0;) {
		const ssize_t n = ::read(watcher, buf, sizeof(buf));
		for (ssize_t at = 0; at < n;) {
			inotify_event event;
			std::memcpy(&event, buf + at, sizeof(event));
			all |= event.mask;
			at += ssize_t(sizeof(event) + event.len);
		}
	}
	return all;
}

/// rchar, wchar, syscr or syscw; -1 if this kernel does not count them.
int64_t counted(const char *what)
{
	std::ifstream in("/proc/self/io");
	for (std::string word; in >> word;)
		if (int64_t n = 0; word == std::string(what) + ":" && in >> n)
			return n;
	return -1;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	const int dev = raw::open_device(), file = ::open(argv[1], O_RDWR);
	const uint32_t buf = raw::buffer(dev, len).out_buf_id;
	const int watcher = ::inotify_init1(IN_CLOEXEC);
	if (file < 0 || ::inotify_add_watch(watcher, argv[1], IN_ACCESS | IN_MODIFY) < 0)
		raw::die(argv[1]);

	auto io = raw::io(file, buf, 0, 0, len);
	const int64_t rchar = counted("rchar"), syscr = counted("syscr");
	int err = raw::call(dev, PEERDMA_READ, io);
	const int64_t read = counted("rchar") - rchar, reads = counted("syscr") - syscr;
	uint32_t seen = events(watcher);
	report(!err && io.out_direct == len && seen == IN_ACCESS, "a read by the ioctl is an access",
	       std::to_string(seen));
	io = raw::io(file, buf, 0, 0, len);
	const int64_t wchar = counted("wchar"), syscw = counted("syscw");
	err = raw::call(dev, PEERDMA_WRITE, io);
	const int64_t wrote = counted("wchar") - wchar, writes = counted("syscw") - syscw;
	seen = events(watcher);
	report(!err && io.out_direct == len && seen == IN_MODIFY, "a write by the ioctl is a modification");
	if (rchar < 0) {
		tap::skip("what the process read and wrote is counted", "this kernel counts no task's I/O");
	} else {
		// Reading the counters is itself counted as a read.
		report(read >= len && read < 2 * len && reads >= 2 && wrote == len && writes == 1,
		       "what the process read and wrote is counted",
		       std::to_string(read) + " " + std::to_string(reads) + " " + std::to_string(wrote) + " " +
			       std::to_string(writes));
	}
	for (const bool write : {false, true}) {
		const int res = raw::run_command(dev, write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ, buf,
						 raw::add_file(dev, file), len, {});
		const uint32_t mask = events(watcher);
		report(res == len && mask == (write ? IN_MODIFY : IN_ACCESS),
		       write ? "a write by a ring" : "a read by a ring",
		       std::to_string(res) + ", " + std::to_string(mask));
	}
	return tap::end();
}
