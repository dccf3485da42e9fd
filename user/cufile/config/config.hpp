// SPDX-License-Identifier: MIT
//
// What can be set: by SetParameter calls, by CUFILE_* variables, by cufile.json, each before the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cufile/config/denylist.hpp"
#include "cufile/platform/dependencies.hpp"

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
	std::string strings[nr_strings]; // empty: not set. A logging level from outside has its name of Log
	Slabs slabs[nr_pools];
	Denylist denylist;
	uint64_t log_max_mb = 32;
	bool peer_gpu_bounce = false;  // bytes for a GPU may go by way of another's memory
	bool require_direct = false;   // PEERDMA_REQUIRE_DIRECT
	bool longer_stats = false;     // PEERDMA_CUFILE_STATS is 13.4
	std::vector<std::string> idle; // keys of cufile.json that were to change something, and do not
};

// What is wrong with settings. A fault keeps the driver closed: it would lose a restriction. A notice does not.
struct Findings {
	std::string fault; // the first one; empty: none
	CUfileOpError code = CU_FILE_SUCCESS;
	std::vector<std::string> notices;

	void fail(std::string what, CUfileOpError error = CU_FILE_DRIVER_INVALID_PROPS)
	{
		if (!fault.empty())
			return;
		fault = std::move(what);
		code = error;
	}
};

// Reads cufile.json: JSON with comments that begin with // or stand between /* and */. path is for the messages, which begin
// with "path:line:column: ". With a fault config is unchanged.
void read_json(const std::string &text, const std::string &path, Config &config, Findings &found);

// In MiB: at least one, and as many as can be counted in bytes.
inline constexpr uint64_t max_log_mb = UINT64_MAX >> 20;
constexpr bool is_log_size(uint64_t mb) { return mb && mb <= max_log_mb; }

// true, yes, on and 1; false, no, off and 0; in upper or lower case.
std::optional<bool> read_bool(std::string_view text);
std::optional<uint64_t> read_number(std::string_view text); // decimal digits

inline constexpr const char *expected_bool = "true, false, 1 or 0";
inline constexpr const char *expected_level = "NOTICE, ERROR, WARN, INFO, DEBUG or TRACE";
std::string expected_number(Range range);

// "name: invalid value VALUE; expected EXPECTED". A value that is text is quoted first.
std::string invalid(std::string_view name, std::string_view value, std::string_view expected);
// With control characters and what is not ASCII escaped, and cut if it is long.
std::string quoted(std::string_view text);

// What a program has set since the driver was closed.
class Settings
{
public:
	std::optional<uint64_t> sizes[nr_sizes];
	std::optional<bool> bools[nr_bools];
	std::optional<std::string> strings[nr_strings];
	std::optional<Slabs> slabs[nr_pools];

	// Over what is built in alone: what Get calls say while the driver is closed.
	Config over_defaults() const;
	// Over variables and file: for the driver that is being opened. With a fault only where and what to log is good.
	Config merge(System &system, Findings &found) const;

private:
	void over(Config &config) const;
};

} // namespace cufile
