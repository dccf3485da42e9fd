// SPDX-License-Identifier: MIT
#include "view/links.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <sstream>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace view
{

namespace
{

constexpr int most_links = 40; // as the kernel has it

// A descriptor that closes itself, or an -errno.
class Fd
{
public:
	Fd() = default;
	explicit Fd(int fd) : fd_(fd < 0 ? -errno : fd) {}
	Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -EBADF)) {}
	Fd &operator=(Fd &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	~Fd()
	{
		if (fd_ >= 0)
			::close(fd_);
	}
	int get() const { return fd_; }
	int release() { return std::exchange(fd_, -EBADF); }

private:
	int fd_ = -EBADF;
};

// Puts the names of a path in front of those that are left. What ends with a slash is a directory.
void prepend(std::deque<std::string> &left, const std::string &path)
{
	std::vector<std::string> names;
	std::istringstream in(path);
	for (std::string name; std::getline(in, name, '/');)
		if (!name.empty())
			names.push_back(name);
	if (path.ends_with('/'))
		names.emplace_back(".");
	left.insert(left.begin(), names.begin(), names.end());
}

Fd begin_of(const std::string &path)
{
	return Fd(::open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// A name in a directory; a link itself. A directory that is mounted when it is first used is mounted only by O_DIRECTORY.
Fd enter(const Fd &directory, const std::string &name)
{
	constexpr int how = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	Fd next(::openat(directory.get(), name.c_str(), how | O_DIRECTORY));
	return next.get() == -ENOTDIR ? Fd(::openat(directory.get(), name.c_str(), how)) : std::move(next);
}

// Where a path leads to. Each step begins at the descriptor of the one before: whoever can rename directories of the path does not lead it
// over a link whose owner is not looked at.
class Walk
{
public:
	explicit Walk(const std::string &path) : at_(begin_of(path)) { prepend(left_, path); }

	// Returns 0 or -errno.
	int run()
	{
		while (at_.get() >= 0 && !left_.empty()) {
			name_ = std::exchange(left_.front(), {});
			left_.pop_front();
			Fd next = enter(at_, name_);
			struct stat st = {};
			if (next.get() >= 0 && ::fstat(next.get(), &st) < 0)
				return -errno;
			if (!S_ISLNK(st.st_mode))
				parent_ = std::exchange(at_, std::move(next));
			else if (const int error = follow(next, st.st_uid))
				return error;
		}
		return at_.get() < 0 ? at_.get() : 0;
	}

	// By its name, so that a file server is asked whether it is that file still. What is not a regular file is not opened: a driver may
	// do something then, and a terminal may become the service's. Returns a descriptor or -errno.
	int open() const
	{
		constexpr int how = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
		if (const int error = check(at_.get()))
			return error;
		Fd file(::openat(parent_.get(), name_.c_str(), how));
		if (file.get() < 0)
			return file.get();
		// It may be another one meanwhile.
		const int error = check(file.get());
		return error ? error : file.release();
	}

private:
	int follow(const Fd &link, uid_t owner)
	{
		std::array<char, PATH_MAX> to;
		const ssize_t n = ::readlinkat(link.get(), "", to.data(), to.size());
		if (n < 0)
			return -errno;
		owners_.push_back(owner);
		if (owners_.size() > most_links)
			return -ELOOP;
		const std::string target(to.data(), static_cast<size_t>(n));
		if (target.starts_with('/')) {
			// Those of /proc/PID lead elsewhere than they say.
			struct statfs fs = {};
			if (::fstatfs(link.get(), &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC)
				return -ELOOP;
			at_ = begin_of(target);
		}
		prepend(left_, target);
		return 0;
	}

	int check(int fd) const
	{
		struct stat st = {};
		if (::fstat(fd, &st) < 0)
			return -errno;
		for (const uid_t owner : owners_)
			if (owner != 0 && owner != st.st_uid)
				return -EPERM;
		return S_ISREG(st.st_mode) ? 0 : -EINVAL;
	}

	Fd at_, parent_; // parent_: where name_ led to at_
	std::string name_;
	std::deque<std::string> left_;
	std::vector<uid_t> owners_; // of the links on the way
};

} // namespace

int open_by_links(const std::string &path)
{
	if (path.empty())
		return -ENOENT;
	Walk walk(path);
	const int error = walk.run();
	return error ? error : walk.open();
}

} // namespace view
