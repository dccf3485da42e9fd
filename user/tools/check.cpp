// SPDX-License-Identifier: MIT
//
// Is this host ready? Each item is looked at on its own, so that one run names everything that is missing.

#include "check.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

namespace cli
{
namespace
{

const char *state_name(State state)
{
	switch (state) {
	case State::ok:
		return "ok";
	case State::warn:
		return "warn";
	case State::fail:
		return "fail";
	}
	return "";
}

std::string gunzip(const std::string &packed)
{
	z_stream stream = {};
	std::string out;
	// 16: a gzip header, not a zlib one.
	if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK)
		return out;
	// zlib's interface is from before const.
	stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(packed.data()));
	stream.avail_in = static_cast<uInt>(packed.size());
	int rc;
	do {
		Bytef chunk[16384];
		stream.next_out = chunk;
		stream.avail_out = sizeof(chunk);
		rc = inflate(&stream, Z_NO_FLUSH);
		out.append(reinterpret_cast<char *>(chunk), sizeof(chunk) - stream.avail_out);
	} while (rc == Z_OK);
	inflateEnd(&stream);
	return rc == Z_STREAM_END ? out : std::string();
}

// The kernel's configuration and where it was found; empty if nowhere.
std::string kernel_config(const Host &host, std::string &where)
{
	std::string text;
	where = "/proc/config.gz";
	if (host.env.read_file(where, text) == 0 && !(text = gunzip(text)).empty())
		return text;
	for (const std::string &path : {"/boot/config-" + host.release, "/lib/modules/" + host.release + "/config",
					"/lib/modules/" + host.release + "/build/.config"})
		if (host.env.read_file(path, text) == 0 && !text.empty()) {
			where = path;
			return text;
		}
	where.clear();
	return "";
}

bool has_line(const std::string &text, const std::string &line)
{
	return ("\n" + text + "\n").find("\n" + line + "\n") != std::string::npos;
}

std::string first_line(std::string text)
{
	text.resize(std::min(text.size(), text.find('\n')));
	return text;
}

Item check_providers(struct peerdma_device *p)
{
	Item item{"providers", State::fail, "none is published",
		  "files are read into the memory of a device that has published it",
		  "peerdma publish <PCI address of the device, as lspci -D prints it>"};
	int count = p ? peerdma_provider_list(p, nullptr, 0) : 0;
	if (!p)
		item.found = "not known without /dev/peerdma";
	else if (count < 0)
		item.found = fmt::format("cannot be listed ({})", errno_name(-count));
	else if (count > 0)
		item = {item.id, State::ok, fmt::format("{} published", count), item.why, ""};
	return item;
}

// What only sysfs tells, where there is none.
Item not_known(const Item &item, const std::string &change)
{
	return {item.id, State::warn, "not known without /sys", item.why, change};
}

Item check_disks(const Host &host, struct peerdma_device *p)
{
	Item item{"disks", State::ok, "",
		  "only a disk whose driver can hand peer memory to its DMA engine reads directly", ""};
	if (!host.sysfs)
		return not_known(item, "peerdma explain FILE says it of the disk below a file");
	const std::vector<std::string> disks = nvme_disks(host);
	if (disks.empty())
		return {item.id, State::fail, "no NVMe disk, by PCI or over RDMA", item.why,
			"attach an NVMe drive; SATA, USB and virtio disks and NVMe over TCP cannot do it"};
	std::string names;
	for (const std::string &disk : disks)
		names += (names.empty() ? "" : ", ") + disk;

	uint32_t ids[64];
	const int count = p ? peerdma_provider_list(p, ids, std::size(ids)) : 0;
	if (count < 1) {
		item.state = State::warn;
		item.found = fmt::format("{}; whether they reach a provider is known when one is published", names);
		item.change = "publish a provider and run this again";
		return item;
	}
	unsigned direct = 0, software = 0, unknown = 0;
	std::string refused;
	uint32_t reason = 0;
	for (const std::string &disk : disks) {
		struct peerdma_file *raw = nullptr;
		struct peerdma_explanation why = {};
		why.size = sizeof(why);
		int rc = peerdma_file_open(p, ("/dev/" + disk).c_str(), O_RDONLY, &raw);
		File file(raw);
		// The first provider that it reaches will do.
		uint32_t id = 0;
		for (int i = 0; rc == 0 && i < std::min(count, static_cast<int>(std::size(ids))); i++) {
			id = ids[i];
			rc = peerdma_explain(file.get(), id, &why);
			if (rc == 0 && !why.error)
				break;
		}
		if (rc < 0) {
			unknown++;
			item.found += fmt::format("{}{}: cannot ask ({})", item.found.empty() ? "" : "; ", disk,
						  errno_name(-rc));
		} else if (why.error) {
			reason = why.reason;
			item.found += fmt::format("{}{}: no ({})", item.found.empty() ? "" : "; ", disk,
						  peerdma_reason_text(why.reason));
		} else if (why.map == PEERDMA_MAP_SOFTWARE) {
			software++;
			reason = PEERDMA_REASON_RDMA_SOFTWARE;
			item.found +=
				fmt::format("{}{}: by software, whatever goes to provider {} is copied by the CPU",
					    item.found.empty() ? "" : "; ", disk, id);
		} else {
			direct++;
			item.found += fmt::format("{}{}: direct to provider {}, distance {}, {}",
						  item.found.empty() ? "" : "; ", disk, id, why.distance,
						  peerdma_map_name(why.map));
		}
	}
	if (direct)
		return item;
	item.state = unknown || software ? State::warn : State::fail;
	item.change = unknown ? "run peerdma check as root" : peerdma_reason_advice(reason);
	return item;
}

