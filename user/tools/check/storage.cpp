// SPDX-License-Identifier: MIT
//
// What a file lies on: the filesystem, the disks that disks are made of, the paths to them.

#include "tools/check/check.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "common/mountinfo.hpp"
#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

constexpr int deepest = 8; // levels of stacked disks, as the module looks

// A path of a multipath disk, nvme1c2n3, is a disk that nobody can open. It stands for nvme1n3.
std::string multipath_head(const std::string &disk)
{
	const size_t controller = disk.find('c'), name = disk.find('n', 1);
	return !disk.starts_with("nvme") || controller == disk.npos || name == disk.npos ?
		       disk :
		       disk.substr(0, controller) + disk.substr(name);
}

std::vector<std::string> paths_of(const Host &host, const std::string &disk)
{
	std::vector<std::string> all, paths;
	host.sys.list_dir("/sys/block", all);
	for (const std::string &path : all)
		if (path != disk && multipath_head(path) == disk)
			paths.push_back(path);
	return paths;
}

void walk_down(const Host &host, const std::string &disk, int depth, std::set<std::string> &seen,
	       BlockStack &block_stack)
{
	// Also in a circle, which only a record can have.
	if (!seen.insert(disk).second)
		return;
	std::vector<std::string> next;
	std::string target;
	auto add = [](std::vector<std::string> &to, const std::string &one) {
		if (std::find(to.begin(), to.end(), one) == to.end())
			to.push_back(one);
	};
	host.sys.list_dir(block_devices + disk + "/slaves", next);
	if (!next.empty()) {
		add(block_stack.layers, disk);
	} else if (host.sys.access(block_devices + disk + "/partition", F_OK) == 0 &&
		   host.sys.read_link(block_devices + disk, target) == 0) {
		next = {base(target.substr(0, target.rfind('/')))};
	} else {
		next = paths_of(host, disk);
	}
	if (next.empty() || depth == deepest)
		add(block_stack.backing, disk);
	else
		for (const std::string &one : next)
			walk_down(host, one, depth + 1, seen, block_stack);
}

// What a disk between says of itself.
struct Layer {
	State state;
	std::string what;
	uint32_t reason; // that the module gives, or would
};

Layer layer_of(const Host &host, const std::string &disk)
{
	const std::string dir = block_devices + disk;
	if (disk.starts_with("md")) {
		const std::string level = line_of(host.sys, dir + "/md/level");
		for (const char *good : {"raid0", "raid1", "raid10", "linear"})
			if (level == good)
				return {State::good, fmt::format("{} is md {}", disk, level), PEERDMA_REASON_NONE};
		return {level.empty() ? State::unknown : State::bad,
			fmt::format("{} is md {}", disk, level.empty() ? "of unknown level" : level),
			PEERDMA_REASON_MD_LEVEL};
	}
	if (disk.starts_with("dm-")) {
		const std::string uuid = line_of(host.sys, dir + "/dm/uuid"),
				  name = line_of(host.sys, dir + "/dm/name");
		const std::string kind = uuid.substr(0, uuid.find('-'));
		const bool bad = kind == "CRYPT" || kind == "mpath";
		return {bad ? State::bad : State::unknown,
			fmt::format("{} ({}) is dm{}", disk, name, kind.empty() ? "" : " of " + kind),
			PEERDMA_REASON_DM_TARGET};
	}
	return {State::bad, disk + " is a disk made of others", PEERDMA_REASON_STACKED};
}

// Why a disk with this transport cannot carry peer memory.
uint32_t refusal_of(const std::string &transport)
{
	return transport == "tcp"  ? PEERDMA_REASON_FABRIC_TCP :
	       transport == "loop" ? PEERDMA_REASON_FABRIC_LOOP :
	       transport == "fc"   ? PEERDMA_REASON_FABRIC_FC :
				     PEERDMA_REASON_QUEUE;
}

// What the library says of some reasons, each once.
struct Words {
	std::vector<std::string> texts = {}, advice = {};
	void add(uint32_t reason)
	{
		if (std::find(texts.begin(), texts.end(), in_words(reason)) != texts.end())
			return;
		texts.push_back(in_words(reason));
		advice.emplace_back(peerdma_reason_advice(reason));
	}
};

bool lies_in(const std::string &path, const std::string &dir)
{
	return dir == "/" || path == dir || path.starts_with(dir + "/");
}

