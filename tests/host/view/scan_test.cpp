// SPDX-License-Identifier: MIT
// The scan of a view's files: what it finds, what it refuses, and that an interrupted one comes to the same.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "../view/temporary_files.hpp"
#include "view/scan.hpp"

namespace
{

namespace fs = std::filesystem;
using view::Codec;
using view::Element;
using view::Scan;
using view::Sequence;

class ViewScan : public ::testing::Test, protected TemporaryFiles
{
protected:
	static view::Header whole(Scan &scan)
	{
		while (!scan.advance(1 << 20)) {}
		EXPECT_EQ(scan.steps_done(), scan.steps());
		return scan.header();
	}

	// The text of what `body` throws.
	template <class Thrown, class Body> static std::string thrown(Body &&body)
	{
		try {
			body();
		} catch (const Thrown &error) {
			return error.what();
		}
		return "";
	}
};

TEST_F(ViewScan, ASequenceThatIsRefusedLeavesItsFilesToTheCaller)
{
	std::vector<std::unique_ptr<view::Source>> files;
	files.push_back(view::open_plain(write<char>("a", {1, 2, 3})));
	const std::string why =
		thrown<view::SourceError>([&] { const Sequence sequence(Element::u32, std::move(files)); });
	EXPECT_EQ(why, (folder / "a").string() + ": its 3 bytes are not a multiple of the 4 of an element");
	ASSERT_EQ(files.size(), 1u);
	ASSERT_TRUE(files[0]);
	EXPECT_EQ(files[0]->bytes(), 3u);
}

// procfs stands for the file systems of which it is not known that they ask nobody.
TEST_F(ViewScan, AFileIsAskedInVainHowItIsIfThatMayWait)
{
	EXPECT_EQ(view::open_plain("/proc/self/limits")->known_identity(), std::nullopt);
	TemporaryFiles memory("/dev/shm");
	const std::unique_ptr<view::Source> file = view::open_plain(memory.write<char>("a", {1}));
	EXPECT_EQ(file->known_identity(), file->opened());
}

// 17 bits: 493447.5 elements to a chunk.
TEST_F(ViewScan, EndsAtTheLastElementOfAFullChunk)
{
	for (const size_t count : {493440, 493447, 493448, 493449}) {
		const Sequence files = sequence(Element::u32, {write("a", tokens(count, 17))});
		for (const std::optional<Codec> &codec : {std::optional<Codec>(), Codec::parse("u32:17")}) {
			Scan scan(files, codec);
			EXPECT_EQ(whole(scan).elements, count);
			Scan resumed(files, codec);
			EXPECT_TRUE(resumed.resume(scan.save()));
			EXPECT_EQ(resumed.steps_done(), resumed.steps());
		}
	}
}

// The data of a view of these values, packed in one piece.
std::vector<std::byte> data_of(const Codec &codec, const std::vector<uint32_t> &values)
{
	std::vector<std::byte> data(codec.reduced_bytes(values.size()));
	EXPECT_EQ(view::reduce(codec, std::as_bytes(std::span(values)), data.data()), values.size());
	return data;
}

void expect_sums(const view::Header &header, const std::vector<std::byte> &data)
{
	ASSERT_EQ(header.data_bytes(), data.size());
	ASSERT_EQ(header.sums.size(), (data.size() + (1 << 20) - 1) >> 20);
	for (size_t i = 0; i < header.sums.size(); i++) {
		const std::span<const std::byte> rest = std::span(data).subspan(i << 20);
		EXPECT_EQ(header.sums[i], view::crc32c(rest.first(std::min<size_t>(rest.size(), 1 << 20))))
			<< "MiB " << i;
	}
}

TEST_F(ViewScan, FindsTheBitsAndTheSums)
{
	for (const unsigned bits : {1u, 16u, 17u, 18u, 31u}) {
		SCOPED_TRACE(bits);
		const std::vector<uint32_t> values = tokens(1500001, bits);
		const std::string path = write("a", values);
		const Sequence files = sequence(Element::u32, {path});
		Scan scan(files, std::nullopt);
		const view::Header header = whole(scan);
		EXPECT_EQ(header.codec, (Codec{Element::u32, view::Reduction::bits, bits}));
		EXPECT_EQ(header.elements, values.size());
		EXPECT_EQ(header.files, (std::vector<view::FileEntry>{{path, values.size()}}));
		expect_sums(header, data_of(header.codec, values));
		EXPECT_EQ(view::parse(view::serialize(header)), header);
	}
}

TEST_F(ViewScan, LeavesWhatNeedsAllBits)
{
	const std::string path = write<uint32_t>("a", {1, UINT32_MAX});
	const Sequence files = sequence(Element::u32, {path});
	Scan scan(files, std::nullopt);
	EXPECT_EQ(whole(scan).codec.name(), "u32:none");
	const std::string wide = write<int64_t>("b", {1, UINT32_MAX});
	const Sequence wide_files = sequence(Element::i64, {wide});
	Scan wide_scan(wide_files, std::nullopt);
	EXPECT_EQ(whole(wide_scan).codec.name(), "i64:u32");
	const std::string floats = write<float>("c", {1, 2});
	const Sequence float_files = sequence(Element::f32, {floats});
	Scan float_scan(float_files, std::nullopt);
	EXPECT_EQ(whole(float_scan).codec.name(), "f32:none");
}

TEST_F(ViewScan, JoinsFilesWithoutGaps)
{
	std::vector<uint32_t> values = tokens(900003, 17);
	std::vector<std::string> paths = {write<uint32_t>("empty", {})};
	size_t at = 0, n = 0;
	std::vector<view::FileEntry> entries = {{paths[0], 0}};
	for (const size_t count : {1, 6, 300000, 0, 3, 599993}) {
		const std::string path = write("part" + std::to_string(n++),
					       std::vector<uint32_t>(values.begin() + static_cast<long>(at),
								     values.begin() + static_cast<long>(at + count)));
		paths.push_back(path);
		entries.push_back({path, count});
		at += count;
	}
	ASSERT_EQ(at, values.size());
	const Sequence files = sequence(Element::u32, paths);
	Scan scan(files, Codec::parse("u32:17"));
	const view::Header header = whole(scan);
	EXPECT_EQ(header.files, entries);
	expect_sums(header, data_of(header.codec, values));
}

TEST_F(ViewScan, MayBeOfNothing)
{
	for (const std::optional<Codec> codec : {Codec::parse("u32:17"), std::optional<Codec>()}) {
		const std::string path = write<uint32_t>("a", {});
		const Sequence files = sequence(Element::u32, {path});
		Scan scan(files, codec);
		const view::Header header = whole(scan);
		EXPECT_EQ(header.elements, 0u);
		EXPECT_TRUE(header.sums.empty());
		EXPECT_EQ(view::parse(view::serialize(header)), header);
	}
}

TEST_F(ViewScan, NamesFileElementAndValueOfAMisfit)
{
	std::vector<uint32_t> values = tokens(700000, 16);
	values[500001] = 70000;
	const std::string first = write("a", tokens(11, 16)), second = write("b", values);
	const Sequence files = sequence(Element::u32, {first, second});
	Scan scan(files, Codec::parse("u32:u16"));
	EXPECT_EQ(thrown<view::Misfit>([&] { whole(scan); }),
		  second + ": element 500001 is 70000, which does not fit into u32:u16");

	const std::string wide = write<int64_t>("c", {1, 2, -7});
	const Sequence wide_files = sequence(Element::i64, {wide});
	Scan wide_scan(wide_files, std::nullopt);
	EXPECT_EQ(thrown<view::Misfit>([&] { whole(wide_scan); }),
		  wide + ": element 2 is -7, which does not fit into 32 bits");
}

TEST_F(ViewScan, RefusesFilesThatAreNone)
{
	const std::string odd = write<uint8_t>("odd", {1, 2, 3, 4, 5});
	EXPECT_EQ(thrown<view::SourceError>([&] { sequence(Element::u32, {odd}); }),
		  odd + ": its 5 bytes are not a multiple of the 4 of an element");
	const std::string absent = folder / "absent";
	EXPECT_EQ(thrown<view::SourceError>([&] { view::open_plain(absent); }),
		  absent + ": cannot be opened: No such file or directory");
	EXPECT_EQ(thrown<view::SourceError>([&] { view::open_plain(folder); }),
		  folder.string() + ": not a regular file");
}

TEST_F(ViewScan, RefusesMoreBytesThanAHeaderCanHave)
{
	class Huge final : public WrappedFile
	{
	public:
		using WrappedFile::WrappedFile;
		uint64_t bytes() const override { return (1ULL << 63) - 4; }

	private:
		void before_read() const override {}
	};
	const std::string path = write<uint32_t>("a", {1});
	std::vector<std::unique_ptr<view::Source>> files;
	for (int i = 0; i < 2; i++) // whose sum wraps
		files.push_back(std::make_unique<Huge>(view::open_plain(path)));
	files.push_back(view::open_plain(path));
	EXPECT_EQ(thrown<view::SourceError>([&] { view::Sequence(Element::u32, std::move(files)); }),
		  path + ": with it the files have more than 1152921504606846976 bytes");
}

TEST_F(ViewScan, NoticesAChange)
{
	const auto scanned_while = [&](const char *name, auto &&change) {
		const std::string path = write(name, tokens(2000000, 17));
		const Sequence files = sequence(Element::u32, {path});
		Scan scan(files, Codec::parse("u32:17"));
		EXPECT_FALSE(scan.advance(1 << 20));
		change(path);
		EXPECT_EQ(thrown<view::Changed>([&] { scan.advance(1 << 20); }),
			  path + ": changed while it was scanned")
			<< name;
	};
	scanned_while("written", [](const std::string &path) {
		std::ofstream(path, std::ios::in | std::ios::out).seekp(7900000) << "x";
	});
	scanned_while("cut", [](const std::string &path) { fs::resize_file(path, 4); });
	scanned_while("grown", [](const std::string &path) { fs::resize_file(path, 8000004); });
	scanned_while("replaced", [&](const std::string &path) { fs::rename(write<uint32_t>("other", {1}), path); });
}

// Counts how often its storage is asked.
class Asked final : public WrappedFile
{
public:
	Asked(std::unique_ptr<view::Source> file, size_t &times) : WrappedFile(std::move(file)), times_(times) {}
	view::Identity identity() const override
	{
		times_++;
		return WrappedFile::identity();
	}

private:
	void before_read() const override {}
	size_t &times_;
};

TEST_F(ViewScan, AsksEachOfManyFilesAFewTimes)
{
	constexpr size_t count = 2000;
	size_t asked = 0;
	std::vector<std::unique_ptr<view::Source>> files;
	for (size_t i = 0; i < count; i++) {
		const std::string path = write(std::to_string(i), std::vector<uint32_t>(8192, 5));
		files.push_back(std::make_unique<Asked>(view::open_plain(path), asked));
	}
	const Sequence sequence(Element::u32, std::move(files));
	Scan scan(sequence, Codec::parse("u32:u16"));
	int steps = 0;
	while (!scan.advance(64 << 10))
		steps++;
	EXPECT_GT(steps, 20);
	EXPECT_LE(asked, 4 * count);
}

TEST_F(ViewScan, NoticesAChangeOfAFileThatItHasRead)
{
	std::vector<std::string> paths;
	for (int i = 0; i < 40; i++)
		paths.push_back(write(std::to_string(i), tokens(250000, 17)));
	const Sequence files = sequence(Element::u32, paths);
	Scan scan(files, Codec::parse("u32:17"));
	EXPECT_FALSE(scan.advance(4 << 20));
	fs::resize_file(paths[0], 4);
	EXPECT_EQ(thrown<view::Changed>([&] {
			  while (!scan.advance(4 << 20)) {}
		  }),
		  paths[0] + ": changed while it was scanned");
	EXPECT_LT(scan.steps_done(), scan.steps()) << "it is not noticed at the end only";
}

TEST_F(ViewScan, KnowsBeforehandHowLargeTheHeaderIsAtLeast)
{
	const Sequence files = sequence(Element::u32, {write("a", tokens(3000000, 17)), write("b", tokens(5, 17))});
	for (const std::optional<Codec> &codec : {std::optional<Codec>(), Codec::parse("u32:17")}) {
		Scan scan(files, codec);
		const uint64_t least = scan.least_header_bytes();
		EXPECT_EQ(whole(scan).bytes(), least);
	}
}

TEST_F(ViewScan, NoticesAChangeBeforeItBegan)
{
	const std::string path = write("a", tokens(1000, 17));
	const Sequence files = sequence(Element::u32, {path});
	fs::resize_file(path, 4004);
	EXPECT_EQ(thrown<view::Changed>([&] { Scan(files, Codec::parse("u32:17")).advance(1 << 20); }),
		  path + ": changed while it was scanned");
}

TEST_F(ViewScan, GoesOnWhereItWas)
{
	const std::string path = write("a", tokens(1200000, 18));
	for (const std::optional<Codec> codec : {Codec::parse("u32:18"), std::optional<Codec>()}) {
		const Sequence files = sequence(Element::u32, {path});
		Scan once(files, codec);
		const view::Header expected = whole(once);
		std::string saved;
		int rounds = 0;
		for (bool done = false; !done; rounds++) {
			Scan scan(files, codec);
			const bool resumed = scan.resume(saved);
			EXPECT_EQ(resumed, rounds > 0);
			const uint64_t before = scan.steps_done();
			done = scan.advance(1);
			EXPECT_TRUE(done || scan.steps_done() > before);
			saved = scan.save();
			if (done) {
				EXPECT_EQ(scan.header(), expected);
			}
		}
		EXPECT_GE(rounds, 3);
		Scan scan(files, codec);
		EXPECT_TRUE(scan.resume(saved));
		EXPECT_TRUE(scan.advance(1));
		EXPECT_EQ(scan.header(), expected);
	}
}

TEST_F(ViewScan, BeginsAnewAfterAChange)
{
	const std::string path = write("a", tokens(300000, 17));
	std::string saved;
	{
		const Sequence files = sequence(Element::u32, {path});
		Scan scan(files, std::nullopt);
		whole(scan);
		saved = scan.save();
		Scan other(files, Codec::parse("u32:17"));
		EXPECT_FALSE(other.resume(saved)) << "another codec";
		const Sequence twice = sequence(Element::u32, {path, path});
		Scan more(twice, std::nullopt);
		EXPECT_FALSE(more.resume(saved)) << "other files";
		// anything else is no saved scan
		for (size_t cut = 0; cut < saved.size(); cut += 1 + cut / 7)
			EXPECT_FALSE(Scan(files, std::nullopt).resume(saved.substr(0, cut)));
		for (size_t at = 0; at < saved.size(); at++) {
			std::string wrong = saved;
			wrong[at] = static_cast<char>(wrong[at] ^ 0x55);
			Scan(files, std::nullopt).resume(wrong); // may be accepted if a sum is wrong
		}
	}
	std::ofstream(path, std::ios::in | std::ios::out).seekp(100) << "x";
	const Sequence files = sequence(Element::u32, {path});
	EXPECT_FALSE(Scan(files, std::nullopt).resume(saved));
}

} // namespace
