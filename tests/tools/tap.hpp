// SPDX-License-Identifier: MIT
// TAP for test programs in a guest, and what they ask of the shell functions of tests/guest/lib.sh.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

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
