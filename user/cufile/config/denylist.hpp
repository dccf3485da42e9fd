// SPDX-License-Identifier: MIT
//
// Files that cufile.json excludes from direct I/O, by mount, filesystem, device or driver.
#pragma once

#include <string>
#include <vector>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

struct Denylist {
	std::vector<std::string> drivers, devices, mounts, filesystems;

	bool empty() const { return drivers.empty() && devices.empty() && mounts.empty() && filesystems.empty(); }
	// Sets out to the key and entry that match the file, as "mounts has /data"; "" if none does. Unknown properties
	// match. 0, or -errno: a shortage of descriptors or memory, which may pass.
	int matches(System &system, int fd, std::string &out) const;
};

} // namespace cufile
