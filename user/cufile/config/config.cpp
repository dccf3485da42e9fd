// SPDX-License-Identifier: MIT
#include "cufile/config/config.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <initializer_list>

#include "cufile/diag/log.hpp"
#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

constexpr const char *default_path = "/etc/cufile.json";
constexpr size_t max_json = 1 << 20; // bytes

struct Variable {
	const char *name;
	CUFileBoolConfigParameter_t param;
	bool restricts = false;
};

constexpr Variable bool_variables[] = {
	{"CUFILE_FORCE_COMPAT_MODE", CUFILE_PARAM_FORCE_COMPAT_MODE, true},
	{"CUFILE_ALLOW_COMPAT_MODE", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, true},
	{"CUFILE_USE_PCIP2PDMA", CUFILE_PARAM_USE_PCIP2PDMA},
	{"CUFILE_SKIP_TOPOLOGY_DETECTION", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"CUFILE_NVTX", CUFILE_PARAM_PROFILE_NVTX},
};

// An empty variable counts as unset.
std::optional<std::string> variable(System &system, const char *name)
{
	auto text = system.variable(name);
	return text && text->empty() ? std::nullopt : text;
}

void read_bool_variable(System &system, const char *name, bool restricts, bool &out, Findings &found)
{
	const auto text = variable(system, name);
	if (!text)
		return;
	if (const auto value = read_bool(*text))
		out = *value;
	else if (std::string what = invalid(name, cufile::quoted(*text), expected_bool); restricts)
		found.fail(std::move(what));
	else
		found.notices.push_back(std::move(what));
}

void read_variables(System &system, Config &config, Findings &found)
{
	const auto bad = [&](const char *name, const std::string &text, std::string_view expected) {
		found.notices.push_back(invalid(name, cufile::quoted(text), expected));
	};
	for (const Variable &one : bool_variables)
		read_bool_variable(system, one.name, one.restricts, config.bools[one.param], found);
	read_bool_variable(system, "PEERDMA_REQUIRE_DIRECT", true, config.require_direct, found);
	if (const auto text = variable(system, "CUFILE_LOGGING_LEVEL")) {
		if (const auto level = Log::level_named(*text))
			config.strings[CUFILE_PARAM_LOGGING_LEVEL] = Log::name_of(*level);
		else
			bad("CUFILE_LOGGING_LEVEL", *text, expected_level);
	}
	if (const auto text = variable(system, "CUFILE_LOGFILE_PATH"))
		config.strings[CUFILE_PARAM_ENV_LOGFILE_PATH] = *text;
	if (const auto text = variable(system, "CUFILE_LOGFILE_MAX_SIZE_MB")) {
		const auto value = read_number(*text);
		if (value && is_log_size(*value))
			config.log_max_mb = *value;
		else
			bad("CUFILE_LOGFILE_MAX_SIZE_MB", *text, expected_number({1, max_log_mb}));
	}
	if (const auto text = variable(system, "PEERDMA_CUFILE_STATS")) {
		config.longer_stats = *text == "13.4";
		if (!config.longer_stats && *text != "13.0")
			bad("PEERDMA_CUFILE_STATS", *text, "13.0 or 13.4");
	}
}

// The error code for a file that cannot be opened or read.
CUfileOpError code_of(int rc)
{
	switch (-rc) {
	case EMFILE:
	case ENFILE:
		return CU_FILE_GETNEWFD_FAILED;
	case ENOMEM:
		return CU_FILE_NOMEM_ERROR;
	}
	return CU_FILE_DRIVER_INVALID_PROPS;
}

// False if there is no such file. A dangling link is an error: a policy was intended.
bool read_policy(System &system, const std::string &path, Config &config, Findings &found)
{
	std::string text, target;
	const int rc = system.read_file(path, text);
	if (rc == -ENOENT && system.read_link(path, target) < 0)
		return false;
	if (rc == -EINVAL)
		found.fail(path + ": not a regular file");
	else if (rc < 0)
		found.fail(path + ": cannot be read: " + Log::error_name(rc), code_of(rc));
	else if (text.size() > max_json)
		found.fail(path + ": longer than 1 MiB");
	else
		read_json(text, path, config, found);
	return true;
}

// DeepSpeed names a missing file ("$PWD/local_cufile.json", unexpanded): then the policy of the machine applies.
void find_policy(System &system, Config &config, Findings &found)
{
	const auto named = variable(system, "CUFILE_ENV_PATH_JSON");
	if (named && read_policy(system, *named, config, found))
		return;
	const bool found_default = read_policy(system, default_path, config, found);
	if (named)
		found.notices.push_back(
			"CUFILE_ENV_PATH_JSON: no such file: " + cufile::quoted(*named) + "; using " +
			(found_default ? default_path : "built-in values, there is no /etc/cufile.json"));
}

