// SPDX-License-Identifier: MIT
// Files compressed with zstd and lz4: each byte, wherever reads begin; the index and what it costs; damage is an error, in bounded memory.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "compress.hpp"
#include "temporary_files.hpp"
#include "view/compressed_file.hpp"
#include "view/scan.hpp"

namespace
{

using view::CompressedFile;
using view::Decompressors;
using view::Point;
using view::SourceError;

constexpr size_t MiB = 1 << 20;

// Compresses to about a half.
Bytes content(size_t bytes, unsigned seed = 1)
{
	Bytes all(bytes);
	std::minstd_rand random(seed);
	for (std::byte &byte : all)
		byte = static_cast<std::byte>(random() >> 8 & 15);
	return all;
}

Bytes part(const Bytes &all, size_t begin, size_t end)
{
	return {all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(std::min(end, all.size()))};
}

// Frames of so many bytes each.
Bytes frames_of(const Bytes &all, size_t each, const std::function<Bytes(std::span<const std::byte>)> &compress)
{
	Bytes to;
	for (size_t at = 0; at < all.size(); at += each) {
		const Bytes frame = compress(std::span(all).subspan(at, std::min(each, all.size() - at)));
		to.insert(to.end(), frame.begin(), frame.end());
	}
	return to;
}

// zstd's seekable format, by frames that do not say how many bytes they have.
Bytes seekable(const Bytes &all, size_t each, uint32_t lie = 0)
{
	Bytes to, table;
	const auto append = [&](uint32_t value) {
		const auto bytes = std::as_bytes(std::span(&value, 1));
		table.insert(table.end(), bytes.begin(), bytes.end());
	};
	uint32_t frames = 0;
	for (size_t at = 0; at < all.size(); at += each, frames++) {
		const size_t here = std::min(each, all.size() - at);
		const Bytes frame = zstd_of(std::span(all).subspan(at, here), {.says_size = false});
		to.insert(to.end(), frame.begin(), frame.end());
		append(static_cast<uint32_t>(frame.size()));
		append(static_cast<uint32_t>(here) - (frames ? 0 : lie));
	}
	append(frames);
	table.push_back(std::byte{0});
	append(0x8f92eab1);
	Bytes head = skippable(table.size());
	head.resize(8);
	return joined({to, head, table});
}

class Compressed : public ::testing::Test, protected TemporaryFiles
{
protected:
	std::unique_ptr<CompressedFile> open(const Bytes &bytes)
	{
		return std::make_unique<CompressedFile>(view::open_plain(write("a", bytes)), decompressors);
	}
	std::unique_ptr<CompressedFile> indexed(const Bytes &bytes)
	{
		std::unique_ptr<CompressedFile> file = open(bytes);
		while (!file->index(MiB)) {}
		return file;
	}

	// Whether it has exactly these bytes, by reads of these sizes.
	static void expect_bytes(const CompressedFile &file, const Bytes &expected, size_t step)
	{
		ASSERT_EQ(file.bytes(), expected.size());
		Bytes got(expected.size());
		for (size_t at = 0; at < got.size(); at += step)
			file.read(at, std::span(got).subspan(at, std::min(step, got.size() - at)));
		EXPECT_TRUE(got == expected);
	}

	// What indexing and reading it fails with; "": nothing.
	std::string refusal(const Bytes &bytes)
	{
		try {
			const std::unique_ptr<CompressedFile> file = indexed(bytes);
			Bytes all(std::min<uint64_t>(file->bytes(), 64 * MiB));
			file->read(0, all);
		} catch (const SourceError &error) {
			EXPECT_NE(error.error, 0);
			const std::string text = error.what(), name = (folder / "a").string() + ": ";
			EXPECT_TRUE(text.starts_with(name)) << text;
			return text.substr(name.size());
		}
		return "";
	}

