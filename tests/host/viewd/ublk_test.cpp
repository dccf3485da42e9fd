// SPDX-License-Identifier: MIT
// What is known of the kernel's ublk driver without it: where it has each queue, and what its errors mean.
#include <cerrno>
#include <string>

#include <gtest/gtest.h>
#include <linux/ublk_cmd.h>

#include "viewd/ublk.hpp"

namespace
{

TEST(Ublk, TheRoomOfAQueueIsWholePages)
{
	constexpr uint64_t begin = UBLKSRV_CMD_BUF_OFFSET, room = 4096 * 24; // descriptors of 24 bytes
	EXPECT_EQ(ublk::descriptors_offset(0, 65536), begin);
	EXPECT_EQ(ublk::descriptors_offset(3, 4096), begin + 3 * room);
	EXPECT_EQ(ublk::descriptors_offset(3, 16384), begin + 3 * room);
	EXPECT_EQ(ublk::descriptors_offset(3, 65536), begin + 3 * 131072);
}

TEST(Ublk, NamesTheLimitOfDevicesWithItsParameter)
{
	const std::string said = ublk::add_error(EACCES, "64");
	EXPECT_NE(said.find("allows 64 (ublks_max)"), std::string::npos) << said;
	EXPECT_NE(said.find("/sys/module/ublk_drv/parameters/ublks_max"), std::string::npos) << said;
	EXPECT_EQ(ublk::add_error(EACCES, ""), "ublk: ADD_DEV: Permission denied");
	EXPECT_EQ(ublk::add_error(ENOMEM, "64"), "ublk: ADD_DEV: Cannot allocate memory");
}

} // namespace
