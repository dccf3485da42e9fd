// SPDX-License-Identifier: MIT
// Definitions of views: what is accepted, and what a refusal says.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "../view/temporary_files.hpp"
#include "viewd/view_conf.hpp"

namespace
{

using view::Codec;
using view::Element;
using viewd::ViewConf;

std::string refusal(const std::string &text, const std::string &name = "v")
{
	try {
		viewd::parse_conf("v.conf", name, text);
	} catch (const viewd::BadConf &bad) {
		return bad.what();
	}
	return "";
}

TEST(ViewConf, IsReadAndWritten)
{
	const ViewConf expected = {"v",
				   {"/data/a*", "/data/b"},
				   Element::u32,
				   Codec::parse("u32:17"),
				   {"nqn.2014-08.org.nvmexpress:uuid:1-2"},
				   false,
				   true};
	const std::string text = "# tokens\nfile = /data/a*\n\n  file=/data/b \r\ncodec = u32:17\nhost = "
				 "nqn.2014-08.org.nvmexpress:uuid:1-2\n"
				 "prefetch = no\ncompressed = yes";
	EXPECT_EQ(viewd::parse_conf("v.conf", "v", text), expected);
	EXPECT_EQ(viewd::parse_conf("v.conf", "v", viewd::conf_text(expected)), expected);
}

TEST(ViewConf, HasDefaults)
{
	const ViewConf conf = viewd::parse_conf("v.conf", "v", "file = /a\ncodec = i64");
	EXPECT_EQ(conf.element, Element::i64);
	EXPECT_FALSE(conf.codec) << "the fewest bits";
	EXPECT_TRUE(conf.hosts.empty());
	EXPECT_TRUE(conf.prefetch);
	EXPECT_FALSE(conf.compressed);
	EXPECT_EQ(viewd::parse_conf("v.conf", "v", viewd::conf_text(conf)), conf);
	EXPECT_EQ(viewd::parse_conf("v.conf", "v", "file = /a\ncodec = f32").codec, Codec::parse("f32:none"));
	EXPECT_EQ(viewd::parse_conf("v.conf", "v", "file = /a\ncodec = byte").codec, Codec::parse("byte:none"));
}

TEST(ViewConf, SaysWhatIsWrong)
{
	EXPECT_EQ(refusal(""), "v.conf: no file");
	EXPECT_EQ(refusal("file = /a"), "v.conf: no codec");
	EXPECT_EQ(refusal("codec = u32"), "v.conf: no file");
	EXPECT_EQ(refusal("file = a"), "v.conf:1: file = a: expected a path from / on");
	EXPECT_EQ(refusal("\n\nfile"), "v.conf:3: expected key = value");
	EXPECT_EQ(refusal(std::string("file = /a\0b", 11)), "v.conf:1: expected key = value");
	EXPECT_EQ(refusal("file = "), "v.conf:1: file: no value");
	EXPECT_EQ(refusal("colour = red"),
		  "v.conf:1: colour: unknown key; expected file, codec, host, prefetch or compressed");
	EXPECT_EQ(refusal("codec = u32:40"),
		  "v.conf:1: codec = u32:40: unknown; for example u32, u32:u16, u32:17, i64:18, f32:bf16, byte:none");
	EXPECT_EQ(refusal("codec = u32\ncodec = u32"), "v.conf:2: codec: set twice");
	EXPECT_EQ(refusal("prefetch = maybe"), "v.conf:1: prefetch = maybe: expected yes or no");
	EXPECT_EQ(refusal("compressed = zstd"), "v.conf:1: compressed = zstd: expected yes or no");
	for (const std::string &host :
	     std::vector<std::string>{"me", "nqn.x y", "nqn.x/../y", "nqn." + std::string(220, 'x')})
		EXPECT_EQ(refusal("host = " + host),
			  "v.conf:1: host = " + host + ": expected an NQN, as in /etc/nvme/hostnqn of the host");
	for (const std::string name : {"", ".", "..", "a/b", "-a", "a b", "\xc3\xa4"})
		EXPECT_EQ(refusal("file = /a\ncodec = u32", name),
			  "v.conf: the name of a view has letters, digits, '-', '_' and '.', at most 63");
	EXPECT_EQ(refusal("file = /a\ncodec = u32", std::string(64, 'a')),
		  "v.conf: the name of a view has letters, digits, '-', '_' and '.', at most 63");
}

TEST(ViewConf, FindsFilesInTheOrderOfTheirNames)
{
	TemporaryFiles folder;
	for (const char *name : {"t-10", "t-02", "t-1", "other"})
		folder.write<uint32_t>(name, {1});
	const std::string at = folder.folder.string() + "/";
	EXPECT_EQ(viewd::expand({at + "other", at + "t-*"}),
		  (std::vector<std::string>{at + "other", at + "t-02", at + "t-1", at + "t-10"}));
	try {
		viewd::expand({at + "x*"});
		ADD_FAILURE();
	} catch (const viewd::BadConf &bad) {
		EXPECT_EQ(std::string(bad.what()), "file = " + at + "x*: there is no such file");
	}
}

} // namespace
