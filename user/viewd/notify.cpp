// SPDX-License-Identifier: MIT
#include "viewd/notify.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

namespace viewd
{

bool notify(const std::string &state)
{
	const char *const name = std::getenv("NOTIFY_SOCKET");
	const size_t len = name ? std::strlen(name) : 0;
	sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	if (len < 2 || len >= sizeof(address.sun_path) || (name[0] != '/' && name[0] != '@'))
		return false;
	std::memcpy(address.sun_path, name, len);
	// An abstract name.
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	const ssize_t n = ::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr *>(&address),
				   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + len));
	::close(fd);
	return n == static_cast<ssize_t>(state.size());
}

std::string reloading()
{
	timespec now = {};
	::clock_gettime(CLOCK_MONOTONIC, &now);
	return fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1'000'000LL + now.tv_nsec / 1000);
}

} // namespace viewd
