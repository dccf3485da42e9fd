// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"

namespace cli
{

// All counters, for root.
inline constexpr std::string_view stats_path = "/sys/kernel/debug/peerdma/stats";

// Counters by the kernel's names: "reads", "direct-bytes", "refused-4".
using Counters = std::map<std::string, uint64_t, std::less<>>;
uint64_t counter_value(const Counters &counters, std::string_view key); // 0 if it is missing

// An open /dev/peerdma. Several processes and descriptors may share it.
struct OpenFile {
	uint64_t id = 0;
	std::vector<int> pids;
	std::string comm; // of the first process
	Counters counters;
};

// The open files that /proc shows to the caller.
struct OpenFiles {
	std::vector<OpenFile> files;
	unsigned unseen = 0; // processes whose descriptors the caller may not read
};

// A line of debugfs: "device dev=259:0 reads=1 ...".
struct StatsLine {
	std::string kind; // "total", "provider", "disk", "user" or "file"
	std::map<std::string, std::string, std::less<>> words;
	Counters counters;
};

Counters parse_fdinfo(std::string_view text);
std::vector<StatsLine> parse_stats(std::string_view text);
OpenFiles open_files(peerdma_impl::Syscalls &sys);

} // namespace cli
