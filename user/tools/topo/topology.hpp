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

// A PCI function, as sysfs has it.
struct Function {
	std::string pci;
	std::string parent; // PCI address of the listed function that it is below, empty at a root
	std::string root;   // "pci0000:00"
	std::string class_name, id, driver;
	int numa_node = -1;
	std::vector<std::string> disks;
};

// A drive below a disk, and how it is reached.
struct BackingDevice {
	std::string name, pci, transport; // "pcie", "rdma"; empty if it has no function, or is not NVMe
};

// A disk that is no PCI function's own: by way of a network, by several paths, or made of others.
struct OtherDisk {
	std::string name;
	std::vector<BackingDevice> devices;
};

// What the kernel says of one disk and one provider.
struct Pair {
	std::string disk, disk_pci; // the function is empty for an OtherDisk
	std::string place;          // of the disk, for people: its function, or its backing devices
	uint32_t provider;
	std::string provider_pci;
	int error = 0; // positive errno if the kernel could not be asked
	struct peerdma_explanation why = {};
};

struct Topology {
	std::vector<Function> functions; // each behind its parent
	std::vector<OtherDisk> others;
	int open_error = 0;    // -errno of peerdma_open(); no provider is known then
	std::string open_node; // the device node that did not open
	std::vector<struct peerdma_provider_info> providers;
	std::vector<Pair> pairs;
	Consumers consumers;
	peerdma_impl::Rules rules; // /etc/peerdma/rules
	std::string fault;         // of it
};

std::vector<Function> pci_functions(peerdma_impl::Syscalls &sys);
// Memory and files that pose as disks (ram, zram, loop) are none of them, nor what is empty.
std::vector<OtherDisk> other_disks(peerdma_impl::Syscalls &sys);
// The ids of the providers whose memory is this function's.
std::vector<uint32_t> providers_of(const Topology &topo, const Function &function);
// Where a disk is, for people: its backing devices, or how it is reached.
std::string place_of(const OtherDisk &disk);
std::string verdict_name(const Pair &pair); // "direct", "by software", "refused" or "unknown"
Topology read_topology();

// The topology in the DOT language.
std::string topo_dot(const Topology &topo);
// The picture that Graphviz's dot makes of a source in its language. Throws Failure.
std::string render_svg(const std::string &dot_source);

} // namespace cli
