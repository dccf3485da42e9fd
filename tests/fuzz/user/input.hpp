// SPDX-License-Identifier: MIT
// Shared by the fuzzers of the user side.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace input
{

inline std::vector<std::string> lines(const uint8_t *data, size_t size)
{
	std::string_view text(reinterpret_cast<const char *>(data), size);
	std::vector<std::string> found;
	while (!text.empty()) {
		const size_t end = std::min(text.find('\n'), text.size());
		found.emplace_back(text.substr(0, end));
		text.remove_prefix(std::min(end + 1, text.size()));
	}
	return found;
}

/// An assertion for any input.
inline void must(bool good, const char *what)
{
	if (good)
		return;
	std::fprintf(stderr, "this does not hold: %s\n", what);
	std::abort();
}

/// Discards the command's standard output. libFuzzer writes to standard error.
inline void silence()
{
	const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
	::dup2(null, 1);
	::close(null);
}

} // namespace input
