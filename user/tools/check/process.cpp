// SPDX-License-Identifier: MIT
//
// Who asks: what this process may open, set up and take.

#include "tools/check/check.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <unistd.h>

#include "common/node.hpp"
#include "tools/system/device_node.hpp"
#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

// What the module takes of host memory at a time, and the least that it goes on with.
constexpr uint64_t host_step = 64 << 10, host_least = 4 << 10;
constexpr uint64_t few_files = 1024; // the kernel's own default

// The value of "key:" in /proc/self/status.
std::string status_of(const Host &host, const std::string &key)
{
	std::string text;
	host.sys.read_file("/proc/self/status", text);
	const size_t at = ("\n" + text).find("\n" + key + ":\t");
	return at == text.npos ? "" : first_line(text.substr(at + key.size() + 2));
}

bool capable(const Host &host, int capability)
{
	return std::strtoull(status_of(host, "CapEff").c_str(), nullptr, 16) >> capability & 1;
}

// The soft limit in /proc/self/limits; no number if it is unlimited or not known.
struct Limit {
	bool known = false;
	std::optional<uint64_t> most;
};

Limit limit_of(const Host &host, const std::string &name)
{
	std::string text;
	host.sys.read_file("/proc/self/limits", text);
	const size_t at = text.find(name + " ");
	if (at == text.npos)
		return {};
	std::istringstream words(text.substr(at + name.size()));
	std::string soft;
	words >> soft;
	return soft == "unlimited" ? Limit{true, {}} : Limit{true, std::strtoull(soft.c_str(), nullptr, 10)};
}

Finding limit_unknown(Finding finding)
{
	return finding.set(State::unknown, "not known without /proc", "ulimit -a", "it changes nothing");
}

std::string limits_file(const std::string &line, const std::string &service)
{
	return fmt::format(
		"in /etc/security/limits.d/peerdma.conf: {}; then log in again. In the unit of a service: {}", line,
		service);
}

const std::string rm_limits = "rm /etc/security/limits.d/peerdma.conf, and log in again; take the line out of the unit";

// What made this container; empty if nothing is seen of one.
std::string container_of(const Host &host)
{
	for (const auto &[file, name] : {std::pair("/run/.containerenv", "podman"), std::pair("/.dockerenv", "docker")})
		if (host.sys.access(file, F_OK) == 0)
			return name;
	return line_of(host.sys, "/run/systemd/container");
}

// The limits of peerdma's regions in dmem.max of this process's cgroup and those above.
// A cgroup's limit of a provider.
struct DmemLimit {
	std::string region, most, file;
};

std::vector<DmemLimit> dmem_limits(const Host &host)
{
	std::string text;
	std::vector<DmemLimit> found;
	host.sys.read_file("/proc/self/cgroup", text);
	const size_t at = ("\n" + text).find("\n0::");
	if (at == text.npos)
		return found;
	std::string group = first_line(text.substr(at + 3));
	if (!group.starts_with('/') || group.size() > PATH_MAX)
		return found;
	for (; group.size() > 1; group.resize(group.rfind('/'))) {
		const std::string file = "/sys/fs/cgroup" + group + "/dmem.max";
		host.sys.read_file(file, text);
		std::istringstream lines(text);
		for (std::string region, most; lines >> region >> most;)
			if (region.starts_with("peerdma/") && most != "max")
				found.push_back({region, most, file});
		text.clear();
	}
	return found;
}

} // namespace

