// SPDX-License-Identifier: MIT
#include "tools/check/host_files.hpp"

#include <cerrno>
#include <deque>

namespace cli
{
namespace
{

constexpr int most_links = 40; // in one path, as the kernel's MAXSYMLINKS

// In front of what is there already.
void add_parts(std::deque<std::string> &parts, const std::string &path)
{
	std::deque<std::string> found;
	for (size_t from = 0; from < path.size();) {
		const size_t end = std::min(path.find('/', from), path.size());
		if (end > from)
			found.push_back(path.substr(from, end - from));
		from = end + 1;
	}
	parts.insert(parts.begin(), found.begin(), found.end());
}

} // namespace

// Where a path of the host is here.
int HostFiles::locate(const std::string &path, Last last, std::string &out)
{
	out = path;
	if (root_.empty())
		return 0;
	out = root_;
	std::deque<std::string> rest;
	add_parts(rest, path);
	for (int links = 0; !rest.empty();) {
		const std::string part = rest.front();
		rest.pop_front();
		std::string target;
		if (part == "..") {
			if (out.size() > root_.size())
				out.resize(out.rfind('/'));
		} else if (part != "." && (!rest.empty() || last == Last::follow) &&
			   real_.read_link(out + "/" + part, target) == 0) {
			if (++links > most_links)
				return -ELOOP;
			if (target.starts_with('/'))
				out = root_;
			add_parts(rest, target);
		} else if (part != ".") {
			out += "/" + part;
		}
	}
	return 0;
}

int HostFiles::noted(const std::string &path, int rc)
{
	const char *why = rc == -ELOOP ? "its symbolic links are a loop" : peerdma_impl::refusal(rc);
	if (why)
		unread_.emplace(path, why);
	return rc;
}

int HostFiles::access(const std::string &path, int mode)
{
	std::string where;
	const int rc = locate(path, Last::follow, where);
	return noted(path, rc < 0 ? rc : real_.access(where, mode));
}

int HostFiles::read_bounded(const std::string &path, uint64_t most, std::string &out)
{
	std::string where;
	out.clear();
	const int rc = locate(path, Last::follow, where);
	return noted(path, rc < 0 ? rc : real_.read_bounded(where, most, out));
}

int HostFiles::read_link(const std::string &path, std::string &out)
{
	std::string where;
	const int rc = locate(path, Last::keep, where);
	return noted(path, rc < 0 ? rc : real_.read_link(where, out));
}

int HostFiles::list_dir(const std::string &path, std::vector<std::string> &out)
{
	std::string where;
	out.clear();
	const int rc = locate(path, Last::follow, where);
	const int listed = noted(path, rc < 0 ? rc : real_.list_dir(where, out));
	// Also if what is above it is no directory.
	if (listed == -ENOTDIR)
		unread_.emplace(path, "it is not a directory");
	return listed;
}

} // namespace cli
