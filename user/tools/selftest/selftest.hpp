// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/cli.hpp"

namespace cli
{

// Bytes that depend on their offset and on the seed, so that bytes in a wrong place are detected.
std::string pattern(uint64_t seed, uint64_t offset, uint64_t len);

// Describes the first difference; empty if all bytes are equal.
std::string difference(std::string_view want, std::string_view got);

// A request of the test, in bytes.
struct Piece {
	uint64_t file_off, buf_off, len;
};

// Requests of one step: one by a call, or several by a ring.
struct Step {
	std::string name;
	bool write = false, ring = false;
	std::vector<Piece> pieces;
};

// Alignment that the drive requires.
struct Alignment {
	uint64_t block, mem; // of offsets and lengths in the file; of offsets in the buffer
};

// Expected bytes of a request, and how many of them go direct.
struct Expected {
	uint64_t done = 0, direct = 0;
};
Expected expected(const Piece &piece, uint64_t file_len, const Alignment &alignment);

inline constexpr uint64_t selftest_file = (2 << 20) + 1234, selftest_buffer = 1 << 20;

// Whole blocks, odd offsets, the end of the file; by call and by ring; reading and writing.
std::vector<Step> selftest_steps(uint64_t block);

// The subcommand, with the caller's clock.
using Now = std::function<std::chrono::steady_clock::time_point()>;
Report selftest(const SelftestOptions &options, const Now &now);

} // namespace cli