bool has_word(const std::string &list, const std::string &word)
{
	return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

std::vector<peerdma_impl::Mount> mounts_of(const Host &host)
{
	std::string text;
	host.sys.read_file("/proc/self/mountinfo", text);
	return peerdma_impl::parse_mountinfo(text);
}

bool is_nfs(const std::string &filesystem) { return filesystem == "nfs" || filesystem == "nfs4"; }

// By IPv4, or by IPv6.
bool by_rdma(const std::string &options) { return has_word(options, "proto=rdma") || has_word(options, "proto=rdma6"); }

// Where the storage of others is mounted by RDMA.
std::vector<std::string> shares_of(const Host &host)
{
	std::vector<std::string> shares;
	for (const peerdma_impl::Mount &mount : mounts_of(host))
		if (is_nfs(mount.filesystem) && by_rdma(mount.options))
			shares.push_back(mount.point);
	return shares;
}

// Up to these thresholds a call of NFS over RDMA goes inside its messages: copied by the CPU, or mapped without asking whether
// the card reaches the page. By default no whole page does. A connection has the lower of the client's threshold and the
// server's, which is not known here.
Finding check_inline(const Host &host, Finding finding)
{
	constexpr uint64_t usual = 4096;
	std::vector<std::string> raised, lowered;
	for (const char *name : {"rdma_max_inline_read", "rdma_max_inline_write"}) {
		const std::string text = line_of(host.sys, std::string("/proc/sys/sunrpc/") + name);
		const uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
		if (value <= usual)
			continue;
		raised.push_back(fmt::format("sunrpc.{}={}", name, value));
		lowered.push_back(fmt::format("sunrpc.{}={}", name, usual));
	}
	if (raised.empty())
		return finding;
	const std::string sysctls = fmt::format("{}", fmt::join(raised, " "));
	finding.gist = fmt::format("{}, above {}", sysctls, usual);
	return finding.set(State::warn,
			   fmt::format("{}; {}, above {}: where the server's threshold is as well, whole pages may go "
				       "inside messages, and count as direct",
				       finding.found, sysctls, usual),
			   fmt::format("sysctl {}; umount and mount the share", fmt::join(lowered, " ")),
			   fmt::format("sysctl {}; umount and mount the share", sysctls));
}

// What only sysfs tells, where there is none.
Finding not_known(Finding finding)
{
	return finding.set(State::unknown, "not known without /sys",
			   "peerdma explain FILE says it of the disk below a file", "it changes nothing");
}

// All that may be below what is looked at.
std::vector<std::string> backing_devices(const Host &host, const Subject &subject)
{
	std::vector<std::string> backing;
	for (const std::string &disk : subject.disks)
		for (const std::string &device : block_stack(host, disk).backing)
			backing.push_back(device);
	return backing;
}

} // namespace

BlockStack block_stack(const Host &host, const std::string &disk)
{
	BlockStack found;
	std::set<std::string> seen;
	walk_down(host, disk, 0, seen, found);
	return found;
}

std::string function_of(const Host &host, const std::string &device)
{
	std::string target;
	host.sys.read_link(block_devices + device, target);
	const auto path = addresses_in(target);
	return path.empty() ? "" : path.back();
}

std::string transport_of(const Host &host, const std::string &device)
{
	return device.starts_with("nvme") ? line_of(host.sys, block_devices + device + "/device/transport") : "";
}

std::vector<std::string> nvme_disks(const Host &host)
{
	std::vector<std::string> disks;
	std::set<std::string> found;
	host.sys.list_dir("/sys/block", disks);
	for (const std::string &disk : disks) {
		const std::string transport = transport_of(host, disk);
		if (transport == "pcie" || transport == "rdma")
			found.insert(multipath_head(disk));
	}
	return {found.begin(), found.end()};
}

Subject subject_of(const Host &host, const std::string &path)
{
	Subject subject{.path = path};
	std::string target = path;
	if (!host.recorded) {
		std::error_code error;
		target = std::filesystem::canonical(path, error);
		if (error)
			throw Failure{fmt::format("cannot look at {}", path), error.value(), 0, "", {}};
		subject.directory = std::filesystem::is_directory(target, error);
	} else if (std::string link; host.sys.read_link(path, link) == 0) {
		target = "/dev/" + base(link); // of /dev/mapper or /dev/disk
	}
	if (target.starts_with("/dev/") && host.sys.access(block_devices + base(target), F_OK) == 0) {
		subject.filesystem = "block";
		subject.disks = {base(target)};
		return subject;
	}
	std::string best;
	for (const peerdma_impl::Mount &mount : mounts_of(host)) {
		// The last of several at one place is the one that is seen.
		if (!lies_in(target, mount.point) || mount.point.size() < best.size())
			continue;
		best = mount.point;
		subject.filesystem = mount.filesystem;
		subject.options = mount.options;
		// btrfs has a number that is no disk's.
		std::string disk = link_name(host.sys, "/sys/dev/block/" + mount.device);
		if (disk.empty() && mount.source.starts_with("/dev/"))
			disk = base(mount.source);
		subject.disks.clear();
		if (!disk.empty())
			subject.disks = {disk};
	}
	return subject;
}