	Decompressors decompressors{64 * MiB};
};

TEST_F(Compressed, HasEachByte)
{
	const Bytes all = content(2 * MiB + 12345);
	const auto plain_zstd = [](std::span<const std::byte> from) { return zstd_of(from); };
	const auto plain_lz4 = [](std::span<const std::byte> from) { return lz4_of(from); };
	const std::pair<const char *, Bytes> files[] = {
		{"zstd, one frame", zstd_of(all, {.has_sum = true})},
		{"zstd, one frame that does not say its size", zstd_of(all, {.says_size = false})},
		{"zstd, frames", frames_of(all, 300000, plain_zstd)},
		{"zstd, seekable", seekable(all, 700000)},
		{"zstd, with frames that are skipped",
		 joined({skippable(100), zstd_of(part(all, 0, 1000000)), skippable(0),
			 zstd_of(part(all, 1000000, all.size()), {.says_size = false, .has_sum = true}),
			 skippable(500000)})},
		{"zstd, with empty frames",
		 joined({zstd_of({}), zstd_of(all), zstd_of({}), zstd_of({}, {.says_size = false})})},
		{"lz4, one frame", lz4_of(all, {.says_size = true, .block_sums = true, .content_sum = true})},
		{"lz4, linked blocks", lz4_of(all, {.independent = false, .content_sum = true})},
		{"lz4, large blocks", lz4_of(all, {.content_sum = true, .block = LZ4F_max4MB})},
		{"lz4, frames", joined({frames_of(all, 700000, plain_lz4), skippable(3)})},
	};
	for (const auto &[name, bytes] : files) {
		SCOPED_TRACE(name);
		const std::unique_ptr<CompressedFile> file = indexed(bytes);
		expect_bytes(*file, all, 100001);
		EXPECT_EQ(file->restarts(), 0u);
		expect_bytes(*file, all, MiB);
		// Anywhere, the same file by many threads.
		std::vector<std::thread> threads;
		for (unsigned t = 0; t < 3; t++)
			threads.emplace_back([&, t] {
				std::mt19937 random(t);
				for (int i = 0; i < 8; i++) {
					const size_t at = random() % all.size(),
						     len = std::min<size_t>(1 + random() % 200000, all.size() - at);
					Bytes got(len);
					file->read(at, got);
					EXPECT_TRUE(got == part(all, at, at + len)) << at << " " << len;
				}
			});
		for (std::thread &thread : threads)
			thread.join();
	}
}

TEST_F(Compressed, OfNothingHasNoBytes)
{
	EXPECT_EQ(indexed(zstd_of({}))->bytes(), 0u);
	EXPECT_EQ(indexed(zstd_of({}, {.says_size = false}))->bytes(), 0u);
	EXPECT_EQ(indexed(lz4_of({}))->bytes(), 0u);
	EXPECT_EQ(indexed(skippable(10))->bytes(), 0u);
}

TEST_F(Compressed, BeginsAtTheNearestPoint)
{
	const Bytes all = content(8 * MiB);
	// Each frame of zstd.
	{
		const std::unique_ptr<CompressedFile> file =
			indexed(frames_of(all, MiB, [](std::span<const std::byte> from) { return zstd_of(from); }));
		EXPECT_EQ(file->points().size(), 8u);
		Bytes got(1000);
		for (const size_t at : {7 * MiB, 3 * MiB, 5 * MiB, 0 * MiB})
			file->read(at, got);
		EXPECT_EQ(file->restarts(), 0u);
		file->read(6 * MiB + 500000, got);
		EXPECT_EQ(file->restarts(), 1u);
		EXPECT_TRUE(got == part(all, 6 * MiB + 500000, 6 * MiB + 501000));
	}
	// Blocks of lz4, found by reading it once.
	{
		const std::unique_ptr<CompressedFile> file =
			indexed(lz4_of(all, {.block_sums = true, .content_sum = true}));
		expect_bytes(*file, all, MiB);
		EXPECT_GE(file->points().size(), 8u);
		for (const Point &point : file->points()) {
			Bytes got(std::min<size_t>(1000, all.size() - point.first));
			file->read(point.first, got);
			EXPECT_TRUE(got == part(all, point.first, point.first + 1000)) << point.first;
		}
		EXPECT_EQ(file->restarts(), 0u);
		expect_bytes(*file, all, 3 * MiB); // to its end, from points within the frame
	}
	// One frame: a read of before begins at its begin.
	{
		const std::unique_ptr<CompressedFile> file = indexed(zstd_of(all));
		EXPECT_EQ(file->points().size(), 1u);
		Bytes got(1000);
		file->read(5 * MiB, got);
		EXPECT_EQ(file->restarts(), 1u);
		file->read(5 * MiB + 900, got); // what was read last is kept
		file->read(5 * MiB - 10000, got);
		file->read(6 * MiB, got);
		EXPECT_EQ(file->restarts(), 1u);
		file->read(4 * MiB, got);
		EXPECT_EQ(file->restarts(), 2u);
		EXPECT_TRUE(got == part(all, 4 * MiB, 4 * MiB + 1000));
	}
}

// Two readers of one frame by turns, of whom the later may be first: neither makes the other begin anew.
TEST_F(Compressed, IsReadByTurns)
{
	const Bytes all = content(8 * MiB);
	Decompressors patient(64 * MiB, std::chrono::seconds(10));
	CompressedFile file(view::open_plain(write("a", zstd_of(all))), patient);
	while (!file.index(MiB)) {}
	Bytes first(128 << 10);
	file.read(0, first);
	std::atomic<size_t> next = 1;
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&] {
			for (size_t turn; (turn = next++) < 64;) {
				Bytes got(128 << 10);
				file.read(turn * got.size(), got);
				EXPECT_TRUE(got == part(all, turn * got.size(), (turn + 1) * got.size()));
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	EXPECT_EQ(file.restarts(), 0u);
}

// Whose reads, once it is closed, wait until it is opened.
class Gate : public WrappedFile
{
public:
	using WrappedFile::WrappedFile;
	std::atomic<bool> closed = false;
	mutable std::atomic<bool> waits = false;

private:
	void before_read() const override
	{
		waits = closed.load();
		waits.notify_all();
		closed.wait(true);
	}
};

TEST_F(Compressed, EndsReadsWhenItIsStopped)
{
	Bytes all(8 * MiB); // that do not compress, so that the file is read meanwhile
	std::mt19937 random(1);
	std::ranges::generate(all, [&] { return static_cast<std::byte>(random()); });
	Decompressors patient(64 * MiB, std::chrono::seconds(60));
	auto file = std::make_unique<Gate>(view::open_plain(write("a", zstd_of(all))));
	Gate &gate = *file;
	CompressedFile compressed(std::move(file), patient);
	while (!compressed.index(MiB)) {}
	const auto error_of = [&](size_t at, size_t bytes) {
		Bytes got(bytes);
		try {
			compressed.read(at, got);
		} catch (const SourceError &error) {
			return error.error;
		}
		return 0;
	};
	EXPECT_EQ(error_of(0, 4096), 0);
	// One decompresses, and one waits for those that may come before it.
	gate.closed = true;
	std::future<int> reads = std::async(std::launch::async, error_of, 4096, MiB);
	gate.waits.wait(false);
	std::future<int> waits = std::async(std::launch::async, error_of, 4 * MiB, 4096);
	EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
	compressed.stop();
	EXPECT_EQ(waits.wait_for(std::chrono::seconds(30)), std::future_status::ready);
	gate.closed = false;
	gate.closed.notify_all();
	EXPECT_EQ(waits.get(), ECANCELED);
	EXPECT_EQ(reads.get(), ECANCELED);
	EXPECT_EQ(error_of(0, 4096), ECANCELED);
}

TEST_F(Compressed, KeepsItsMemoryBounded)
{
	const Bytes all = content(4 * MiB);
	Decompressors small(12 * MiB, std::chrono::milliseconds(1));
	std::vector<std::unique_ptr<CompressedFile>> files;
	for (int i = 0; i < 10; i++) {
		files.push_back(std::make_unique<CompressedFile>(
			view::open_plain(write("f" + std::to_string(i), zstd_of(all, {.window_log = 20}))), small));
		while (!files.back()->index(MiB)) {}
	}
	std::vector<std::thread> threads;
	for (unsigned t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			std::mt19937 random(t);
			for (int i = 0; i < 20; i++) {
				const CompressedFile &file = *files[random() % files.size()];
				Bytes got(1000);
				const size_t at = random() % (all.size() - 1000);
				file.read(at, got);
				EXPECT_TRUE(got == part(all, at, at + 1000));
				EXPECT_LE(small.used_bytes(), 6 * MiB);
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	EXPECT_GT(small.used_bytes(), 0u);
	files.clear();
	EXPECT_EQ(small.used_bytes(), 0u);
}

// On another file system.
class GateElsewhere final : public Gate
{
public:
	using Gate::Gate;
	view::Identity opened() const override
	{
		view::Identity opened = Gate::opened();
		opened.device++;
		return opened;
	}
};

// Files of that storage, which answers no read of theirs before answer().
struct SilentFiles {
	std::vector<GateElsewhere *> gates;
	std::vector<std::unique_ptr<CompressedFile>> files;

	SilentFiles(int nr, const std::filesystem::path &path, Decompressors &decompressors)
	{
		for (int i = 0; i < nr; i++) {
			auto gate = std::make_unique<GateElsewhere>(view::open_plain(path));
			gates.push_back(gate.get());
			files.push_back(std::make_unique<CompressedFile>(std::move(gate), decompressors));
			while (!files.back()->index(MiB)) {}
		}
		for (GateElsewhere *gate : gates)
			gate->closed = true;
	}
	void answer()
	{
		for (GateElsewhere *gate : gates) {
			gate->closed = false;
			gate->closed.notify_all();
		}
	}
};

void until_one_waits(const Decompressors &decompressors)
{
	while (!decompressors.readers_waiting())
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Files of a storage that does not answer leave those of others their part of the memory.
TEST_F(Compressed, SharesItsMemoryAmongStorages)
{
	const Bytes all = content(4 * MiB), compressed = zstd_of(all, {.window_log = 20});
	Decompressors small(12 * MiB, std::chrono::milliseconds(1));
	write("a", compressed);
	SilentFiles silent(8, folder / "a", small);
	const auto first = [&](const CompressedFile &from) {
		Bytes got(1000);
		from.read(0, got);
		return got == part(all, 0, 1000);
	};
	std::vector<std::future<bool>> reads;
	for (const auto &file : silent.files)
		reads.push_back(std::async(std::launch::async, first, std::cref(*file)));
	until_one_waits(small);
	// Of a storage that comes later too.
	CompressedFile file(view::open_plain(folder / "a"), small);
	while (!file.index(MiB)) {}
	std::future<bool> other = std::async(std::launch::async, first, std::cref(file));
	EXPECT_EQ(other.wait_for(std::chrono::seconds(30)), std::future_status::ready);
	silent.answer();
	EXPECT_TRUE(other.get());
	for (std::future<bool> &read : reads)
		EXPECT_TRUE(read.get());
}

// Nor does one that was first and has all memory make others begin anew each time.
TEST_F(Compressed, KeepsWhatAStorageHasBesideOneThatHasAll)
{
	const Bytes all = content(4 * MiB), compressed = zstd_of(all, {.window_log = 20});
	write("a", compressed);
	const auto read = [&](const CompressedFile &from, size_t at) {
		Bytes got(1000);
		from.read(at, got);
		return got == part(all, at, at + got.size());
	};
	uint64_t memory;
	{
		Decompressors large(64 * MiB);
		CompressedFile file(view::open_plain(folder / "a"), large);
		while (!file.index(MiB)) {}
		EXPECT_TRUE(read(file, 0));
		memory = large.used_bytes();
	}
	Decompressors small(8 * memory, std::chrono::milliseconds(1)); // four at a time
	SilentFiles silent(4, folder / "a", small);
	std::vector<std::future<bool>> reads;
	for (size_t i = 0; i < silent.files.size(); i++) {
		reads.push_back(std::async(std::launch::async, read, std::cref(*silent.files[i]), 0));
		silent.gates[i]->waits.wait(false);
	}
	CompressedFile first(view::open_plain(folder / "a"), small), second(view::open_plain(folder / "a"), small),
		third(view::open_plain(folder / "a"), small);
	for (CompressedFile *file : {&first, &second, &third})
		while (!file->index(MiB)) {}
	for (size_t at = 0; at < 100000; at += 1000) {
		EXPECT_TRUE(read(first, at));
		EXPECT_TRUE(read(second, at));
		EXPECT_LE(small.used_bytes(), 6 * memory);
	}
	EXPECT_EQ(first.restarts() + second.restarts(), 0u);
	EXPECT_TRUE(read(third, 0)) << "in the place of another one of its storage";
	EXPECT_LE(small.used_bytes(), 6 * memory);
	silent.answer();
	for (std::future<bool> &one : reads)
		EXPECT_TRUE(one.get());
	EXPECT_LE(small.used_bytes(), 4 * memory) << "when they have ended, within the bound";
}

// More readers in order than there is memory for have turns: if each took the memory of another after every read, they would begin anew
// each time, and that takes longer and longer.
TEST_F(Compressed, HasTurnsForReadersInOrder)
{
	const Bytes all = content(24 * MiB);
	write("a", zstd_of(all, {.window_log = 20}));
	constexpr size_t step = 128 << 10;
	for (const bool is_elsewhere : {false, true}) {
		uint64_t memory;
		{
			Decompressors large(64 * MiB);
			CompressedFile file(view::open_plain(folder / "a"), large);
			while (!file.index(MiB)) {}
			Bytes got(1000);
			file.read(0, got);
			memory = large.used_bytes();
		}
		// Two at a time for three; or one of each of two storages, which is more than its part.
		Decompressors small(is_elsewhere ? 3 * memory : 4 * memory, std::chrono::milliseconds(1));
		std::vector<std::unique_ptr<CompressedFile>> files;
		for (int i = 0; i < (is_elsewhere ? 2 : 3); i++) {
			std::unique_ptr<view::Source> plain = view::open_plain(folder / "a");
			if (is_elsewhere && i)
				plain = std::make_unique<GateElsewhere>(std::move(plain));
			files.push_back(std::make_unique<CompressedFile>(std::move(plain), small));
			while (!files.back()->index(MiB)) {}
		}
		std::vector<std::future<bool>> reads;
		for (const std::unique_ptr<CompressedFile> &file : files)
			reads.push_back(std::async(std::launch::async, [&all, &file] {
				bool is_right = true;
				Bytes got(step);
				for (size_t at = 0; at < all.size(); at += step) {
					file->read(at, got);
					is_right &= got == part(all, at, at + step);
				}
				return is_right;
			}));
		for (std::future<bool> &read : reads)
			EXPECT_TRUE(read.get());
		uint64_t restarts = 0;
		for (const std::unique_ptr<CompressedFile> &file : files)
			restarts += file->restarts();
		if (is_elsewhere)
			EXPECT_EQ(restarts, 0u) << "each keeps its own";
		else
			EXPECT_LE(restarts, 40u);
		RecordProperty(is_elsewhere ? "elsewhere" : "turns", std::to_string(restarts));
	}
}

// A file that needs more than its storage's part is read when it is its turn; others of the storage, that come later, do not keep it from
// that.
TEST_F(Compressed, ReadsWhatNeedsMoreThanAPartInTurn)
{
	const Bytes all = content(9 * MiB);
	write("a", zstd_of(all, {.window_log = 18}));
	write("wide", zstd_of(all, {.window_log = 23}));
	const auto read = [&](const CompressedFile &from, size_t at) {
		Bytes got(1000);
		from.read(at, got);
		return got == part(all, at, at + got.size());
	};
	const auto memory_of = [&](const char *name) {
		Decompressors large(64 * MiB);
		CompressedFile file(view::open_plain(folder / name), large);
		while (!file.index(MiB)) {}
		EXPECT_TRUE(read(file, 0));
		return large.used_bytes();
	};
	const uint64_t most = memory_of("wide") * 3 / 2;
	ASSERT_LT(memory_of("a"), most / 6);
	Decompressors small(2 * most, std::chrono::milliseconds(1));
	const CompressedFile elsewhere(std::make_unique<GateElsewhere>(view::open_plain(folder / "a")), small);
	auto gate = std::make_unique<Gate>(view::open_plain(folder / "a"));
	Gate &first_gate = *gate;
	CompressedFile first(std::move(gate), small), wide(view::open_plain(folder / "wide"), small),
		later(view::open_plain(folder / "a"), small);
	for (CompressedFile *file : {&first, &wide, &later})
		while (!file->index(MiB)) {}
	const auto began = std::chrono::steady_clock::now();
	EXPECT_TRUE(read(later, 0)); // it has a decompressor, which is kept for it for a while
	const auto took = std::chrono::steady_clock::now() - began;
	const auto read_on = [&](const CompressedFile &from) { return read(from, 1000); };
	first_gate.closed = true;
	std::future<bool> first_read = std::async(std::launch::async, read_on, std::cref(first));
	first_gate.waits.wait(false);
	std::future<bool> wide_read = std::async(std::launch::async, read_on, std::cref(wide));
	until_one_waits(small);
	std::this_thread::sleep_for(Decompressors::kept_times * took);
	std::future<bool> later_read = std::async(std::launch::async, read_on, std::cref(later));
	EXPECT_EQ(later_read.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
	EXPECT_EQ(wide_read.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
	first_gate.closed = false;
	first_gate.closed.notify_all();
	EXPECT_TRUE(wide_read.get());
	EXPECT_TRUE(later_read.get());
	EXPECT_TRUE(first_read.get());
}

TEST_F(Compressed, RefusesWhatNeedsTooMuchMemory)
{
	const Bytes all = content(2 * MiB);
	Decompressors small(8 * MiB);
	// zstd lowers the window of a frame with a known size.
	const Bytes wide = zstd_of(all, {.says_size = false, .window_log = 23});
	CompressedFile file(view::open_plain(write("a", wide)), small);
	try {
		file.index(MiB);
		ADD_FAILURE();
	} catch (const SourceError &error) {
		EXPECT_EQ(std::string(error.what()),
			  (folder / "a").string() +
				  ": the frame at byte 0 needs 10 MiB of memory to be decompressed; one may take "
				  "4, half of peerdma-viewd --decompress-memory");
	}
	// A window of almost 2^64, by a frame that is one segment.
	Bytes bomb = {std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd}, std::byte{0xe0}};
	bomb.resize(13, std::byte{0xff});
	bomb.resize(16, std::byte{1});
	EXPECT_TRUE(refusal(bomb).starts_with("the frame at byte 0 needs 17592186044417 MiB")) << refusal(bomb);
}

TEST_F(Compressed, SaysWhatIsWrong)
{
	const Bytes all = content(300000);
	const Bytes zstd = zstd_of(all, {.has_sum = true}), lz4 = lz4_of(all, {.says_size = true, .content_sum = true});
	EXPECT_EQ(refusal(all), "not compressed with zstd or lz4");
	EXPECT_EQ(refusal({}), "not compressed with zstd or lz4");
	EXPECT_EQ(refusal(joined({zstd, Bytes(5, std::byte{1})})),
		  "damaged at byte " + std::to_string(zstd.size()) + ": no frame of zstd or lz4 begins there");
	EXPECT_EQ(refusal(joined({zstd, lz4})),
		  "damaged at byte " + std::to_string(zstd.size()) + ": frames of zstd and of lz4 in one file");
	EXPECT_NE(
		refusal({std::byte{2}, std::byte{0x21}, std::byte{0x4c}, std::byte{0x18}, std::byte{0}}).find("legacy"),
		std::string::npos);
	Bytes table = skippable(100);
	table.resize(50);
	EXPECT_EQ(refusal(joined({zstd, table})),
		  "damaged at byte " + std::to_string(zstd.size()) + ": it ends within a frame");
	Bytes lie = zstd;
	lie[6] ^= std::byte{1}; // of 4 bytes with its size: of a segment of other size
	EXPECT_NE(refusal(lie), "");
}

TEST_F(Compressed, NoticesEachCutAndMostDamage)
{
	const Bytes all = content(140000);
	const Bytes files[] = {zstd_of(all, {.has_sum = true}), zstd_of(all, {.says_size = false, .has_sum = true}),
			       lz4_of(all, {.says_size = true, .content_sum = true}),
			       lz4_of(all, {.block_sums = true, .content_sum = true})};
	for (const Bytes &file : files) {
		for (size_t cut = 0; cut < file.size(); cut += 1 + file.size() / 29)
			EXPECT_NE(refusal(part(file, 0, cut)), "") << cut;
		EXPECT_NE(refusal(part(file, 0, file.size() - 1)), "");
		EXPECT_EQ(refusal(file), "");
		// Each bit counts, but for some of the headers: bytes that come without an error must be right.
		std::mt19937 random(1);
		for (int i = 0; i < 60; i++) {
			Bytes wrong = file;
			wrong[random() % wrong.size()] ^= static_cast<std::byte>(1 << random() % 8);
			try {
				const std::unique_ptr<CompressedFile> damaged = indexed(wrong);
				Bytes got(std::min<uint64_t>(damaged->bytes(), all.size() + 1));
				damaged->read(0, got);
				EXPECT_TRUE(got == all) << i;
			} catch (const SourceError &error) {
				EXPECT_NE(*error.what(), 0);
			}
		}
	}
}

TEST_F(Compressed, ComparesWhatComesToWhatIsSaid)
{
	const Bytes all = content(3 * MiB);
	// The table says less of the first frame than it has: the second one does not begin there.
	EXPECT_NE(refusal(seekable(all, MiB, 5)).find("do not have as many bytes as they are said to have"),
		  std::string::npos)
		<< refusal(seekable(all, MiB, 5));
	EXPECT_EQ(refusal(seekable(all, 3 * MiB, 5)), "has more bytes than its frames are said to have");
	// More than its blocks can have: not believed, and the frame is decompressed instead.
	const std::unique_ptr<CompressedFile> file = indexed(seekable(all, 3 * MiB, static_cast<uint32_t>(-(5 * MiB))));
	expect_bytes(*file, all, MiB);
	// A frame that says so: 2^40 bytes by one block.
	Bytes claims = {std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f},
			std::byte{0xfd}, std::byte{0xc0}, std::byte{0x38}};
	claims.resize(14);
	claims[11] = std::byte{1};
	claims.insert(claims.end(), {std::byte{0x0b}, std::byte{0}, std::byte{0}, std::byte{'x'}});
	EXPECT_EQ(refusal(claims),
		  "damaged at byte 0: its frame is said to have 1099511627776 bytes, its blocks have 1 at most");
}

TEST_F(Compressed, GoesOnWithItsIndex)
{
	const Bytes all = content(2 * MiB);
	const auto without_size = [](std::span<const std::byte> from) { return zstd_of(from, {.says_size = false}); };
	const auto lz4 = [](std::span<const std::byte> from) { return lz4_of(from); };
	for (const Bytes &bytes :
	     {frames_of(all, 300000, without_size), seekable(all, 300000), frames_of(all, 300000, lz4)}) {
		const std::string expected_index = indexed(bytes)->save_index();
		std::string saved;
		int rounds = 0;
		for (bool done = false; !done; rounds++) {
			CompressedFile file(view::open_plain(folder / "a"), decompressors);
			EXPECT_EQ(file.resume_index(saved), rounds > 0);
			done = file.index(1000000); // more than a frame, which is not gone on with in its middle
			saved = file.save_index();
			if (done) {
				expect_bytes(file, all, MiB);
			}
		}
		EXPECT_GE(rounds, 2);
		EXPECT_EQ(saved, expected_index);
		for (size_t at = 0; at < saved.size(); at += 1 + at / 7) {
			CompressedFile cut(view::open_plain(folder / "a"), decompressors);
			EXPECT_FALSE(cut.resume_index(saved.substr(0, at)));
			std::string wrong = saved;
			wrong[at] = static_cast<char>(wrong[at] ^ 0x5a);
			CompressedFile file(view::open_plain(folder / "a"), decompressors);
			try {
				file.resume_index(wrong);
				while (!file.index(MiB)) {}
				Bytes got(std::min<uint64_t>(file.bytes(), all.size()));
				file.read(0, got);
			} catch (const SourceError &error) {
				EXPECT_NE(*error.what(), 0);
			}
		}
		CompressedFile changed(view::open_plain(folder / "a"), decompressors);
		changed.index(1);
		std::ofstream(folder / "a", std::ios::app) << 'x';
		saved = changed.save_index();
		EXPECT_FALSE(CompressedFile(view::open_plain(folder / "a"), decompressors).resume_index(saved))
			<< "it has changed meanwhile";
		CompressedFile other(view::open_plain(write("b", bytes)), decompressors);
		EXPECT_FALSE(other.resume_index(saved)) << "another file";
	}
}

TEST_F(Compressed, IsAViewOfItsElements)
{
	const std::vector<uint32_t> values = tokens(1500001, 17);
	const std::string plain = write("plain", values), compressed = write("a", zstd_of(bytes_of(values)));
	const auto header_of = [](const view::Sequence &files) {
		view::Scan scan(files, std::nullopt);
		while (!scan.advance(1 << 20)) {}
		return scan.header();
	};
	std::unique_ptr<view::Source> file = view::open_compressed(compressed, decompressors);
	while (!file->index(MiB)) {}
	std::vector<std::unique_ptr<view::Source>> all;
	all.push_back(std::move(file));
	const view::Sequence files(view::Element::u32, std::move(all));
	const view::Header header = header_of(files), expected = header_of(sequence(view::Element::u32, {plain}));
	EXPECT_EQ(header.codec, expected.codec);
	EXPECT_EQ(header.sums, expected.sums);
	EXPECT_EQ(header.elements, expected.elements);
	EXPECT_EQ(header.files[0].name, compressed);
	EXPECT_EQ(files.files()[0]->restarts(), 0u) << "each chunk begins some bytes before the last one's end";
	// What was scanned as plain bytes is not gone on with as compressed ones.
	std::unique_ptr<view::Source> again = view::open_compressed(compressed, decompressors);
	while (!again->index(MiB)) {}
	std::vector<std::unique_ptr<view::Source>> one;
	one.push_back(std::move(again));
	const view::Sequence bytes(view::Element::byte, std::move(one));
	const view::Sequence stored = sequence(view::Element::byte, {compressed});
	EXPECT_FALSE(view::Scan(bytes, std::nullopt).resume(view::Scan(stored, std::nullopt).save()));
	EXPECT_TRUE(view::Scan(bytes, std::nullopt).resume(view::Scan(bytes, std::nullopt).save()));
}

} // namespace
