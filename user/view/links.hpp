// SPDX-License-Identifier: MIT
//
// Opens a file by a path that may have symbolic links. The service may read every file, and whoever may write a directory on the path could
// make it serve any by a link. So a link counts only if it is root's, or if the file that it leads to is of its owner.
#pragma once

#include <string>

namespace view
{

// For reading, without waiting for the writer of a FIFO. Returns a descriptor, or -errno; -EPERM: a link is of another user than the file.
int open_by_links(const std::string &path);

} // namespace view
