// SPDX-License-Identifier: MIT
//
// Files that are not to be read and written directly, because cufile.json says so: by what they are on.
#pragma once

#include <string>
#include <vector>

#include "seams.hpp"

namespace cufile
{

struct Denylist {
	std::vector<std::string> drivers, devices, mounts, filesystems;

	bool empty() const { return drivers.empty() && devices.empty() && mounts.empty() && filesystems.empty(); }
	// The key and the entry that a file meets, as "mounts has /data"; "" if it meets none.
	std::string meets(System &system, int fd) const;
};

} // namespace cufile
