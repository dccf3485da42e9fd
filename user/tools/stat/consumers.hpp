// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/syscalls.hpp"
#include "tools/stat/stat.hpp"

namespace cli
{

// Memory of a provider that the processes of a cgroup use, without its descendants.
struct CgroupShare {
	std::string cgroup; // as in /proc/PID/cgroup: "/jobs/one"; "/" is the root
	std::string pci;    // of the provider
	uint64_t bytes;
};

// Bytes moved between a disk and a provider since the module was loaded.
struct Traffic {
	uint64_t provider = 0;
	std::string disk;
	uint64_t direct = 0, near = 0, host = 0, refused = 0; // bytes; refused counts requests
};

// Memory of all providers that the processes of a user use.
struct UserShare {
	uint64_t uid = 0, bytes = 0;
};

// Users of provider memory and their traffic, as far as the caller may see them.
struct Consumers {
	OpenFiles files; // of /dev/peerdma
	std::vector<CgroupShare> cgroups;
	std::vector<Traffic> traffic; // root only; entries of zero are omitted
	std::vector<UserShare> users; // likewise
};

// The only source that names the provider: cgroups of kernels with the dmem controller.
std::vector<CgroupShare> cgroup_shares(peerdma_impl::Syscalls &sys);
Consumers consumers_of(peerdma_impl::Syscalls &sys);

} // namespace cli
