// SPDX-License-Identifier: MIT
//
// What can be set: by SetParameter calls, by CUFILE_* variables, by cufile.json, each before the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "denylist.hpp"
#include "seams.hpp"

namespace cufile
{

inline constexpr unsigned nr_sizes = 12, nr_bools = 12, nr_strings = 3;
inline constexpr size_t max_slabs = 16; // kinds of slabs that may be configured

// What has slabs: host memory to bounce through, and the original's cache on the GPU, which this library has no use for.
enum Pool : unsigned { posix_pool, gpu_pool, nr_pools };

struct Slabs {
	std::vector<size_t> size_kb, count; // of the same length

	bool operator==(const Slabs &) const = default;
};

struct Range {
	uint64_t min, max;
};

// Of CUFileSizeTConfigParameter_t.
Range size_range(unsigned param);

struct Config {
	Config();

	uint64_t size(CUFileSizeTConfigParameter_t param) const { return sizes[param]; }
	bool flag(CUFileBoolConfigParameter_t param) const { return bools[param]; }

	uint64_t sizes[nr_sizes];
	bool bools[nr_bools];
	std::string strings[nr_strings]; // empty: not set
	Slabs slabs[nr_pools];
	Denylist denylist;
	uint64_t log_max_mb = 32;
	bool near_gpu = false;         // bytes for a GPU may go by way of another's memory
	bool require_direct = false;   // PEERDMA_REQUIRE_DIRECT
	bool longer_stats = false;     // PEERDMA_CUFILE_STATS is 13.4
	std::vector<std::string> idle; // keys of cufile.json that were to change something, and do not
};

// Reads cufile.json: JSON in which // comments are allowed. What is unknown or makes no sense is left out and said in
// notices. False: it is no JSON object, and config is as it was.
bool read_json(const std::string &text, Config &config, std::vector<std::string> &notices);

// In MiB: something, and as much as bytes can be counted.
constexpr bool is_log_size(uint64_t mb) { return mb && mb <= UINT64_MAX >> 20; }

// "true", "false", and 1 and 0.
std::optional<bool> read_bool(std::string_view text);

// What a program has set, which outlives the driver.
class Settings
{
public:
	std::optional<uint64_t> sizes[nr_sizes];
	std::optional<bool> bools[nr_bools];
	std::optional<std::string> strings[nr_strings];
	std::optional<Slabs> slabs[nr_pools];

	// Over what is built in alone: what Get calls say while the driver is closed.
	Config over_defaults() const;
	// Over variables and file: for the driver that is being opened.
	Config merge(System &system, std::vector<std::string> &notices) const;

private:
	void over(Config &config) const;
};

} // namespace cufile
