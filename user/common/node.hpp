// SPDX-License-Identifier: MIT
//
// Device nodes: /dev/peerdma reaches all providers. A provider has one of its own, with its id behind that name.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>

namespace peerdma_impl
{

inline constexpr const char *device_node = "/dev/peerdma";

// What PEERDMA_DEVICE names; empty: nothing. Programs with more rights than the process that started them do not read it.
inline std::string named_node()
{
	const char *const name = ::secure_getenv("PEERDMA_DEVICE");
	return name ? name : "";
}

// The node that open_node() tries first. Its error is the one that counts.
inline std::string first_node(const std::string &named) { return named.empty() ? device_node : named; }

// The provider whose node has this name in /dev, as the kernel writes it.
inline std::optional<uint32_t> provider_of_node(std::string_view name)
{
	constexpr std::string_view prefix = "peerdma";
	uint32_t id = 0;
	if (!name.starts_with(prefix))
		return std::nullopt;
	name.remove_prefix(prefix.size());
	std::from_chars(name.data(), name.data() + name.size(), id);
	return std::to_string(id) == name ? std::optional(id) : std::nullopt;
}

// Opens the node that is named, and no other. Else that of all providers, or where there is none or it may not be opened, as
// in a container that was given one GPU, the first provider's that opens. list(names): the names in /dev. Returns a
// descriptor, and in opened the path of its node, or -errno.
template <class System, class List>
int open_node(System &system, const std::string &named, List &&list, std::string &opened)
{
	constexpr int mode = O_RDWR | O_CLOEXEC;
	opened = first_node(named);
	const int first = system.open(opened.c_str(), mode);
	if (!named.empty() || (first != -ENOENT && first != -EACCES && first != -EPERM))
		return first;
	std::vector<std::string> names;
	list(names);
	std::set<uint32_t> ids;
	for (const std::string &name : names)
		if (const auto id = provider_of_node(name))
			ids.insert(*id);
	for (const uint32_t id : ids) {
		opened = device_node + std::to_string(id);
		if (const int fd = system.open(opened.c_str(), mode); fd >= 0)
			return fd;
	}
	return first;
}

// Where the path is not asked for.
template <class System, class List> int open_node(System &system, const std::string &named, List &&list)
{
	std::string opened;
	return open_node(system, named, list, opened);
}

} // namespace peerdma_impl
