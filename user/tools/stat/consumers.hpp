// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/syscalls.hpp"
#include "tools/stat/stat.hpp"

namespace cli
{

// What the processes of a cgroup have of a provider, without those of cgroups below it.
struct CgroupShare {
	std::string cgroup; // as /proc/PID/cgroup has it: "/jobs/one"; "/" is the root
	std::string pci;    // of the provider
	uint64_t bytes;
};

// What has been moved between a disk and a provider since the module was loaded.
struct Traffic {
	uint64_t provider = 0;
	std::string disk;
	uint64_t direct = 0, near = 0, host = 0, refused = 0; // bytes; the last one is requests
};

// What all processes of a user have, of all providers together.
struct UserShare {
	uint64_t uid = 0, bytes = 0;
};

// Who has provider memory, and what goes through it, as far as the caller may know.
struct Consumers {
	OpenFiles files; // of /dev/peerdma
	std::vector<CgroupShare> cgroups;
	std::vector<Traffic> traffic; // for root; none that is nothing
	std::vector<UserShare> users; // likewise
};

// Kernels whose cgroups count device memory name the provider, which nothing else does.
std::vector<CgroupShare> cgroup_shares(peerdma_impl::Syscalls &sys);
Consumers consumers_of(peerdma_impl::Syscalls &sys);

} // namespace cli
