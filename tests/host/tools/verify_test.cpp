// SPDX-License-Identifier: MIT
//
// peerdma verify on a machine in memory, whose drive and page cache agree or differ.

#include <cerrno>

#include <gtest/gtest.h>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/copy/verify.hpp"
#include "tools/selftest/selftest.hpp"

namespace
{

class Verify : public ::testing::Test
{
protected:
	Verify()
	{
		sys.add_provider(0, 0x0100, 2, 0, 64 << 20);
		sys.contents["/f"].bytes = cli::pattern(7, 0, size);
		sys.posix_limit = 1 << 20;
	}
	~Verify() override
	{
		EXPECT_TRUE(sys.fds.empty());
		EXPECT_TRUE(sys.buffers.empty());
		EXPECT_TRUE(sys.mappings.empty());
	}

	static constexpr uint64_t size = (9 << 20) + 777;
	FakeSyscalls sys;
};

} // namespace

TEST_F(Verify, Equal)
{
	const cli::Report report = cli::verify("/f", "", "0");
	EXPECT_EQ(report.status, 0);
	EXPECT_EQ(report.text, "equal: 9437961 bytes, 9437696 direct, 265 near, 0 host\n");
	EXPECT_EQ(report.json["bytes_direct"], 9437696);
	EXPECT_TRUE(report.json["equal"].get<bool>());
	EXPECT_EQ(cli::verify("/f", "1", "1M").json["bytes"], 1 << 20);
	EXPECT_EQ(cli::verify("/f", "", "1").json["bytes"], 1);
}

TEST_F(Verify, EachWrongByteIsFound)
{
	for (const uint64_t wrong : {uint64_t{0}, uint64_t{(4 << 20) - 1}, uint64_t{(4 << 20) + 5000}, size - 1}) {
		sys.on_ioctl = [&](unsigned long request, void *arg) {
			const auto &io = *static_cast<peerdma_io *>(arg);
			if (request != PEERDMA_READ || wrong < io.file_off || wrong - io.file_off >= io.len)
				return 1;
			// The drive's bytes differ from the page cache.
			sys.contents["/f"].bytes[wrong] ^= 1;
			EXPECT_EQ(sys.perform(request, arg), 0);
			sys.contents["/f"].bytes[wrong] ^= 1;
			return 0;
		};
		const cli::Report report = cli::verify("/f", "", "0");
		EXPECT_EQ(report.status, 1);
		EXPECT_FALSE(report.json["equal"].get<bool>());
		EXPECT_TRUE(has(report.text, "different in the ") &&
			    has(report.text, "1 bytes differ, the first at " + std::to_string(wrong % (4 << 20))))
			<< report.text;
	}
}

TEST_F(Verify, WhatCannotBeVerified)
{
	EXPECT_THROW(cli::verify("/none", "", "0"), cli::Failure);
	EXPECT_THROW(cli::verify("/f", "9", "0"), cli::Failure);
	EXPECT_THROW(cli::verify("/f", "", "x"), cli::Usage);
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_READ ? -EIO : 1; };
	EXPECT_THROW(cli::verify("/f", "", "0"), cli::Failure);
	sys.on_ioctl = nullptr;
	sys.posix_error = -EIO;
	EXPECT_THROW(cli::verify("/f", "", "0"), cli::Failure);
	sys.contents["/f"].refused_errno = EXDEV;
	sys.contents["/f"].refused_reason = PEERDMA_REASON_FILESYSTEM;
	EXPECT_THROW(cli::verify("/f", "", "0"), cli::Failure);
	sys.contents["/f"] = {};
	EXPECT_THROW(cli::verify("/f", "", "0"), cli::Failure);
}
