// SPDX-License-Identifier: MIT
// Files by symbolic links: those of others lead nowhere but to their own files.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "temporary_files.hpp"
#include "view/links.hpp"

namespace
{

namespace fs = std::filesystem;

class Links : public ::testing::Test, protected TemporaryFiles
{
protected:
	// 0 if it opens what the path leads to, else -errno.
	static int open(const fs::path &path)
	{
		const int fd = view::open_by_links(path);
		if (fd < 0)
			return fd;
		struct stat opened = {}, there = {};
		EXPECT_EQ(::fstat(fd, &opened), 0);
		EXPECT_EQ(::stat(path.c_str(), &there), 0);
		EXPECT_EQ(opened.st_ino, there.st_ino) << path;
		::close(fd);
		return 0;
	}
	fs::path link(const fs::path &to, const char *name)
	{
		fs::create_symlink(to, folder / name);
		return folder / name;
	}
};

TEST_F(Links, OpensWhatAPathLeadsTo)
{
	const fs::path file = write<char>("a", {1});
	fs::create_directories(folder / "sub/more");
	EXPECT_EQ(open(file), 0);
	EXPECT_EQ(open(folder / "sub/../sub/./more/../../a"), 0);
	EXPECT_EQ(open(link("a", "relative")), 0);
	EXPECT_EQ(open(link(file, "absolute")), 0);
	EXPECT_EQ(open(link("sub/more/", "directory") / "../../relative"), 0);
	EXPECT_EQ(open(link("directory", "again") / "../../absolute"), 0);
	EXPECT_EQ(open("/proc/self/limits"), 0);
	const fs::path before = fs::current_path();
	fs::current_path(folder / "sub");
	EXPECT_EQ(open("../a"), 0);
	EXPECT_EQ(open("more/../../again/../../a"), 0);
	fs::current_path(before);
}

TEST_F(Links, SaysWhyNot)
{
	const fs::path file = write<char>("a", {1});
	EXPECT_EQ(open(folder / "none"), -ENOENT);
	EXPECT_EQ(open(folder / "none/a"), -ENOENT);
	EXPECT_EQ(open(link("none", "dangling")), -ENOENT);
	EXPECT_EQ(open(file / "b"), -ENOTDIR);
	EXPECT_EQ(open(folder / "a/"), -ENOTDIR);
	EXPECT_EQ(open(link("loop", "loop")), -ELOOP);
	EXPECT_EQ(open(link("a", "to") / "b"), -ENOTDIR);
	EXPECT_EQ(open(folder / std::string(300, 'x')), -ENAMETOOLONG);
	EXPECT_EQ(open(""), -ENOENT);
	EXPECT_EQ(open("/proc/self/root/etc/passwd"), -ELOOP);
	EXPECT_EQ(open(folder / "a/."), -ENOTDIR);
	EXPECT_EQ(open(folder), -EINVAL);
	EXPECT_EQ(open("/"), -EINVAL);
	EXPECT_EQ(open("/dev/null"), -EINVAL);
	ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
	EXPECT_EQ(open(folder / "fifo"), -EINVAL);
}

// A service under systemd leads a session without a terminal: one that it opened would become its own, and send it signals.
TEST_F(Links, OpensNoTerminal)
{
	const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || ::grantpt(master) < 0 || ::unlockpt(master) < 0)
		GTEST_SKIP() << "no terminals";
	const fs::path terminal = link(::ptsname(master), "terminal");
	const pid_t child = ::fork();
	if (child == 0) {
		::setsid();
		const int got = view::open_by_links(terminal);
		::_exit(got == -EINVAL && ::open("/dev/tty", O_RDWR) < 0 && errno == ENXIO ? 0 : 1);
	}
	int status = -1;
	EXPECT_EQ(::waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	::close(master);
}

TEST_F(Links, OfAnotherUserLeadToHisFilesOnly)
{
	if (::geteuid() != 0)
		GTEST_SKIP() << "only root can make files of others";
	constexpr uid_t other = 65534, third = 65533;
	fs::create_directories(folder / "theirs");
	const fs::path ours = write<char>("ours", {1}), his = folder / "theirs/his";
	fs::copy(ours, his);
	ASSERT_EQ(::chown(his.c_str(), other, other), 0);
	const auto of = [&](uid_t owner, const fs::path &path) {
		EXPECT_EQ(::lchown(path.c_str(), owner, owner), 0);
		return path;
	};
	EXPECT_EQ(open(of(other, link(ours, "a"))), -EPERM);
	EXPECT_EQ(open(of(other, link(his, "b"))), 0);
	EXPECT_EQ(open(of(third, link(his, "c"))), -EPERM);
	EXPECT_EQ(open(of(0, link(his, "d"))), 0);
	EXPECT_EQ(open(of(0, link("a", "e"))), -EPERM) << "through his";
	EXPECT_EQ(open(of(other, link(".", "f")) / "ours"), -EPERM) << "a directory on the way";
	EXPECT_EQ(open(folder / "f/theirs/his"), 0);
}

// A user swaps a directory of his and a link to one of ours, whose file he may not read.
TEST_F(Links, AreNotSwappedMeanwhile)
{
	if (::geteuid() != 0)
		GTEST_SKIP() << "only root can make files of others";
	constexpr uid_t other = 65534;
	fs::create_directories(folder / "ours");
	fs::create_directories(folder / "theirs");
	const fs::path secret = write<char>("ours/file", {1});
	fs::copy(secret, folder / "theirs/file");
	ASSERT_EQ(::chown((folder / "theirs/file").c_str(), other, other), 0);
	struct stat ours = {};
	ASSERT_EQ(::stat(secret.c_str(), &ours), 0);
	const fs::path swapped = link("ours", "swapped"), directory = folder / "theirs";
	ASSERT_EQ(::lchown(swapped.c_str(), other, other), 0);
	const auto swap = [&] {
		return ::renameat2(AT_FDCWD, swapped.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE);
	};
	if (swap() < 0)
		GTEST_SKIP() << "this file system cannot swap names";
	std::atomic<bool> done = false;
	std::jthread user([&] {
		while (!done)
			swap();
	});
	int opened = 0, refused = 0;
	for (int i = 0; i < 20000; i++) {
		const int fd = view::open_by_links(directory / "file");
		struct stat st = {};
		refused += fd < 0;
		if (fd < 0)
			continue;
		opened++;
		EXPECT_EQ(::fstat(fd, &st), 0);
		::close(fd);
		if (st.st_ino == ours.st_ino) {
			ADD_FAILURE() << "try " << i << " opened the file of another";
			break;
		}
	}
	done = true;
	EXPECT_GT(opened, 0);
	EXPECT_GT(refused, 0);
}

} // namespace
