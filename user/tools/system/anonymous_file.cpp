// SPDX-License-Identifier: MIT
#include "tools/system/anonymous_file.hpp"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace cli
{

bool lacks_tmpfile(int error) { return error == -EOPNOTSUPP || error == -EISDIR; }

int open_anonymous(peerdma_impl::Syscalls &sys, const std::string &dir)
{
	const int fd = sys.open(dir.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC);
	if (!lacks_tmpfile(fd))
		return fd;
	std::string name = dir + "/peerdma-XXXXXX";
	const BlockedSignals guard;
	const int named = ::mkostemp(name.data(), O_CLOEXEC);
	if (named < 0)
		return -errno;
	::unlink(name.c_str());
	return named;
}

} // namespace cli
