// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "cli.hpp"
#include "env.hpp"
#include "rules.hpp"
#include "stat.hpp"

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

// What the kernel says of one disk and one provider.
struct Pair {
	std::string disk, disk_pci;
	uint32_t provider;
	std::string provider_pci;
	int error = 0; // positive errno if the kernel could not be asked
	struct peerdma_explanation why = {};
};

struct Topology {
	std::vector<Function> functions; // each behind its parent
	std::vector<struct peerdma_provider_info> providers;
	std::vector<Pair> pairs;
	OpenFiles files;           // of /dev/peerdma
	peerdma_impl::Rules rules; // /etc/peerdma/rules
	std::string fault;         // of it
};

std::vector<Function> pci_functions(peerdma_impl::Env &env);
std::string topo_dot(const Topology &topo);

} // namespace cli