// Settings that only the original uses: a value other than the default is a notice.
constexpr struct {
	const char *name;
	CUFileSizeTConfigParameter_t param;
} idle_sizes[] = {
	{"min_io_threshold_size_kb", CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB},
	{"max_direct_io_size_kb", CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB},
	{"max_device_cache_size_kb", CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB},
	{"per_buffer_cache_size_kb", CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB},
	{"max_batch_io_timeout_msecs", CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS},
};

constexpr Variable idle_bools[] = {
	{"use_poll_mode", CUFILE_PARAM_PROPERTIES_USE_POLL_MODE},
	{"nvtx", CUFILE_PARAM_PROFILE_NVTX},
	{"api_check_aggressive", CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE},
	{"skip_topology_detection", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
};

void notice_idle(const Config &config, std::vector<std::string> &notices)
{
	const Config built_in;
	std::string names;
	const auto add = [&](const char *name) { names += (names.empty() ? "" : ", ") + std::string(name); };
	for (const auto &one : idle_sizes)
		if (config.size(one.param) != built_in.size(one.param))
			add(one.name);
	for (const Variable &one : idle_bools)
		if (config.flag(one.param) != built_in.flag(one.param))
			add(one.name);
	if (config.slabs[gpu_pool] != built_in.slabs[gpu_pool])
		add("gpu_bounce_buffer_slab_config");
	for (const std::string &key : config.idle)
		add(key.c_str());
	if (!names.empty())
		notices.push_back("without effect here: " + names);
}

} // namespace

Range size_range(unsigned param)
{
	switch (param) {
	case CUFILE_PARAM_PROFILE_STATS:
		return {0, 3};
	case CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH:
		return {1, 4096};
	case CUFILE_PARAM_EXECUTION_MAX_IO_THREADS:
		return {0, 256};
	case CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB:
		return {0, 1 << 30};
	case CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM:
		return {0, 256};
	case CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB:
		return {64, 1 << 20};
	case CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE:
		return {1, 4096};
	case CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB:
		return {0, 1 << 20};
	case CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS:
		return {1, 1 << 20};
	}
	return {0, UINT32_MAX}; // 32-bit members of CUfileDrvProps_t
}

Config::Config()
	: sizes{0, 128, 4, 8192, 4, 16384, 131072, 1024, 33554432, 128, 4, 5}, bools{false, true,  false, false,
										     true,  false, true,  false,
										     false, false, false, false},
	  slabs{{{4, 1024, 16384}, {128, 64, 64}}, {{1024, 8192, 16384, 65536}, {128, 8, 4, 2}}}
{
}

std::optional<bool> read_bool(std::string_view text)
{
	const auto is_one_of = [&](std::initializer_list<const char *> names) {
		return std::ranges::any_of(names, [&](const char *name) { return same_letters(text, name); });
	};
	if (is_one_of({"true", "1", "yes", "on"}))
		return true;
	if (is_one_of({"false", "0", "no", "off"}))
		return false;
	return std::nullopt;
}

std::optional<uint64_t> read_number(std::string_view text)
{
	uint64_t value = 0;
	const char *const end = text.data() + text.size();
	const auto [stop, error] = std::from_chars(text.data(), end, value);
	return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string expected_number(Range range)
{
	return "a whole number from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

std::string invalid(std::string_view name, std::string_view value, std::string_view expected)
{
	std::string text(name);
	return text.append(": invalid value ").append(value).append("; expected ").append(expected);
}

void Settings::over(Config &config) const
{
	for (unsigned i = 0; i < nr_sizes; i++)
		config.sizes[i] = sizes[i].value_or(config.sizes[i]);
	for (unsigned i = 0; i < nr_bools; i++)
		config.bools[i] = bools[i].value_or(config.bools[i]);
	for (unsigned i = 0; i < nr_strings; i++)
		config.strings[i] = strings[i].value_or(config.strings[i]);
	for (unsigned i = 0; i < nr_pools; i++)
		config.slabs[i] = slabs[i].value_or(config.slabs[i]);
}

Config Settings::over_defaults() const
{
	Config config;
	over(config);
	return config;
}

Config Settings::merge(System &system, Findings &found) const
{
	Config config;
	find_policy(system, config, found);
	read_variables(system, config, found);
	std::string &level = config.strings[CUFILE_PARAM_LOGGING_LEVEL];
	const std::string unless_set = level;
	over(config);
	if (const auto one = Log::level_named(level)) {
		level = Log::name_of(*one);
	} else {
		if (!level.empty())
			found.notices.push_back(invalid("LOGGING_LEVEL", cufile::quoted(level), expected_level));
		level = unless_set.empty() ? "ERROR" : unless_set;
	}
	notice_idle(config, found.notices);
	return config;
}

} // namespace cufile
