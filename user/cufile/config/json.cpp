// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>

#include "cufile/config/config.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

using nlohmann::json;

enum class Kind {
	size,
	flag,
	text,
	level,
	slab_size,
	slab_count,
	log_max,
	routing,
	routing_order,
	mounts,
	names,
	rdma_list, // rdma_dev_addr_list, for which there is no RDMA of the library's own
	rdma,      // where there may be such lists
	idle,      // known, and has no effect here: a value other than the built-in one is a notice
	section,   // known, an object that has no effect here
	none,      // known, and means nothing for how this library moves bytes
};

struct Key {
	const char *path; // from the root, parts separated by '/'
	Kind kind;
	unsigned param = 0;
	std::vector<std::string> Denylist::*list = nullptr;
	const char *built_in = nullptr;
};

// Without one of these something is done that was to be forbidden: a fault in them keeps the driver closed.
constexpr Key restricting[] = {
	{"properties/allow_compat_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/use_compat_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
	{"properties/force_compat_mode", Kind::flag, CUFILE_PARAM_FORCE_COMPAT_MODE},
	{"properties/force_odirect_mode", Kind::flag, CUFILE_PARAM_FORCE_ODIRECT_MODE},
	{"properties/allow_system_memory", Kind::flag, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY},
	{"properties/max_device_pinned_mem_size_kb", Kind::size, CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB},
	{"properties/rdma_dynamic_routing", Kind::routing},
	{"properties/rdma_dynamic_routing_order", Kind::routing_order},
	{"properties/rdma_dev_addr_list", Kind::rdma_list},
	{"denylist/drivers", Kind::names, 0, &Denylist::drivers},
	{"denylist/devices", Kind::names, 0, &Denylist::devices},
	{"denylist/mounts", Kind::mounts, 0, &Denylist::mounts},
	{"denylist/filesystems", Kind::names, 0, &Denylist::filesystems},
	{"blacklist/drivers", Kind::names, 0, &Denylist::drivers},
	{"blacklist/devices", Kind::names, 0, &Denylist::devices},
	{"blacklist/mounts", Kind::mounts, 0, &Denylist::mounts},
	{"blacklist/filesystems", Kind::names, 0, &Denylist::filesystems},
};

constexpr Key tuning[] = {
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
	{"properties/io_batchsize", Kind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_size", Kind::size, CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE},
	{"properties/max_batch_io_timeout_msecs", Kind::size, CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS},
	{"properties/poll_mode_max_size_kb", Kind::size, CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB},
	{"properties/use_poll_mode", Kind::flag, CUFILE_PARAM_PROPERTIES_USE_POLL_MODE},
	{"properties/use_pci_p2pdma", Kind::flag, CUFILE_PARAM_USE_PCIP2PDMA},
	{"properties/prefer_iouring", Kind::flag, CUFILE_PARAM_PREFER_IO_URING},
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
	{"properties/rdma_peer_type", Kind::none},
	{"properties/rdma_peer_affinity_policy", Kind::none},
	{"properties/rdma_transport_type", Kind::none},
	{"properties/rdma_dc_key", Kind::none},
	{"properties/rdma_access_mask", Kind::none},
	{"properties/rdma_load_balancing_policy", Kind::none},
	{"properties/rdma_topN_ranks", Kind::none},
	{"properties/rdma_multipath_mode", Kind::none},
	{"sparse", Kind::section},
	{"sparse/p2p_compat_enable", Kind::none},
	{"fs", Kind::rdma},
	{"block", Kind::section},
	{"miscellaneous/api_check_aggressive", Kind::flag, CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE},
	{"miscellaneous/skip_topology_detection", Kind::flag, CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
	{"miscellaneous/stream_memops_bypass", Kind::flag, CUFILE_PARAM_STREAM_MEMOPS_BYPASS},
	{"miscellaneous/enable_static_routing", Kind::idle, 0, nullptr, "false"},
	{"miscellaneous/static_routing_filepath", Kind::none},
	{"miscellaneous/rdma_token_reset_timeout_secs", Kind::none},
};

constexpr const char *denylists[] = {"denylist", "blacklist"};
constexpr const char *rdma_list = "rdma_dev_addr_list";
constexpr const char *mount_table = "mount_table"; // its keys are absolute paths
constexpr const char *an_object = "an object";

// An unknown key that contains one of these is taken to restrict, in the spelling of plain().
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

constexpr const char *routes[] = {"GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P"};
constexpr const char *slab_pools[nr_pools] = {"posix_pool_slab", "gpu_bounce_buffer_slab"};

bool is_below(std::string_view path, std::string_view top)
{
	return path.size() > top.size() && path.starts_with(top) && path[top.size()] == '/';
}

// A section of such keys.
bool is_section(std::span<const Key> keys, std::string_view path)
{
	return std::ranges::any_of(keys, [&](const Key &key) { return is_below(key.path, path); });
}

const Key *find_restricting(std::string_view path)
{
	const auto found =
		std::ranges::find(restricting, path, [](const Key &key) { return std::string_view(key.path); });
	return found == std::end(restricting) ? nullptr : &*found;
}

const Key *find_tuning(std::string_view path)
{
	const auto found = std::ranges::find(tuning, path, [](const Key &key) { return std::string_view(key.path); });
	return found == std::end(tuning) ? nullptr : &*found;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// How many letters are to be inserted, left out or changed to make one of the other.
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

// Letters and digits, in lower case.
std::string plain(std::string_view name)
{
	std::string out;
	for (const char c : name)
		if (c != '_' && c != '-' && c != ' ' && c != '.' && c != '/')
			out += lower(c);
	return out;
}

// What restricts and is likely meant by an unknown name; "": nothing.
std::string_view meant(std::string_view name)
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
	return find_restricting(path) || is_section(restricting, path) || is_below_denylist(path) ||
	       find_tuning(path) || (is_below(path, "fs") && last_part(path) == rdma_list);
}

// Something to be said of a position in the text.
struct Remark {
	size_t at;
	std::string what;
};

// Where the tokens of a text begin that a parser accepts at the same time. Commas and colons are skipped.
class Tokens
{
public:
	explicit Tokens(std::string_view text) : text_(text) { at_ = text.starts_with("\xef\xbb\xbf") ? 3 : 0; }

	size_t next()
	{
		skip();
		const size_t start = at_;
		if (at_ == text_.size())
			return start;
		const char first = text_[at_++];
		if (first == '"')
			skip_string();
		else if (first != '{' && first != '}' && first != '[' && first != ']')
			at_ = std::min(text_.find_first_of(" \t\r\n,:]}/", at_), text_.size());
		return start;
	}

private:
	void skip()
	{
		constexpr std::string_view line_ends("\n\r\0", 3);
		for (;;) {
			at_ = std::min(text_.find_first_not_of(" \t\r\n,:", at_), text_.size());
			const std::string_view rest = text_.substr(at_);
			if (rest.starts_with("//"))
				at_ = std::min(text_.find_first_of(line_ends, at_), text_.size());
			else if (rest.starts_with("/*"))
				at_ = std::min(text_.find("*/", at_ + 2), text_.size() - 2) + 2;
			else
				return;
		}
	}
	void skip_string()
	{
		while (at_ < text_.size() && text_[at_] != '"')
			at_ += text_[at_] == '\\' ? 2 : 1;
		at_ = std::min(at_ + 1, text_.size());
	}

	const std::string_view text_;
	size_t at_;
};

// Indexes the keys: their places, keys that an object has twice, and unknown keys that seem to restrict, at any depth.
// The parser calls add() for each token.
class Index
{
public:
	struct Position {
		size_t key, value;
	};

	explicit Index(std::string_view text) : tokens_(text) {}

	void add(int depth, json::parse_event_t event, const json &parsed)
	{
		constexpr int max_depth = 32; // taking a deep tree down recurses
		const size_t at = tokens_.next();
		if (depth > max_depth)
			throw Remark{at,
				     "nested too deeply; expected at most " + std::to_string(max_depth) + " levels"};
		if (event == json::parse_event_t::key)
			return add_key(static_cast<size_t>(depth), at, parsed.get<std::string>());
		if (last_)
			last_->value = at;
		last_ = nullptr;
		if (event != json::parse_event_t::object_end && event != json::parse_event_t::array_end)
			add_value(static_cast<size_t>(depth), event);
	}

	size_t next() { return tokens_.next(); }
	const Position &position(const std::string &path) const { return places_.at(path); }
	const std::vector<std::string> &twice() const { return twice_; }
	const std::vector<Remark> &misnamed() const { return misnamed_; }

private:
	// The path of an array's element has its index.
	void add_value(size_t depth, json::parse_event_t event)
	{
		if (depth && elements_[depth - 1]) {
			parts_.resize(depth);
			parts_.back() = std::to_string((*elements_[depth - 1])++);
		}
		elements_.resize(depth);
		if (event == json::parse_event_t::array_start)
			elements_.emplace_back(0);
		else if (event == json::parse_event_t::object_start)
			elements_.emplace_back();
	}

	void add_key(size_t depth, size_t at, std::string name)
	{
		parts_.resize(depth);
		parts_.back() = std::move(name);
		std::string path = parts_[0];
		for (size_t i = 1; i < depth; i++)
			path += '/' + parts_[i];
		constexpr size_t most = 16 << 20;
		if ((bytes_ += path.size()) > most)
			throw Remark{at, "too many keys, or too long ones"};
		const auto [position, is_new] = places_.insert_or_assign(path, Position{at, at});
		if (!is_new)
			twice_.push_back(path);
		last_ = &position->second;
		check_name(path, at);
	}

	void check_name(const std::string &path, size_t at)
	{
		const std::string &name = parts_.back();
		const bool is_path = name.starts_with('/') && parts_.size() > 1 && parts_[0] == "fs" &&
				     parts_[parts_.size() - 2] == mount_table;
		if (is_path || (is_known(path) && name.find('/') == std::string::npos))
			return;
		if (const auto near = meant(name); !near.empty())
			misnamed_.push_back({at, path + ": unknown key; expected " + std::string(near)});
	}

	Tokens tokens_;
	std::vector<std::string> parts_;
	std::vector<std::optional<size_t>> elements_; // of each open array, how many it has; nullopt: an object
	std::map<std::string, Position> places_;
	size_t bytes_ = 0;         // of all paths
	Position *last_ = nullptr; // of the key whose value is to come
	std::vector<std::string> twice_;
	std::vector<Remark> misnamed_;
};

// As decimal digits, or with a fraction of 0.
std::optional<uint64_t> number(const json &value)
{
	if (value.is_number_unsigned())
		return value.get<uint64_t>();
	if (value.is_string())
		return read_number(value.get_ref<const std::string &>());
	if (!value.is_number_float())
		return std::nullopt;
	const auto real = value.get<double>();
	const bool is_whole = real >= 0 && real < 0x1p64 && std::floor(real) == real;
	return is_whole ? std::optional(static_cast<uint64_t>(real)) : std::nullopt;
}

std::optional<bool> flag(const json &value)
{
	if (value.is_boolean())
		return value.get<bool>();
	if (value.is_string())
		return read_bool(value.get_ref<const std::string &>());
	const auto digit = number(value);
	return digit && *digit <= 1 ? std::optional(*digit == 1) : std::nullopt;
}

// A number alone counts for each entry of the other list.
struct Numbers {
	std::vector<size_t> all;
	bool alone = false;
};

std::optional<Numbers> numbers(const json &value)
{
	Numbers out;
	out.alone = !value.is_array();
	const json list = out.alone ? json::array({value}) : value;
	if (list.empty() || list.size() > max_slabs)
		return std::nullopt;
	for (const json &element : list) {
		const auto one = number(element);
		if (!one || *one > UINT32_MAX)
			return std::nullopt;
		out.all.push_back(*one);
	}
	return out;
}

std::optional<std::vector<std::string>> strings(const json &value)
{
	if (!value.is_array() || !std::ranges::all_of(value, [](const json &one) { return one.is_string(); }))
		return std::nullopt;
	return value.get<std::vector<std::string>>();
}

std::string shortened(std::string text)
{
	constexpr size_t most = 100;
	return text.size() <= most ? text : text.substr(0, most) + "...";
}

// As it is in the file, without what a terminal would obey.
std::string written(const json &value) { return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace)); }

constexpr const char *blanks = " \t\r\n\v\f";

// A mount point as the kernel writes it, or with a slash at its end. Any other path would deny nothing.
bool is_mount_point(const std::string &path)
{
	const auto has = [](const std::string &text, const char *odd) { return text.find(odd) != std::string::npos; };
	return path.starts_with('/') && !has(path, "//") && !has(path + '/', "/./") && !has(path + '/', "/../") &&
	       !has(path, ",/") && !has(path, ", /") && path.find_first_of("*?") == std::string::npos &&
	       path.find_last_of(blanks) != path.size() - 1;
}

// A name that a driver, a device or a file system can have. Any other would deny nothing.
bool is_name(const std::string &name)
{
	return !name.empty() && name.find_first_of(std::string(blanks) + ",;*?") == std::string::npos &&
	       !name.ends_with('/');
}

class Reader
{
public:
	Reader(const Index &index, Config &config) : index_(index), config_(config) {}

	void read(const json &root)
	{
		faults = index_.misnamed();
		for (const std::string &path : index_.twice()) {
			const size_t at = index_.position(path).key;
			if (find_restricting(path) || is_section(restricting, path) || path == "fs" ||
			    is_below(path, "fs"))
				remark(true, at, path + ": given twice; expected once");
			else if (find_tuning(path) || is_section(tuning, path))
				remark(false, at, path + ": given twice; the last one counts");
		}
		object(root, "");
		for (unsigned pool = 0; pool < nr_pools; pool++)
			set_slabs(pool);
		config_.peer_gpu_bounce = routing_ && by_gpu_;
	}

	std::vector<Remark> faults, notices;

private:
	void remark(bool restricts, size_t at, std::string what)
	{
		(restricts ? faults : notices).push_back({at, std::move(what)});
	}

	// before: the path and a slash; "" of the root.
	void object(const json &value, const std::string &before)
	{
		for (const auto &[name, member] : value.items())
			take(before + name, name, member);
	}

	void take(const std::string &path, const std::string &name, const json &value)
	{
		if (is_below_denylist(path) && !find_restricting(path))
			return remark(true, index_.position(path).key,
				      path + ": unknown key; expected drivers, devices, mounts or filesystems");
		const bool is_one_part = name.find('/') == std::string::npos;
		if (const Key *const key = find_restricting(path); key && is_one_part)
			return set(*key, path, value, true);
		if (const Key *const key = find_tuning(path); key && is_one_part)
			return set(*key, path, value, false);
		const bool restricts = is_section(restricting, path);
		if (value.is_object())
			object(value, path + '/');
		else if (restricts || is_section(tuning, path))
			bad(path, value, an_object, restricts);
		else
			remark(false, index_.position(path).key, path + ": unknown key");
	}

	void bad(const std::string &path, const json &value, std::string_view expected, bool restricts)
	{
		remark(restricts, index_.position(path).value, invalid(path, written(value), expected));
	}

	void set(const Key &key, const std::string &path, const json &value, bool restricts)
	{
		switch (key.kind) {
		case Kind::size: {
			const Range range = size_range(key.param);
			const auto one = number(value);
			if (!one || *one < range.min || *one > range.max)
				return bad(path, value, expected_number(range), restricts);
			config_.sizes[key.param] = *one;
			return;
		}
		case Kind::flag: {
			const auto one = flag(value);
			if (!one)
				return bad(path, value, expected_bool, restricts);
			return set_flag(key, path, *one, restricts);
		}
		case Kind::text:
			if (!value.is_string())
				return bad(path, value, "a string", restricts);
			config_.strings[key.param] = value.get<std::string>();
			return;
		case Kind::level: {
			const std::string name = value.is_string() ? value.get<std::string>() : "none";
			const auto level = Log::level_named(name);
			if (!level && !name.empty())
				return bad(path, value, expected_level, restricts);
			config_.strings[key.param] = level ? Log::name_of(*level) : "";
			return;
		}
		case Kind::slab_size:
		case Kind::slab_count: {
			auto &out = (key.kind == Kind::slab_size ? sizes_ : counts_)[key.param];
			out = numbers(value);
			if (!out)
				bad(path, value, expected_number({0, UINT32_MAX}) + ", or a list of 1 to 16 of them",
				    restricts);
			return;
		}
		case Kind::log_max: {
			const auto one = number(value);
			if (!one || !is_log_size(*one))
				return bad(path, value, expected_number({1, max_log_mb}), restricts);
			config_.log_max_mb = *one;
			return;
		}
		case Kind::routing: {
			const auto one = flag(value);
			if (!one)
				return bad(path, value, expected_bool, restricts);
			routing_ = *one;
			return;
		}
		case Kind::routing_order:
			if (!set_order(value))
				bad(path, value, "a list of GPU_MEM_NVLINKS, GPU_MEM, SYS_MEM and P2P", restricts);
			return;
		case Kind::mounts:
		case Kind::names:
			return deny(key, path, value);
		case Kind::rdma_list: {
			const auto list = strings(value);
			if (!list)
				return bad(path, value, "a list of addresses", true);
			if (!list->empty())
				config_.idle.push_back(path);
			return;
		}
		case Kind::rdma:
			return rdma(path, value, true);
		case Kind::section:
			if (!value.is_object())
				bad(path, value, an_object, restricts);
			return;
		case Kind::idle:
			if (value.dump() != key.built_in &&
			    (flag(value) != false || key.built_in != std::string("false")))
				config_.idle.emplace_back(key.path);
			return;
		case Kind::none:
			return;
		}
	}

	// Two names of one flag must not contradict each other.
	void set_flag(const Key &key, const std::string &path, bool value, bool restricts)
	{
		std::string &before = set_by_[key.param];
		if (restricts && !before.empty() && config_.bools[key.param] != value)
			remark(true, index_.position(path).value,
			       path + ": contradicts " + before + "; expected the same value");
		before = path;
		config_.bools[key.param] = value;
	}

	// denylist and blacklist add to each other.
	void deny(const Key &key, const std::string &path, const json &value)
	{
		const bool of_paths = key.kind == Kind::mounts;
		const auto list = strings(value);
		if (!list)
			return bad(path, value, of_paths ? "a list of absolute paths" : "a list of names", true);
		for (const std::string &one : *list)
			if (one.find('\0') != std::string::npos || !(of_paths ? is_mount_point(one) : is_name(one)))
				return bad(
					path, one,
					of_paths ?
						"one absolute path without //, ., .., * or ?, and no blank at its end" :
						"one name without blanks, commas, ;, * or ?, and no / at its end",
					true);
		std::vector<std::string> &to = config_.denylist.*key.list;
		to.insert(to.end(), list->begin(), list->end());
	}

	// By way of a GPU, if that comes before the host's memory. A name alone is a list of one.
	bool set_order(const json &value)
	{
		const auto list = strings(value.is_string() ? json::array({value}) : value);
		const auto is_route = [](const std::string &one) {
			return std::ranges::any_of(routes, [&](const char *name) { return same_letters(one, name); });
		};
		if (!list || !std::ranges::all_of(*list, is_route))
			return false;
		const auto is_gpu = [](const std::string &one) { return lower(one[0]) == 'g'; };
		const auto is_host = [](const std::string &one) { return lower(one[0]) == 's'; };
		by_gpu_ = std::ranges::find_if(*list, is_gpu) < std::ranges::find_if(*list, is_host);
		return true;
	}

	void rdma(const std::string &path, const json &value, bool is_section)
	{
		if (is_section && !value.is_object())
			return bad(path, value, an_object, true);
		if (!value.is_structured())
			return;
		for (const auto &[name, member] : value.items()) {
			const std::string where = path + '/' + name;
			if (name == rdma_list)
				set({where.c_str(), Kind::rdma_list}, where, member, true);
			else
				rdma(where, member,
				     path == "fs" || name == mount_table || last_part(path) == mount_table);
		}
	}

	void set_slabs(unsigned pool)
	{
		Slabs &slabs = config_.slabs[pool];
		Numbers sizes = sizes_[pool].value_or(Numbers{slabs.size_kb}),
			counts = counts_[pool].value_or(Numbers{slabs.count});
		if (sizes.alone)
			sizes.all.resize(counts.all.size(), sizes.all[0]);
		if (counts.alone)
			counts.all.resize(sizes.all.size(), counts.all[0]);
		if (sizes.all.size() == counts.all.size())
			slabs = {sizes.all, counts.all};
		else
			remark(false, slabs_at(pool),
			       std::string(slab_pools[pool]) + ": " + std::to_string(sizes.all.size()) + " sizes and " +
				       std::to_string(counts.all.size()) + " counts; expected as many sizes as counts");
	}

	size_t slabs_at(unsigned pool) const
	{
		for (const Key &key : tuning)
			if ((key.kind == Kind::slab_size && sizes_[pool] && key.param == pool) ||
			    (key.kind == Kind::slab_count && counts_[pool] && key.param == pool))
				return index_.position(key.path).value;
		return 0;
	}

	const Index &index_;
	Config &config_;
	std::map<unsigned, std::string> set_by_; // of flags
	std::optional<Numbers> sizes_[nr_pools], counts_[nr_pools];
	bool routing_ = false, by_gpu_ = true;
};

// What the parser expected, without its own name and without bytes of the file.
std::string parser_words(const std::string &text)
{
	constexpr std::string_view read = "; last read: ", expected = "; expected ";
	const size_t from = text.find(": ") + 2; // npos + 2 is 1
	const size_t quote = text.find(read, from), rest = text.rfind(expected);
	std::string words = text.substr(from, quote == std::string::npos ? quote : quote - from);
	if (quote != std::string::npos && rest != std::string::npos && rest > quote)
		words += text.substr(rest);
	return words;
}

json parse(const std::string &text, Index &index)
{
	if (const size_t at = text.find('\0'); at != std::string::npos) // which the parser takes for the end
		throw Remark{at, "NUL byte; expected text in UTF-8"};
	try {
		return json::parse(
			text,
			[&](int depth, json::parse_event_t event, json &parsed) {
				index.add(depth, event, parsed);
				return true;
			},
			true, true);
	} catch (const json::parse_error &error) {
		const size_t at = std::min(error.byte ? error.byte - 1 : 0, text.size());
		const bool is_hash = at < text.size() && text[at] == '#';
		throw Remark{at, parser_words(error.what()) + (is_hash ? "; a comment begins with //" : "")};
	} catch (const json::out_of_range &) {
		throw Remark{index.next(), "number out of range"};
	}
}

// "path:line:column: what", in bytes from 1.
std::string placed(const std::string &path, std::string_view text, const Remark &remark)
{
	const std::string_view before = text.substr(0, remark.at);
	const auto line = std::ranges::count(before, '\n') + 1;
	const size_t column = remark.at - (before.rfind('\n') + 1) + 1; // npos + 1 is 0
	return path + ':' + std::to_string(line) + ':' + std::to_string(column) + ": " + remark.what;
}

} // namespace

std::string quoted(std::string_view text) { return written(json(text)); }

void read_json(const std::string &text, const std::string &path, Config &config, Findings &found)
{
	Index index(text);
	Config read = config;
	Reader reader(index, read);
	try {
		const json root = parse(text, index);
		if (!root.is_object())
			throw Remark{Tokens(text).next(), "not an object; expected {"};
		reader.read(root);
	} catch (Remark &remark) {
		reader.faults = {std::move(remark)};
	}
	std::ranges::sort(reader.faults, {}, &Remark::at);
	std::ranges::sort(reader.notices, {}, &Remark::at);
	if (!reader.faults.empty())
		return found.fail(placed(path, text, reader.faults.front()));
	config = std::move(read);
	constexpr size_t most = 20;
	const size_t told = std::min(reader.notices.size(), most);
	for (size_t i = 0; i < told; i++)
		found.notices.push_back(placed(path, text, reader.notices[i]));
	if (reader.notices.size() > told)
		found.notices.push_back(path + ": and " + std::to_string(reader.notices.size() - told) + " more");
}

} // namespace cufile
