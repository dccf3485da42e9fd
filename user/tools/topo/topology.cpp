// SPDX-License-Identifier: MIT
//
// Reads the topology: PCI functions and disks from sysfs, routes from the module.

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/check/check.hpp"
#include "tools/system/device_node.hpp"
#include "tools/system/sysfs.hpp"
#include "tools/topo/topology.hpp"

namespace cli
{
namespace
{

std::string root_in(const std::string &path)
{
	const size_t at = path.find("/pci");
	return at == std::string::npos ? "" : path.substr(at + 1, path.find('/', at + 1) - at - 1);
}

// Base class and subclass of the PCI Code and ID Assignment Specification; only classes of interest here.
std::string class_text(const std::string &code)
{
	const std::string number = code.starts_with("0x") ? code.substr(2) : code;
	for (const auto &[prefix, text] :
	     std::initializer_list<std::pair<const char *, const char *>>{{"0600", "host bridge"},
									  {"0601", "ISA bridge"},
									  {"0604", "PCI bridge"},
									  {"0108", "NVMe drive"},
									  {"01", "storage"},
									  {"02", "network"},
									  {"03", "display"},
									  {"0500", "memory"},
									  {"06", "bridge"},
									  {"0c05", "SMBus"},
									  {"12", "accelerator"}})
		if (number.starts_with(prefix))
			return text;
	return "class " + number;
}

void add_disks(peerdma_impl::Syscalls &sys, std::vector<Function> &functions)
{
	std::vector<std::string> disks;
	sys.list_dir("/sys/block", disks);
	for (const std::string &disk : disks) {
		std::string target;
		if (sys.read_link("/sys/block/" + disk, target) < 0 ||
		    line_of(sys, "/sys/block/" + disk + "/hidden") == "1")
			continue;
		const auto path = addresses_in(target);
		if (path.empty())
			continue;
		for (Function &function : functions)
			if (function.pci == path.back())
				function.disks.push_back(disk);
	}
}

// Depth first, the order of the printed tree.
void add_depth_first(std::vector<Function> &from, const std::string &parent, std::vector<Function> &to)
{
	for (const Function &function : from)
		if (function.parent == parent) {
			to.push_back(function);
			add_depth_first(from, function.pci, to);
		}
}

std::vector<uint32_t> provider_ids(const Device &device)
{
	std::vector<uint32_t> ids;
	// The number may grow between two calls.
	for (;;) {
		const int count = peerdma_provider_list(device.get(), ids.data(), ids.size());
		const bool all = count <= static_cast<int>(ids.size());
		ids.resize(static_cast<size_t>(std::max(count, 0)));
		if (all)
			return ids;
	}
}

void add_routes(const Device &device, const std::string &disk, const std::string &pci, const std::string &place,
		Topology &topo)
{
	struct peerdma_file *opened = nullptr;
	const int rc = peerdma_file_open(device.get(), ("/dev/" + disk).c_str(), O_RDONLY, &opened);
	const File file(opened);
	for (const auto &provider : topo.providers) {
		Pair pair{disk, pci, place, provider.id, pci_text(provider.pci_domain, provider.pci_bdf)};
		pair.why.size = sizeof(pair.why);
		pair.error = -(rc < 0 ? rc : peerdma_explain(file.get(), provider.id, &pair.why));
		topo.pairs.push_back(pair);
	}
}

std::string device_text(const BackingDevice &device)
{
	std::string text = device.name;
	if (!device.transport.empty() && device.transport != "pcie")
		text += " by " + device.transport;
	return device.pci.empty() ? text : text + " " + device.pci;
}

} // namespace

std::string verdict_name(const Pair &pair)
{
	if (pair.error)
		return "unknown";
	return pair.why.error ? "refused" : why_not_direct(pair.why) ? "by software" : "direct";
}

std::string place_of(const OtherDisk &disk)
{
	// A disk that is its own backing device is already named.
	if (disk.devices.size() == 1 && disk.devices[0].name == disk.name)
		return disk.devices[0].transport.empty() ? "no PCI function" : "by " + disk.devices[0].transport;
	std::vector<std::string> names;
	for (const BackingDevice &device : disk.devices)
		names.push_back(device_text(device));
	return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<uint32_t> providers_of(const Topology &topo, const Function &function)
{
	std::vector<uint32_t> ids;
	for (const auto &provider : topo.providers)
		if (pci_text(provider.pci_domain, provider.pci_bdf) == function.pci)
			ids.push_back(provider.id);
	return ids;
}

std::vector<Function> pci_functions(peerdma_impl::Syscalls &sys)
{
	std::vector<std::string> names;
	std::vector<Function> found, ordered;
	sys.list_dir("/sys/bus/pci/devices", names);
	for (const std::string &name : names) {
		const std::string dir = pci_devices + name;
		std::string target;
		Function function;
		function.pci = name;
		sys.read_link(dir, target);
		const auto path = addresses_in(target);
		// The parent is the nearest listed ancestor: not all bridges of a guest are listed.
		for (auto above = path.rbegin(); function.parent.empty() && above != path.rend(); ++above)
			if (*above != name && std::find(names.begin(), names.end(), *above) != names.end())
				function.parent = *above;
		function.root = root_in(target);
		function.class_name = class_text(line_of(sys, dir + "/class"));
		const std::string vendor = line_of(sys, dir + "/vendor"), device = line_of(sys, dir + "/device");
		if (vendor.size() > 2 && device.size() > 2)
			function.id = vendor.substr(2) + ":" + device.substr(2);
		if (sys.read_link(dir + "/driver", target) == 0)
			function.driver = base(target);
		const std::string node = line_of(sys, dir + "/numa_node");
		std::from_chars(node.data(), node.data() + node.size(), function.numa_node);
		found.push_back(function);
	}
	add_disks(sys, found);
	add_depth_first(found, "", ordered);
	return ordered;
}

std::vector<OtherDisk> other_disks(peerdma_impl::Syscalls &sys)
{
	const Host host{.sys = sys, .release = ""};
	std::vector<std::string> names;
	std::vector<OtherDisk> others;
	sys.list_dir("/sys/block", names);
	for (const std::string &name : names) {
		const std::string size = line_of(sys, "/sys/block/" + name + "/size");
		std::string target;
		sys.read_link("/sys/block/" + name, target);
		if (name.starts_with("loop") || name.starts_with("ram") || name.starts_with("zram") || size.empty() ||
		    size == "0" || line_of(sys, "/sys/block/" + name + "/hidden") == "1" ||
		    !addresses_in(target).empty())
			continue;
		OtherDisk disk{name, {}};
		for (const std::string &device : block_stack(host, name).backing)
			disk.devices.push_back({device, function_of(host, device), transport_of(host, device)});
		others.push_back(disk);
	}
	return others;
}

Topology read_topology()
{
	auto &sys = peerdma_impl::system_calls();
	Topology topo;
	topo.functions = pci_functions(sys);
	topo.others = other_disks(sys);
	topo.consumers = consumers_of(sys);
	peerdma_impl::load_rules(sys, peerdma_impl::rules_path, topo.rules, topo.fault);
	struct peerdma_device *raw = nullptr;
	// The tree is useful without the module, and without permission to use it.
	topo.open_error = peerdma_open(&raw, PEERDMA_OPEN_REQUIRE_DIRECT);
	if (topo.open_error < 0) {
		topo.open_node = device_node(sys);
		return topo;
	}
	const Device device(raw);
	for (uint32_t id : provider_ids(device)) {
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		if (peerdma_provider_get(device.get(), id, &info) == 0)
			topo.providers.push_back(info);
	}
	for (const Function &function : topo.functions)
		for (const std::string &disk : function.disks)
			add_routes(device, disk, function.pci, function.pci, topo);
	for (const OtherDisk &disk : topo.others)
		add_routes(device, disk.name, "", place_of(disk), topo);
	return topo;
}

} // namespace cli
