// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <tuple>

#include "cufile/registry/file.hpp"
#include "fake_dependencies.hpp"

using cufile::SystemFile;

namespace
{

std::string pattern(size_t n)
{
	std::string bytes(n, '\0');
	for (size_t i = 0; i < n; i++)
		bytes[i] = static_cast<char>(i * 31 + i / 509);
	return bytes;
}

class CufileFile : public ::testing::Test
{
protected:
	~CufileFile() override
	{
		file.reset();
		EXPECT_EQ(system.fds.size(), programs) << "a descriptor leaked, or the program's was closed";
	}
	CUfileOpError open(int flags, size_t size = 10000, bool odirect = false, uint32_t mode = S_IFREG | 0644)
	{
		fd = system.program_fd(pattern(size), flags, mode);
		programs++;
		return SystemFile::open(system, fd, odirect, file);
	}
	// Reads of the file that is open, of pattern(10000), to each alignment of memory. Nothing beyond its end is written.
	void expect_reads(std::initializer_list<uint64_t> offsets, std::initializer_list<uint64_t> sizes)
	{
		const std::string bytes = pattern(10000);
		for (const uint64_t offset : offsets) {
			for (const uint64_t size : sizes) {
				for (const uint64_t at : {0u, 1u, 512u}) {
					const std::string what = testing::PrintToString(std::tuple(offset, size, at));
					const std::string want = bytes.substr(std::min(offset, bytes.size()), size);
					std::memset(memory, 0x77, sizeof(memory));
					ASSERT_EQ(file->read(memory + at, size, offset),
						  static_cast<int64_t>(want.size()))
						<< what;
					ASSERT_TRUE(!want.compare(0, want.size(), memory + at, want.size())) << what;
					ASSERT_EQ(memory[at + want.size()], 0x77) << what << ": beyond the end";
				}
			}
		}
	}

