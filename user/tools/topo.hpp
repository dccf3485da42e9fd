// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "cli.hpp"
#include "consumers.hpp"
#include "env.hpp"
#include "rules.hpp"

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
struct Leaf {
	std::string name, pci, transport; // "pcie", "rdma"; empty if it has no function, or is not NVMe
};

// A disk that is no PCI function's own: by way of a network, by several paths, or made of others.
struct OtherDisk {
	std::string name;
	std::vector<Leaf> leaves;
};

// What the kernel says of one disk and one provider.
struct Pair {
	std::string disk, disk_pci; // the function is empty for an OtherDisk
	std::string place;          // of the disk, for people: its function, or its leaves
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

std::vector<Function> pci_functions(peerdma_impl::Env &env);
// Memory and files that pose as disks (ram, zram, loop) are none of them, nor what is empty.
std::vector<OtherDisk> other_disks(peerdma_impl::Env &env);
std::string topo_dot(const Topology &topo);

} // namespace cli
