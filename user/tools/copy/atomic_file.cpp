// SPDX-License-Identifier: MIT
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/copy/copy.hpp"
#include "tools/system/anonymous_file.hpp"

namespace cli
{
namespace
{

constexpr int deadly[] = {SIGINT, SIGTERM, SIGHUP};

// The temporary name for the signal handler, which removes it and cannot allocate memory.
char temporary_name[PATH_MAX];

void remove_and_raise(int signal)
{
	::unlink(temporary_name);
	::raise(signal); // the default handler is set again
}

// A signal that the caller ignores (nohup) stays ignored.
void set_handlers(void (*handler)(int))
{
	for (const int signal : deadly) {
		struct sigaction old = {}, action = {};
		action.sa_handler = handler;
		action.sa_flags = SA_RESETHAND | SA_NODEFER;
		::sigaction(signal, nullptr, &old);
		if (old.sa_handler != SIG_IGN)
			::sigaction(signal, &action, nullptr);
	}
}

void remove_on_signal(const std::string &name)
{
	std::strncpy(temporary_name, name.c_str(), sizeof(temporary_name) - 1);
	set_handlers(remove_and_raise);
}

void keep_on_signal()
{
	set_handlers(SIG_DFL);
	temporary_name[0] = '\0';
}

std::string directory_of(const std::string &path)
{
	const size_t slash = path.rfind('/');
	if (slash == path.npos)
		return ".";
	return slash ? path.substr(0, slash) : "/";
}

} // namespace

AtomicFile::AtomicFile(peerdma_impl::Syscalls &sys, const std::string &path)
	: sys_(sys), path_(path), dir_(directory_of(path)), fd_(sys, [&] {
		  const int fd = sys.open(dir_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC);
		  if (!lacks_tmpfile(fd))
			  return fd;
		  name_ = dir_ + "/.peerdma-XXXXXX";
		  const BlockedSignals guard;
		  const int named = ::mkostemp(name_.data(), O_CLOEXEC);
		  if (named < 0) {
			  name_.clear();
			  return -errno;
		  }
		  remove_on_signal(name_);
		  return named;
	  }())
{
	if (fd_.get() < 0)
		throw Failure{fmt::format("cannot create a file in {}", dir_), -fd_.get(), 0, "", {}};
}

AtomicFile::~AtomicFile()
{
	if (name_.empty())
		return;
	::unlink(name_.c_str());
	keep_on_signal();
}

// Links the anonymous file to an unused name: linkat() cannot replace an existing name. Until the rename, SIGKILL
// leaves that name behind.
void AtomicFile::link_temporary()
{
	const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
	for (unsigned i = 0; name_.empty(); i++) {
		const std::string name = fmt::format("{}/.peerdma-{}-{}", dir_, ::getpid(), i);
		if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
			name_ = name;
		else if (errno != EEXIST)
			throw Failure{fmt::format("cannot create {}", path_), errno, 0, "", {}};
	}
}

void AtomicFile::publish(mode_t mode)
{
	if (::fchmod(fd_.get(), mode) < 0)
		throw Failure{fmt::format("cannot set the mode of {}", path_), errno, 0, "", {}};
	if (const int rc = sys_.fsync(fd_.get()); rc < 0)
		throw Failure{fmt::format("cannot sync {}", path_), -rc, 0, "", {}};
	const BlockedSignals guard;
	const bool named = !name_.empty();
	link_temporary();
	if (::rename(name_.c_str(), path_.c_str()) < 0)
		throw Failure{fmt::format("cannot create {}", path_), errno, 0, "", {}};
	name_.clear();
	if (named)
		keep_on_signal();
	const Fd dir(sys_, sys_.open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (dir.get() >= 0)
		sys_.fsync(dir.get());
}

mode_t mode_of_new_file(const std::string &path, mode_t wanted)
{
	struct stat link = {};
	if (::lstat(path.c_str(), &link) == 0)
		throw Failure{fmt::format("{} is a dangling symbolic link", path),
			      ENOENT,
			      0,
			      "Create its target, or remove it.",
			      {}};
	const mode_t mask = ::umask(0);
	::umask(mask);
	return wanted & ~mask;
}

} // namespace cli
