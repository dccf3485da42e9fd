// SPDX-License-Identifier: MIT
//
// Users of provider memory: processes from fdinfo, cgroups by provider from dmem.current, users and disks from debugfs.

#include "tools/stat/consumers.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <sstream>

namespace cli
{
namespace
{

const std::string cgroups = "/sys/fs/cgroup", region = "peerdma/";

using Shares = std::map<std::string, uint64_t>; // PCI address to bytes

Shares shares_in(peerdma_impl::Syscalls &sys, const std::string &dir)
{
	Shares shares;
	std::string text, name;
	uint64_t bytes;
	sys.read_file(dir + "/dmem.current", text);
	for (std::istringstream lines(text); lines >> name >> bytes;)
		if (name.starts_with(region) && bytes)
			shares[name.substr(region.size())] = bytes;
	return shares;
}

// Returns the sum of a cgroup and its descendants. A cgroup's own share is its sum without its children's.
Shares walk(peerdma_impl::Syscalls &sys, const std::string &name, std::vector<CgroupShare> &out)
{
	const Shares all = shares_in(sys, cgroups + name);
	// Not every kernel reports the root cgroup.
	if (all.empty() && !name.empty())
		return all;
	std::vector<std::string> entries;
	Shares own = all;
	const size_t place = out.size();
	sys.list_dir(cgroups + name, entries);
	for (const std::string &entry : entries)
		for (const auto &[pci, bytes] : walk(sys, name + "/" + entry, out))
			if (const auto found = own.find(pci); found != own.end())
				found->second -= std::min(found->second, bytes); // the files are not read atomically
	std::vector<CgroupShare> mine;
	for (const auto &[pci, bytes] : own)
		if (bytes)
			mine.push_back({name.empty() ? "/" : name, pci, bytes});
	out.insert(out.begin() + static_cast<std::ptrdiff_t>(place), mine.begin(), mine.end());
	return all;
}

uint64_t number_of(const StatsLine &line, std::string_view key)
{
	uint64_t value = 0;
	if (const auto found = line.words.find(key); found != line.words.end())
		std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
	return value;
}

} // namespace

std::vector<CgroupShare> cgroup_shares(peerdma_impl::Syscalls &sys)
{
	std::vector<CgroupShare> shares;
	walk(sys, "", shares);
	return shares;
}

Consumers consumers_of(peerdma_impl::Syscalls &sys)
{
	Consumers found;
	std::string text;
	found.files = open_files(sys);
	found.cgroups = cgroup_shares(sys);
	sys.read_file(std::string(stats_path), text);
	for (const StatsLine &line : parse_stats(text)) {
		if (line.kind == "user")
			found.users.push_back({number_of(line, "uid"), counter_value(line.counters, "buffer-bytes")});
		if (line.kind != "disk")
			continue;
		const auto name = line.words.find("name");
		const Traffic traffic = {number_of(line, "provider"),
					 name == line.words.end() ? "?" : name->second,
					 counter_value(line.counters, "direct-bytes"),
					 counter_value(line.counters, "near-bytes"),
					 counter_value(line.counters, "host-bytes"),
					 counter_value(line.counters, "refused")};
		if (traffic.direct || traffic.near || traffic.host || traffic.refused)
			found.traffic.push_back(traffic);
	}
	return found;
}

} // namespace cli
