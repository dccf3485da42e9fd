// SPDX-License-Identifier: MIT
#include "view/links.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <sstream>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace view
{

namespace
{

constexpr size_t most_links = 40; // as the kernel has it

class Descriptor
{
public:
	explicit Descriptor(int fd) : fd_(fd) {}
	~Descriptor()
	{
		if (fd_ >= 0)
			::close(fd_);
	}
	Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
	Descriptor &operator=(Descriptor &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	int get() const { return fd_; }
	int release() { return std::exchange(fd_, -1); }
	explicit operator bool() const { return fd_ >= 0; }

private:
	int fd_;
};

// Puts the names of a path in front of those that are left.
void prepend(std::deque<std::string> &left, const std::string &path)
{
	std::vector<std::string> names;
	std::istringstream in(path);
	for (std::string name; std::getline(in, name, '/');)
		if (!name.empty() && name != ".")
			names.push_back(name);
	// "a/" is a directory.
	if (path.ends_with('/') && left.empty())
		names.emplace_back(".");
	left.insert(left.begin(), names.begin(), names.end());
}

Descriptor begin_of(const std::string &path)
{
	return Descriptor(::open(path.starts_with('/') ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

} // namespace

int open_by_links(const std::string &path)
{
	std::deque<std::string> left;
	prepend(left, path);
	Descriptor folder = begin_of(path);
	std::vector<uid_t> owners; // of links
	while (folder && !left.empty()) {
		const std::string name = std::move(left.front());
		left.pop_front();
		// A link is no directory. To open one so mounts what is mounted on demand, which O_PATH does not.
		constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
		Descriptor next(::openat(folder.get(), name.c_str(), O_RDONLY | flags));
		if (!next && errno == EACCES) // it may be searched all the same
			next = Descriptor(::openat(folder.get(), name.c_str(), O_PATH | flags));
		if (next && !left.empty()) {
			folder = std::move(next);
			continue;
		}
		if (!next && errno != ENOTDIR)
			return -errno;
		const Descriptor there(::openat(folder.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
		struct stat st = {};
		if (!there || ::fstat(there.get(), &st) < 0)
			return -errno;
		if (S_ISLNK(st.st_mode)) {
			owners.push_back(st.st_uid);
			std::array<char, PATH_MAX> to;
			const ssize_t n = ::readlinkat(there.get(), "", to.data(), to.size());
			if (n < 0)
				return -errno;
			if (owners.size() > most_links)
				return -ELOOP;
			const std::string target(to.data(), static_cast<size_t>(n));
			if (target.starts_with('/'))
				folder = begin_of(target);
			prepend(left, target);
			continue;
		}
		if (!left.empty())
			return -ENOTDIR;
		Descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
		if (!file || ::fstat(file.get(), &st) < 0)
			return -errno;
		const auto may_lead_there = [&](uid_t owner) { return owner == 0 || owner == st.st_uid; };
		return std::ranges::all_of(owners, may_lead_there) ? file.release() : -EPERM;
	}
	// A path of no names: the directory that it begins at, which is no regular file.
	return folder ? folder.release() : -errno;
}

} // namespace view
