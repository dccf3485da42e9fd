// SPDX-License-Identifier: MIT
//
// The keys of cufile.json. A fault in a restricting key keeps the driver closed; a fault in a tuning key is a notice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cufile/config/config.hpp"

namespace cufile
{

enum class KeyKind {
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
	rdma_list, // rdma_dev_addr_list: the library has no RDMA
	rdma,      // may contain such lists
	idle,      // no effect here: a value other than the default is a notice
	section,   // an object without effect here
	none,      // irrelevant for how this library moves bytes
};

struct Key {
	const char *path; // from the root, parts separated by '/'
	KeyKind kind;
	unsigned param = 0;
	std::vector<std::string> Denylist::*list = nullptr;
	const char *built_in = nullptr;
};

constexpr const char *rdma_list = "rdma_dev_addr_list";
constexpr const char *mount_table = "mount_table"; // its keys are absolute paths

constexpr bool is_below(std::string_view path, std::string_view top)
{
	return path.size() > top.size() && path.starts_with(top) && path[top.size()] == '/';
}

constexpr std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// nullptr if there is no such key.
const Key *find_restricting(std::string_view path);
const Key *find_tuning(std::string_view path);
// The key that gives sizes or counts of a pool's slabs; nullptr if neither is given.
const Key *find_slabs(unsigned pool, bool has_sizes, bool has_counts);
// True for an object that contains such keys.
bool is_restricting_section(std::string_view path);
bool is_tuning_section(std::string_view path);
bool is_below_denylist(std::string_view path);
bool is_known(std::string_view path);
// The restricting key that an unknown name probably means; "" if there is none.
std::string_view similar_restricting(std::string_view name);

} // namespace cufile
