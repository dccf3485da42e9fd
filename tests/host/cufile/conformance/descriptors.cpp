// SPDX-License-Identifier: MIT
//
// File descriptors: none left, the library's closed by the program, the program's closed and reopened, and the
// program's file locks meanwhile.
#include <sys/file.h>
#include <sys/resource.h>

#include "conformance.hpp"
#include "ring_descriptors.hpp"

using namespace conformance;

namespace
{

// Takes all descriptors that the process may have, except for the given number.
class NoMore
{
public:
	explicit NoMore(unsigned left)
	{
		getrlimit(RLIMIT_NOFILE, &before_);
		const struct rlimit few = {std::min<rlim_t>(before_.rlim_cur, 256), before_.rlim_max};
		setrlimit(RLIMIT_NOFILE, &few);
		int fd;
		while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
			taken_.push_back(fd);
		while (left-- && !taken_.empty())
			give();
	}
	~NoMore()
	{
		while (!taken_.empty())
			give();
		setrlimit(RLIMIT_NOFILE, &before_);
	}
	NoMore(const NoMore &) = delete;
	NoMore &operator=(const NoMore &) = delete;

private:
	void give()
	{
		close(taken_.back());
		taken_.pop_back();
	}

	struct rlimit before_ = {};
	std::vector<int> taken_;
};

class Descriptors : public Cufile
{
protected:
	// The library's descriptors of this file.
	std::vector<int> librarys(const std::string &name) const
	{
		std::vector<int> found;
		for (const auto &entry : fs::directory_iterator("/proc/self/fd")) {
			std::error_code error;
			const int fd = std::stoi(entry.path().filename());
			if (fs::read_symlink(entry, error) == path(name) &&
			    std::find(fds_.begin(), fds_.end(), fd) == fds_.end())
				found.push_back(fd);
		}
		return found;
	}
	std::vector<int> ways() const
	{
		return has_direct() ? std::vector<int>{O_RDWR, O_RDWR | O_DIRECT} : std::vector<int>{O_RDWR};
	}
	// Tests from another process whether the file is locked.
	bool is_locked(const std::string &name)
	{
		return in_child([&] {
			       const int fd = open(path(name).c_str(), O_RDWR | O_CLOEXEC);
			       struct flock all = {};
			       all.l_type = F_WRLCK;
			       fcntl(fd, F_GETLK, &all);
			       return static_cast<int>(all.l_type != F_UNLCK || flock(fd, LOCK_EX | LOCK_NB));
		       }) != 0;
	}
};

// Running out of descriptors in the middle of a read would look like the end of the file.
TEST_F(Descriptors, AreAllTakenAtTheRegistration)
{
	if (!has_direct())
		GTEST_SKIP() << "no O_DIRECT here";
	const std::string bytes = pattern(10000);
	const int fd = open_file("f", bytes, O_RDWR | O_DIRECT);
	alignas(4096) static char host[16384];
	CUfileHandle_t fh = nullptr;
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	for (const unsigned left : {0u, 1u}) {
		{
			const NoMore none(left);
			EXPECT_EQ(add(fd, fh), 5031) << left;
		}
		EXPECT_TRUE(librarys("f").empty());
	}
	Device memory(16384);
	ASSERT_EQ(add(fd, fh), 0);
	const NoMore none(0);
	EXPECT_EQ(read(fh, host, 16384, 0), 10000);
	EXPECT_EQ(bytes.compare(0, 10000, host, 10000), 0);
	EXPECT_EQ(read(fh, memory.get(), 16384, 0), 10000);
	EXPECT_TRUE(memory.bytes(0, 10000) == bytes);
	EXPECT_EQ(write(fh, memory.get(), 9999, 1), 9999);
	CUfileBatchHandle_t id = nullptr;
	CUfileIOParams_t io = {};
	io.mode = CUFILE_BATCH;
	io.fh = fh;
	io.u.batch = {memory.get(), 0, 0, 10000};
	CUfileIOEvents_t event = {};
	unsigned n = 1;
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, 1), 0);
	EXPECT_EQ(code(lib().cuFileBatchIOSubmit, id, 1, &io, 0), 0);
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 1, &n, &event, nullptr), 0);
	EXPECT_EQ(event.status, CUFILE_COMPLETE);
	EXPECT_EQ(event.ret, 10000u);
	lib().cuFileBatchIODestroy(id);
	size_t size = 10000;
	off_t from = 0, to = 0;
	ssize_t got = 0;
	void *const stream = fake_stream(0);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh, memory.get(), &size, &from, &to, &got, static_cast<CUstream>(stream)),
		  0);
	fake_sync(stream);
	EXPECT_EQ(got, 10000);
	lib().cuFileDriverClose_v2();
	fake_stream_destroy(stream);
}

