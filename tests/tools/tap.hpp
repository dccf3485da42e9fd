// SPDX-License-Identifier: MIT
// TAP for test programs in a guest.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "host.hpp"

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

inline void skip(const std::string &what, const std::string &why)
{
	std::printf("ok %d - %s # SKIP %s\n", ++count, what.c_str(), why.c_str());
	std::fflush(stdout);
}

/// The value of a peerdma::Result; ends the test if there is none.
template <class Result> auto need(Result result, const char *what)
{
	if (result)
		return std::move(*result);
	std::printf("Bail out! %s: %s\n", what, result.error().message().c_str());
	std::exit(1);
}

/// Prints the plan; returns the exit status.
inline int end()
{
	std::printf("1..%d\n", count);
	return failures != 0;
}

/// The host request that compares a range of the GPU's memory.
inline std::string compare(uint64_t bar_off, uint64_t len, const std::string &source, uint64_t source_off = 0)
{
	return "host compare gpu0 " + std::to_string(bar_off) + " " + std::to_string(len) + " " + source + " " +
	       std::to_string(source_off);
}

inline bool gpu_is(uint64_t bar_off, uint64_t len, const std::string &source, uint64_t source_off = 0)
{
	return host::run(compare(bar_off, len, source, source_off));
}

} // namespace tap
