// SPDX-License-Identifier: MIT
//
// Files that are not to be read and written directly, because cufile.json says so: by what they are on.
#pragma once

#include <string>
#include <vector>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

struct Denylist {
	std::vector<std::string> drivers, devices, mounts, filesystems;

	bool empty() const { return drivers.empty() && devices.empty() && mounts.empty() && filesystems.empty(); }
	// The key and the entry that a file meets, as "mounts has /data"; "" if it meets none. What cannot be found out is met.
	// Return: 0, or -errno: a shortage of descriptors or memory, which may pass.
	int matches(System &system, int fd, std::string &out) const;
};

} // namespace cufile
