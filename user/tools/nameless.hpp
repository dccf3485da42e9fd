// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>
#include <string>

#include "env.hpp"

namespace cli
{

// Signals that would end this between two steps which belong together wait until both are done.
class Uninterrupted
{
public:
	Uninterrupted()
	{
		sigset_t all;
		sigfillset(&all);
		::sigprocmask(SIG_BLOCK, &all, &old_);
	}
	~Uninterrupted() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
	Uninterrupted(const Uninterrupted &) = delete;
	Uninterrupted &operator=(const Uninterrupted &) = delete;

private:
	sigset_t old_;
};

// A filesystem that has no files without names, as NFS, says so by one of these.
bool has_no_nameless(int error);

// A file of this directory that has no name and cannot get one: the kernel takes it back however this ends.
// Return: a descriptor for reading and writing, or -errno.
int open_nameless(peerdma_impl::Env &env, const std::string &dir);

} // namespace cli
