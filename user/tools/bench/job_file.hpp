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

// How the bytes of a benchmark go.
enum class BenchRoute { direct, bounce, host, naive };
const char *route_name(BenchRoute route);

// What is to be measured: each way with each size, each number of threads and each depth.
struct BenchJob {
	std::string name = {};
	std::string target = {};   // a file, or a directory to make one in
	std::string provider = {}; // as on a command line; empty: the only one
	int gpu_index = -1;        // the provider's place in the list, if it has no name
	bool write = false, random = false;
	std::vector<BenchRoute> routes = {BenchRoute::direct, BenchRoute::bounce, BenchRoute::host, BenchRoute::naive};
	std::vector<uint64_t> sizes = {1 << 20}; // bytes of a request
	std::vector<uint64_t> threads = {1}, depths = {1};
	uint64_t file_size = 64 << 20; // bytes of a file that it makes
	uint64_t start = 0;            // bytes of the file that are left alone
	uint64_t seed = 1;             // of random offsets
	double runtime = 3;            // seconds of each row at most
	uint64_t bytes = 0;            // of each row at most; 0: any number
	bool overwrite = false;        // of a file that it has not made
	std::vector<std::string> notes = {};
};

// One setting by its name in a file of jobs. Throws Usage: a name that is not known, a value that is none.
void set_job(BenchJob &job, std::string_view key, std::string_view value);

// The jobs of a file: sections [global], whose settings all have, and one for each job. Throws Usage, which names the
// file and the line.
std::vector<BenchJob> parse_jobs(const std::string &name, std::string_view text);

} // namespace cli
