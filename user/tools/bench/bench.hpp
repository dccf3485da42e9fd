// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/syscalls.hpp"
#include "tools/bench/job_file.hpp"
#include "tools/bench/latency.hpp"
#include "tools/cli/cli.hpp"
#include "tools/stat/io_counts.hpp"
#include "tools/system/fd.hpp"

namespace cli
{

// One line of the table: one route with one request size, number of threads and depth.
struct BenchRow {
	std::string job;
	bool write = false, random = false;
	BenchRoute route = BenchRoute::direct;
	uint64_t size = 0, threads = 1, depth = 1;

	uint64_t ios = 0;
	double seconds = 0, user = 0, system = 0; // wall clock; CPU time of this process on all CPUs
	Latencies latencies;
	Counts counts; // bytes by route
	std::optional<Failure> failure;

	uint64_t bytes() const { return ios * size; }
	double per_second(uint64_t n) const { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }
	double mib_per_second() const { return per_second(bytes()) / (1 << 20); }
	// Seconds of CPU time for 10^9 bytes.
	double cpu_per_gb() const { return ios ? (user + system) * 1e9 / static_cast<double>(bytes()) : 0; }
};

// The file that is read or written. Both descriptors refer to it.
struct BenchFile {
	std::string name;
	bool made = false; // has no name; deleted with its descriptors
	uint64_t size = 0;
	Fd plain, direct; // through the page cache; with O_DIRECT
};

BenchFile open_bench_file(peerdma_impl::Syscalls &sys, const BenchJob &job);

using BenchProgress = std::function<void(double seconds, uint64_t ios)>;

// Runs the row and stores the results in it; an error becomes its failure. provider: NULL for a row without a provider.
void run_row(peerdma_impl::Syscalls &sys, const BenchJob &job, const BenchFile &file,
	     const struct peerdma_provider_info *provider, BenchRow &row, const BenchProgress &progress);

// Why the results say nothing about real hardware; empty if no emulator is detected. disk: the disk that moves the
// bytes.
std::string emulated_by(peerdma_impl::Syscalls &sys, const std::string &disk);

// Plots MiB/s and CPU time per GB over the request size.
std::string plot(const std::vector<BenchRow> &rows, const std::string &remark);

} // namespace cli