	alignas(4096) char memory[65536] = {};
	FakeSystem system;
	std::shared_ptr<SystemFile> file;
	int fd = -1;
	size_t programs = 0;
};

TEST_F(CufileFile, WhatCanBeOpened)
{
	EXPECT_EQ(open(O_RDWR), CU_FILE_SUCCESS);
	EXPECT_EQ(open(O_RDWR, 10, false, S_IFBLK), CU_FILE_SUCCESS);
	for (const uint32_t mode : {S_IFDIR, S_IFCHR, S_IFIFO, S_IFSOCK})
		EXPECT_EQ(open(O_RDWR, 10, false, mode), CU_FILE_INVALID_FILE_TYPE) << mode;
	EXPECT_EQ(open(O_WRONLY | O_APPEND), CU_FILE_INVALID_FILE_OPEN_FLAG);
	EXPECT_EQ(open(O_PATH), CU_FILE_INVALID_FILE_OPEN_FLAG);
	EXPECT_EQ(SystemFile::open(system, 99, false, file), CU_FILE_INVALID_VALUE);
	system.no_fds = true;
	EXPECT_EQ(open(O_RDWR), CU_FILE_GETNEWFD_FAILED);
}

TEST_F(CufileFile, Modes)
{
	open(O_RDONLY);
	EXPECT_TRUE(file->readable() && !file->writable());
	open(O_WRONLY);
	EXPECT_TRUE(!file->readable() && file->writable());
	open(O_RDWR);
	EXPECT_TRUE(file->readable() && file->writable() && !file->parallel_writes());
	open(O_RDWR | O_DIRECT);
	EXPECT_TRUE(file->parallel_writes());
}

// They apply to the program's description of the file, not to the library's.
TEST_F(CufileFile, FlagsThatTheProgramSetsLater)
{
	for (const int direct : {0, O_DIRECT}) {
		open(O_RDWR | direct);
		const std::string before = system.bytes(fd);
		system.set_flags(fd, O_RDWR | O_APPEND | direct);
		std::memset(memory, 0x77, 4096);
		EXPECT_EQ(file->write(memory, 4096, 512), 4096);
		EXPECT_TRUE(system.bytes(fd) == before.substr(0, 512) + std::string(4096, 0x77) + before.substr(4608))
			<< "at its place, whatever is appended by others";
		system.set_flags(fd, O_RDWR | (O_DIRECT - direct));
		EXPECT_EQ(file->read(memory + 1, 100, 3), 100);
		EXPECT_EQ(file->write(memory + 1, 100, 3), 100);
		system.calls.clear();
		EXPECT_EQ(file->read(memory, 4096, 0), 4096);
		EXPECT_EQ(system.calls.back().direct, direct != 0) << "as it was when it was registered";
	}
}

TEST_F(CufileFile, WhatCannotBeOpenedAgainIsWatched)
{
	open(O_RDWR);
	system.set_flags(fd, O_RDWR | O_APPEND);
	EXPECT_EQ(file->check_write(0, 4096), 0) << "what the program does is its own";
	system.no_proc = true;
	open(O_RDWR);
	EXPECT_EQ(file->check_write(0, 4096), 0);
	system.set_flags(fd, O_RDWR | O_APPEND);
	EXPECT_EQ(file->check_write(0, 4096), -CU_FILE_INVALID_FILE_OPEN_FLAG);
	open(O_RDWR | O_DIRECT);
	system.set_flags(fd, O_RDWR | O_DIRECT | O_APPEND);
	EXPECT_EQ(file->check_write(0, 4096), -CU_FILE_INVALID_FILE_OPEN_FLAG);
}

TEST_F(CufileFile, ThePageCacheIsTheProgramsChoice)
{
	open(O_RDWR);
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_FALSE(system.calls.back().direct);
	open(O_RDWR | O_DIRECT);
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_TRUE(system.calls.back().direct);
	open(O_RDWR, 10000, true);
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_TRUE(system.calls.back().direct) << "force_odirect_mode";
	system.no_direct = true;
	open(O_RDWR, 10000, true);
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_FALSE(system.calls.back().direct) << "which this file system does not have";
}

TEST_F(CufileFile, EveryAlignment)
{
	open(O_RDWR | O_DIRECT);
	expect_reads({0, 1, 511, 512, 513, 4096, 9728, 9999, 10000, 20000}, {1, 511, 512, 513, 4096, 10000, 30000});
}

TEST_F(CufileFile, EveryAlignmentOfAWrite)
{
	for (const uint64_t offset : {0u, 1u, 512u, 4095u, 9728u, 12000u}) {
		for (const uint64_t size : {1u, 512u, 513u, 4096u, 30000u}) {
			for (const uint64_t at : {0u, 1u, 512u}) {
				open(O_RDWR | O_DIRECT);
				std::string expected = pattern(10000);
				const std::string what = pattern(65536).substr(100, size);
				std::memcpy(memory + at, what.data(), size);
				expected.resize(std::max<size_t>(10000, offset + size));
				expected.replace(offset, size, what);
				ASSERT_EQ(file->write(memory + at, size, offset), static_cast<int64_t>(size));
				ASSERT_TRUE(system.bytes(fd) == expected) << offset << ' ' << size << ' ' << at;
			}
		}
	}
}

TEST_F(CufileFile, WholeBlocksGoPastThePageCacheAndTheRestThroughIt)
{
	open(O_RDWR | O_DIRECT);
	EXPECT_EQ(file->write(memory, 1300, 512), 1300);
	ASSERT_EQ(system.calls.size(), 2u);
	EXPECT_TRUE(system.calls[0].direct);
	EXPECT_EQ(system.calls[0].size, 1024u);
	EXPECT_FALSE(system.calls[1].direct);
	EXPECT_EQ(system.calls[1].size, 276u);
	system.calls.clear();
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_EQ(system.calls.size(), 1u);
	EXPECT_EQ(std::count_if(system.opened.begin(), system.opened.end(),
				[](const auto &one) { return !(one.second & O_DIRECT); }),
		  1)
		<< "opened once more when it was wanted, and only once";
}

// A file system such as FUSE may return a short count anywhere.
TEST_F(CufileFile, AShortCountIsNotTheEndOfTheFile)
{
	for (const int flags : {O_RDWR, O_RDWR | O_DIRECT}) {
		open(flags);
		for (const uint64_t most : {1u, 511u, 512u, 700u, 4097u}) {
			system.most = most;
			std::memset(memory, 0x77, sizeof(memory));
			EXPECT_EQ(file->read(memory, 32768, 0), 10000) << most;
			EXPECT_EQ(pattern(10000).compare(0, 10000, memory, 10000), 0) << most;
			EXPECT_EQ(file->finish_short_read(memory, 8192, 0, 700), 8192) << "what a ring brought of it";
		}
		system.most = UINT64_MAX;
	}
}

// An I/O that meets a shortage in its middle cannot be told from one at the end of the file.
TEST_F(CufileFile, AllDescriptorsAreOpenedAtTheRegistration)
{
	for (const int left : {0, 1}) {
		system.fds_left = left;
		EXPECT_EQ(open(O_RDWR | O_DIRECT), CU_FILE_GETNEWFD_FAILED) << left;
		EXPECT_EQ(system.fds.size(), programs) << "nothing is kept";
		system.fds_left = left;
		EXPECT_EQ(open(O_RDWR, 10000, true), CU_FILE_GETNEWFD_FAILED) << "force_odirect_mode, " << left;
		EXPECT_EQ(system.fds.size(), programs);
	}
	system.fds_left = 2;
	ASSERT_EQ(open(O_RDWR | O_DIRECT), CU_FILE_SUCCESS);
	EXPECT_EQ(file->read(memory, 32768, 0), 10000) << "there is none left, and none needed";
	EXPECT_EQ(file->read(memory + 1, 100, 7), 100);
	EXPECT_EQ(file->write(memory + 1, 100, 7), 100);
	file.reset();
	system.fds_left = 1;
	ASSERT_EQ(open(O_RDWR), CU_FILE_SUCCESS);
	EXPECT_EQ(file->read(memory, 32768, 0), 10000);
}

// Without /proc or without permission to open the file there is no descriptor for unaligned I/O.
TEST_F(CufileFile, WhatIsNotAlignedWithoutASecondDescriptor)
{
	const std::string bytes = pattern(10000);
	for (const bool no_proc : {true, false}) {
		system.no_proc = no_proc;
		system.no_twin = !no_proc;
		for (const uint64_t limit : {512u, 4096u, 0u}) {
			system.limits = {static_cast<uint32_t>(limit ? limit : 512), static_cast<uint32_t>(limit)};
			open(O_RDWR | O_DIRECT);
			system.limits.offset = limit ? system.limits.offset : 4096;
			expect_reads({0, 1, 511, 4096, 9728, 9999, 10000, 20000}, {1, 512, 4097, 30000});
			ASSERT_FALSE(HasFatalFailure());
			// Whole blocks of the file go to memory at any address; parts of blocks are refused entirely.
			std::memset(memory, 0x66, sizeof(memory));
			EXPECT_EQ(file->check_write(4096, 4096), 0);
			EXPECT_EQ(file->write(memory + 1, 4096, 4096), 4096);
			EXPECT_TRUE(system.bytes(fd) ==
				    bytes.substr(0, 4096) + std::string(4096, 0x66) + bytes.substr(8192));
			EXPECT_EQ(file->check_write(4096, 5000), -EINVAL);
			EXPECT_EQ(file->check_write(1, 4096), -EINVAL);
		}
		system.limits = {512, 512};
	}
	system.no_proc = system.no_twin = false;
	open(O_RDWR | O_DIRECT);
	EXPECT_EQ(file->check_write(1, 5000), 0) << "with it all is written";
}

TEST_F(CufileFile, ShortCallsAndInterruptionsGoOn)
{
	open(O_RDWR);
	system.most = 700;
	system.errors = {-EINTR, 0, -EINTR, -EINTR, 0};
	EXPECT_EQ(file->read(memory, 5000, 100), 5000);
	EXPECT_EQ(pattern(10000).compare(100, 5000, memory, 5000), 0);
	EXPECT_EQ(file->write(memory, 5000, 9000), 5000);
}

// It would look like the end of the file.
TEST_F(CufileFile, AnErrorAfterSomeBytesIsNoShortCount)
{
	for (const int flags : {O_RDWR, O_RDWR | O_DIRECT}) {
		open(flags);
		system.most = 1024;
		for (const int error : {EIO, ENOMEM, EMFILE, ENOSPC, ENODATA, EAGAIN, EFAULT}) {
			system.errors = {0, 0, -error};
			EXPECT_EQ(file->read(memory, 5000, 0), -error);
			system.errors = {-error};
			EXPECT_EQ(file->read(memory, 5000, 2000), -error);
			system.errors = {-error};
			EXPECT_EQ(file->finish_short_read(memory, 5120, 0, 1024), -error) << "what a ring has begun";
			const bool full = error == ENOSPC;
			system.errors = {0, -error};
			EXPECT_EQ(file->write(memory, 5000, 0), full ? 1024 : -error);
		}
		// The bytes written before space ran out, as in write(2).
		for (const int full : {ENOSPC, EDQUOT, EFBIG}) {
			system.errors = {0, 0, -full};
			EXPECT_EQ(file->write(memory, 5000, 0), 2048);
			system.errors = {-full};
			EXPECT_EQ(file->write(memory, 5000, 0), -full);
		}
		system.most = UINT64_MAX;
	}
}

// A program that closes all descriptors closes the library's, and another file gets the number.
class CufileLost : public CufileFile
{
protected:
	// Gives the file's descriptor number to this file.
	void lose(std::shared_ptr<FakeSystem::File> to, int flags = O_RDWR)
	{
		const int own = file->fd();
		system.fds.at(own) = {std::move(to), flags, 9000};
		system.positions[9000] = 0;
	}
	void expect_refused()
	{
		const std::string before = other->bytes, first = system.bytes(fd);
		std::memset(memory, 0x77, sizeof(memory));
		EXPECT_FALSE(file->is_valid());
		EXPECT_EQ(file->read(memory, 4096, 0), -EBADF);
		EXPECT_EQ(file->read(memory, 8192, 4096), -EBADF);
		EXPECT_EQ(memory[0], 0x77);
		EXPECT_EQ(file->write(memory, 4096, 0), -EBADF);
		EXPECT_EQ(file->uring_target(0, 8192).fd, -1);
		EXPECT_TRUE(other->bytes == before && system.bytes(fd) == first);
		const int number = file->fd();
		const size_t open_ones = system.fds.size();
		file.reset();
		EXPECT_TRUE(system.fds.contains(number)) << "it is not the library's to close";
		EXPECT_GE(system.fds.size() + 1, open_ones) << "but the other one is";
		programs++;
	}