// A path of a multipath disk, nvme1c2n3, is a disk that nobody can open. It stands for nvme1n3.
std::string openable(const std::string &disk)
{
	const size_t controller = disk.find('c'), name = disk.find('n', 1);
	return controller == disk.npos || name == disk.npos ? disk : disk.substr(0, controller) + disk.substr(name);
}

} // namespace

Item check_kernel(const Host &host)
{
	Item item{"kernel", State::ok, host.release, "PeerDMA is tested on 6.12 and 7.2", ""};
	unsigned major = 0, minor = 0;
	const bool read = std::sscanf(host.release.c_str(), "%u.%u", &major, &minor) == 2;
	if (!read || !((major == 6 && minor == 12) || (major == 7 && minor == 2))) {
		item.state = State::warn;
		item.found += ", on which PeerDMA was not tried";
		item.change = "boot 6.12 or 7.2, with CONFIG_PCI_P2PDMA=y";
	}
	return item;
}

Item check_config(const Host &host)
{
	Item item{"config", State::ok, "", "without these options the kernel cannot treat a device's memory as pages",
		  ""};
	std::string where;
	const std::string text = kernel_config(host, where);
	if (!where.empty()) {
		std::string missing;
		for (const char *option : {"CONFIG_PCI_P2PDMA=y", "CONFIG_ZONE_DEVICE=y"})
			if (!has_line(text, option))
				missing += std::string(missing.empty() ? "" : " and ") + option;
		if (missing.empty()) {
			item.found = fmt::format("CONFIG_PCI_P2PDMA=y and CONFIG_ZONE_DEVICE=y in {}", where);
		} else {
			item.state = State::fail;
			item.found = fmt::format("{} missing in {}", missing, where);
			item.change = fmt::format(
				"boot a kernel that was built with {}; Debian's 6.1 and 6.12 were not", missing);
		}
		return item;
	}
	// No copy of the configuration: a function that only that option brings is as good a proof.
	std::string symbols;
	const int rc = host.env.read_file("/proc/kallsyms", symbols);
	if (rc == 0 && symbols.find(" pci_p2pdma_add_resource") != std::string::npos) {
		item.found = "CONFIG_PCI_P2PDMA, by its functions in /proc/kallsyms";
	} else if (rc == 0 && !symbols.empty()) {
		item.state = State::fail;
		item.found = "no P2PDMA functions in /proc/kallsyms";
		item.change = "boot a kernel with CONFIG_PCI_P2PDMA=y";
	} else {
		item.state = State::warn;
		item.found =
			fmt::format("the kernel's configuration is neither in /proc/config.gz nor in /boot/config-{}",
				    host.release);
		item.change = fmt::format("see for yourself that CONFIG_PCI_P2PDMA=y, or install /boot/config-{}",
					  host.release);
	}
	return item;
}

Item check_module(const Host &host, int open_error)
{
	Item item{"module", State::ok, "peerdma is loaded", "it publishes the memory and issues the reads", ""};
	if (!open_error)
		return item; // who else would answer
	if (!host.sysfs)
		return not_known(item, "look outside of the container: lsmod");
	if (host.env.access("/sys/module/peerdma", F_OK) < 0) {
		item.state = State::fail;
		item.found = "peerdma is not loaded";
		item.change = "insmod peerdma.ko; make module builds it and prints where it is";
		// modules.dep: has anybody installed it for this kernel?
		std::string dep;
		if (host.env.read_file("/lib/modules/" + host.release + "/modules.dep", dep) == 0 &&
		    dep.find("/peerdma.ko") != std::string::npos)
			item.change = "modprobe peerdma";
	}
	return item;
}

