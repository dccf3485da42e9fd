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

#include "copy.hpp"
#include "nameless.hpp"

namespace cli
{
namespace
{

constexpr int deadly[] = {SIGINT, SIGTERM, SIGHUP};

// The name that goes before the process does, if a signal ends it; for its handler, which may not allocate.
char left_behind[PATH_MAX];

void clean_up(int signal)
{
	::unlink(left_behind);
	::raise(signal); // its handler is the default again
}

// What the caller has told us to ignore (nohup) stays ignored.
void handle(void (*handler)(int))
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

void remember(const std::string &name)
{
	std::strncpy(left_behind, name.c_str(), sizeof(left_behind) - 1);
	handle(clean_up);
}

void forget()
{
	handle(SIG_DFL);
	left_behind[0] = '\0';
}

std::string directory_of(const std::string &path)
{
	const size_t slash = path.rfind('/');
	if (slash == path.npos)
		return ".";
	return slash ? path.substr(0, slash) : "/";
}

} // namespace

Draft::Draft(peerdma_impl::Env &env, const std::string &path)
	: env_(env), path_(path), dir_(directory_of(path)), fd_(env, [&] {
		  const int fd = env.open(dir_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC);
		  if (!has_no_nameless(fd))
			  return fd;
		  name_ = dir_ + "/.peerdma-XXXXXX";
		  const Uninterrupted guard;
		  const int named = ::mkostemp(name_.data(), O_CLOEXEC);
		  if (named < 0) {
			  name_.clear();
			  return -errno;
		  }
		  remember(name_);
		  return named;
	  }())
{
	if (fd_.get() < 0)
		throw Failure{fmt::format("cannot make a file in {}", dir_), -fd_.get(), 0, "", {}};
}

Draft::~Draft()
{
	if (name_.empty())
		return;
	::unlink(name_.c_str());
	forget();
}

// A name that nobody has: what has none yet can get one, but not in the place of another. From here until it is renamed
// SIGKILL leaves it behind.
void Draft::name_it()
{
	const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
	for (unsigned i = 0; name_.empty(); i++) {
		const std::string name = fmt::format("{}/.peerdma-{}-{}", dir_, ::getpid(), i);
		if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
			name_ = name;
		else if (errno != EEXIST)
			throw Failure{fmt::format("cannot give {} its name", path_), errno, 0, "", {}};
	}
}

void Draft::publish(mode_t mode)
{
	if (::fchmod(fd_.get(), mode) < 0)
		throw Failure{fmt::format("cannot set the mode of {}", path_), errno, 0, "", {}};
	if (const int rc = env_.fsync(fd_.get()); rc < 0)
		throw Failure{fmt::format("cannot put {} onto its storage", path_), -rc, 0, "", {}};
	const Uninterrupted guard;
	const bool named = !name_.empty();
	name_it();
	if (::rename(name_.c_str(), path_.c_str()) < 0)
		throw Failure{fmt::format("cannot give {} its name", path_), errno, 0, "", {}};
	name_.clear();
	if (named)
		forget();
	const Fd dir(env_, env_.open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (dir.get() >= 0)
		env_.fsync(dir.get());
}

} // namespace cli
