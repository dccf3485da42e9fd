// SPDX-License-Identifier: MIT
//
// Device nodes: /dev/peerdma reaches all providers, /dev/peerdmaN the provider with id N.
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

// The value of PEERDMA_DEVICE, or empty. Programs with more rights than the process that started them ignore it.
inline std::string named_node()
{
	const char *const name = ::secure_getenv("PEERDMA_DEVICE");
	return name ? name : "";
}

// The node that open_node() tries first and whose error it returns.
inline std::string first_node(const std::string &named) { return named.empty() ? device_node : named; }

// The provider whose node has this name in /dev.
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

// Opens the named node and no other. Without a name it opens the node of all providers. If that does not exist or may
// not be opened, as in a container that was given one GPU, it opens the first provider node that it can. list(names):
// the names in /dev. Returns a descriptor, with the path of its node in opened, or -errno.
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

// Without the path.
template <class System, class List> int open_node(System &system, const std::string &named, List &&list)
{
	std::string opened;
	return open_node(system, named, list, opened);
}

} // namespace peerdma_impl
