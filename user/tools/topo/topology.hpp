// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "common/rules.hpp"
#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"
#include "tools/stat/consumers.hpp"

namespace cli
{

// A PCI function in sysfs.
struct Function {
	std::string pci;
	std::string parent; // PCI address of the nearest listed function above it, empty at a root
	std::string root;   // "pci0000:00"
	std::string class_name, id, driver;
	int numa_node = -1;
	std::vector<std::string> disks;
};

// A drive below a disk, and its transport.
struct BackingDevice {
	std::string name, pci, transport; // "pcie", "rdma"; empty if it has no function or is not NVMe
};

// A disk that does not belong to one PCI function: reached by a network or several paths, or stacked.
struct OtherDisk {
	std::string name;
	std::vector<BackingDevice> devices;
};

// The kernel's answer for one disk and one provider.
struct Pair {
	std::string disk, disk_pci; // the function is empty for an OtherDisk
	std::string place;          // of the disk, for people: its function or its backing devices
	uint32_t provider;
	std::string provider_pci;
	int error = 0; // positive errno if the query failed
	struct peerdma_explanation why = {};
};

struct Topology {
	std::vector<Function> functions; // each after its parent
	std::vector<OtherDisk> others;
	int open_error = 0;    // -errno of peerdma_open(); then no provider is known
	std::string open_node; // the device node that did not open
	std::vector<struct peerdma_provider_info> providers;
	std::vector<Pair> pairs;
	Consumers consumers;
	peerdma_impl::Rules rules; // /etc/peerdma/rules
	std::string fault;         // of the rules
};

std::vector<Function> pci_functions(peerdma_impl::Syscalls &sys);
// Omits memory and files that look like disks (ram, zram, loop), and empty devices.
std::vector<OtherDisk> other_disks(peerdma_impl::Syscalls &sys);
// The ids of this function's providers.
std::vector<uint32_t> providers_of(const Topology &topo, const Function &function);
// The location of a disk, for people: its backing devices or its transport.
std::string place_of(const OtherDisk &disk);
std::string verdict_name(const Pair &pair); // "direct", "by software", "refused" or "unknown"
Topology read_topology();

// The topology in the DOT language.
std::string topo_dot(const Topology &topo);
// The SVG that Graphviz's dot makes of a DOT source. Throws Failure.
std::string render_svg(const std::string &dot_source);

} // namespace cli
