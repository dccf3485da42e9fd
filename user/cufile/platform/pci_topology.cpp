// SPDX-License-Identifier: MIT
//
// The PCI tree between storage, network and device memory.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <nlohmann/json.hpp>

#include "common/pci.hpp"
#include "cufile/platform/pci_topology.hpp"
#include "cufile/platform/text.hpp"

namespace cufile
{
namespace
{

using nlohmann::ordered_json;

constexpr const char *devices = "/sys/bus/pci/devices/";

struct Function {
	std::string address, kind, vendor, device;
	uint32_t pci_class = 0;
	int node = -1;                  // NUMA node, -1: none
	std::vector<std::string> above; // host bridge, ports and switches, from the root
};

std::string text_of(System &system, const std::string &path)
{
	std::string text;
	system.read_file(path, text);
	while (!text.empty() && text.back() == '\n')
		text.pop_back();
	return text;
}

int node_of(System &system, const std::string &folder)
{
	const std::string text = text_of(system, folder + "/numa_node");
	int node = -1;
	std::from_chars(text.data(), text.data() + text.size(), node);
	return node;
}

// By PCI class code; "" for classes that neither store nor transfer data.
const char *kind_of(uint32_t pci_class)
{
	switch (pci_class >> 16) {
	case 0x01:
		return pci_class >> 8 == 0x0108 ? "nvme" : "storage";
	case 0x02:
		return "network";
	case 0x03:
		return "gpu";
	case 0x05:
		return "memory";
	case 0x12:
		return "accelerator";
	}
	return "";
}

bool has_memory(const Function &function)
{
	return function.kind == "gpu" || function.kind == "memory" || function.kind == "accelerator";
}

// sysfs links to ".../devices/pci0000:00/0000:00:01.0/0000:01:00.0". Returns the parts above the function itself.
std::vector<std::string> parts_above(const std::string &link)
{
	std::vector<std::string> parts;
	for (size_t from = 0, to; from < link.size(); from = to + 1) {
		to = std::min(link.find('/', from), link.size());
		const std::string part = link.substr(from, to - from);
		if (part.starts_with("pci") || !parts.empty())
			parts.push_back(part);
	}
	if (!parts.empty())
		parts.pop_back();
	return parts;
}

bool look_at(System &system, const std::string &address, Function &out)
{
	const std::string folder = devices + address;
	const std::string text = text_of(system, folder + "/class");
	if (!text.starts_with("0x"))
		return false;
	std::from_chars(text.data() + 2, text.data() + text.size(), out.pci_class, 16);
	out.node = node_of(system, folder);
	out.address = address;
	out.kind = kind_of(out.pci_class);
	out.vendor = text_of(system, folder + "/vendor");
	out.device = text_of(system, folder + "/device");
	std::string link;
	system.read_link(folder, link);
	out.above = parts_above(link);
	return !out.kind.empty();
}

// Sorted by address.
std::vector<Function> all_functions(System &system)
{
	std::vector<std::string> addresses;
	system.list(devices, addresses);
	std::sort(addresses.begin(), addresses.end());
	std::vector<Function> all;
	for (const std::string &address : addresses)
		if (Function function; look_at(system, address, function))
			all.push_back(std::move(function));
	return all;
}

// The lowest common part above both, and the links between them; {} if there is none.
struct Path {
	std::string meet; // "": nowhere
	std::ptrdiff_t links = 0;
};

Path between(const Function &a, const Function &b)
{
	const auto [end, other] = std::mismatch(a.above.begin(), a.above.end(), b.above.begin(), b.above.end());
	if (end == a.above.begin())
		return {};
	return {*(end - 1), a.above.end() - end + 1 + (b.above.end() - other + 1)};
}

ordered_json written(const Path &path)
{
	if (path.meet.empty())
		return {{"meet", nullptr}, {"links", nullptr}};
	return {{"meet", path.meet}, {"links", path.links}};
}

std::string domain_of(const std::string &address) { return address.substr(0, address.find(':')); }

bool may_be_a_files(System &system, const Function &function)
{
	std::string driver;
	return !has_memory(function) && system.read_link(devices + function.address + "/driver", driver) >= 0;
}

} // namespace

std::string pci_folder(Cuda &cuda, int device)
{
	std::string address;
	// The CUDA driver writes capital letters, the kernel lower case.
	return !cuda.load() || cuda.pci_address(device, address) ? "" : devices + lower(address);
}

int numa_node(System &system, Cuda &cuda, int device)
{
	const std::string folder = pci_folder(cuda, device);
	return folder.empty() ? -1 : node_of(system, folder);
}

bool nearest_drive(System &system, const std::string &gpu, uint32_t &domain, uint32_t &bdf)
{
	Function one;
	if (!gpu.empty() && !look_at(system, lower(gpu), one))
		return false;
	std::vector<Function> from, drives;
	for (Function &function : all_functions(system)) {
		if (gpu.empty() && has_memory(function))
			from.push_back(std::move(function));
		else if (may_be_a_files(system, function))
			drives.push_back(std::move(function));
	}
	if (!gpu.empty())
		from = {std::move(one)};
	std::string best;
	std::tuple<bool, bool, std::ptrdiff_t> best_rank; // a path that meets below a host bridge avoids the root
	for (const Function &memory : from) {
		for (const Function &drive : drives) {
			if (domain_of(drive.address) != domain_of(memory.address))
				continue;
			const Path path = between(memory, drive);
			const std::tuple rank{drive.kind != "nvme", path.meet.empty() || path.meet.starts_with("pci"),
					      path.meet.empty() ? PTRDIFF_MAX : path.links};
			if (best.empty() || rank < best_rank) {
				best = drive.address;
				best_rank = rank;
			}
		}
	}
	const auto address = peerdma_impl::PciAddress::parse(best);
	if (!address)
		return false;
	domain = address->domain;
	bdf = address->bdf;
	return true;
}

std::string describe_topology(System &system)
{
	const std::vector<Function> functions = all_functions(system);
	ordered_json root = {{"version", 1}, {"devices", ordered_json::array()}, {"pairs", ordered_json::array()}};
	for (const Function &function : functions)
		root["devices"].push_back({{"address", function.address},
					   {"kind", function.kind},
					   {"vendor", function.vendor},
					   {"device", function.device},
					   {"numa_node", function.node},
					   {"above", function.above}});
	for (const Function &memory : functions) {
		for (const Function &other : functions) {
			if (!has_memory(memory) || has_memory(other))
				continue;
			ordered_json pair = {{"memory", memory.address}, {"device", other.address}};
			pair.update(written(between(memory, other)));
			root["pairs"].push_back(pair);
		}
	}
	return root.dump(1, '\t', false, ordered_json::error_handler_t::replace) + '\n';
}

} // namespace cufile
