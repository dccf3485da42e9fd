// SPDX-License-Identifier: MIT
#include "cufile/config/json_keys.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>

#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

// Without one of these the library would do something that was to be forbidden, so a fault in them keeps the driver
// closed.
constexpr Key restricting[] = {
	{"properties/allow_compat_mode", KeyKind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/use_compat_mode", KeyKind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/force_compat_mode", KeyKind::flag, CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"properties/force_odirect_mode", KeyKind::flag, CUFILE_PARAM_FORCE_ODIRECT_MODE},
	{"properties/allow_system_memory", KeyKind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY},
	{"properties/max_device_pinned_mem_size_kb", KeyKind::size,
	 CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB},
	{"properties/rdma_dynamic_routing", KeyKind::routing},
	{"properties/rdma_dynamic_routing_order", KeyKind::routing_order},
	{"properties/rdma_dev_addr_list", KeyKind::rdma_list},
	{"denylist/drivers", KeyKind::names, 0, &Denylist::drivers},
	{"denylist/devices", KeyKind::names, 0, &Denylist::devices},
	{"denylist/mounts", KeyKind::mounts, 0, &Denylist::mounts},
	{"denylist/filesystems", KeyKind::names, 0, &Denylist::filesystems},
	{"blacklist/drivers", KeyKind::names, 0, &Denylist::drivers},
	{"blacklist/devices", KeyKind::names, 0, &Denylist::devices},
	{"blacklist/mounts", KeyKind::mounts, 0, &Denylist::mounts},
	{"blacklist/filesystems", KeyKind::names, 0, &Denylist::filesystems},
};

constexpr Key tuning[] = {
	{"logging/dir", KeyKind::text, CUFILE_PARAM_LOG_DIR},
	{"logging/level", KeyKind::level, CUFILE_PARAM_LOGGING_LEVEL},
	{"logging/max_file_size_mb", KeyKind::log_max},
	{"profile/nvtx", KeyKind::flag, CUFILE_PARAM_PROFILE_NVTX},
	{"profile/cufile_stats", KeyKind::size, CUFILE_PARAM_PROFILE_STATS},
	{"profile/io_batchsize", KeyKind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"execution/max_io_queue_depth", KeyKind::size, CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH},
	{"execution/max_io_threads", KeyKind::size, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS},
	{"execution/parallel_io", KeyKind::flag, CUFILE_PARAM_EXECUTION_PARALLEL_IO},
	{"execution/min_io_threshold_size_kb", KeyKind::size, CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB},
	{"execution/max_request_parallelism", KeyKind::size, CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM},
	{"properties/max_direct_io_size_kb", KeyKind::size, CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB},
	{"properties/max_device_cache_size_kb", KeyKind::size, CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB},
	{"properties/per_buffer_cache_size_kb", KeyKind::size, CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB},
	{"properties/io_batchsize", KeyKind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_size", KeyKind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_timeout_msecs", KeyKind::size, CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS},
	{"properties/poll_mode_max_size_kb", KeyKind::size, CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB},
	{"properties/use_poll_mode", KeyKind::flag, CUFILE_PARAM_PROPERTIES_USE_POLL_MODE},
	{"properties/use_pci_p2pdma", KeyKind::flag, CUFILE_PARAM_USE_PCIP2PDMA},
	{"properties/prefer_iouring", KeyKind::flag, CUFILE_PARAM_PREFER_IO_URING},
	{"properties/posix_pool_slab_size_kb", KeyKind::slab_size, posix_pool},
	{"properties/posix_pool_slab_count", KeyKind::slab_count, posix_pool},
	{"properties/gpu_bounce_buffer_slab_config/slab_size_kb", KeyKind::slab_size, gpu_pool},
	{"properties/gpu_bounce_buffer_slab_config/slab_count", KeyKind::slab_count, gpu_pool},
	{"properties/gds_rdma_write_support", KeyKind::none},
	{"properties/vanilla_posix_io_mode", KeyKind::idle, 0, nullptr, "false"},
	{"properties/gds_fallback_io", KeyKind::idle, 0, nullptr, "false"},
	{"properties/io_priority", KeyKind::idle, 0, nullptr, "\"default\""},
	{"properties/io_retry_count", KeyKind::none},
	{"properties/max_backup_devices", KeyKind::none},
	{"properties/compat_odirect_unaligned_read_split", KeyKind::idle, 0, nullptr, "false"},
	{"properties/compat_odirect_unaligned_read_split_min_size_kb", KeyKind::none},
	{"properties/allow_rdma_token_reset", KeyKind::none},
	{"properties/rdma_peer_type", KeyKind::none},
	{"properties/rdma_peer_affinity_policy", KeyKind::none},
	{"properties/rdma_transport_type", KeyKind::none},
	{"properties/rdma_dc_key", KeyKind::none},
	{"properties/rdma_access_mask", KeyKind::none},
	{"properties/rdma_load_balancing_policy", KeyKind::none},
	{"properties/rdma_topN_ranks", KeyKind::none},
	{"properties/rdma_multipath_mode", KeyKind::none},
	{"sparse", KeyKind::section},
	{"sparse/p2p_compat_enable", KeyKind::none},
	{"fs", KeyKind::rdma},
	{"block", KeyKind::section},
	{"miscellaneous/api_check_aggressive", KeyKind::flag, CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE},
	{"miscellaneous/skip_topology_detection", KeyKind::flag, CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"miscellaneous/stream_memops_bypass", KeyKind::flag, CUFILE_PARAM_STREAM_MEMOPS_BYPASS},
	{"miscellaneous/enable_static_routing", KeyKind::idle, 0, nullptr, "false"},
	{"miscellaneous/static_routing_filepath", KeyKind::none},
	{"miscellaneous/rdma_token_reset_timeout_secs", KeyKind::none},
};

