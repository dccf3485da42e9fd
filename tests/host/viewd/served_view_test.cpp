// SPDX-License-Identifier: MIT
// What the reads of a view's device return: header, reduced chunks and padding, byte by byte; and an error at the place, never
// other bytes, when a file is not as it was.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "../allocations.hpp"
#include "../view/temporary_files.hpp"
#include "view/scan.hpp"
#include "viewd/served_view.hpp"

namespace
{

namespace fs = std::filesystem;
using viewd::ChunkCache;
using viewd::ServedView;

// A read into memory.
class Read final : public viewd::ViewRead
{
public:
	explicit Read(size_t len) : bytes(len, std::byte{0xa5}) {}
	int copy(uint32_t at, const std::byte *from, size_t len) override
	{
		std::memcpy(bytes.data() + at, from, len);
		copied_ += len;
		return 0;
	}
	void done(int error) override { promise_.set_value(error); }
	int wait() { return promise_.get_future().get(); }

	std::vector<std::byte> bytes;
	size_t copied() const { return copied_; }

private:
	std::atomic<size_t> copied_ = 0;
	std::promise<int> promise_;
};

// A view of files of 17 bits, and what its device has.
struct World : TemporaryFiles {
	explicit World(size_t count = 2000003, const char *codec = "u32:17")
	{
		std::vector<uint32_t> values = tokens(count, 17);
		const auto middle = values.begin() + static_cast<long>(count / 3);
		paths = {write("a", std::vector<uint32_t>(values.begin(), middle)),
			 write("b", std::vector<uint32_t>(middle, values.end()))};
		files.emplace(sequence(view::Element::u32, paths));
		view::Scan scan(*files, view::Codec::parse(codec));
		while (!scan.advance(1 << 30)) {}
		header = scan.header();
		identities = scan.identities();
		expected = view::serialize(header);
		data_at = expected.size();
		expected.resize((data_at + header.data_bytes() + 4095) / 4096 * 4096);
		view::reduce(header.codec, std::as_bytes(std::span(values)), expected.data() + data_at);
		served = std::make_unique<ServedView>(cache, *files, header, scan.identities(), true);
	}

	// The error, and, of what was read, whether it is right.
	int read(uint64_t offset, uint32_t len)
	{
		const auto read = std::make_shared<Read>(len);
		served->read(offset, len, read);
		const int error = read->wait();
		if (!error) {
			EXPECT_EQ(read->copied(), len);
			EXPECT_TRUE(std::ranges::equal(read->bytes, std::span(expected).subspan(offset, len)))
				<< offset << " " << len;
		}
		return error;
	}