#ifndef __SANITIZE_THREAD__ // in the child it takes the stand-in's lock for held
// A file that another user opened and passed on. Runs in a child because dropping privileges cannot be undone.
TEST_F(Descriptors, OfAFileThatMayNotBeOpenedAgain)
{
	if (!has_direct() || geteuid())
		GTEST_SKIP() << "no O_DIRECT here, or not root";
	const std::string bytes = pattern(10000);
	const int fd = open_file("f", bytes, O_RDWR | O_DIRECT);
	ASSERT_EQ(fchmod(fd, 0600), 0);
	ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
	alignas(4096) static char host[16384];
	EXPECT_EQ(in_child([&] {
			  if (setresuid(65534, 65534, 65534))
				  return 2;
			  CUfileHandle_t fh = nullptr;
			  int bad = add(fd, fh) != 0;
			  bad |= (read(fh, host, 16384, 0) != 10000 || bytes.compare(0, 10000, host, 10000)) << 2;
			  bad |= (read(fh, host + 1, 5000, 4999) != 5000 || bytes.compare(4999, 5000, host + 1, 5000))
				 << 3;
			  // Parts of blocks: nothing is written.
			  std::memset(host, 'w', sizeof(host));
			  bad |= (write(fh, host, 5000, 0) != -EINVAL) << 4;
			  bad |= (write(fh, host, 4096, 1) != -EINVAL) << 5;
			  bad |= (write(fh, host + 1, 4096, 4096) != 4096) << 6;
			  lib().cuFileDriverClose_v2();
			  return bad;
		  }),
		  0);
	EXPECT_TRUE(content("f") == bytes.substr(0, 4096) + std::string(4096, 'w') + bytes.substr(8192));
}
#endif

// As a daemon does, or a program by mistake: the numbers then belong to another file.
TEST_F(Descriptors, OfTheLibraryThatTheProgramCloses)
{
	constexpr size_t size = 5 << 20;
	const std::string bytes = pattern(size), others(size, 'o');
	for (const int flags : ways()) {
		const int fd = open_file("f", bytes, flags), other = open_file("g", others, flags);
		CUfileHandle_t fh = nullptr;
		ASSERT_EQ(add(fd, fh), 0);
		Device memory(size);
		auto *const host = static_cast<char *>(std::aligned_alloc(4096, size));
		EXPECT_EQ(read(fh, memory.get(), size, 0), static_cast<ssize_t>(size));
		memory.fill(0x77);
		std::memset(host, 0x77, size);
		const std::vector<int> numbers = librarys("f");
		ASSERT_FALSE(numbers.empty());
		for (const int number : numbers)
			ASSERT_EQ(dup2(other, number), number);
		capture_stderr();
		for (const size_t n : {size_t{100}, size_t{4096}, size}) {
			EXPECT_EQ(read(fh, memory.get(), n, 0), -EBADF);
			EXPECT_EQ(read(fh, host, n, 0), -EBADF);
			EXPECT_EQ(write(fh, memory.get(), n, 0), -EBADF);
			EXPECT_EQ(write(fh, host, n, 0), -EBADF);
		}
		EXPECT_NE(testing::internal::GetCapturedStderr().find("the program has closed"), std::string::npos);
		EXPECT_TRUE(memory.untouched(0, size)) << "read from another file";
		EXPECT_TRUE(content("g") == others) << "written into another file";
		EXPECT_TRUE(content("f") == bytes);
		lib().cuFileHandleDeregister(fh);
		for (const int number : numbers)
			EXPECT_EQ(close(number), 0) << "it was not the library's to close";
		ASSERT_EQ(add(fd, fh), 0);
		EXPECT_EQ(read(fh, memory.get(), size, 0), static_cast<ssize_t>(size)) << "registered anew";
		EXPECT_TRUE(memory.bytes(0, size) == bytes);
		lib().cuFileHandleDeregister(fh);
		std::free(host);
	}
}

