// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/cli.hpp"

namespace cli
{

// The route of a benchmark's bytes.
enum class BenchRoute { direct, bounce, host, naive };
const char *route_name(BenchRoute route);

// The measurement: each route with each request size, number of threads and depth.
struct BenchJob {
	std::string name = {};
	std::string target = {};   // a file, or a directory to create one in
	std::string provider = {}; // as on a command line; empty: the only provider
	int gpu_index = -1;        // index of the provider in the list, if it has no name
	bool write = false, random = false;
	std::vector<BenchRoute> routes = {BenchRoute::direct, BenchRoute::bounce, BenchRoute::host, BenchRoute::naive};
	std::vector<uint64_t> sizes = {1 << 20}; // bytes per request
	std::vector<uint64_t> threads = {1}, depths = {1};
	uint64_t file_size = 64 << 20; // bytes of the created file
	uint64_t start = 0;            // bytes at the start of the file that are not touched
	uint64_t seed = 1;             // of random offsets
	double runtime = 3;            // seconds per row, at most
	uint64_t bytes = 0;            // bytes per row, at most; 0: no limit
	bool overwrite = false;        // allow writing to an existing file
	std::vector<std::string> notes = {};
};

// One key of a job file. Throws Usage for an unknown key or an invalid value.
void set_job(BenchJob &job, std::string_view key, std::string_view value);

// Parses a job file: the section [global] applies to all jobs, every other section is a job. Throws Usage, which names
// the file and the line.
std::vector<BenchJob> parse_jobs(const std::string &name, std::string_view text);

} // namespace cli
