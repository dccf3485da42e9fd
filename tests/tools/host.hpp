// SPDX-License-Identifier: MIT
// Requests to the host, which sees the GPU's memory and the drive from outside, and to a shell. See tests/guest/lib.sh.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <sys/file.h>
#include <sys/wait.h>
#include <utility>

#include "raw.hpp"

namespace host
{

/// Reads one line from the port, byte by byte: more bytes may never come.
inline std::string read_line(int port)
{
	std::string line;
	for (char c; ::read(port, &c, 1) == 1 && c != '\n';)
		line += c;
	return line;
}

/// Returns the answer, which begins with "ok" on success. As host() of lib.sh, without a shell.
inline std::string ask(const std::string &question)
{
	static unsigned turn;
	const int lock = ::open("/run/host.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (lock < 0 || ::flock(lock, LOCK_EX))
		raw::die("/run/host.lock");
	const int port = ::open("/dev/virtio-ports/host", O_RDWR | O_CLOEXEC);
	if (port < 0)
		raw::die("/dev/virtio-ports/host");
	const std::string id =
		std::to_string(::getpid()) + "." + std::to_string(++turn) + "." + std::to_string(::time(nullptr));
	const std::string line = id + " " + question + "\n";
	if (::write(port, line.data(), line.size()) != ssize_t(line.size()))
		raw::die("host port");
	// Discards an answer to a process that was killed while it waited.
	std::string answer;
	do
		answer = read_line(port);
	while (!answer.empty() && !answer.starts_with(id + " "));
	::close(port);
	::close(lock);
	return answer.empty() ? "the host is silent" : answer.substr(id.size() + 1);
}

/// Asks the host if the command begins with "host "; otherwise runs it in a shell, where it may use lib.sh but no
/// single quotes. Output is printed only after a failure.
inline bool run(const std::string &command)
{
	if (!command.starts_with("host ") || command.find_first_of("$;|&") != command.npos) {
		const int status =
			std::system(("bash -c '. $LAB_ROOT/tests/guest/lib.sh; " + command + "' >/dev/null").c_str());
		return WIFEXITED(status) && !WEXITSTATUS(status);
	}
	const std::string answer = ask(command.substr(5));
	if (answer.starts_with("ok"))
		return true;
	std::fprintf(stderr, "%s: %s\n", command.c_str(), answer.c_str());
	return false;
}

/// A command for run() with the place of a buffer in the BAR for %AT, and its length for %LEN.
inline std::string filled_in(std::string command, uint64_t at, uint64_t len)
{
	const std::pair<const char *, uint64_t> values[] = {{"%AT", at}, {"%LEN", len}};
	for (const auto &[name, value] : values)
		for (size_t found; (found = command.find(name)) != command.npos;)
			command.replace(found, std::strlen(name), std::to_string(value));
	return command;
}

/// QEMU passes the first request to disk0 at once and limits the rest to that many bytes a second; 0: no limit.
inline void throttle(int bps)
{
	ask(R"(qmp {"execute":"block_set_io_throttle","arguments":{"device":"disk0","bps":)" + std::to_string(bps) +
	    R"(,"bps_rd":0,"bps_wr":0,"iops":0,"iops_rd":0,"iops_wr":0}})");
}

} // namespace host