Finding check_disks(const Host &host, const Subject &subject)
{
	Finding finding{.id = "disks",
			.why = "only a disk whose driver can hand peer memory to its DMA engine reads directly"};
	const std::string look = " lsblk -o NAME,TRAN,MOUNTPOINTS lists the drives.";
	if (!host.sysfs)
		return not_known(finding);
	if (subject.path.empty()) {
		const std::string none = "no NVMe disk, by PCI or over RDMA";
		const auto shares = subject.disks.empty() ? shares_of(host) : std::vector<std::string>{};
		// Whether a share will do is asked by its name.
		if (!shares.empty())
			return finding.set(State::warn,
					   fmt::format("{}; NFS over RDMA at {}", none, fmt::join(shares, ", ")),
					   fmt::format("peerdma check '{}' looks at the share", shares.front()),
					   "it changes nothing");
		if (subject.disks.empty())
			return finding.set(State::bad, none, peerdma_reason_advice(PEERDMA_REASON_QUEUE) + look,
					   "it changes nothing");
		finding.found = fmt::format("{}", fmt::join(subject.disks, ", "));
		return finding;
	}
	if (subject.disks.empty()) {
		finding.found = "none: " + subject.filesystem;
		return finding;
	}
	std::vector<std::string> good, bad;
	Words why;
	for (const std::string &device : backing_devices(host, subject)) {
		const std::string transport = transport_of(host, device);
		const bool fine = transport == "pcie" || transport == "rdma";
		(fine ? good : bad).push_back(transport.empty() ? device : fmt::format("{} ({})", device, transport));
		if (!fine)
			why.add(refusal_of(transport));
	}
	if (!bad.empty())
		return finding.set(State::bad,
				   fmt::format("{} cannot ({})", fmt::join(bad, ", "), fmt::join(why.texts, "; ")),
				   fmt::format("{}{}", fmt::join(why.advice, " "), look), "it changes nothing");
	finding.found = fmt::format("{} below {}", fmt::join(good, ", "), subject.path);
	return finding;
}

Finding check_multipath(const Host &host, const Subject &subject)
{
	Finding finding{
		.id = "multipath",
		.why = "the kernel may send a request by any path of a drive, so all of them have to reach the memory"};
	if (!host.sysfs)
		return not_known(finding);
	if (line_of(host.sys, "/sys/module/nvme_core/parameters/multipath") == "N") {
		finding.found = "NVMe multipath is off";
		return finding;
	}
	std::vector<std::string> list, bad;
	Words why;
	for (const std::string &device : backing_devices(host, subject)) {
		if (multipath_head(device) == device)
			continue;
		const std::string transport = transport_of(host, device);
		list.push_back(fmt::format("{} ({})", device, transport.empty() ? "unknown" : transport));
		if (transport == "pcie" || transport == "rdma")
			continue;
		bad.push_back(list.back());
		why.add(refusal_of(transport));
	}
	if (!bad.empty()) {
		const Advice off = module_option(host, "nvme_core", "multipath=N");
		return finding.set(State::bad,
				   fmt::format("{} cannot carry peer memory ({})", fmt::join(bad, ", "),
					       fmt::join(why.texts, "; ")),
				   {"nvme disconnect -d CONTROLLER of that path (nvme list-subsys names it); or, for "
				    "all drives, " +
					    off.change,
				    "nvme connect it again; " + off.undo, "nvme disconnect -d CONTROLLER"});
	}
	finding.found = list.empty() ? "no disk of the multipath layer" :
				       fmt::format("{}: each is asked", fmt::join(list, ", "));
	return finding;
}

Finding check_stack(const Host &host, const Subject &subject)
{
	Finding finding{.id = "stack",
			.why = "a layer that looks at the bytes with the CPU cannot be given a device's memory"};
	if (!host.sysfs)
		return not_known(finding);
	std::vector<std::string> layers;
	if (subject.path.empty()) {
		std::vector<std::string> all;
		host.sys.list_dir("/sys/block", all);
		for (const std::string &disk : all)
			if (disk.starts_with("md") || disk.starts_with("dm-"))
				layers.push_back(disk);
	}
	for (const std::string &disk : subject.disks)
		for (const std::string &one : block_stack(host, disk).layers)
			if (std::find(layers.begin(), layers.end(), one) == layers.end())
				layers.push_back(one);
	State state = State::good;
	std::vector<std::string> list;
	Words bad, unknown;
	for (const std::string &disk : layers) {
		const Layer layer = layer_of(host, disk);
		list.push_back(layer.what);
		if (layer.state == State::bad || state == State::good)
			state = layer.state;
		if (layer.state != State::good)
			(layer.state == State::bad ? bad : unknown).add(layer.reason);
	}
	const std::string found = list.empty() ? "no md, no dm" : fmt::format("{}", fmt::join(list, "; "));
	// A machine may have such disks, and others besides.
	if (state == State::bad)
		return finding.set(subject.path.empty() ? State::warn : State::bad,
				   fmt::format("{} ({})", found, fmt::join(bad.texts, "; ")),
				   fmt::format("{}", fmt::join(bad.advice, " ")), "move it back");
	if (state == State::unknown)
		return finding.set(state, found + ": its targets are not in /sys",
				   fmt::format("{}", fmt::join(unknown.advice, " ")), "it changes nothing");
	finding.found = found;
	return finding;
}

