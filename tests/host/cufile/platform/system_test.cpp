// SPDX-License-Identifier: MIT
//
// The real operating system, where the fake one does not behave the same.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include "cufile/platform/real_dependencies.hpp"

namespace
{

std::string text_of(const std::string &path)
{
	std::ifstream file(path);
	return {std::istreambuf_iterator<char>(file), {}};
}

// poll(2) reports a terminal writable if there is room for one byte.
TEST(CufileSystem, ALineDoesNotWaitForATerminal)
{
	const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (master < 0 || ::grantpt(master) || ::unlockpt(master))
		GTEST_SKIP() << "no terminals here";
	const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	const int filler = ::open(::ptsname(master), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	ASSERT_GE(terminal, 0);
	ASSERT_GE(filler, 0);
	const std::string some(256, 'x');
	while (::write(filler, some.data(), some.size()) > 0)
		continue;
	struct pollfd ready = {terminal, POLLOUT, 0};
	char byte[64];
	while (::poll(&ready, 1, 0) == 0)
		ASSERT_GT(::read(master, byte, sizeof(byte)), 0);
	::alarm(20); // ends a hang
	EXPECT_EQ(cufile::real_system().append(terminal, std::string(1 << 20, 'y')), -EAGAIN);
	::alarm(0);
	EXPECT_FALSE(::fcntl(terminal, F_GETFL) & O_NONBLOCK) << "the flags are the program's";
	for (const int fd : {master, terminal, filler})
		::close(fd);
}

class CufileWriteFile : public ::testing::Test
{
protected:
	CufileWriteFile() { std::filesystem::create_directory(folder); }
	~CufileWriteFile() override { std::filesystem::remove_all(folder); }

	size_t entries() const
	{
		const std::filesystem::directory_iterator all(folder);
		return static_cast<size_t>(std::distance(begin(all), end(all)));
	}

	const std::string folder = ::testing::TempDir() + "cufile_write_file." + std::to_string(::getpid());
	const std::string path = folder + "/file";
};

TEST_F(CufileWriteFile, AllOfItOrNothing)
{
	std::ofstream(path) << "before";
	const auto limited = [](const std::string &to, int error) {
		struct rlimit old, few;
		::getrlimit(RLIMIT_FSIZE, &old);
		few = {100, old.rlim_max};
		const auto handler = ::signal(SIGXFSZ, SIG_IGN);
		::setrlimit(RLIMIT_FSIZE, &few);
		EXPECT_EQ(cufile::real_system().write_file(to, std::string(1000, 'x')), error);
		::setrlimit(RLIMIT_FSIZE, &old);
		::signal(SIGXFSZ, handler);
	};
	limited(path, -EFBIG);
	EXPECT_EQ(text_of(path), "before");
	limited(folder + "/new", -EFBIG);
	EXPECT_EQ(entries(), 1u) << "nothing is left of what fails";
}

TEST_F(CufileWriteFile, InThePlaceOfWhatThereIs)
{
	std::ofstream(path) << "before";
	std::filesystem::permissions(path, std::filesystem::perms(0640));
	const std::string link = folder + "/link";
	std::filesystem::create_symlink("file", link);
	EXPECT_EQ(cufile::real_system().write_file(link, "after"), 0);
	EXPECT_EQ(text_of(path), "after");
	EXPECT_TRUE(std::filesystem::is_symlink(link));
	EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
	EXPECT_EQ(cufile::real_system().write_file(folder, "x"), -EINVAL);
	EXPECT_EQ(cufile::real_system().write_file(folder + "/new", "new"), 0);
	EXPECT_EQ(text_of(folder + "/new"), "new");
	EXPECT_EQ(entries(), 3u);
}

TEST_F(CufileWriteFile, KeepsNoMoreThanThePermissions)
{
	std::ofstream(path) << "before";
	std::filesystem::permissions(path, std::filesystem::perms(06755));
	EXPECT_EQ(cufile::real_system().write_file(path, "after"), 0);
	EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0755));
}

TEST_F(CufileWriteFile, ALinkToNothingStays)
{
	std::filesystem::create_symlink("nothing", folder + "/dangling");
	std::filesystem::create_symlink("loop", folder + "/loop");
	EXPECT_EQ(cufile::real_system().write_file(folder + "/dangling", "x"), -ENOENT);
	EXPECT_EQ(cufile::real_system().write_file(folder + "/loop", "x"), -ELOOP);
	EXPECT_TRUE(std::filesystem::is_symlink(folder + "/dangling"));
	EXPECT_TRUE(std::filesystem::is_symlink(folder + "/loop"));
	EXPECT_EQ(entries(), 2u);
}

} // namespace