	ChunkCache cache{4, 2}, large_cache{8, 2};
	std::vector<std::string> paths;
	std::vector<view::Identity> identities;
	std::optional<view::Sequence> files;
	view::Header header;
	std::vector<std::byte> expected;
	uint64_t data_at = 0;
	std::unique_ptr<ServedView> served;
};

TEST(ServedView, ReadsItsDeviceFromEndToEnd)
{
	World world;
	ASSERT_EQ(world.served->device_bytes(), world.expected.size());
	for (const uint32_t len : {512u, 4096u, 65536u, 1u << 20, 3u << 20})
		for (uint64_t at = 0; at < world.expected.size(); at += len * (len < 65536 ? 37 : 1))
			EXPECT_EQ(world.read(at, std::min<uint32_t>(len,
								    static_cast<uint32_t>(world.expected.size() - at))),
				  0);
	EXPECT_EQ(world.read(0, static_cast<uint32_t>(world.expected.size())), 0);
	EXPECT_EQ(world.read(world.expected.size() - 512, 512), 0);
	const ServedView::Status status = world.served->status();
	EXPECT_EQ(status.failed, 0u);
	EXPECT_FALSE(status.stale);
	EXPECT_EQ(status.fault.text, "");
}

TEST(ServedView, ReadsAnywhereByManyThreads)
{
	World world;
	std::vector<std::thread> threads;
	for (unsigned t = 0; t < 3; t++)
		threads.emplace_back([&world, t] {
			std::mt19937 random(t);
			for (int i = 0; i < 100; i++) {
				const uint64_t at = random() % (world.expected.size() / 512) * 512;
				const uint64_t len =
					std::min<uint64_t>(512ull << random() % 12, world.expected.size() - at);
				EXPECT_EQ(world.read(at, static_cast<uint32_t>(len)), 0);
			}
		});
	for (std::thread &thread : threads)
		thread.join();
}

TEST(ServedView, CountsAReadThatFailsInTwoChunksOnce)
{
	World world;
	for (uint32_t &sum : world.header.sums)
		sum ^= 1;
	world.served.reset();
	world.served = std::make_unique<ServedView>(world.cache, *world.files, world.header, world.identities, true);
	EXPECT_EQ(world.read(world.data_at, 2 << 20), -ENODATA);
	const ServedView::Status status = world.served->status();
	EXPECT_EQ(status.reads, 1u);
	EXPECT_EQ(status.failed, 1u);
	EXPECT_NE(status.fault.text.find("chunk"), std::string::npos) << "it was read: " << status.fault.text;
}

TEST(ServedView, OfNothingIsAHeader)
{
	World world(0);
	EXPECT_EQ(world.served->device_bytes(), 4096u);
	EXPECT_EQ(world.read(0, 4096), 0);
}

// What happens to the second file.
struct Change {
	const char *name;
	void (*make)(World &, const std::string &path);
};

class ServedViewOfAChangedFile : public ::testing::TestWithParam<Change>
{
};

INSTANTIATE_TEST_SUITE_P(
	When, ServedViewOfAChangedFile,
	::testing::Values(
		Change{"Written",
		       [](World &, const std::string &path) {
			       std::ofstream(path, std::ios::in | std::ios::out).seekp(400) << "x";
		       }},
		Change{"Grown",
		       [](World &, const std::string &path) { fs::resize_file(path, fs::file_size(path) + 4); }},
		Change{"Cut", [](World &, const std::string &path) { fs::resize_file(path, 400); }},
		Change{"Touched",
		       [](World &, const std::string &path) {
			       fs::last_write_time(path, fs::file_time_type::clock::now());
		       }},
		Change{"Removed", [](World &, const std::string &path) { fs::remove(path); }},
		Change{"Replaced", [](World &world,
				      const std::string &path) { fs::rename(world.write<uint32_t>("c", {1}), path); }}),
	[](const auto &one) { return std::string(one.param.name); });

TEST_P(ServedViewOfAChangedFile, FailsAtItsPlaceOnly)
{
	World world;
	GetParam().make(world, world.paths[1]);
	const uint64_t end = world.expected.size();
	EXPECT_EQ(world.read(0, 4096), 0) << "the header";
	EXPECT_EQ(world.read(world.data_at, 1 << 20), 0) << "the first file";
	EXPECT_EQ(world.read(end - 4096, 4096), -ENODATA);
	EXPECT_EQ(world.read(end - (2 << 20), 1 << 20), -ENODATA);
	const ServedView::Status status = world.served->status();
	EXPECT_GE(status.failed, 2u);
	EXPECT_TRUE(status.stale);
	EXPECT_EQ(status.fault.text, world.paths[1] + ": changed after it was published");
	EXPECT_EQ(status.fault.file, world.paths[1]);
	// The read of the last MiB but one begins there: in a group of eight elements, counted from the second file's begin.
	const uint64_t group = (end - (2 << 20) - world.data_at) / 17;
	EXPECT_EQ(status.fault.element, group * 8 - world.header.files[0].elements);
}

void change(const std::string &path) { std::ofstream(path, std::ios::in | std::ios::out).seekp(40) << "x"; }

TEST(ServedView, NamesEachFileThatChanged)
{
	World world;
	EXPECT_EQ(world.served->status().changed, 0u);
	for (const std::string &path : world.paths)
		change(path);
	EXPECT_EQ(world.read(0, static_cast<uint32_t>(world.expected.size())), -ENODATA);
	const ServedView::Status status = world.served->status();
	EXPECT_EQ(status.changed, 2u);
	EXPECT_EQ(status.changed_files, world.paths);
	EXPECT_EQ(status.fault.file, world.paths[0]) << "the first that cannot be read";
}

TEST(ServedView, NamesTheFirst16FilesThatChanged)
{
	TemporaryFiles folder;
	std::vector<std::string> paths;
	for (int i = 0; i < 20; i++)
		paths.push_back(folder.write(std::to_string(i), tokens(100, 17)));
	const view::Sequence files = sequence(view::Element::u32, paths);
	view::Scan scan(files, view::Codec::parse("u32:17"));
	while (!scan.advance(1 << 30)) {}
	ChunkCache cache(4, 1);
	ServedView served(cache, files, scan.header(), scan.identities(), false);
	std::ranges::for_each(paths, change);
	EXPECT_TRUE(served.is_stale());
	paths.resize(16);
	EXPECT_EQ(served.status().changed, 20u);
	EXPECT_EQ(served.status().changed_files, paths);
}

// A store to a page that was dirty before changes no time: only the CRC tells.
TEST(ServedView, TellsBytesThatChangedWithoutATime)
{
	TemporaryFiles folder;
	const std::string path = folder.write("a", tokens(1000000, 17));
	const view::Sequence files = sequence(view::Element::u32, {path});
	view::Scan scan(files, view::Codec::parse("u32:17"));
	while (!scan.advance(1 << 30)) {}
	view::Header header = scan.header();
	header.sums[1] ^= 1;
	ChunkCache cache(4, 1);
	ServedView served(cache, files, header, scan.identities(), false);
	const auto first = std::make_shared<Read>(4096), second = std::make_shared<Read>(4096);
	served.read(header.bytes(), 4096, first);
	EXPECT_EQ(first->wait(), 0);
	served.read(header.bytes() + (1 << 20), 4096, second);
	EXPECT_EQ(second->wait(), -ENODATA);
	EXPECT_EQ(second->copied(), 0u);
	EXPECT_EQ(served.status().fault.text, "chunk 1: its bytes are not those that were published");
	EXPECT_EQ(served.status().fault.file, path);
	EXPECT_EQ(served.status().fault.element, (1 << 20) / 17 * 8u);
	EXPECT_TRUE(served.is_stale());
}

// A store to a mapping that does not fit any more, on a filesystem that does not note when it was made.
TEST(ServedView, NamesElementAndValueOfWhatDoesNotFitAnyMore)
{
	TemporaryFiles folder;
	std::vector<uint32_t> values = tokens(1000000, 17);
	const std::string path = folder.write("a", values);
	const view::Sequence files = sequence(view::Element::u32, {path});
	view::Scan scan(files, view::Codec::parse("u32:17"));
	while (!scan.advance(1 << 30)) {}
	values[700001] = 1 << 20;
	folder.write("a", values);
	ChunkCache cache(4, 1);
	ServedView served(cache, files, scan.header(), {files.files()[0]->identity()}, false);
	const auto read = std::make_shared<Read>(4096);
	served.read(scan.header().bytes() + (1 << 20), 4096, read);
	EXPECT_EQ(read->wait(), -ENODATA);
	const ServedView::Fault fault = served.status().fault;
	EXPECT_EQ(fault.text, path + ": element 700001 is 1048576, which does not fit into u32:17");
	EXPECT_EQ(fault.file, path);
	EXPECT_EQ(fault.element, 700001u);
}

// A file of a server that may not answer when it is asked how the file is. This machine's cache of attributes hears of no change.
class RemoteFile final : public WrappedFile
{
public:
	using WrappedFile::WrappedFile;
	view::Identity identity() const override { return opened(); }
	view::Identity server_identity() const override
	{
		waiting++;
		is_silent.wait(true);
		waiting--;
		if (error)
			throw view::SourceError("gone", error);
		view::Identity now = opened();
		now.mtime += has_changed;
		return now;
	}
	std::optional<view::Identity> known_identity() const override { return std::nullopt; }
	view::Identity opened() const override
	{
		view::Identity opened = WrappedFile::opened();
		opened.device += storage;
		return opened;
	}
	size_t storage = 0;
	std::atomic<int> error = 0;
	std::atomic<bool> is_silent = false, has_changed = false;
	mutable std::atomic<int> waiting = 0;

private:
	void before_read() const override {}
};

// Of 17 bits.
template <class File> struct Scanned : TemporaryFiles {
	// apart: each file is on a storage of its own
	explicit Scanned(size_t count = 1, bool apart = false)
	{
		std::vector<std::unique_ptr<view::Source>> sources;
		for (size_t i = 0; i < count; i++) {
			auto file =
				std::make_unique<File>(view::open_plain(write(std::to_string(i), tokens(1000000, 17))));
			if constexpr (requires { file->storage; })
				file->storage = apart ? i : 0;
			each.push_back(file.get());
			sources.push_back(std::move(file));
		}
		files.emplace(view::Element::u32, std::move(sources));
		scan.emplace(*files, view::Codec::parse("u32:17"));
		while (!scan->advance(1 << 30)) {}
	}
	// The error of reading the begin of a file.
	int read(ServedView &served, size_t file = 0) const
	{
		const auto read = std::make_shared<Read>(4096);
		served.read(scan->header().bytes() + file * (1000000 / 8 * 17), 4096, read);
		return read->wait();
	}

	std::vector<File *> each;
	std::optional<view::Sequence> files;
	std::optional<view::Scan> scan;
};

template <class Condition> bool comes(const Condition &condition)
{
	for (int tries = 0; tries < 3000 && !condition(); tries++)
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	return condition();
}

constexpr auto asked_every = std::chrono::milliseconds(20);
void wait_for_a_question_to_be_due() { std::this_thread::sleep_for(asked_every); }

TEST(ServedView, AsksNoServerForWhatIsInTheCache)
{
	const Scanned<RemoteFile> folder;
	RemoteFile &file = *folder.each[0];
	ChunkCache cache(4, 1);
	ServedView served(cache, *folder.files, folder.scan->header(), folder.scan->identities(), false, asked_every);
	EXPECT_EQ(folder.read(served), 0);
	file.is_silent = true;
	wait_for_a_question_to_be_due();
	EXPECT_EQ(folder.read(served), 0);
	EXPECT_EQ(folder.read(served), 0);
	EXPECT_FALSE(served.is_stale());
	file.has_changed = true;
	file.is_silent = false;
	file.is_silent.notify_all();
	EXPECT_TRUE(comes([&] { return served.status().stale; })) << "the answer tells";
	EXPECT_EQ(folder.read(served), -ENODATA) << "though this machine knows nothing of it";

	// A reload asks before it looks.
	file.has_changed = false;
	ServedView again(cache, *folder.files, folder.scan->header(), folder.scan->identities(), false);
	EXPECT_FALSE(again.is_stale());
	file.has_changed = true;
	std::promise<void> answered;
	EXPECT_EQ(again.ask_all([&] { answered.set_value(); }), 1u);
	answered.get_future().wait();
	EXPECT_TRUE(again.is_stale());
	EXPECT_EQ(cache.counts().misses, 1u) << "questions are no chunks";
}

// A file that was removed on its server, of which this machine knows nothing yet.
TEST(ServedView, ServesNothingOfARemovedFile)
{
	for (const int error : {ESTALE, ENOENT}) {
		const Scanned<RemoteFile> folder;
		ChunkCache cache(4, 1);
		ServedView served(cache, *folder.files, folder.scan->header(), folder.scan->identities(), false,
				  asked_every);
		EXPECT_EQ(folder.read(served), 0);
		folder.each[0]->error = error;
		EXPECT_TRUE(comes([&] { return folder.read(served) == -ENODATA; }));
		EXPECT_TRUE(served.is_stale());
	}
}

// Two files in the cache. The question for the first is not answered; the second has changed on its server.
struct OneIsSilent : Scanned<RemoteFile> {
	explicit OneIsSilent(bool apart) : Scanned(2, apart)
	{
		EXPECT_EQ(read(served, 0), 0);
		EXPECT_EQ(read(served, 1), 0);
		first.is_silent = true;
		wait_for_a_question_to_be_due();
		EXPECT_EQ(read(served, 0), 0);
		EXPECT_TRUE(comes([&] { return first.waiting > 0; }));
		each[1]->has_changed = true;
	}
	void answer()
	{
		first.is_silent = false;
		first.is_silent.notify_all();
	}

