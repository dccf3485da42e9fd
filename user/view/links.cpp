// SPDX-License-Identifier: MIT
#include "view/links.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace view
{

namespace
{

constexpr int most_links = 40; // as the kernel has it

// Puts the names of a path in front of those that are left.
void prepend(std::deque<std::string> &left, const std::string &path)
{
	std::vector<std::string> names;
	std::istringstream in(path);
	for (std::string name; std::getline(in, name, '/');)
		if (!name.empty() && name != ".")
			names.push_back(name);
	left.insert(left.begin(), names.begin(), names.end());
}

std::string begin_of(const std::string &path) { return path.starts_with('/') ? "/" : "."; }

// Follows the path as the kernel has done it for `opened`. Returns 0 or -errno. What is replaced meanwhile is another file.
int check_links(const std::string &path, const struct stat &opened)
{
	std::deque<std::string> left;
	prepend(left, path);
	std::string at = begin_of(path);
	struct stat st = {};
	for (int links = 0; !left.empty();) {
		const std::string next = at + "/" + left.front();
		left.pop_front();
		if (::lstat(next.c_str(), &st) < 0)
			return -errno;
		if (!S_ISLNK(st.st_mode)) {
			at = next;
			continue;
		}
		if (st.st_uid != 0 && st.st_uid != opened.st_uid)
			return -EPERM;
		std::array<char, PATH_MAX> to;
		const ssize_t n = ::readlink(next.c_str(), to.data(), to.size());
		if (n < 0)
			return -errno;
		if (++links > most_links)
			return -ELOOP;
		const std::string target(to.data(), static_cast<size_t>(n));
		if (target.starts_with('/'))
			at = begin_of(target);
		prepend(left, target);
	}
	if (::lstat(at.c_str(), &st) < 0)
		return -errno;
	return st.st_dev == opened.st_dev && st.st_ino == opened.st_ino ? 0 : -ESTALE;
}

} // namespace

int open_by_links(const std::string &path)
{
	const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	struct stat opened = {};
	const int error = ::fstat(fd, &opened) < 0 ? -errno : check_links(path, opened);
	if (!error)
		return fd;
	::close(fd);
	return error;
}

} // namespace view