// Reopened with O_APPEND: bytes would go to other places of the same file.
TEST_F(Descriptors, OfTheSameFileByTheNumberOfTheLibrarys)
{
	const std::string bytes = pattern(10000);
	const int fd = open_file("f", bytes);
	CUfileHandle_t fh = nullptr;
	ASSERT_EQ(add(fd, fh), 0);
	const std::vector<int> numbers = librarys("f");
	const int again = open(path("f").c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
	for (const int number : numbers)
		ASSERT_EQ(dup2(again, number), number);
	char host[100] = {};
	EXPECT_EQ(write(fh, host, 100, 0), -EBADF);
	EXPECT_TRUE(content("f") == bytes);
	lib().cuFileHandleDeregister(fh);
	close(again);
	for (const int number : numbers)
		EXPECT_EQ(close(number), 0);
}

TEST_F(Descriptors, OfTheLog)
{
	const int fd = open_file("f", "hello"), other = open_file("g", "other");
	setenv("CUFILE_LOGFILE_PATH", path("log").c_str(), 1);
	setenv("CUFILE_LOGGING_LEVEL", "WARN", 1);
	CUfileHandle_t fh = nullptr;
	EXPECT_EQ(add(fd, fh), 0);
	const std::vector<int> numbers = librarys("log");
	ASSERT_EQ(numbers.size(), 1u);
	ASSERT_EQ(dup2(other, numbers[0]), numbers[0]);
	// The log names the reason for bouncing.
	Device memory(4096);
	EXPECT_EQ(read(fh, memory.get(), 5, 0), 5);
	EXPECT_EQ(content("g"), "other") << "the log went into another file";
	EXPECT_NE(content("log").find("not direct"), std::string::npos) << "and is lost";
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(close(numbers[0]), 0) << "it was not the library's to close";
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGGING_LEVEL");
}

// With no descriptor left, reads do without a ring; afterwards they use one again.
TEST_F(Descriptors, ThatARingWouldHaveTaken)
{
	const CUfileHandle_t probe = has_direct() ? handle("p", pattern(4 << 20), O_RDWR | O_DIRECT) : nullptr;
	Device memory(4 << 20);
	if (!probe || read(probe, memory.get(), 4 << 20, 0) != 4 << 20 || ring_descriptors().empty())
		GTEST_SKIP() << "no O_DIRECT here, or no io_uring";
	lib().cuFileDriverClose_v2();
	ASSERT_TRUE(ring_descriptors().empty());
	const std::string bytes = pattern(4 << 20, 2);
	const CUfileHandle_t fh = handle("f", bytes, O_RDWR | O_DIRECT);
	{
		const NoMore none(0);
		EXPECT_EQ(read(fh, memory.get(), 4 << 20, 0), 4 << 20);
		EXPECT_TRUE(memory.bytes(0, 4 << 20) == bytes);
	}
	std::this_thread::sleep_for(std::chrono::milliseconds(50));
	EXPECT_TRUE(ring_descriptors().empty());
	memory.fill(0x77);
	EXPECT_EQ(read(fh, memory.get(), 4 << 20, 0), 4 << 20);
	EXPECT_TRUE(memory.bytes(0, 4 << 20) == bytes);
	EXPECT_EQ(ring_descriptors().size(), 1u);
}

// Opened, registered, closed and reopened: a new registration, although the number and the file are the same.
TEST_F(Descriptors, OfAFileThatIsOpenedAnew)
{
	const std::string bytes = pattern(10000);
	int fd = open_file("f", bytes);
	CUfileHandle_t fh = nullptr, again = nullptr, third = nullptr;
	ASSERT_EQ(add(fd, fh), 0);
	EXPECT_EQ(add(fd, third), 5028);
	close(fd);
	ASSERT_EQ(open(path("f").c_str(), O_RDWR | O_CLOEXEC), fd);
	EXPECT_EQ(add(fd, again), 0);
	EXPECT_EQ(add(fd, third), 5028) << "but not twice";
	Device memory(10000);
	for (const CUfileHandle_t one : {fh, again})
		EXPECT_EQ(read(one, memory.get(), 10000, 0), 10000);
	lib().cuFileHandleDeregister(fh);
	EXPECT_EQ(read(again, memory.get(), 10000, 0), 10000);
	EXPECT_EQ(add(fd, third), 5028);
}

// The library marks a description by its owner (F_SETOWN) and ignores other uses of the owner by the program.
TEST_F(Descriptors, OfAFileWhoseOwnerTheProgramSets)
{
	int fd = open_file("f", pattern(10000));
	ASSERT_EQ(fcntl(fd, F_SETOWN, getpid()), 0);
	CUfileHandle_t fh = nullptr, again = nullptr;
	ASSERT_EQ(add(fd, fh), 0);
	close(fd);
	ASSERT_EQ(open(path("f").c_str(), O_RDWR | O_CLOEXEC), fd);
	ASSERT_EQ(fcntl(fd, F_SETOWN, getpid()), 0);
	EXPECT_EQ(add(fd, again), 5028);
	lib().cuFileHandleDeregister(fh);
	EXPECT_EQ(add(fd, again), 0);
}

// The mark says that a description is registered, but not under which number.
TEST_F(Descriptors, OfARegisteredFileDuplicatedToAnothersNumber)
{
	const int fd = open_file("f", pattern(10000));
	const int other = open(path("f").c_str(), O_RDWR | O_CLOEXEC);
	CUfileHandle_t fh = nullptr, second = nullptr, third = nullptr;
	ASSERT_EQ(add(fd, fh), 0);
	ASSERT_EQ(add(other, second), 0);
	ASSERT_EQ(dup2(other, fd), fd);
	EXPECT_EQ(add(fd, third), 5028) << "else the page may say so";
	lib().cuFileHandleDeregister(fh);
	EXPECT_EQ(add(fd, third), 0);
	close(other);
}

TEST_F(Descriptors, OfOneFileByManyThreads)
{
	open_file("f", pattern(10000));
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	std::atomic<int> refused{0};
	std::vector<std::thread> threads;
	for (int t = 0; t < 8; t++)
		threads.emplace_back([&] {
			for (int i = 0; i < 300; i++) {
				const int fd = open(path("f").c_str(), O_RDWR | O_CLOEXEC);
				CUfileHandle_t fh = nullptr;
				refused += add(fd, fh) != 0;
				close(fd);
				std::this_thread::yield();
				lib().cuFileHandleDeregister(fh);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(refused, 0);
}

// Locks behave as Documentation/cufile.md, the header and the manual page say.
TEST_F(Descriptors, AndTheLocksOfTheProgram)
{
	for (const int flags : ways()) {
		const int fd = open_file("f", pattern(10000), flags);
		CUfileHandle_t fh = nullptr, again = nullptr;
		struct flock all = {};
		all.l_type = F_WRLCK;
		// Locks of the description stay across registration and deregistration.
		ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &all), 0);
		ASSERT_EQ(add(fd, fh), 0);
		lib().cuFileHandleDeregister(fh);
		EXPECT_TRUE(is_locked("f")) << "F_OFD_SETLK";
		all.l_type = F_UNLCK;
		ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &all), 0);
		ASSERT_EQ(flock(fd, LOCK_EX), 0);
		ASSERT_EQ(add(fd, fh), 0);
		lib().cuFileHandleDeregister(fh);
		EXPECT_TRUE(is_locked("f")) << "flock";
		ASSERT_EQ(flock(fd, LOCK_UN), 0);
		EXPECT_FALSE(is_locked("f"));
		// Locks of the process stay while the file is registered and when a registration is refused.
		all.l_type = F_WRLCK;
		ASSERT_EQ(fcntl(fd, F_SETLK, &all), 0);
		ASSERT_EQ(add(fd, fh), 0);
		EXPECT_EQ(add(fd, again), 5028);
		EXPECT_TRUE(is_locked("f")) << "F_SETLK, registered";
		// They end with the deregistration.
		lib().cuFileHandleDeregister(fh);
		EXPECT_FALSE(is_locked("f")) << "then the pages may say that these stay, too";
	}
}

} // namespace
