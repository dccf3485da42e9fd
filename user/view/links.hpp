// SPDX-License-Identifier: MIT
//
// Opens a file by a path that may have symbolic links. The service can read every file, so a user who can write a directory on the path
// could make it serve any file by a link. A link is therefore followed only if root owns it, or if its owner owns the file that it leads
// to.
#pragma once

#include <string>

namespace view
{

// For reading. Returns a descriptor, or -errno; -EPERM: a link's owner is neither root nor the file's; -EINVAL: not a regular file;
// -EAGAIN: somebody has a lease on it, for which the kernel has asked now; -ELOOP: too many links, or one of those in /proc that lead
// elsewhere than they say.
int open_by_links(const std::string &path);

} // namespace view
