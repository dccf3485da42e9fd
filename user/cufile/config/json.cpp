// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "cufile/config/config.hpp"
#include "cufile/config/json_index.hpp"
#include "cufile/config/json_keys.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

using nlohmann::json;

constexpr const char *an_object = "an object";
constexpr const char *routes[] = {"GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P"};
constexpr const char *slab_pools[nr_pools] = {"posix_pool_slab", "gpu_bounce_buffer_slab"};

// Decimal digits, or a number with a zero fraction.
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

// A single number applies to each entry of the other list.
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

// As in the file, without terminal control characters.
std::string written(const json &value) { return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace)); }

constexpr const char *blanks = " \t\r\n\v\f";

// A mount point as the kernel writes it, optionally with a trailing slash. Any other path would match nothing.
bool is_mount_point(const std::string &path)
{
	const auto has = [](const std::string &text, const char *odd) { return text.find(odd) != std::string::npos; };
	return path.starts_with('/') && !has(path, "//") && !has(path + '/', "/./") && !has(path + '/', "/../") &&
	       !has(path, ",/") && !has(path, ", /") && path.find_first_of("*?") == std::string::npos &&
	       path.find_last_of(blanks) != path.size() - 1;
}

// A possible name of a driver, device or filesystem. Any other would match nothing.
bool is_name(const std::string &name)
{
	return !name.empty() && name.find_first_of(std::string(blanks) + ",;*?") == std::string::npos &&
	       !name.ends_with('/');
}

class Reader
{
public:
	Reader(const JsonIndex &index, Config &config) : index_(index), config_(config) {}

	void read(const json &root)
	{
		faults = index_.misnamed();
		for (const std::string &path : index_.twice()) {
			const size_t at = index_.position(path).key;
			if (find_restricting(path) || is_restricting_section(path) || path == "fs" ||
			    is_below(path, "fs"))
				remark(true, at, path + ": given twice; expected once");
			else if (find_tuning(path) || is_tuning_section(path))
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

	// before: the path with a trailing slash; "" for the root.
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
		const bool restricts = is_restricting_section(path);
		if (value.is_object())
			object(value, path + '/');
		else if (restricts || is_tuning_section(path))
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
		case KeyKind::size: {
			const Range range = size_range(key.param);
			const auto one = number(value);
			if (!one || *one < range.min || *one > range.max)
				return bad(path, value, expected_number(range), restricts);
			config_.sizes[key.param] = *one;
			return;
		}
		case KeyKind::flag: {
			const auto one = flag(value);
			if (!one)
				return bad(path, value, expected_bool, restricts);
			return set_flag(key, path, *one, restricts);
		}
		case KeyKind::text:
			if (!value.is_string())
				return bad(path, value, "a string", restricts);
			config_.strings[key.param] = value.get<std::string>();
			return;
		case KeyKind::level: {
			const std::string name = value.is_string() ? value.get<std::string>() : "none";
			const auto level = Log::level_named(name);
			if (!level && !name.empty())
				return bad(path, value, expected_level, restricts);
			config_.strings[key.param] = level ? Log::name_of(*level) : "";
			return;
		}
		case KeyKind::slab_size:
		case KeyKind::slab_count: {
			auto &out = (key.kind == KeyKind::slab_size ? sizes_ : counts_)[key.param];
			out = numbers(value);
			if (!out)
				bad(path, value, expected_number({0, UINT32_MAX}) + ", or a list of 1 to 16 of them",
				    restricts);
			return;
		}
		case KeyKind::log_max: {
			const auto one = number(value);
			if (!one || !is_log_size(*one))
				return bad(path, value, expected_number({1, max_log_mb}), restricts);
			config_.log_max_mb = *one;
			return;
		}
		case KeyKind::routing: {
			const auto one = flag(value);
			if (!one)
				return bad(path, value, expected_bool, restricts);
			routing_ = *one;
			return;
		}
		case KeyKind::routing_order:
			if (!set_order(value))
				bad(path, value, "a list of GPU_MEM_NVLINKS, GPU_MEM, SYS_MEM and P2P", restricts);
			return;
		case KeyKind::mounts:
		case KeyKind::names:
			return deny(key, path, value);
		case KeyKind::rdma_list: {
			const auto list = strings(value);
			if (!list)
				return bad(path, value, "a list of addresses", true);
			if (!list->empty())
				config_.idle.push_back(path);
			return;
		}
		case KeyKind::rdma:
			return rdma(path, value, true);
		case KeyKind::section:
			if (!value.is_object())
				bad(path, value, an_object, restricts);
			return;
		case KeyKind::idle:
			if (value.dump() != key.built_in &&
			    (flag(value) != false || key.built_in != std::string("false")))
				config_.idle.emplace_back(key.path);
			return;
		case KeyKind::none:
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

	// denylist and blacklist add up.
	void deny(const Key &key, const std::string &path, const json &value)
	{
		const bool of_paths = key.kind == KeyKind::mounts;
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

	// Bounces through a GPU if that precedes host memory. A single name is a list of one.
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
				set({where.c_str(), KeyKind::rdma_list}, where, member, true);
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
		const Key *const key = find_slabs(pool, sizes_[pool].has_value(), counts_[pool].has_value());
		return key ? index_.position(key->path).value : 0;
	}

	const JsonIndex &index_;
	Config &config_;
	std::map<unsigned, std::string> set_by_; // of flags
	std::optional<Numbers> sizes_[nr_pools], counts_[nr_pools];
	bool routing_ = false, by_gpu_ = true;
};

// The parser's expectation, without its prefix and without bytes of the file.
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

json parse(const std::string &text, JsonIndex &index)
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
	JsonIndex index(text);
	Config read = config;
	Reader reader(index, read);
	try {
		const json root = parse(text, index);
		if (!root.is_object())
			throw Remark{JsonTokens(text).next(), "not an object; expected {"};
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
