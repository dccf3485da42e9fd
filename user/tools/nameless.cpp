// SPDX-License-Identifier: MIT
#include "nameless.hpp"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace cli
{

bool has_no_nameless(int error) { return error == -EOPNOTSUPP || error == -EISDIR; }

int open_nameless(peerdma_impl::Env &env, const std::string &dir)
{
	const int fd = env.open(dir.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC);
	if (!has_no_nameless(fd))
		return fd;
	std::string name = dir + "/peerdma-XXXXXX";
	const Uninterrupted guard;
	const int named = ::mkostemp(name.data(), O_CLOEXEC);
	if (named < 0)
		return -errno;
	::unlink(name.c_str());
	return named;
}

} // namespace cli