Finding check_filesystem(const Host &host, const Subject &subject)
{
	Finding finding{.id = "filesystem",
			.found = subject.filesystem,
			.why = "only of some filesystems it is known that direct I/O stays direct"};
	const std::string &fs = subject.filesystem, &options = subject.options;
	if (fs.empty())
		return finding.set(State::unknown, "no filesystem is known at " + subject.path,
				   "findmnt -T " + subject.path, "it changes nothing");
	if (is_nfs(fs)) {
		if (!by_rdma(options))
			return finding.set(State::bad,
					   fmt::format("{} ({})", fs, in_words(PEERDMA_REASON_NFS_TRANSPORT)),
					   peerdma_reason_advice(PEERDMA_REASON_NFS_TRANSPORT), "mount it without");
		if (host.sys.access("/sys/module/peerdma_nfs", F_OK) < 0)
			return finding.set(State::bad,
					   fs + " over RDMA, and peerdma_nfs is not loaded (" +
						   in_words(PEERDMA_REASON_RDMA_MODULE) + ")",
					   how_to_load(host, "peerdma_nfs"));
		finding.found += " over RDMA";
		return check_inline(host, finding);
	}
	if (fs == "overlay")
		return finding.set(State::bad,
				   "overlay, the filesystem of a container's own image (" +
					   in_words(PEERDMA_REASON_FILESYSTEM) + ")",
				   "give the container a folder of the host's ext4 or xfs: --volume /srv/data:/data",
				   "start it without");
	if (fs != "ext4" && fs != "xfs" && fs != "block")
		return finding.set(State::bad, fmt::format("{} ({})", fs, in_words(PEERDMA_REASON_FILESYSTEM)),
				   peerdma_reason_advice(PEERDMA_REASON_FILESYSTEM), "move it back");
	for (const char *option : {"data=journal", "dax", "dax=always"})
		if (has_word(options, option))
			return finding.set(
				State::bad, fmt::format("{} with {} ({})", fs, option, in_words(PEERDMA_REASON_NO_DIO)),
				fmt::format("take {} out of the options of its mount in /etc/fstab, umount and mount",
					    option),
				"put it back");
	return finding;
}

Finding check_rdma(const Host &host, const Subject &subject)
{
	Finding finding{.id = "rdma",
			.why = "storage of another machine goes direct by RDMA only, and never by software RDMA"};
	if (!host.sysfs)
		return not_known(finding);
	std::vector<std::string> devices, hardware, list, far;
	host.sys.list_dir("/sys/class/infiniband", devices);
	for (const std::string &device : devices) {
		// Soft-RoCE and soft-iWARP are below no device.
		const std::string pci = link_name(host.sys, "/sys/class/infiniband/" + device + "/device");
		list.push_back(fmt::format("{} ({})", device, pci.empty() ? "software" : pci));
		if (!pci.empty())
			hardware.push_back(device);
	}
	for (const std::string &device : backing_devices(host, subject))
		if (transport_of(host, device) == "rdma")
			far.push_back(device);
	if (is_nfs(subject.filesystem) && by_rdma(subject.options))
		far.push_back(subject.path);
	const std::string found = list.empty() ? "no RDMA device" : fmt::format("{}", fmt::join(list, ", "));
	if (far.empty()) {
		finding.found = found + "; no disk here needs one";
		return finding;
	}
	if (host.sys.access("/sys/module/peerdma_rdma", F_OK) < 0)
		return finding.set(State::bad,
				   fmt::format("{}; {} is over RDMA, and peerdma_rdma is not loaded ({})", found,
					       fmt::join(far, ", "), in_words(PEERDMA_REASON_RDMA_MODULE)),
				   how_to_load(host, "peerdma_rdma"));
	if (hardware.empty())
		return finding.set(State::warn, fmt::format("{} ({})", found, in_words(PEERDMA_REASON_RDMA_SOFTWARE)),
				   std::string(peerdma_reason_advice(PEERDMA_REASON_RDMA_SOFTWARE)) +
					   " echo 1 >/sys/module/peerdma_rdma/parameters/allow_software",
				   "echo 0 >/sys/module/peerdma_rdma/parameters/allow_software");
	finding.found = found;
	return finding;
}

} // namespace cli
