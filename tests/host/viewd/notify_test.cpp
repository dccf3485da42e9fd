// SPDX-License-Identifier: MIT
// What the service manager is told, by a path and by an abstract name, and that nothing happens without one.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "../view/temporary_files.hpp"
#include "viewd/notify.hpp"

namespace
{

class Notify : public ::testing::Test, protected TemporaryFiles
{
protected:
	~Notify() override { ::unsetenv("NOTIFY_SOCKET"); }

	// What arrives at a socket of this name.
	static std::string heard(const std::string &name, const std::string &state)
	{
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		std::memcpy(address.sun_path, name.data(), name.size());
		if (name[0] == '@')
			address.sun_path[0] = '\0';
		const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		const auto len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
		EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr *>(&address), len), 0);
		::setenv("NOTIFY_SOCKET", name.c_str(), 1);
		EXPECT_TRUE(viewd::notify(state));
		char text[256];
		const ssize_t n = ::recv(fd, text, sizeof(text), MSG_DONTWAIT);
		::close(fd);
		return {text, n > 0 ? static_cast<size_t>(n) : 0};
	}
};

TEST_F(Notify, TellsTheServiceManager)
{
	EXPECT_EQ(heard((folder / "socket").string(), "READY=1"), "READY=1");
	EXPECT_EQ(heard("@peerdma-test-" + std::to_string(::getpid()), "STOPPING=1"), "STOPPING=1");
	const std::string state = viewd::reloading();
	EXPECT_TRUE(state.starts_with("RELOADING=1\nMONOTONIC_USEC=")) << state;
	EXPECT_GT(std::stoull(state.substr(state.rfind('=') + 1)), 0U);
}

TEST_F(Notify, DoesWithoutOne)
{
	::unsetenv("NOTIFY_SOCKET");
	EXPECT_FALSE(viewd::notify("READY=1"));
	for (const std::string &name : {std::string(), std::string("relative"), std::string("/"),
					"/" + std::string(200, 'x'), (folder / "nobody").string()}) {
		::setenv("NOTIFY_SOCKET", name.c_str(), 1);
		EXPECT_FALSE(viewd::notify("READY=1")) << name;
	}
}

} // namespace