Finding check_node(const Host &host, int open_error)
{
	Finding finding{.id = "node", .why = "programs reach the module through it"};
	const std::string named = host.recorded ? "" : peerdma_impl::named_node();
	const std::string node = peerdma_impl::first_node(named);
	const bool there = host.sys.access(node, F_OK) == 0, loaded = host.sys.access("/sys/module/peerdma", F_OK) == 0;
	if (host.recorded && there)
		return finding.set(State::unknown, "/dev/peerdma is there; a record does not say whether it opens",
				   "test -r /dev/peerdma -a -w /dev/peerdma, on the machine", "it changes nothing");
	if (host.recorded)
		open_error = -ENOENT;
	const std::string tried = host.recorded ? node : device_node(peerdma_impl::system_calls());
	const std::string told = tried + (named.empty() ? "" : ", which PEERDMA_DEVICE names,");
	finding.found = told + " opens";
	if (!open_error && named.empty() && host.sys.access(node, R_OK | W_OK) < 0)
		finding.found = "the node of one provider opens, /dev/peerdma does not: no other provider is seen";
	if (!open_error)
		return finding;
	const std::string found = fmt::format("{} does not open ({})", told, errno_name(-open_error));
	if (open_error == -EACCES || open_error == -EPERM)
		return finding.set(
			State::bad, found,
			{"run as root, or as a member of the node's group: usermod -aG peerdma $USER, and log in again",
			 "gpasswd -d $USER peerdma", "usermod -aG peerdma $USER, log in again"});
	if (open_error == -EPROTONOSUPPORT) {
		const Advice both = install_packages(host);
		return finding.set(State::bad, found,
				   {"install both from one release: " + both.change, both.undo, both.brief});
	}
	if (open_error == -EBADMSG)
		return finding.set(State::bad, found + ": /etc/peerdma/rules has a fault",
				   "peerdma rules check, and mend what it names", "put the old line back");
	if (!named.empty())
		return finding.set(State::bad, found, "unset PEERDMA_DEVICE, or have it name a node that is there",
				   "set PEERDMA_DEVICE again");
	if (!host.sysfs || (loaded && !container_of(host).empty()))
		return finding.set(State::bad, found, "pass the node into the container: --device /dev/peerdma",
				   "start the container without");
	if (open_error == -ENOENT && loaded)
		return finding.set(
			State::bad, found,
			"mount devtmpfs on /dev, or: mknod /dev/peerdma c $(tr : ' ' </sys/class/misc/peerdma/dev)",
			"rm /dev/peerdma");
	const Advice load = how_to_load(host, "peerdma");
	return finding.set(State::bad, found,
			   {"load the module: " + load.change, load.undo, "load the module (see module)"});
}

Finding check_container(const Host &host)
{
	Finding finding{
		.id = "container",
		.why = "what a container hides cannot be checked, and what a user namespace forbids not be done: "
		       "memory is published from outside"};
	std::string map;
	host.sys.read_file("/proc/self/uid_map", map);
	std::istringstream words(map);
	uint64_t inside = 0, outside = 0, count = 0;
	if (!(words >> inside >> outside >> count))
		return finding.set(State::unknown, "not known without /proc", "mount -t proc proc /proc",
				   "umount /proc");
	const bool mapped = inside || outside || count != UINT32_MAX;
	const std::string container = container_of(host);
	const std::string what = container.empty() ? "" : "in a container of " + container;
	if (!host.sysfs)
		return finding.set(State::warn, "without /sys", with_sysfs, without_sysfs);
	if (mapped)
		return finding.set(
			State::warn, what.empty() ? "in a user namespace" : what + ", in a user namespace",
			{"on the host, outside of the container: peerdma publish ADDRESS; here only reads and writes",
			 "on the host: peerdma unpublish ADDRESS", "peerdma publish ADDRESS, on the host"});
	finding.found = what.empty() ? "none" : what;
	return finding;
}

