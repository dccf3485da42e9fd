// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli.hpp"
#include "env.hpp"

namespace cli
{

enum class State { ok, warn, fail };

// One thing a host needs. The change is exact: something a person can type or write.
struct Item {
	std::string id; // stable, for programs
	State state = State::ok;
	std::string found;  // what is the case
	std::string why;    // why it matters
	std::string change; // how to mend it; empty when ok
};

// What the look at the machine goes through; tests put a made-up machine there.
struct Host {
	peerdma_impl::Env &env;
	std::string release; // of the running kernel, as uname -r
	bool sysfs = true;   // a container may have none
};

Item check_kernel(const Host &host);
Item check_config(const Host &host);
// open_error: 0 or the -errno of peerdma_open()
Item check_module(const Host &host, int open_error);
Item check_node(const Host &host, int open_error);
Item check_iommu(const Host &host);

// NVMe disks by name, of PCI and over RDMA: what can reach peer memory today.
std::vector<std::string> nvme_disks(const Host &host);

Report report_of(const std::vector<Item> &items);

} // namespace cli
