// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>
#include <string>

#include "common/syscalls.hpp"

namespace cli
{

// Blocks all signals of this thread, so that none ends the process between two related steps.
class BlockedSignals
{
public:
	BlockedSignals()
	{
		sigset_t all;
		sigfillset(&all);
		::sigprocmask(SIG_BLOCK, &all, &old_);
	}
	~BlockedSignals() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
	BlockedSignals(const BlockedSignals &) = delete;
	BlockedSignals &operator=(const BlockedSignals &) = delete;

private:
	sigset_t old_;
};

// The errors of open(O_TMPFILE) on a filesystem that does not support it, such as NFS.
bool lacks_tmpfile(int error);

// Creates an anonymous file in this directory. It cannot be linked to a name and is deleted with its last descriptor.
// Return: a descriptor for reading and writing, or -errno.
int open_anonymous(peerdma_impl::Syscalls &sys, const std::string &dir);

} // namespace cli
