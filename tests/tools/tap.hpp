// SPDX-License-Identifier: MIT
// TAP for test programs in a guest, and what they ask of the shell functions of tests/guest/lib.sh.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <unistd.h>

namespace tap
{

inline int count, failures;

inline void report(bool good, const std::string &what, const std::string &why = "")
{
	std::printf("%sok %d - %s\n", good ? "" : "not ", ++count, what.c_str());
	if (!good && !why.empty())
		std::printf("# %s\n", why.c_str());
	std::fflush(stdout);
	failures += !good;
}

/// The plan; the exit status.
inline int end()
{
	std::printf("1..%d\n", count);
	return failures != 0;
}

/// A command that may use lib.sh; what it says is dropped. No single quotes.
inline bool shell(const std::string &command)
{
	return std::system(("bash -c '. $LAB_ROOT/tests/guest/lib.sh; " + command + "' >/dev/null").c_str()) == 0;
}

/// What the host answers to a request of lib.sh's host(), asked without a shell: tests that ask hundreds of times.
inline std::string host(const std::string &request)
{
	static int last;
	const std::string ticket = std::to_string(::getpid()) + "." + std::to_string(++last) + " ";
	const std::string line = ticket + request + "\n";
	const int lock = ::open("/run/host.lock", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	::flock(lock, LOCK_EX);
	const int port = ::open("/dev/virtio-ports/host", O_RDWR | O_CLOEXEC);
	std::string answer;
	if (::write(port, line.data(), line.size()) == ssize_t(line.size())) {
		// An answer to someone who was killed while waiting for it may still be in the pipe.
		for (char c; answer.rfind(ticket, 0) != 0 || answer.back() != '\n'; answer += c) {
			if (::read(port, &c, 1) != 1)
				break;
			if (!answer.empty() && answer.back() == '\n')
				answer.clear();
		}
	}
	::close(port);
	::close(lock);
	return answer.size() > ticket.size() ? answer.substr(ticket.size(), answer.size() - ticket.size() - 1) : "";
}

/// The command by which the host compares a range of the GPU's memory.
inline std::string compare(uint64_t bar_off, uint64_t len, const std::string &source, uint64_t source_off = 0)
{
	return "host compare gpu0 " + std::to_string(bar_off) + " " + std::to_string(len) + " " + source + " " +
	       std::to_string(source_off);
}

inline bool gpu_is(uint64_t bar_off, uint64_t len, const std::string &source, uint64_t source_off = 0)
{
	return shell(compare(bar_off, len, source, source_off));
}

} // namespace tap
