// SPDX-License-Identifier: MIT
#include <cerrno>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "machine.hpp"

namespace
{

// A file of 30000 bytes without a direct route, because of its filesystem.
class Fallback : public Machine
{
protected:
	Fallback()
	{
		auto &content = sys.contents["/f"];
		for (unsigned i = 0; i < 30000; i++)
			content.bytes += static_cast<char>(i % 251);
		content.refused_errno = EXDEV;
		content.refused_reason = PEERDMA_REASON_FILESYSTEM;
		EXPECT_EQ(peerdma_open(&device, 0), 0);
		EXPECT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), 0);
		EXPECT_EQ(peerdma_buf_create(device, 1, 1 << 16, 0, &buf, nullptr), 0);
	}

	int64_t read(uint64_t buf_off, uint64_t len, uint64_t file_off)
	{
		return peerdma_read_result(file, buf, buf_off, len, file_off, &result);
	}
	const std::string &bytes() { return sys.buffers.begin()->second.bytes; }

	peerdma_io_result result = peerdma::detail::sized<peerdma_io_result>();
};

TEST_F(Fallback, AReadSaysThatAndWhyItWasNotDirect)
{
	EXPECT_EQ(read(4096, 25000, 1001), 25000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_FILESYSTEM));
	EXPECT_EQ(result.error, 0u);
	EXPECT_EQ(result.host, 25000u);
	EXPECT_EQ(result.direct + result.near, 0u);
	EXPECT_EQ(bytes().substr(4096, 25000), sys.contents["/f"].bytes.substr(1001, 25000));
	EXPECT_EQ(bytes().substr(4096 + 25000, 100), std::string(100, '\0'));
	EXPECT_EQ(sys.posix_fds.size(), 3u);
}

TEST_F(Fallback, AWriteToo)
{
	ASSERT_EQ(read(0, 10000, 0), 10000);
	EXPECT_EQ(peerdma_write_result(file, buf, 0, 10000, 30000, &result), 10000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(result.host, 10000u);
	EXPECT_EQ(sys.contents["/f"].bytes.substr(30000), sys.contents["/f"].bytes.substr(0, 10000));
}

TEST_F(Fallback, TheEndOfTheFile)
{
	EXPECT_EQ(read(0, 60000, 0), 30000);
	EXPECT_EQ(read(0, 4096, 30000), 0);
	EXPECT_EQ(result.error, 0u);
}

TEST_F(Fallback, ADirectDescriptorIsNotAimedAtTheProxy)
{
	peerdma_file *direct = nullptr;
	ASSERT_EQ(peerdma_file_open(device, "/f", O_RDWR | O_DIRECT, &direct), 0);
	EXPECT_EQ(peerdma_read(direct, buf, 0, 4096, 0), 4096);
	EXPECT_EQ(peerdma_read(direct, buf, 0, 4096, 0), 4096);
	ASSERT_EQ(sys.posix_fds.size(), 2u);
	EXPECT_EQ(sys.posix_fds[0], sys.posix_fds[1]) << "opened once";
	EXPECT_FALSE(sys.flags[sys.posix_fds[0]] & O_DIRECT);
	EXPECT_EQ(sys.flags[sys.posix_fds[0]] & O_ACCMODE, O_RDWR);
	peerdma_file_close(direct);
}

TEST_F(Fallback, TheSecondDescriptorIsAsTheFirstButNotDirect)
{
	const int promises = O_RDWR | O_APPEND | O_SYNC | O_NOATIME;
	peerdma_file *direct = nullptr;
	ASSERT_EQ(peerdma_file_open(device, "/f", promises | O_DIRECT | O_NOFOLLOW, &direct), 0);
	sys.flags.rbegin()->second |= O_TMPFILE; // refused by open(), accepted by file_from_fd()
	EXPECT_EQ(peerdma_write(direct, buf, 0, 4096, 0), 4096);
	ASSERT_EQ(sys.posix_fds.size(), 1u);
	const int asked = promises | O_DIRECT | O_NOFOLLOW;
	EXPECT_EQ(sys.flags[sys.posix_fds[0]] & asked, promises);
	peerdma_file_close(direct);
}

TEST_F(Fallback, WhatCannotBeOpenedAgainIsRefusedAsIfThereWereNoFallback)
{
	peerdma_file *direct = nullptr;
	ASSERT_EQ(peerdma_file_open(device, "/f", O_RDWR | O_DIRECT, &direct), 0);
	for (int error : {-ENOENT, -EACCES, -EPERM, -ELOOP, -EROFS}) {
		sys.reopen_error = error;
		EXPECT_EQ(peerdma_read_result(direct, buf, 0, 4096, 0, &result), -EXDEV);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_FILESYSTEM));
		EXPECT_EQ(result.error, static_cast<uint32_t>(EXDEV));
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	}
	sys.reopen_error = -EMFILE;
	EXPECT_EQ(peerdma_read_result(direct, buf, 0, 4096, 0, &result), -EMFILE);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	EXPECT_TRUE(sys.posix_fds.empty());
	peerdma_file_close(direct);
}

