// SPDX-License-Identifier: MIT
#include "viewd/state_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

namespace viewd
{

namespace
{

namespace fs = std::filesystem;

constexpr const char *fresh_kind = ".new"; // of a file that is being written

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

StateFolder::StateFolder(fs::path path) : path_(std::move(path))
{
	std::error_code error;
	fs::create_directories(path_, error);
	// Whoever can open it can lock it.
	if (!error)
		fs::permissions(path_, fs::perms::owner_all, error);
	if (error)
		throw std::runtime_error(fmt::format("{}: {}", path_.string(), error.message()));
	lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock_ < 0)
		throw std::runtime_error(fmt::format("{}: {}", path_.string(), std::strerror(errno)));
	// A file system without locks locks nobody out.
	if (::flock(lock_, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		::close(lock_);
		throw std::runtime_error(fmt::format("{}: another service uses it (fuser -v shows which); stop that "
						     "one, or give --folder another directory",
						     path_.string()));
	}
	for (const fs::path &left : files())
		if (left.extension() == fresh_kind)
			fs::remove(left, error);
}

StateFolder::~StateFolder() { ::close(lock_); }

void StateFolder::unlock() const { ::flock(lock_, LOCK_UN); }

std::vector<fs::path> StateFolder::files() const
{
	const fs::directory_iterator all(path_);
	return {begin(all), end(all)};
}

std::string StateFolder::read(const std::string &name, const std::string &kind) const
{
	const fs::path path = file(name, kind);
	const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT)
			return "";
		refuse(path, errno);
	}
	std::string text;
	std::array<char, 65536> some;
	ssize_t n;
	int error = 0;
	while ((n = ::read(fd, some.data(), some.size())) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			error = errno;
			break;
		}
		text.append(some.data(), static_cast<size_t>(n));
	}
	::close(fd);
	if (error)
		refuse(path, error);
	return text;
}

void StateFolder::write(const std::string &name, const std::string &kind, const std::string &text) const
{
	const fs::path path = file(name, kind), fresh = path.string() + fresh_kind;
	int error = sync_path(fresh, O_WRONLY | O_CREAT | O_TRUNC, &text);
	if (!error && ::rename(fresh.c_str(), path.c_str()) < 0)
		error = errno;
	if (error) {
		::unlink(fresh.c_str());
		refuse(path, error);
	}
	if ((error = sync()))
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

void StateFolder::remove_all(const std::string &name, const std::vector<std::string> &kinds) const
{
	bool is_changed = false;
	for (const fs::path &path : files()) {
		const std::string kind = path.extension();
		const bool is_one = path.stem() == name && std::ranges::any_of(kinds, [&](const std::string &begin) {
					    return kind.starts_with(begin);
				    });
		if (!is_one)
			continue;
		if (::unlink(path.c_str()) < 0 && errno != ENOENT)
			refuse(path, errno);
		is_changed = true;
	}
	if (const int error = is_changed ? sync() : 0)
		refuse(path_, error);
}

int StateFolder::sync() const { return sync_path(path_, O_RDONLY | O_DIRECTORY, nullptr); }

} // namespace viewd
