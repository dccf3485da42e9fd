// SPDX-License-Identifier: MIT
#include "config.hpp"

#include <charconv>

#include "log.hpp"

namespace cufile
{
namespace
{

struct Variable {
	const char *name;
	CUFileBoolConfigParameter_t param;
};

constexpr Variable bool_variables[] = {
	{"CUFILE_FORCE_COMPAT_MODE", CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"CUFILE_ALLOW_COMPAT_MODE", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"CUFILE_USE_PCIP2PDMA", CUFILE_PARAM_USE_PCIP2PDMA},
	{"CUFILE_SKIP_TOPOLOGY_DETECTION", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"CUFILE_NVTX", CUFILE_PARAM_PROFILE_NVTX},
};

void read_variables(System &system, Config &config, std::vector<std::string> &notices)
{
	const auto bad = [&](const char *name) { notices.push_back(std::string(name) + " has a value that is none"); };
	for (const Variable &variable : bool_variables) {
		if (const auto text = system.variable(variable.name)) {
			if (const auto value = read_bool(*text))
				config.bools[variable.param] = *value;
			else
				bad(variable.name);
		}
	}
	if (const auto text = system.variable("CUFILE_LOGGING_LEVEL")) {
		if (text->empty() || Log::level_named(*text))
			config.strings[CUFILE_PARAM_LOGGING_LEVEL] = *text;
		else
			bad("CUFILE_LOGGING_LEVEL");
	}
	if (const auto text = system.variable("CUFILE_LOGFILE_PATH"))
		config.strings[CUFILE_PARAM_ENV_LOGFILE_PATH] = *text;
	if (const auto text = system.variable("CUFILE_LOGFILE_MAX_SIZE_MB")) {
		uint64_t value = 0;
		const char *end = text->data() + text->size();
		const auto [stop, error] = std::from_chars(text->data(), end, value);
		if (error == std::errc() && stop == end && is_log_size(value))
			config.log_max_mb = value;
		else
			bad("CUFILE_LOGFILE_MAX_SIZE_MB");
	}
	if (const auto text = system.variable("PEERDMA_REQUIRE_DIRECT")) {
		const auto value = read_bool(*text);
		// Whoever asks for it in words that are not understood does not want it silently off.
		config.require_direct = value.value_or(!text->empty());
	}
	if (const auto text = system.variable("PEERDMA_CUFILE_STATS")) {
		config.longer_stats = *text == "13.4";
		if (!config.longer_stats && *text != "13.0")
			bad("PEERDMA_CUFILE_STATS");
	}
}

// What the original has a use for and this library has not: who asks for something else than what is built in is told.
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
	return {0, UINT32_MAX}; // sizes that CUfileDrvProps_t has 32 bits for
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
	if (text == "true" || text == "1" || text == "TRUE" || text == "True")
		return true;
	if (text == "false" || text == "0" || text == "FALSE" || text == "False")
		return false;
	return std::nullopt;
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

Config Settings::merge(System &system, std::vector<std::string> &notices) const
{
	Config config;
	const auto named = system.variable("CUFILE_ENV_PATH_JSON");
	const std::string path = named && !named->empty() ? *named : "/etc/cufile.json";
	std::string text;
	const int rc = system.read_file(path, text);
	if (rc < 0) {
		if (named)
			notices.push_back("CUFILE_ENV_PATH_JSON names a file that cannot be read: " + path);
	} else {
		std::vector<std::string> found;
		if (!read_json(text, config, found))
			notices.push_back(path + " is no JSON object, and not used");
		for (const std::string &notice : found)
			notices.push_back(path + ": " + notice);
	}
	read_variables(system, config, notices);
	std::string &level = config.strings[CUFILE_PARAM_LOGGING_LEVEL];
	const std::string unless_set = level;
	over(config);
	if (!level.empty() && !Log::level_named(level)) {
		notices.push_back("the parameter LOGGING_LEVEL has a value that is none");
		level = unless_set;
	}
	if (level.empty())
		level = "ERROR";
	notice_idle(config, notices);
	return config;
}

} // namespace cufile