TEST_F(Fallback, WhatIsRefusedForAnotherReasonStaysRefused)
{
	for (uint32_t error : {EBADF, ENODEV, ESPIPE, EINVAL}) {
		sys.contents["/f"].refused_errno = error;
		EXPECT_EQ(read(0, 4096, 0), -static_cast<int64_t>(error));
	}
	EXPECT_TRUE(sys.posix_fds.empty());
}

TEST_F(Fallback, WrongNumbersAreRefused)
{
	EXPECT_EQ(read(1 << 16, 1, 0), -EINVAL);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_BUF_RANGE));
	EXPECT_EQ(read(0, 0, 0), -EINVAL);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_LEN_ZERO));
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	for (uint64_t file_off : {uint64_t{INT64_MAX} - 4095, uint64_t{INT64_MAX} + 1, UINT64_MAX}) {
		EXPECT_EQ(read(0, 4096, file_off), -EINVAL);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_OVERFLOW));
	}
	EXPECT_TRUE(sys.posix_fds.empty());
}

TEST_F(Fallback, ErrorsOnTheWay)
{
	sys.posix_error = -EINTR;
	EXPECT_EQ(read(0, 4096, 0), 4096);
	sys.posix_error = -EIO;
	EXPECT_EQ(read(0, 4096, 0), -EIO);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_NONE)) << "the refusal's is not the error's";
	EXPECT_EQ(result.error, static_cast<uint32_t>(EIO));
	sys.posix_error = -EFAULT; // the provider has gone away
	EXPECT_EQ(read(0, 4096, 0), -ENODEV);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_REVOKED));
}

TEST_F(Fallback, AnErrorAfterSomeBytesIsNoShortRead)
{
	sys.posix_error = -EIO;
	sys.posix_good = 1;
	EXPECT_EQ(read(0, 25000, 0), -EIO);
	EXPECT_EQ(result.error, static_cast<uint32_t>(EIO));
	EXPECT_EQ(result.done, 10000u);
	sys.posix_error = -EFAULT;
	sys.posix_good = 1;
	EXPECT_EQ(read(0, 25000, 0), -ENODEV);
	for (const int error : {ENOSPC, EIO}) {
		sys.posix_error = -error;
		sys.posix_good = 1;
		EXPECT_EQ(peerdma_write_result(file, buf, 0, 25000, 0, &result), error == ENOSPC ? 10000 : -error);
		EXPECT_EQ(result.error, static_cast<uint32_t>(error));
	}
}

TEST_F(Fallback, TheRestGoesAnotherWayWhereTheRouteIsLost)
{
	sys.contents["/f"].refused_errno = 0;
	sys.io_limit = 8192;
	sys.io_error = -EXDEV;
	sys.io_good = 1;
	EXPECT_EQ(read(0, 60000, 0), 30000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(result.direct, 8192u);
	EXPECT_EQ(result.host, 30000u - 8192);
	EXPECT_EQ(result.error, 0u);
	EXPECT_EQ(bytes().substr(0, 30000), sys.contents["/f"].bytes);
}

TEST_F(Fallback, ExplainSaysItBefore)
{
	auto why = peerdma::detail::sized<peerdma_explanation>();
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(why.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(why.reason, static_cast<uint32_t>(PEERDMA_REASON_FILESYSTEM));
	EXPECT_EQ(why.error, 0u);
}

TEST_F(Fallback, PartsOneAfterTheOther)
{
	sys.contents["/f"].refused_errno = 0;
	peerdma_seg segs[] = {
		{0, 4096, 8192, -1}, {1 << 16, 512, 0, -1}, {8192, 4096, 29999, -1}, {4096, 512, 512, -1}};
	EXPECT_EQ(peerdma_readv(file, buf, segs, 4), 2);
	EXPECT_EQ(segs[0].result, 4096);
	EXPECT_EQ(segs[1].result, -EINVAL);
	EXPECT_EQ(segs[2].result, 1);
	EXPECT_EQ(segs[3].result, 512);
	EXPECT_EQ(bytes().substr(0, 4096), sys.contents["/f"].bytes.substr(8192, 4096));
	EXPECT_EQ(bytes().substr(4096, 512), sys.contents["/f"].bytes.substr(512, 512));
	peerdma_seg back[] = {{0, 4096, 0, -1}, {4096, 512, 16384, -1}};
	EXPECT_EQ(peerdma_writev(file, buf, back, 2), 2);
	EXPECT_EQ(sys.contents["/f"].bytes.substr(0, 4096), bytes().substr(0, 4096));
	EXPECT_EQ(sys.contents["/f"].bytes.substr(16384, 512), bytes().substr(4096, 512));
	EXPECT_EQ(peerdma_readv(file, buf, segs, 0), -EINVAL);
	EXPECT_EQ(peerdma_readv(file, buf, nullptr, 1), -EINVAL);
	EXPECT_EQ(peerdma_readv(nullptr, buf, segs, 1), -EINVAL);
}

} // namespace
