// SPDX-License-Identifier: MIT
#include "cufile/config/denylist.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include <sys/sysmacros.h>

#include "common/mountinfo.hpp"
#include "cufile/platform/backoff.hpp"
#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

using peerdma_impl::Mount;

// Lookups of what a file is on, with their errors.
class Sources
{
public:
	explicit Sources(System &system) : system_(system) {}

	int fstat(int fd, struct stat &st) { return noted(system_.fstat(fd, st)); }
	int read_file(const std::string &path, std::string &out) { return noted(system_.read_file(path, out)); }
	int read_link(const std::string &path, std::string &out) { return noted(system_.read_link(path, out)); }
	int list(const std::string &path, std::vector<std::string> &out) { return noted(system_.list(path, out)); }

	// Error of a lookup that met a shortage; 0: none.
	int shortage() const { return shortage_; }
	// A file exists but cannot be read.
	bool unread() const { return unread_; }

private:
	int noted(int rc)
	{
		if (is_shortage(rc))
			shortage_ = rc;
		unread_ = unread_ || (rc < 0 && rc != -ENOENT && rc != -ENOTDIR && rc != -EINVAL);
		return rc;
	}

	System &system_;
	int shortage_ = 0;
	bool unread_ = false;
};

// The block device of a file and all devices below it. Empty if it is on none.
struct Ground {
	std::vector<std::string> parts;   // sysfs names: partition, disk, controller, PCI function
	std::vector<std::string> drivers; // of these parts
};

Mount mount_of(Sources &system, int fd)
{
	std::string text;
	constexpr std::string_view key = "mnt_id:\t";
	system.read_file("/proc/self/fdinfo/" + std::to_string(fd), text);
	const size_t at = text.find(key);
	if (at == std::string::npos)
		return {};
	const std::string id = text.substr(at + key.size(), text.find('\n', at) - at - key.size());
	system.read_file("/proc/self/mountinfo", text);
	for (Mount &mount : peerdma_impl::parse_mountinfo(text))
		if (mount.id == id)
			return std::move(mount);
	return {};
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Kernel name of a device: /dev/disk/by-id/... and /dev/mapper/... are links.
std::string device_name(Sources &system, const std::string &entry)
{
	std::string target;
	if (entry.starts_with('/') && system.read_link(entry, target) >= 0)
		return std::string(last_part(target));
	return std::string(last_part(entry));
}

void walk(Sources &system, std::string path, int depth, Ground &ground)
{
	constexpr int deepest = 8; // of disks made of disks
	constexpr std::string_view root = "/sys/devices";
	const size_t at = path.find("devices/");
	if (at == std::string::npos || depth > deepest)
		return;
	path = "/sys/" + path.substr(at);
	std::string target, text;
	// Only a disk has slaves, a partition does not.
	for (int level = 0; path.size() > root.size(); level++) {
		std::vector<std::string> names;
		if (level < 2)
			system.list(path + "/slaves/", names);
		for (const std::string &name : names)
			if (system.read_link("/sys/class/block/" + name, target) >= 0)
				walk(system, target, depth + 1, ground);
		ground.parts.emplace_back(last_part(path));
		if (ground.parts.back().starts_with("nvme"))
			ground.drivers.emplace_back("nvme"); // a multipath disk has no driver above it
		if (system.read_link(path + "/driver", target) >= 0)
			ground.drivers.emplace_back(last_part(target));
		if (system.read_file(path + "/transport", text) >= 0)
			ground.drivers.push_back("nvme_" + text.substr(0, text.find('\n')));
		path.resize(path.rfind('/'));
	}
}

// nullopt: sysfs does not tell.
std::optional<Ground> ground_of(Sources &system, int fd, const Mount &mount)
{
	Ground ground;
	struct stat st = {};
	std::string link;
	if (system.fstat(fd, st) < 0)
		return std::nullopt;
	const dev_t device = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	const std::string numbers = std::to_string(major(device)) + ':' + std::to_string(minor(device));
	const bool has_source = mount.source.starts_with("/dev/");
	// A filesystem on several disks has its own device number.
	if (system.read_link("/sys/dev/block/" + numbers, link) >= 0 ||
	    (has_source && system.read_link("/sys/class/block/" + device_name(system, mount.source), link) >= 0))
		walk(system, link, 0, ground);
	else if (has_source || major(device) || mount.point.empty())
		return std::nullopt;
	return ground;
}

// Module names treat - and _ as equal, and differ in more than case.
bool same_name(std::string_view a, std::string_view b)
{
	const auto letter = [](char c) { return c == '-' ? '_' : lower(c); };
	return std::ranges::equal(a, b, {}, letter, letter);
}

std::string folder(std::string path)
{
	while (path.size() > 1 && path.ends_with('/'))
		path.pop_back();
	return path;
}

// "" if no entry matches.
std::string met(const Denylist &list, Sources &system, int fd)
{
	const Mount mount = mount_of(system, fd);
	// Without /proc the mount is unknown.
	if (mount.point.empty() && !(list.mounts.empty() && list.filesystems.empty()))
		return "mounts are not known";
	for (const std::string &entry : list.filesystems)
		if (same_name(entry, mount.filesystem) || (same_name(entry, "nfs") && mount.filesystem == "nfs4"))
			return "filesystems has " + entry;
	for (const std::string &entry : list.mounts)
		if (folder(entry) == mount.point)
			return "mounts has " + entry;
	if (list.drivers.empty() && list.devices.empty())
		return "";
	const std::optional<Ground> ground = ground_of(system, fd, mount);
	if (!ground)
		return "devices are not known";
	for (const std::string &entry : list.devices)
		if (std::ranges::count(ground->parts, device_name(system, entry)))
			return "devices has " + entry;
	for (const std::string &entry : list.drivers)
		if (same_name(entry, mount.filesystem) ||
		    std::ranges::any_of(ground->drivers,
					[&](const std::string &driver) { return same_name(entry, driver); }))
			return "drivers has " + entry;
	return system.unread() ? "devices are not known" : "";
}

} // namespace

int Denylist::matches(System &system, int fd, std::string &out) const
{
	out.clear();
	if (empty())
		return 0;
	Sources sources(system);
	out = met(*this, sources, fd);
	return sources.shortage();
}

} // namespace cufile
