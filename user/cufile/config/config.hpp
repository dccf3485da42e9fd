// SPDX-License-Identifier: MIT
//
// Settings by SetParameter calls, CUFILE_* variables and cufile.json, in this order of precedence.
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
inline constexpr size_t max_slabs = 16; // configurable slab sizes

// Pools with slabs: host bounce memory, and the original's cache on the GPU, which this library does not use.
enum Pool : unsigned { posix_pool, gpu_pool, nr_pools };

struct Slabs {
	std::vector<size_t> size_kb, count; // of the same length

	bool operator==(const Slabs &) const = default;
};

struct Range {
	uint64_t min, max;
};

// For CUFileSizeTConfigParameter_t.
Range size_range(unsigned param);

struct Config {
	Config();

	uint64_t size(CUFileSizeTConfigParameter_t param) const { return sizes[param]; }
	bool flag(CUFileBoolConfigParameter_t param) const { return bools[param]; }

	uint64_t sizes[nr_sizes];
	bool bools[nr_bools];
	std::string strings[nr_strings]; // empty: not set. A logging level has its name of Log
	Slabs slabs[nr_pools];
	Denylist denylist;
	uint64_t log_max_mb = 32;
	bool peer_gpu_bounce = false;  // rdma_dynamic_routing: bounce through another GPU
	bool require_direct = false;   // PEERDMA_REQUIRE_DIRECT
	bool longer_stats = false;     // PEERDMA_CUFILE_STATS is 13.4
	std::vector<std::string> idle; // keys of cufile.json without effect
};

// Errors in settings. A fault keeps the driver closed, because it would drop a restriction. A notice does not.
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

// Reads cufile.json: JSON with // and /* */ comments. Messages begin with "path:line:column: ". On a fault config is
// unchanged.
void read_json(const std::string &text, const std::string &path, Config &config, Findings &found);

// In MiB: at least 1, and countable in bytes.
inline constexpr uint64_t max_log_mb = UINT64_MAX >> 20;
constexpr bool is_log_size(uint64_t mb) { return mb && mb <= max_log_mb; }

// true, yes, on, 1; false, no, off, 0; in any case.
std::optional<bool> read_bool(std::string_view text);
std::optional<uint64_t> read_number(std::string_view text); // decimal digits

inline constexpr const char *expected_bool = "true, false, 1 or 0";
inline constexpr const char *expected_level = "NOTICE, ERROR, WARN, INFO, DEBUG or TRACE";
std::string expected_number(Range range);

// "name: invalid value VALUE; expected EXPECTED". A value that is text is quoted first.
std::string invalid(std::string_view name, std::string_view value, std::string_view expected);
// Control and non-ASCII characters are escaped, and long text is cut.
std::string quoted(std::string_view text);

// Values that a program has set since the driver was closed.
class Settings
{
public:
	std::optional<uint64_t> sizes[nr_sizes];
	std::optional<bool> bools[nr_bools];
	std::optional<std::string> strings[nr_strings];
	std::optional<Slabs> slabs[nr_pools];

	// Over the defaults only: the result of Get calls while the driver is closed.
	Config over_defaults() const;
	// Over variables and file: for opening the driver. On a fault only the log settings are valid.
	Config merge(System &system, Findings &found) const;

private:
	void over(Config &config) const;
};

} // namespace cufile
