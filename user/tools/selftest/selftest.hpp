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

// Bytes that say where they belong: at another place, or of another seed, they are others.
std::string pattern(uint64_t seed, uint64_t offset, uint64_t len);

// The first byte that differs, in words; empty if none does.
std::string difference(std::string_view want, std::string_view got);

// A request of the test; all in bytes.
struct Piece {
	uint64_t file_off, buf_off, len;
};

// What is asked together: one request by a call, or many by a ring.
struct Step {
	std::string name;
	bool write = false, ring = false;
	std::vector<Piece> pieces;
};

// What a drive can do.
struct Alignment {
	uint64_t block, mem; // of offsets and lengths in the file; of places in the buffer
};

// How many bytes of a request move, and how many of these the drive itself can.
struct Expected {
	uint64_t done = 0, direct = 0;
};
Expected expected(const Piece &piece, uint64_t file_len, const Alignment &alignment);

inline constexpr uint64_t selftest_file = (2 << 20) + 1234, selftest_buffer = 1 << 20;

// Whole blocks, odd places, the end of the file; by a call and by a ring; to the buffer and to the file.
std::vector<Step> selftest_steps(uint64_t block);

// The subcommand, by a clock of the caller's.
using Now = std::function<std::chrono::steady_clock::time_point()>;
Report selftest(const SelftestOptions &options, const Now &now);

} // namespace cli
