// SPDX-License-Identifier: MIT
#include "viewd/state_folder.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace viewd
{

namespace
{

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path &path, int error)
{
	throw Refused(fmt::format("{}: {}", path.string(), std::strerror(error)));
}

// Returns 0 or an errno.
int write_all(int fd, const std::string &text)
{
	for (size_t at = 0; at < text.size();) {
		const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
		if (n < 0 && errno != EINTR)
			return errno;
		at += n > 0 ? static_cast<size_t>(n) : 0;
	}
	return 0;
}

// Opens, syncs and closes. Returns 0 or an errno.
int sync_path(const fs::path &path, int flags, const std::string *text)
{
	const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	int error = text ? write_all(fd, *text) : 0;
	if (!error && ::fsync(fd) < 0)
		error = errno;
	if (::close(fd) < 0 && !error)
		error = errno;
	return error;
}

} // namespace

std::string read_text(const fs::path &path)
{
	std::ostringstream text;
	text << std::ifstream(path, std::ios::binary).rdbuf();
	return text.str();
}

StateFolder::StateFolder(fs::path path) : path_(std::move(path))
{
	std::error_code error;
	fs::create_directories(path_, error);
	if (error)
		throw std::runtime_error(fmt::format("{}: {}", path_.string(), error.message()));
}

std::vector<fs::path> StateFolder::files() const
{
	const fs::directory_iterator all(path_);
	return {begin(all), end(all)};
}

std::string StateFolder::read(const std::string &name, const std::string &kind) const
{
	return read_text(file(name, kind));
}

void StateFolder::write(const std::string &name, const std::string &kind, const std::string &text) const
{
	const fs::path path = file(name, kind), fresh = path.string() + ".new";
	int error = sync_path(fresh, O_WRONLY | O_CREAT | O_TRUNC, &text);
	if (!error && ::rename(fresh.c_str(), path.c_str()) < 0)
		error = errno;
	if (!error)
		error = sync();
	if (error)
		refuse(path, error);
}

bool StateFolder::remove(const std::string &name, const std::string &kind) const
{
	const fs::path path = file(name, kind);
	if (::unlink(path.c_str()) < 0) {
		if (errno == ENOENT)
			return false;
		refuse(path, errno);
	}
	if (const int error = sync())
		refuse(path, error);
	return true;
}

int StateFolder::sync() const { return sync_path(path_, O_RDONLY | O_DIRECTORY, nullptr); }

} // namespace viewd
