// SPDX-License-Identifier: MIT

#include <algorithm>

#include <nlohmann/json.hpp>

#include "config.hpp"
#include "log.hpp"

namespace cufile
{
namespace
{

using nlohmann::json;

enum class Kind { size, flag, text, level, slab_size, slab_count, log_max, routing, routing_order, names, idle, none };

struct Key {
	const char *path; // from the root, parts separated by '/'
	Kind kind;
	unsigned param = 0;
	std::vector<std::string> Denylist::*list = nullptr;
	const char *built_in = nullptr;
};

// Kind::none: known, and without a meaning for how this library moves bytes. Kind::idle: there is one, but no effect.
constexpr Key keys[] = {
	{"logging/dir", Kind::text, CUFILE_PARAM_LOG_DIR},
	{"logging/level", Kind::level, CUFILE_PARAM_LOGGING_LEVEL},
	{"logging/max_file_size_mb", Kind::log_max},
	{"profile/nvtx", Kind::flag, CUFILE_PARAM_PROFILE_NVTX},
	{"profile/cufile_stats", Kind::size, CUFILE_PARAM_PROFILE_STATS},
	{"profile/io_batchsize", Kind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"execution/max_io_queue_depth", Kind::size, CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH},
	{"execution/max_io_threads", Kind::size, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS},
	{"execution/parallel_io", Kind::flag, CUFILE_PARAM_EXECUTION_PARALLEL_IO},
	{"execution/min_io_threshold_size_kb", Kind::size, CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB},
	{"execution/max_request_parallelism", Kind::size, CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM},
	{"properties/max_direct_io_size_kb", Kind::size, CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB},
	{"properties/max_device_cache_size_kb", Kind::size, CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB},
	{"properties/per_buffer_cache_size_kb", Kind::size, CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB},
	{"properties/max_device_pinned_mem_size_kb", Kind::size, CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB},
	{"properties/io_batchsize", Kind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_size", Kind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_timeout_msecs", Kind::size, CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS},
	{"properties/poll_mode_max_size_kb", Kind::size, CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB},
	{"properties/use_poll_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_USE_POLL_MODE},
	{"properties/allow_compat_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/use_compat_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/force_compat_mode", Kind::flag, CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"properties/use_pci_p2pdma", Kind::flag, CUFILE_PARAM_USE_PCIP2PDMA},
	{"properties/prefer_iouring", Kind::flag, CUFILE_PARAM_PREFER_IO_URING},
	{"properties/force_odirect_mode", Kind::flag, CUFILE_PARAM_FORCE_ODIRECT_MODE},
	{"properties/allow_system_memory", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY},
	{"properties/posix_pool_slab_size_kb", Kind::slab_size, posix_pool},
	{"properties/posix_pool_slab_count", Kind::slab_count, posix_pool},
	{"properties/gpu_bounce_buffer_slab_config/slab_size_kb", Kind::slab_size, gpu_pool},
	{"properties/gpu_bounce_buffer_slab_config/slab_count", Kind::slab_count, gpu_pool},
	{"properties/gds_rdma_write_support", Kind::none},
	{"properties/vanilla_posix_io_mode", Kind::idle, 0, nullptr, "false"},
	{"properties/gds_fallback_io", Kind::idle, 0, nullptr, "false"},
	{"properties/io_priority", Kind::idle, 0, nullptr, "\"default\""},
	{"properties/io_retry_count", Kind::none},
	{"properties/max_backup_devices", Kind::none},
	{"properties/compat_odirect_unaligned_read_split", Kind::idle, 0, nullptr, "false"},
	{"properties/compat_odirect_unaligned_read_split_min_size_kb", Kind::none},
	{"properties/allow_rdma_token_reset", Kind::none},
	{"properties/rdma_dynamic_routing", Kind::routing},
	{"properties/rdma_dynamic_routing_order", Kind::routing_order},
	{"properties/rdma_", Kind::none}, // and all that begins like it
	{"sparse", Kind::none},
	{"fs", Kind::none},
	{"block", Kind::none},
	{"denylist/drivers", Kind::names, 0, &Denylist::drivers},
	{"denylist/devices", Kind::names, 0, &Denylist::devices},
	{"denylist/mounts", Kind::names, 0, &Denylist::mounts},
	{"denylist/filesystems", Kind::names, 0, &Denylist::filesystems},
	{"blacklist/drivers", Kind::names, 0, &Denylist::drivers},
	{"blacklist/devices", Kind::names, 0, &Denylist::devices},
	{"blacklist/mounts", Kind::names, 0, &Denylist::mounts},
	{"blacklist/filesystems", Kind::names, 0, &Denylist::filesystems},
	{"miscellaneous/api_check_aggressive", Kind::flag, CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE},
	{"miscellaneous/skip_topology_detection", Kind::flag, CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"miscellaneous/stream_memops_bypass", Kind::flag, CUFILE_PARAM_STREAM_MEMOPS_BYPASS},
	{"miscellaneous/enable_static_routing", Kind::idle, 0, nullptr, "false"},
	{"miscellaneous/static_routing_filepath", Kind::none},
	{"miscellaneous/rdma_token_reset_timeout_secs", Kind::none},
};

class Reader
{
public:
	Reader(Config &config, std::vector<std::string> &notices) : config_(config), notices_(notices) {}

	void object(const json &value, const std::string &path)
	{
		for (const auto &[name, member] : value.items()) {
			const std::string where = path.empty() ? name : path + '/' + name;
			if (const Key *key = find(where))
				take(*key, where, member);
			else if (member.is_object())
				object(member, where);
			else
				notices_.push_back("nothing is known of \"" + where + '"');
		}
	}

	void finish()
	{
		static constexpr const char *names[nr_pools] = {"posix_pool_slab", "gpu_bounce_buffer_slab"};
		for (unsigned i = 0; i < nr_pools; i++) {
			const Slabs slabs{sizes_[i].value_or(config_.slabs[i].size_kb),
					  counts_[i].value_or(config_.slabs[i].count)};
			if (slabs.size_kb.size() == slabs.count.size())
				config_.slabs[i] = slabs;
			else
				notices_.push_back(std::string("of ") + names[i] +
						   " as many sizes as counts are needed");
		}
		config_.near_gpu = routing_ && by_gpu_;
	}

private:
	static const Key *find(const std::string &path)
	{
		for (const Key &key : keys) {
			const std::string_view known = key.path;
			if (path == known || (known.ends_with('_') && path.starts_with(known)))
				return &key;
		}
		return nullptr;
	}

	void take(const Key &key, const std::string &path, const json &value)
	{
		if (!set(key, value))
			notices_.push_back('"' + path + "\" has a value that it cannot have");
	}

	bool set(const Key &key, const json &value)
	{
		switch (key.kind) {
		case Kind::size: {
			const Range range = size_range(key.param);
			const auto number = unsigned_of(value);
			if (!number || *number < range.min || *number > range.max)
				return false;
			config_.sizes[key.param] = *number;
			return true;
		}
		case Kind::flag:
			if (!value.is_boolean())
				return false;
			config_.bools[key.param] = value.get<bool>();
			return true;
		case Kind::text:
			if (!value.is_string())
				return false;
			config_.strings[key.param] = value.get<std::string>();
			return true;
		case Kind::level:
			if (!value.is_string() || !is_level(value.get<std::string>()))
				return false;
			config_.strings[key.param] = value.get<std::string>();
			return true;
		case Kind::slab_size:
			return (sizes_[key.param] = numbers(value)).has_value();
		case Kind::slab_count:
			return (counts_[key.param] = numbers(value)).has_value();
		case Kind::log_max: {
			const auto number = unsigned_of(value);
			if (!number || !is_log_size(*number))
				return false;
			config_.log_max_mb = *number;
			return true;
		}
		case Kind::routing:
			if (!value.is_boolean())
				return false;
			routing_ = value.get<bool>();
			return true;
		case Kind::routing_order:
			return order(value);
		case Kind::names:
			return list(config_.denylist.*key.list, value);
		case Kind::idle:
			if (value.dump() != key.built_in)
				config_.idle.emplace_back(key.path);
			return true;
		case Kind::none:
			return true;
		}
		return false;
	}

	// One of both names adds to the other.
	static bool list(std::vector<std::string> &to, const json &value)
	{
		if (!value.is_array() || !std::ranges::all_of(value, [](const json &name) { return name.is_string(); }))
			return false;
		for (const json &name : value)
			to.push_back(name.get<std::string>());
		return true;
	}

	// By way of a GPU, if that comes before the host's memory.
	bool order(const json &value)
	{
		if (!value.is_array() || !std::ranges::all_of(value, [](const json &way) { return way.is_string(); }))
			return false;
		const auto is_gpu = [](const json &way) { return way == "GPU_MEM" || way == "GPU_MEM_NVLINKS"; };
		by_gpu_ = std::find_if(value.begin(), value.end(), is_gpu) <
			  std::find(value.begin(), value.end(), json("SYS_MEM"));
		return true;
	}

	// Or nothing, which is as if it were not there.
	static bool is_level(const std::string &name) { return name.empty() || Log::level_named(name); }

	// As the parser has it: what is written without a sign, a point or an exponent.
	static std::optional<uint64_t> unsigned_of(const json &value)
	{
		return value.is_number_unsigned() ? std::optional<uint64_t>(value.get<uint64_t>()) : std::nullopt;
	}

	static std::optional<std::vector<size_t>> numbers(const json &value)
	{
		if (!value.is_array() || value.empty() || value.size() > max_slabs)
			return std::nullopt;
		std::vector<size_t> all;
		for (const json &element : value) {
			const auto number = unsigned_of(element);
			if (!number || *number > UINT32_MAX)
				return std::nullopt;
			all.push_back(*number);
		}
		return all;
	}

	Config &config_;
	std::vector<std::string> &notices_;
	std::optional<std::vector<size_t>> sizes_[nr_pools], counts_[nr_pools];
	bool routing_ = false, by_gpu_ = true;
};

} // namespace

bool read_json(const std::string &text, Config &config, std::vector<std::string> &notices)
{
	// Depth is bounded before the tree is built: taking a deep one down recurses.
	constexpr int max_depth = 32;
	bool too_deep = false;
	const json root = json::parse(
		text,
		[&](int depth, json::parse_event_t, json &) {
			too_deep = too_deep || depth > max_depth;
			return depth <= max_depth;
		},
		false, true);
	if (too_deep || !root.is_object())
		return false;
	Reader reader(config, notices);
	reader.object(root, "");
	reader.finish();
	return true;
}

} // namespace cufile
