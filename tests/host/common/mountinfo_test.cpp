// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "common/mountinfo.hpp"

using peerdma_impl::parse_mountinfo;

TEST(Mountinfo, FieldsOfALine)
{
	const auto mounts = parse_mountinfo(
		"36 35 98:0 /root /mnt/my\\040disk rw,noatime master:1 shared:2 - ext4 /dev/a\\134b rw,data=journal\n"
		"37 35 0:42 / /b ro - btrfs none rw\n");
	ASSERT_EQ(mounts.size(), 2u);
	EXPECT_EQ(mounts[0].id, "36");
	EXPECT_EQ(mounts[0].device, "98:0");
	EXPECT_EQ(mounts[0].point, "/mnt/my disk");
	EXPECT_EQ(mounts[0].filesystem, "ext4");
	EXPECT_EQ(mounts[0].source, "/dev/a\\b");
	EXPECT_EQ(mounts[0].options, "rw,noatime,rw,data=journal");
	EXPECT_EQ(mounts[1].point, "/b");
	EXPECT_EQ(mounts[1].filesystem, "btrfs") << "a line without optional fields";
}

TEST(Mountinfo, EscapesAreReadOnce)
{
	EXPECT_EQ(peerdma_impl::unescape_octal("x\\134040y"), "x\\040y");
	EXPECT_EQ(peerdma_impl::unescape_octal("\\04"), "\\04");
	EXPECT_EQ(peerdma_impl::unescape_octal("\\9999"), "\\9999") << "no octal digits";
}

TEST(Mountinfo, LinesThatAreCutShort)
{
	EXPECT_TRUE(parse_mountinfo("").empty());
	for (const char *line : {"36", "36 35 98:0", "36 35 98:0 / /mnt rw shared:1", "36 35 98:0 / /mnt rw -"}) {
		const auto mounts = parse_mountinfo(line);
		ASSERT_EQ(mounts.size(), 1u) << line;
		EXPECT_EQ(mounts[0].id, "36");
		EXPECT_TRUE(mounts[0].filesystem.empty()) << line;
	}
}