	RemoteFile &first = *each[0];
	ChunkCache cache{8, 2};
	ServedView served{cache, *files, scan->header(), scan->identities(), false, asked_every};
};

// Files on another storage need no answer.
TEST(ServedView, AsksAStorageThoughAnotherOneIsSilent)
{
	OneIsSilent folder(true);
	ServedView &served = folder.served;
	EXPECT_TRUE(comes([&] { return folder.read(served, 1) == -ENODATA; }));
	std::atomic<size_t> answers = 0;
	EXPECT_EQ(served.ask_all([&] { answers++; }), 2u);
	EXPECT_TRUE(comes([&] { return answers == 1; }));
	folder.answer();
	EXPECT_TRUE(comes([&] { return answers == 2; }));
}

// What is to be asked while another file's question is under way is asked afterwards.
TEST(ServedView, AsksForEachFileThoughAnotherOneWaits)
{
	OneIsSilent folder(false);
	ServedView &served = folder.served;
	EXPECT_EQ(folder.read(served, 1), 0);
	folder.answer();
	EXPECT_TRUE(comes([&] { return folder.read(served, 1) == -ENODATA; }));
	EXPECT_EQ(folder.read(served, 0), 0);
}

// Without memory a read fails, once, and the next one succeeds.
TEST(ServedView, EndsEachReadOnceWithoutMemory)
{
	World world;
	int failures = 0;
	for (int left = 0;; left++) {
		const auto read = std::make_shared<Read>(3 << 20);
		allocations_left = left;
		world.served->read(world.data_at, 3 << 20, read);
		const bool all_allocated = allocations_left > 0;
		allocations_left = -1;
		const int error = read->wait();
		EXPECT_TRUE(error == 0 || error == -ENOMEM) << left << ": " << error;
		if (error == 0) {
			EXPECT_TRUE(std::ranges::equal(read->bytes,
						       std::span(world.expected).subspan(world.data_at, 3 << 20)));
		}
		failures += error != 0;
		EXPECT_EQ(world.read(world.data_at, 1 << 20), 0) << "afterwards";
		if (all_allocated)
			break;
	}
	EXPECT_GT(failures, 2);
}

// A file for which there is no memory, by and by.
class ForgetfulFile final : public WrappedFile
{
public:
	using WrappedFile::WrappedFile;
	std::atomic<bool> fails = false;

private:
	void before_read() const override
	{
		if (fails)
			throw std::bad_alloc();
	}
};

TEST(ServedView, FailsAReadForWhichAFileHasNoMemory)
{
	const Scanned<ForgetfulFile> folder;
	ChunkCache cache(4, 1);
	ServedView served(cache, *folder.files, folder.scan->header(), folder.scan->identities(), false);
	for (const bool fails : {true, false}) {
		folder.each[0]->fails = fails;
		EXPECT_EQ(folder.read(served), fails ? -ENOMEM : 0);
	}
}

TEST(ServedView, PrefetchesAlongAPlan)
{
	World world(5000003);
	viewd::ChunkCache &cache = world.large_cache;
	ServedView served(cache, *world.files, world.header, world.identities, false);
	// Backwards, of which no stream is made.
	std::vector<viewd::Plan::Range> ranges;
	for (uint64_t chunk = 10; chunk-- > 0;)
		ranges.push_back({chunk << 20, (chunk + 1) << 20});
	served.plan(viewd::Plan(ranges));
	EXPECT_EQ(served.status().plan_length, 10u);
	EXPECT_EQ(served.status().plan_position, 0u);
	for (size_t i = 0; i < ranges.size(); i++) {
		// Half of the memory, in which it is alone, and nothing else was read.
		const uint64_t ahead = std::min<uint64_t>(i + cache.chunks() / 2, ranges.size());
		const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
		while (cache.counts().prefetched < ahead && std::chrono::steady_clock::now() < end)
			std::this_thread::yield();
		EXPECT_EQ(cache.counts().prefetched, ahead);
		const auto read = std::make_shared<Read>(1 << 20);
		served.read(world.data_at + ranges[i].begin, 1 << 20, read);
		EXPECT_EQ(read->wait(), 0);
		EXPECT_EQ(served.status().plan_position, i + 1);
	}
	EXPECT_EQ(cache.counts().misses, 0u);
	EXPECT_EQ(cache.counts().wasted, 0u);
}

TEST(ServedView, FailsReadsOnceItIsWithdrawn)
{
	World world;
	world.served->withdraw();
	EXPECT_EQ(world.read(world.data_at, 4096), -ENODEV);
	EXPECT_EQ(world.read(0, 4096), 0) << "the header is in memory";
}

} // namespace
