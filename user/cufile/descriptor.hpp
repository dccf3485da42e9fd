// SPDX-License-Identifier: MIT
#pragma once

#include "seams.hpp"

namespace cufile
{

// A descriptor of the library's. The number is not the file: a program that closes all descriptors closes ours as well,
// and the next file that anybody opens has the number. So each use asks first.
//
// All I/O is at offsets, so the position of a description of our own is free to identify it: no other description of this
// process has the same. A block device, and a description that is shared with the program, are identified by device and inode.
struct Descriptor {
	int fd = -1;
	off_t position = -1; // -1: by device and inode
	dev_t device = 0;
	ino_t inode = 0;

	explicit operator bool() const { return fd >= 0; }
	// own: the description is ours alone.
	void identify(System &system, bool own);
	bool is_there(System &system) const;
	// Closes it, unless the program has.
	void close(System &system);
};

} // namespace cufile