constexpr const char *denylists[] = {"denylist", "blacklist"};

// An unknown key that contains one of these, in the spelling of plain(), is taken as restricting.
constexpr struct {
	const char *letters, *expected;
} restricting_words[] = {
	{"requiredirect", "the variable PEERDMA_REQUIRE_DIRECT, or properties/allow_compat_mode false"},
	{"directonly", "the variable PEERDMA_REQUIRE_DIRECT, or properties/allow_compat_mode false"},
	{"compat", "properties/allow_compat_mode"},
	{"odirect", "properties/force_odirect_mode"},
	{"pinned", "properties/max_device_pinned_mem_size_kb"},
	{"sysmem", "properties/allow_system_memory"},
	{"systemmem", "properties/allow_system_memory"},
	{"deny", "denylist"},
	{"deni", "denylist"},
	{"blacklist", "denylist"},
	{"blocklist", "denylist"},
	{"exclu", "denylist"},
	{"forbid", "denylist"},
	{"disallow", "denylist"},
	{"rdmadev", "properties/rdma_dev_addr_list"},
	{"rdmaaddr", "properties/rdma_dev_addr_list"},
	{"rdmarout", "properties/rdma_dynamic_routing"},
	{"dynamicrout", "properties/rdma_dynamic_routing"},
};

// Edit distance.
size_t distance(std::string_view a, std::string_view b)
{
	std::vector<size_t> row(b.size() + 1);
	std::iota(row.begin(), row.end(), size_t{0});
	for (size_t i = 0; i < a.size(); i++) {
		size_t diagonal = row[0]++;
		for (size_t j = 0; j < b.size(); j++) {
			const size_t changed = diagonal + (a[i] != b[j]);
			diagonal = row[j + 1];
			row[j + 1] = std::min({row[j] + 1, diagonal + 1, changed});
		}
	}
	return row[b.size()];
}

// Lower case, without separators.
std::string plain(std::string_view name)
{
	std::string out;
	for (const char c : name)
		if (c != '_' && c != '-' && c != ' ' && c != '.' && c != '/')
			out += lower(c);
	return out;
}

const Key *find(std::span<const Key> keys, std::string_view path)
{
	const auto found = std::ranges::find(keys, path, [](const Key &key) { return std::string_view(key.path); });
	return found == keys.end() ? nullptr : &*found;
}

bool is_section(std::span<const Key> keys, std::string_view path)
{
	return std::ranges::any_of(keys, [&](const Key &key) { return is_below(key.path, path); });
}

} // namespace

const Key *find_restricting(std::string_view path) { return find(restricting, path); }
const Key *find_tuning(std::string_view path) { return find(tuning, path); }
bool is_restricting_section(std::string_view path) { return is_section(restricting, path); }
bool is_tuning_section(std::string_view path) { return is_section(tuning, path); }

const Key *find_slabs(unsigned pool, bool has_sizes, bool has_counts)
{
	for (const Key &key : tuning)
		if ((key.kind == KeyKind::slab_size && has_sizes && key.param == pool) ||
		    (key.kind == KeyKind::slab_count && has_counts && key.param == pool))
			return &key;
	return nullptr;
}

std::string_view similar_restricting(std::string_view name)
{
	const std::string written = plain(name);
	const auto is_near = [&](std::string_view known) {
		const std::string other = plain(known);
		constexpr size_t slips = 2, shortest = 8;
		if (other.size() < shortest)
			return written == other;
		if (written.size() >= shortest && other.starts_with(written))
			return true;
		return written.size() <= other.size() + slips && other.size() <= written.size() + slips &&
		       distance(written, other) <= slips;
	};
	for (const char *known : denylists)
		if (is_near(known))
			return known;
	for (const Key &key : restricting)
		if (is_near(last_part(key.path)) || written == plain(key.path))
			return key.path;
	for (const auto &word : restricting_words)
		if (written.find(word.letters) != std::string::npos)
			return word.expected;
	return "";
}

bool is_below_denylist(std::string_view path)
{
	return std::ranges::any_of(denylists, [&](const char *list) { return is_below(path, list); });
}

bool is_known(std::string_view path)
{
	return find_restricting(path) || is_restricting_section(path) || is_below_denylist(path) || find_tuning(path) ||
	       (is_below(path, "fs") && last_part(path) == rdma_list);
}

} // namespace cufile
