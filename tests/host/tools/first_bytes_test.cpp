// SPDX-License-Identifier: MIT
//
// A drive that does not answer: tests/guest/tools/cli.sh.
#include "tools/route/first_bytes.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace
{

using namespace std::chrono_literals;

struct FirstBytes : testing::Test {
	FirstBytes() : fd(::mkstemp(path.data())) {}
	~FirstBytes() override
	{
		::close(fd);
		::unlink(path.c_str());
	}
	int get() { return cli::first_bytes(path, bytes, 60s); }

	std::string path = "/tmp/first-bytes-XXXXXX";
	int fd;
	std::array<std::byte, 8> bytes = {};
};

TEST_F(FirstBytes, AreThoseOfTheFile)
{
	ASSERT_EQ(10, ::write(fd, "0123456789", 10));
	EXPECT_EQ(0, get());
	EXPECT_EQ(0, std::memcmp(bytes.data(), "01234567", bytes.size()));
}

TEST_F(FirstBytes, AFileMayHaveFewer)
{
	EXPECT_EQ(-ENODATA, get());
	ASSERT_EQ(7, ::write(fd, "0123456", 7));
	EXPECT_EQ(-ENODATA, get());
}

TEST_F(FirstBytes, WhatCannotBeOpenedSaysWhy)
{
	EXPECT_EQ(-ENOENT, cli::first_bytes("/tmp/there/is/none", bytes, 60s));
}

} // namespace
