// SPDX-License-Identifier: MIT
#include "cufile/config/json_index.hpp"

#include "cufile/config/json_keys.hpp"

namespace cufile
{

using nlohmann::json;

void JsonIndex::add(int depth, json::parse_event_t event, const json &parsed)
{
	constexpr int max_depth = 32; // destroying a deep tree recurses
	const size_t at = tokens_.next();
	if (depth > max_depth)
		throw Remark{at, "nested too deeply; expected at most " + std::to_string(max_depth) + " levels"};
	if (event == json::parse_event_t::key)
		return add_key(static_cast<size_t>(depth), at, parsed.get<std::string>());
	if (last_)
		last_->value = at;
	last_ = nullptr;
	if (event != json::parse_event_t::object_end && event != json::parse_event_t::array_end)
		add_value(static_cast<size_t>(depth), event);
}

// The path of an array's element has its index.
void JsonIndex::add_value(size_t depth, json::parse_event_t event)
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

void JsonIndex::add_key(size_t depth, size_t at, std::string name)
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

void JsonIndex::check_name(const std::string &path, size_t at)
{
	const std::string &name = parts_.back();
	const bool is_path = name.starts_with('/') && parts_.size() > 1 && parts_[0] == "fs" &&
			     parts_[parts_.size() - 2] == mount_table;
	if (is_path || (is_known(path) && name.find('/') == std::string::npos))
		return;
	if (const auto near = similar_restricting(name); !near.empty())
		misnamed_.push_back({at, path + ": unknown key; expected " + std::string(near)});
}

} // namespace cufile
