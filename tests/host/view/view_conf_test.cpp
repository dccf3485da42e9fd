// SPDX-License-Identifier: MIT
// Definitions of views: what is accepted, and what a refusal says.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "../view/temporary_files.hpp"
#include "view/view_conf.hpp"

namespace
{

using view::Codec;
using view::Element;
using view::ViewConf;

std::string refusal(const std::string &text, const std::string &name = "v")
{
	try {
		view::parse_conf("v.conf", name, text);
	} catch (const view::BadConf &bad) {
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
	EXPECT_EQ(view::parse_conf("v.conf", "v", text), expected);
	EXPECT_EQ(view::parse_conf("v.conf", "v", view::conf_text(expected)), expected);
}

TEST(ViewConf, HasDefaults)
{
	const ViewConf conf = view::parse_conf("v.conf", "v", "file = /a\ncodec = i64");
	EXPECT_EQ(conf.element, Element::i64);
	EXPECT_FALSE(conf.codec) << "the fewest bits";
	EXPECT_TRUE(conf.hosts.empty());
	EXPECT_TRUE(conf.prefetch);
	EXPECT_FALSE(conf.compressed);
	EXPECT_EQ(view::parse_conf("v.conf", "v", view::conf_text(conf)), conf);
	EXPECT_EQ(view::parse_conf("v.conf", "v", "file = /a\ncodec = f32").codec, Codec::parse("f32:none"));
	EXPECT_EQ(view::parse_conf("v.conf", "v", "file = /a\ncodec = byte").codec, Codec::parse("byte:none"));
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
	EXPECT_EQ(view::expand({at + "other", at + "t-*"}),
		  (std::vector<std::string>{at + "other", at + "t-02", at + "t-1", at + "t-10"}));
	try {
		view::expand({at + "x*"});
		ADD_FAILURE();
	} catch (const view::BadConf &bad) {
		EXPECT_EQ(std::string(bad.what()), "file = " + at + "x*: there is no such file");
	}
}

std::string unreadable(const std::string &path)
{
	try {
		view::read_conf(path);
	} catch (const view::BadConf &bad) {
		return bad.what();
	}
	return "";
}

TEST(ViewConf, IsReadFromFilesThatCanBeOne)
{
	TemporaryFiles folder;
	const std::string at = folder.folder.string() + "/";
	std::ofstream(at + "good") << "file = /a\ncodec = u32\n";
	std::filesystem::create_symlink("good", at + "link");
	EXPECT_EQ(view::read_conf(at + "link"), "file = /a\ncodec = u32\n");
	std::ofstream(at + "most") << std::string(view::max_conf, '#');
	EXPECT_EQ(view::read_conf(at + "most").size(), view::max_conf);
	std::ofstream(at + "more") << std::string(view::max_conf + 1, '#');
	EXPECT_EQ(unreadable(at + "more"), at + "more: more than 256 KiB");
	EXPECT_EQ(unreadable(at), at + ": not a regular file");
	EXPECT_EQ(unreadable(at + "none"), at + "none: No such file or directory");
	std::filesystem::create_symlink("loop", at + "loop");
	EXPECT_EQ(unreadable(at + "loop"), at + "loop: Too many levels of symbolic links");
	ASSERT_EQ(::mkfifo((at + "fifo").c_str(), 0600), 0);
	EXPECT_EQ(unreadable(at + "fifo"), at + "fifo: not a regular file") << "and nobody waits for a writer";
}

TEST(ViewConf, APatternOfAFileMatchesItAlone)
{
	TemporaryFiles folder;
	for (const char *name : {"a*", "ab", "a[b]", "a\\b", "a?"})
		folder.write<uint32_t>(name, {1});
	for (const char *name : {"a*", "ab", "a[b]", "a\\b", "a?"}) {
		const std::string path = folder.folder / name;
		EXPECT_EQ(view::expand({view::pattern_of(path)}), std::vector<std::string>{path});
	}
}

TEST(ViewConf, AMessageShowsTheBeginningOfALongValue)
{
	const std::string said = refusal(std::string(100000, 'x') + " = 1");
	EXPECT_LT(said.size(), 400U);
	EXPECT_TRUE(said.starts_with("v.conf:1: xxx")) << said;
}

} // namespace