	std::shared_ptr<FakeSystem::File> other =
		std::make_shared<FakeSystem::File>(FakeSystem::File{std::string(10000, 'o'), S_IFREG | 0644, 4711});
};

TEST_F(CufileLost, AnotherFileHasTheNumber)
{
	for (const bool no_proc : {false, true})
		for (const bool no_seek : {false, true})
			for (const int flags : {O_RDWR, O_RDWR | O_DIRECT}) {
				system.no_proc = no_proc;
				system.no_seek = no_seek;
				ASSERT_EQ(open(flags), CU_FILE_SUCCESS);
				EXPECT_TRUE(file->is_valid());
				EXPECT_EQ(file->read(memory, 4096, 0), 4096);
				lose(other, flags);
				expect_refused();
			}
}

// With other flags bytes would go to other places.
TEST_F(CufileLost, TheSameFileOpenedByTheProgramHasTheNumber)
{
	open(O_RDWR);
	lose(system.fds.at(fd).file, O_RDWR | O_APPEND);
	expect_refused();
}

TEST_F(CufileLost, AnotherFileOfTheLibrarysHasTheNumber)
{
	open(O_RDWR);
	const int first = file->fd();
	const auto kept = std::move(file);
	open(O_RDWR);
	std::swap(system.fds.at(first), system.fds.at(file->fd()));
	EXPECT_EQ(kept->read(memory, 4096, 0), -EBADF);
	EXPECT_EQ(file->read(memory, 4096, 0), -EBADF);
	std::swap(system.fds.at(first), system.fds.at(file->fd()));
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
}

TEST_F(CufileLost, NobodyHasTheNumber)
{
	open(O_RDWR);
	system.close(file->fd());
	EXPECT_EQ(file->read(memory, 4096, 0), -EBADF);
	EXPECT_EQ(file->write(memory, 4096, 0), -EBADF);
}

TEST_F(CufileFile, AFileThatKnowsNoDirectIo)
{
	system.limits = {0, 0};
	open(O_RDWR | O_DIRECT);
	EXPECT_EQ(file->read(memory, 4096, 0), 4096);
	EXPECT_FALSE(system.calls.back().direct);
	EXPECT_EQ(file->uring_target(0, 4096).fd, -1);
}

// A file larger than the page cache: uncached ranges are read with O_DIRECT if they are long.
class CufileLargeFile : public CufileFile
{
protected:
	CufileLargeFile()
	{
		system.texts["/proc/meminfo"] = "MemTotal:        1048576 kB\nMemFree:               1 kB\n";
		system.claimed = 1200 * mib;
	}
	~CufileLargeFile() override { std::free(room); }
	// True if a read used O_DIRECT for all of it; false if for none.
	bool past(uint64_t n, uint64_t offset)
	{
		system.calls.clear();
		EXPECT_EQ(file->read(room, n, offset), static_cast<int64_t>(n));
		EXPECT_EQ(system.calls.size(), 1u);
		EXPECT_EQ(system.bytes(fd).compare(offset, n, room, n), 0);
		return system.calls[0].direct;
	}

