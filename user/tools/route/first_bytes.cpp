// SPDX-License-Identifier: MIT
#include "tools/route/first_bytes.hpp"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cli
{

namespace
{

// What a process that reads has written: an errno, then the bytes.
int answer_of(int from, std::span<std::byte> out)
{
	int error = 0;
	if (read(from, &error, sizeof(error)) != sizeof(error))
		return -EIO;
	return error || read(from, out.data(), out.size()) == static_cast<ssize_t>(out.size()) ? -error : -EIO;
}

// Async-signal-safe functions only: other threads may have held locks when this process was made.
[[noreturn]] void answer(const char *path, std::span<std::byte> out, int to)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	const ssize_t n = fd < 0 ? -1 : pread(fd, out.data(), out.size(), 0);
	const int error = n < 0 ? errno : n < static_cast<ssize_t>(out.size()) ? ENODATA : 0;
	if (write(to, &error, sizeof(error)) == sizeof(error) && !error)
		(void)!write(to, out.data(), out.size());
	_exit(0);
}

} // namespace

// In a process of its own: a read through the page cache can be killed, but its process does nothing else until then.
int first_bytes(const std::string &path, std::span<std::byte> out, std::chrono::milliseconds limit)
{
	int ends[2] = {};
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	const pid_t reader = fork();
	if (!reader)
		answer(path.c_str(), out, ends[1]);
	int rc = reader < 0 ? -errno : 0;
	close(ends[1]);
	struct pollfd said = {ends[0], POLLIN, 0};
	if (!rc)
		rc = poll(&said, 1, static_cast<int>(limit.count())) > 0 ? answer_of(ends[0], out) : -ETIMEDOUT;
	close(ends[0]);
	if (reader > 0) {
		kill(reader, SIGKILL);
		// It may be where it cannot be killed yet.
		waitpid(reader, nullptr, rc == -ETIMEDOUT ? WNOHANG : 0);
	}
	return rc;
}

} // namespace cli
