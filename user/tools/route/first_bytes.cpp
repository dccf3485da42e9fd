// SPDX-License-Identifier: MIT
#include "tools/route/first_bytes.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cli
{

namespace
{

constexpr size_t block = 4096; // as large as a drive's blocks may be

// What a process that reads has written: an errno, then the bytes.
int answer_of(int from, std::span<std::byte> out)
{
	int error = 0;
	if (read(from, &error, sizeof(error)) != sizeof(error))
		return -EIO;
	return error || read(from, out.data(), out.size()) == static_cast<ssize_t>(out.size()) ? -error : -EIO;
}

// Async-signal-safe functions only: other threads may have held locks when this process was made. It keeps none of their
// descriptors: who reads the command's output waits for the last one. By O_DIRECT: a page of the cache that waits for the drive
// would hold up whoever closes it last.
[[noreturn]] void answer(const char *path, size_t size, int to)
{
	alignas(block) std::array<std::byte, block> bytes;
	to = dup2(to, STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0U, 0);
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
	const ssize_t n = fd < 0 ? -1 : pread(fd, bytes.data(), bytes.size(), 0);
	const int error = n < 0 ? errno : static_cast<size_t>(n) < size ? ENODATA : 0;
	if (write(to, &error, sizeof(error)) == sizeof(error) && !error)
		(void)!write(to, bytes.data(), size);
	_exit(0);
}

} // namespace

// In a process of its own, which waits where it cannot be killed, and ends when the drive answers or is removed.
int first_bytes(const std::string &path, std::span<std::byte> out, std::chrono::milliseconds limit)
{
	int ends[2] = {};
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	const pid_t reader = fork();
	if (!reader)
		answer(path.c_str(), out.size(), ends[1]);
	int rc = reader < 0 ? -errno : 0;
	close(ends[1]);
	struct pollfd said = {ends[0], POLLIN, 0};
	if (!rc)
		rc = poll(&said, 1, static_cast<int>(limit.count())) > 0 ? answer_of(ends[0], out) : -ETIMEDOUT;
	close(ends[0]);
	if (reader > 0) {
		kill(reader, SIGKILL);
		waitpid(reader, nullptr, rc == -ETIMEDOUT ? WNOHANG : 0);
	}
	return rc;
}

} // namespace cli