Item check_node(const Host &host, int open_error)
{
	Item item{"node", State::ok, "/dev/peerdma opens", "programs reach the module through it", ""};
	if (!open_error)
		return item;
	item.state = State::fail;
	item.found = fmt::format("/dev/peerdma does not open ({})", errno_name(-open_error));
	if (open_error == -EACCES || open_error == -EPERM)
		item.change =
			"run as root, or as a member of the node's group: usermod -aG peerdma $USER, and log in again";
	else if (open_error == -EPROTONOSUPPORT)
		item.change = "install the module and the library from one release";
	else if (!host.sysfs)
		item.change = "pass the node into the container: --device /dev/peerdma";
	else if (open_error == -ENOENT && host.env.access("/sys/module/peerdma", F_OK) == 0)
		item.change = "mount devtmpfs on /dev, or make the node from /sys/class/misc/peerdma/dev with mknod";
	else
		item.change = "load the module";
	return item;
}

Item check_iommu(const Host &host)
{
	Item item{"iommu", State::ok, "", "a translating IOMMU sends traffic between devices up to the host bridge",
		  ""};
	if (!host.sysfs)
		return not_known(item, "look outside of the container; reads may be direct all the same");
	std::vector<std::string> units, groups;
	const int have_units = host.env.list_dir("/sys/class/iommu", units);
	if (have_units < 0 || units.empty()) {
		item.found = "off: devices use physical addresses";
		return item;
	}
	host.env.list_dir("/sys/kernel/iommu_groups", groups);
	unsigned translated = 0, identity = 0;
	for (const std::string &group : groups) {
		std::string type;
		if (host.env.read_file("/sys/kernel/iommu_groups/" + group + "/type", type) < 0)
			continue;
		type = first_line(type);
		if (type == "identity")
			identity++;
		else
			translated++;
	}
	if (!translated) {
		item.found = fmt::format("{} on, {} groups, none translated", units.front(), groups.size());
		return item;
	}
	item.state = State::warn;
	item.found = fmt::format("{} on, {} of {} groups translated", units.front(), translated, translated + identity);
	item.change = "reads may still be direct (see peerdma explain FILE); if not, boot with iommu=pt";
	return item;
}

std::vector<std::string> nvme_disks(const Host &host)
{
	std::vector<std::string> disks;
	std::set<std::string> found;
	host.env.list_dir("/sys/block", disks);
	for (const std::string &disk : disks) {
		std::string transport;
		if (!disk.starts_with("nvme") ||
		    host.env.read_file("/sys/block/" + disk + "/device/transport", transport) < 0)
			continue;
		transport = first_line(transport);
		if (transport == "pcie" || transport == "rdma")
			found.insert(openable(disk));
	}
	return {found.begin(), found.end()};
}

Report report_of(const std::vector<Item> &items)
{
	Report report;
	bool ready = true;
	report.json = {{"ok", true}, {"ready", true}, {"items", Json::array()}};
	for (const Item &item : items) {
		ready = ready && item.state != State::fail;
		report.text += fmt::format("{:<4}  {:<10}{}\n", state_name(item.state), item.id, item.found);
		if (item.state != State::ok)
			report.text += fmt::format("      {:<10}why: {}\n      {:<10}do:  {}\n", "", item.why, "",
						   item.change);
		report.json["items"].push_back({{"id", item.id},
						{"state", state_name(item.state)},
						{"found", item.found},
						{"why", item.why},
						{"change", item.change}});
	}
	report.json["ready"] = ready;
	report.text += ready ? "this host is ready\n" : "this host is not ready\n";
	report.status = ready ? exit_ok : exit_failed;
	return report;
}

Report check()
{
	struct utsname name = {};
	uname(&name);
	auto &env = peerdma_impl::system_env();
	const Host host{env, name.release, env.access("/sys/module", F_OK) == 0};
	struct peerdma_device *raw = nullptr;
	const int open_error = peerdma_open(&raw, PEERDMA_OPEN_REQUIRE_DIRECT);
	const Device device(raw);
	return report_of({check_kernel(host), check_config(host), check_module(host, open_error),
			  check_node(host, open_error), check_providers(device.get()), check_iommu(host),
			  check_disks(host, device.get())});
}

} // namespace cli