Finding check_uring(const Host &host)
{
	Finding finding{.id = "uring",
			.why = "rings are for many requests at once; single reads and writes go without"};
	const std::string disabled = line_of(host.sys, "/proc/sys/kernel/io_uring_disabled");
	const bool filtered = status_of(host, "Seccomp") == "2",
		   restricted = disabled == "1" && !capable(host, CAP_SYS_ADMIN);
	const std::string
		seccomp = "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp filter: of a "
			  "container by --security-opt seccomp=PROFILE, of a service by SystemCallFilter=",
		enable = "sysctl -w kernel.io_uring_disabled=0",
		disable = fmt::format("sysctl -w kernel.io_uring_disabled={}", disabled);
	if (disabled == "2" || (restricted && host.uring.value_or(-EPERM)))
		return finding.set(State::warn, fmt::format("switched off: kernel.io_uring_disabled={}", disabled),
				   enable, disable);
	if (host.uring ? *host.uring == 0 : !disabled.empty() && !filtered) {
		finding.found = "io_uring can be set up";
		return finding;
	}
	if (!host.uring)
		return finding.set(State::unknown,
				   filtered ? "a seccomp filter may forbid io_uring" : "not known from these files",
				   seccomp, "start it without them");
	if (*host.uring == -ENOSYS && !filtered)
		return finding.set(State::warn, "this kernel has no io_uring",
				   {get_kernel(host).change, "boot this one again", get_kernel(host).brief});
	return finding.set(State::warn,
			   fmt::format("io_uring is refused ({}){}", errno_name(-*host.uring),
				       filtered ? ", by a seccomp filter" : ""),
			   seccomp, "start it without them");
}

Finding check_memlock(const Host &host)
{
	Finding finding{
		.id = "memlock",
		.why = "what cannot go direct passes through locked host memory, 64 KiB at a time, 4 KiB at least"};
	const Limit limit = limit_of(host, "Max locked memory");
	if (!limit.known)
		return limit_unknown(finding);
	const std::string found = limit.most ? size_text(*limit.most) : "unlimited";
	if (limit.most && *limit.most < host_step && !capable(host, CAP_IPC_LOCK))
		return finding.set(
			*limit.most < host_least ? State::bad : State::warn,
			fmt::format("{} ({})", found, in_words(PEERDMA_REASON_MEMLOCK)),
			{limits_file("* - memlock 8192", "LimitMEMLOCK=8M"), rm_limits, "raise memlock to 8 MiB"});
	finding.found = found + (capable(host, CAP_IPC_LOCK) ? ", and the right to exceed it" : "");
	return finding;
}

Finding check_nofile(const Host &host)
{
	Finding finding{.id = "nofile",
			.why = "each open or registered file, ring and exported buffer takes a descriptor"};
	const Limit limit = limit_of(host, "Max open files");
	if (!limit.known)
		return limit_unknown(finding);
	const std::string found = limit.most ? fmt::format("{} descriptors", *limit.most) : "unlimited";
	if (limit.most && *limit.most < few_files)
		return finding.set(
			State::warn, found,
			{limits_file("* - nofile 65536", "LimitNOFILE=65536"), rm_limits, "raise nofile to 65536"});
	finding.found = found;
	return finding;
}

Finding check_quota(const Host &host)
{
	Finding finding{.id = "quota", .why = "how much of a device's memory one user or cgroup may have"};
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	const std::string file = "/sys/module/peerdma/parameters/user_max", user = line_of(host.sys, file);
	if (const auto limits = dmem_limits(host); !limits.empty()) {
		std::vector<std::string> found, change, undo;
		for (const DmemLimit &limit : limits) {
			found.push_back(fmt::format("{} {} in {}", limit.region, limit.most, limit.file));
			change.push_back(fmt::format("echo {} max >{}", limit.region, limit.file));
			undo.push_back(fmt::format("echo {} {} >{}", limit.region, limit.most, limit.file));
		}
		return finding.set(State::warn, fmt::format("limited by cgroup: {}", fmt::join(found, ", ")),
				   fmt::format("{}", fmt::join(change, "; ")),
				   fmt::format("{}", fmt::join(undo, "; ")));
	}
	if (!user.empty() && user != "0")
		return finding.set(State::warn, user + " bytes for each user", "echo 0 >" + file,
				   fmt::format("echo {} >{}", user, file));
	finding.found = "no limit is set";
	return finding;
}

} // namespace cli