	static constexpr uint64_t mib = 1 << 20;
	char *const room = static_cast<char *>(std::aligned_alloc(4096, 2 * mib));
};

TEST_F(CufileLargeFile, WhatIsNotInThePageCacheGoesPastIt)
{
	open(O_RDWR, 4 * mib);
	EXPECT_TRUE(file->large());
	EXPECT_TRUE(past(2 * mib, 0));
	EXPECT_EQ(system.cache_asked, 1);
	EXPECT_TRUE(past(256 * 1024, mib));
	EXPECT_FALSE(past(256 * 1024 - 512, 0)) << "nobody would read ahead";
	EXPECT_EQ(system.cache_asked, 2) << "so it is not asked for";
	system.cached_to = 4096;
	EXPECT_FALSE(past(mib, 0));
	EXPECT_TRUE(past(mib, 4096));
	EXPECT_EQ(file->uring_target(0, mib).fd, -1);
	EXPECT_TRUE(system.fds.at(file->uring_target(4096, mib).fd).flags & O_DIRECT);
	system.cached_error = -ENOSYS;
	EXPECT_FALSE(past(mib, 4096)) << "the kernel cannot say";
	// For other users, and for writes, it is the file as the program opened it.
	EXPECT_FALSE(system.fds.at(file->fd()).flags & O_DIRECT);
	EXPECT_FALSE(file->parallel_writes());
	system.cached_error = 0;
	EXPECT_EQ(file->write(room, mib, mib), static_cast<int64_t>(mib));
	EXPECT_FALSE(system.calls.back().direct);
}

// A temporary failure affects one read only.
TEST_F(CufileLargeFile, AShortageIsNotRemembered)
{
	open(O_RDWR, 4 * mib);
	for (const int error : {ENOMEM, EAGAIN, EIO}) {
		system.errors = {-error};
		EXPECT_EQ(file->read(room, mib, 0), static_cast<int64_t>(mib));
		EXPECT_TRUE(past(mib, 0)) << error;
	}
}

// The program did not ask for O_DIRECT.
TEST_F(CufileLargeFile, WhatFailsPastThePageCacheGoesThroughIt)
{
	open(O_RDWR, 4 * mib);
	system.calls.clear();
	system.errors = {-EINVAL};
	EXPECT_EQ(file->read(room, mib, 0), static_cast<int64_t>(mib));
	ASSERT_EQ(system.calls.size(), 2u);
	EXPECT_TRUE(system.calls[0].direct && !system.calls[1].direct);
	EXPECT_FALSE(past(mib, 0)) << "and stays there";
	EXPECT_EQ(file->uring_target(0, mib).fd, -1);
}

TEST_F(CufileLargeFile, WhichFilesAreLarge)
{
	const auto is_large = [&](int flags) {
		EXPECT_EQ(open(flags), CU_FILE_SUCCESS);
		return file->large();
	};
	EXPECT_TRUE(is_large(O_RDONLY));
	EXPECT_FALSE(is_large(O_WRONLY));
	EXPECT_FALSE(is_large(O_RDONLY | O_DIRECT)) << "all of it goes past the page cache";
	system.claimed = 1000 * mib;
	EXPECT_FALSE(is_large(O_RDONLY));
	system.texts["/proc/self/cgroup"] = "1:cpu:/x\n0::/a/b\n";
	system.texts["/sys/fs/cgroup/a/b/memory.max"] = "max\n";
	EXPECT_FALSE(is_large(O_RDONLY));
	system.texts["/sys/fs/cgroup/a/memory.max"] = "900000000\n";
	EXPECT_TRUE(is_large(O_RDONLY)) << "for the cgroup above its own";
	system.claimed = 800 * mib;
	EXPECT_FALSE(is_large(O_RDONLY));
	system.texts["/proc/self/cgroup"] = "0::/\n";
	system.texts["/sys/fs/cgroup/memory.max"] = "800000000\n";
	EXPECT_TRUE(is_large(O_RDONLY)) << "for its container";
	system.claimed = 250 * mib;
	EXPECT_FALSE(is_large(O_RDONLY));
	system.claimed = 1200 * mib;
	system.no_direct = true;
	EXPECT_FALSE(is_large(O_RDONLY)) << "this file system has no O_DIRECT";
	system.no_direct = false;
	system.says_cached = 0;
	EXPECT_FALSE(is_large(O_RDONLY)) << "what is cached is not said";
	system.says_cached = -EPERM;
	EXPECT_FALSE(is_large(O_RDONLY));
	system.says_cached = 1;
	system.limits = {0, 0};
	EXPECT_FALSE(is_large(O_RDONLY)) << "nothing of it can go past the page cache";
	system.limits = {512, 512};
	system.texts.clear();
	EXPECT_FALSE(is_large(O_RDONLY)) << "nobody says how much memory there is";
}

// Odd results of a userspace write() after 100 bytes, and the result of the I/O.
TEST(CufileUserFile, OddAnswersOfAWrite)
{
	static ssize_t second;
	CUfileFSOps_t ops = {};
	ops.write = [](const void *, const char *, size_t, loff_t offset, const cufileRDMAInfo_t *) -> ssize_t {
		return offset ? second : 100;
	};
	cufile::UserFile file(nullptr, ops);
	const struct {
		ssize_t answer;
		int64_t result;
	} all[] = {{0, -EIO}, {-ENOSPC, 100}, {-EACCES, -EACCES}, {INT64_MIN, -EIO}, {-6000, -EIO}, {1000, -EIO}};
	for (const auto &one : all) {
		second = one.answer;
		EXPECT_EQ(file.write("", 1000, 0), one.result) << one.answer;
	}
}

} // namespace
