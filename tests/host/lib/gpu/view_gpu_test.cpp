// SPDX-License-Identifier: MIT
//
// Reads of views into the memory of the stand-in CUDA driver (tests/softgpu), by the libpeerdma.so that is built. The stand-in
// counts what a real driver forbids, and elements that a kernel would overwrite before it has read them.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../view_range.hpp"
#include "../view_values.hpp"
#include "cuda.h"
#include "peerdma.hpp"
#include "softgpu.hpp"
#include "view/crc32c.hpp"

namespace
{

namespace fs = std::filesystem;

constexpr char guard = 0x77;
constexpr size_t around = 4096; // bytes before and behind a destination that must not change

CUdeviceptr number(const void *at) { return reinterpret_cast<CUdeviceptr>(at); }

// As user/view/header.hpp describes it, for one file.
std::string image(uint8_t element, uint8_t reduction, uint8_t bits, uint64_t elements, const std::string &data)
{
	const uint64_t chunks = (data.size() + (1 << 20) - 1) >> 20;
	std::string header((152 + chunks * 4 + 4095) / 4096 * 4096, '\0');
	const auto put = [&](size_t at, auto value) { std::memcpy(&header[at], &value, sizeof(value)); };
	const auto sum = [](const std::string &bytes, size_t at, size_t size) {
		const auto *const from = reinterpret_cast<const std::byte *>(bytes.data()) + at;
		return view::crc32c_portable({from, std::min(size, bytes.size() - at)});
	};
	header.replace(0, 8, "PDMAVIEW");
	put(8, uint32_t{1});
	put(16, uint64_t{header.size()});
	put(24, element);
	put(25, reduction);
	put(26, bits);
	const uint64_t numbers[] = {elements, data.size(), 1, 128, 144, 1, 152};
	std::memcpy(&header[32], numbers, sizeof(numbers));
	put(128, elements);
	put(140, uint32_t{1});
	header[144] = 'f';
	for (uint64_t i = 0; i < chunks; i++)
		put(152 + i * 4, sum(data, i << 20, 1 << 20));
	put(12, sum(header, 0, header.size()));
	return header + data;
}

// Device memory, with guards.
class Memory
{
public:
	explicit Memory(size_t size, int device = 0, int kind = 0)
		: size_(size), memory_(static_cast<char *>(fake_alloc(size + 2 * around, device, kind)))
	{
		std::memset(fake_peek(memory_), guard, size + 2 * around);
	}
	~Memory() { fake_free(memory_); }
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;

	char *get() const { return memory_ + around; }
	std::string bytes() const { return {fake_peek(memory_) + around, size_}; }
	// Only [from, to) may have changed.
	bool is_kept_outside(size_t from, size_t to) const
	{
		const char *const all = fake_peek(memory_);
		for (size_t i = 0; i < size_ + 2 * around; i++)
			if ((i < from + around || i >= to + around) && all[i] != guard)
				return false;
		return true;
	}

private:
	const size_t size_;
	char *const memory_;
};

class Gpu : public ::testing::Test
{
protected:
	Gpu() : path_(fs::temp_directory_path() / ("view-gpu-" + std::to_string(getpid()))) { fake_set_current(0); }
	~Gpu() override
	{
		fake_fail(nullptr, 0, 0);
		peerdma_view_close(view);
		fs::remove(path_);
		EXPECT_EQ(fake_live(), 0) << "a stream, an event or pinned memory is left";
		EXPECT_EQ(fake_wrongs(), 0) << "what a real driver forbids";
	}

	void open(const std::string &bytes, const char *codec = nullptr, uint32_t flags = 0)
	{
		peerdma_view_close(std::exchange(view, nullptr));
		std::ofstream(path_, std::ios::trunc) << bytes;
		auto args = peerdma::detail::sized<peerdma_view_args>();
		args.codec = codec;
		args.flags = flags;
		ASSERT_EQ(peerdma_view_open(nullptr, path_.c_str(), &args, &view), 0) << args.out_why;
	}
	int64_t read(const peerdma_view_read_args &what)
	{
		result = peerdma::detail::sized<peerdma_view_result>();
		return peerdma_view_read(view, &what, &result);
	}
	// Reads a range into new memory and compares it.
	void check(const Values &values, uint64_t first, uint64_t count, uint32_t as, size_t width, uint32_t flags = 0,
		   int device = 0, int kind = 0)
	{
		Memory memory(count * width, device, kind);
		auto what = range(memory.get(), first, count, as);
		what.flags = flags;
		ASSERT_EQ(read(what), static_cast<int64_t>(count));
		EXPECT_TRUE(memory.bytes() == bytes_of(part_of(values, first, count), width)) << first << ", " << count;
		EXPECT_TRUE(memory.is_kept_outside(0, count * width));
		EXPECT_EQ(result.done, count);
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
		EXPECT_EQ(result.host, result.read);
	}

	const fs::path path_;
	struct peerdma_view *view = nullptr;
	peerdma_view_result result = {};
};

// A function in a stream that waits, until release() or for that long at most.
class Hold
{
public:
	explicit Hold(CUstream in, std::chrono::milliseconds most = std::chrono::minutes(5))
		: until_(std::chrono::steady_clock::now() + most)
	{
		EXPECT_EQ(cuLaunchHostFunc(
				  in, [](void *arg) { static_cast<Hold *>(arg)->wait(); }, this),
			  0);
	}
	bool is_over() const { return over_; }
	void release() { go_ = true; }

private:
	void wait()
	{
		while (!go_ && std::chrono::steady_clock::now() < until_)
			usleep(100);
		over_ = true;
	}

	const std::chrono::steady_clock::time_point until_;
	std::atomic<bool> go_{false}, over_{false};
};

// A stream of the program's own.
class OwnStream
{
public:
	OwnStream() { EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), 0); }
	~OwnStream() { EXPECT_EQ(cuStreamDestroy(stream_), 0); }
	OwnStream(const OwnStream &) = delete;
	OwnStream &operator=(const OwnStream &) = delete;

	CUstream get() const { return stream_; }
	void wait() const { EXPECT_EQ(cuStreamSynchronize(stream_), 0); }

private:
	CUstream stream_ = nullptr;
};

} // namespace

TEST_F(Gpu, EachWidthWidenedByTheDevice)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "one thread, and slow under ThreadSanitizer";
#endif
	for (unsigned bits = 1; bits <= 32; bits++) {
		const Values values = random_values(20011, bits);
		const std::string data = packed(values, bits);
		for (const uint64_t first : {0U, 1U, 2U, 7U, 8U, 1001U}) {
			const uint64_t count = values.size() - first - 3 * (first % 2);
			if (bits < 32) {
				open(image(1, 1, static_cast<uint8_t>(bits), values.size(), data));
				check(values, first, count, PEERDMA_VIEW_AS_FILE, 4);
				EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_GPU));
				check(values, first, count, PEERDMA_VIEW_AS_I64, 8);
				check(values, first, count, PEERDMA_VIEW_AS_I32, 4);
			}
			open(image(2, 1, static_cast<uint8_t>(bits), values.size(), data));
			check(values, first, count, PEERDMA_VIEW_AS_FILE, 8);
			check(values, first, count, PEERDMA_VIEW_AS_U32, 4);
			EXPECT_EQ(result.by,
				  static_cast<uint32_t>(bits == 32 ? PEERDMA_VIEW_BY_NONE : PEERDMA_VIEW_BY_GPU));
			open(bytes_of(values, 8), ("i64:" + std::to_string(bits)).c_str(),
			     first % 2 ? PEERDMA_VIEW_OPEN_MAP : 0);
			check(values, first, count, PEERDMA_VIEW_AS_FILE, 8);
			EXPECT_EQ(result.moved, (count * bits + 7) / 8);
			EXPECT_EQ(result.read, count * 8);
			check(values, first, count, PEERDMA_VIEW_AS_U32, 4);
		}
	}
}

TEST_F(Gpu, InPlace)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "one thread, and slow under ThreadSanitizer";
#endif
	for (const unsigned bits : {1U, 7U, 16U, 17U, 24U, 30U, 31U}) {
		const Values values = random_values(300013, bits);
		for (const uint64_t first : {0U, 3U, 8U}) {
			open(image(1, 1, static_cast<uint8_t>(bits), values.size(), packed(values, bits)));
			for (const uint64_t count : {1U, 4095U, 4096U, 4097U, 9001U, 70000U, 300000U}) {
				check(values, first, count, PEERDMA_VIEW_AS_U32, 4, PEERDMA_VIEW_READ_IN_PLACE);
				check(values, first, count, PEERDMA_VIEW_AS_I64, 8, PEERDMA_VIEW_READ_IN_PLACE);
			}
			open(bytes_of(values, 4), ("u32:" + std::to_string(bits)).c_str());
			check(values, first, 300000, PEERDMA_VIEW_AS_FILE, 4, PEERDMA_VIEW_READ_IN_PLACE);
		}
	}
	const Values wide = random_values(100000, 32);
	open(image(2, 1, 32, wide.size(), packed(wide, 32)));
	check(wide, 5, 99990, PEERDMA_VIEW_AS_FILE, 8, PEERDMA_VIEW_READ_IN_PLACE);
	check(wide, 5, 99990, PEERDMA_VIEW_AS_U32, 4, PEERDMA_VIEW_READ_IN_PLACE);
}

// Longer than a slot: several pieces through two of them.
TEST_F(Gpu, ManyPieces)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "one thread, and slow under ThreadSanitizer";
#endif
	const Values values = random_values(7000001, 17);
	open(image(1, 1, 17, values.size(), packed(values, 17)));
	check(values, 0, values.size(), PEERDMA_VIEW_AS_FILE, 4);
	check(values, 4321, 6990000, PEERDMA_VIEW_AS_FILE, 4);
	check(values, 0, values.size(), PEERDMA_VIEW_AS_FILE, 4, PEERDMA_VIEW_READ_IN_PLACE);
	open(bytes_of(values, 4), "u32:17");
	check(values, 1, values.size() - 1, PEERDMA_VIEW_AS_I64, 8);
	open(bytes_of(values, 4), "u32:none");
	check(values, 77, values.size() - 77, PEERDMA_VIEW_AS_FILE, 4);
	EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_NONE));
}

TEST_F(Gpu, LeftPackedIfTheProgramAsksForIt)
{
	const Values values = random_values(3000000, 17);
	const std::string data = packed(values, 17);
	for (const bool plain : {false, true}) {
		open(plain ? bytes_of(values, 4) : image(1, 1, 17, values.size(), data), "u32:17");
		Memory memory(17 * 250000);
		ASSERT_EQ(read(range(memory.get(), 800000, 2000000, PEERDMA_VIEW_AS_PACKED)), 2000000);
		EXPECT_TRUE(memory.bytes() == data.substr(17 * 100000, 17 * 250000));
		EXPECT_TRUE(memory.is_kept_outside(0, 17 * 250000));
		EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_NONE));
		EXPECT_EQ(result.moved, 17u * 250000);
	}
}

TEST_F(Gpu, VerifiedAgainstTheHeader)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "one thread, and slow under ThreadSanitizer";
#endif
	const Values values = random_values(7000001, 17);
	const std::string data = packed(values, 17);
	std::string bytes = image(1, 1, 17, values.size(), data);
	open(bytes, nullptr, PEERDMA_VIEW_OPEN_VERIFY);
	for (const uint32_t flags : {0U, PEERDMA_VIEW_READ_IN_PLACE}) {
		check(values, 0, values.size(), PEERDMA_VIEW_AS_FILE, 4, flags);
		EXPECT_EQ(result.read, data.size()) << "each chunk once";
		check(values, 4321, 6990000, PEERDMA_VIEW_AS_FILE, 4, flags);
		EXPECT_EQ(result.read, data.size());
	}
	bytes[bytes.size() - (4 << 20)] ^= 4;
	open(bytes, nullptr, PEERDMA_VIEW_OPEN_VERIFY);
	Memory memory(values.size() * 4);
	EXPECT_EQ(read(range(memory.get(), 0, values.size())), -EBADMSG);
	EXPECT_STREQ(result.out_why,
		     "chunk 10 does not have its checksum: elements 4934475 to 5427922, file 'f' from its "
		     "element 4934475");
	EXPECT_GT(result.done, 1000000u);
	ASSERT_LE(result.done, 4934475u);
	EXPECT_TRUE(memory.bytes().substr(0, result.done * 4) == bytes_of(part_of(values, 0, result.done), 4))
		<< "what counts as delivered is there";
}

TEST_F(Gpu, Floats)
{
	const std::vector<uint16_t> halves = {0x3f80, 0xbf80, 0x7fc0, 0, 0x8000, 0x7f80, 0x1234};
	std::string data(reinterpret_cast<const char *>(halves.data()), halves.size() * 2), expected;
	for (const uint16_t half : halves)
		expected += std::string(2, '\0') + std::string(reinterpret_cast<const char *>(&half), 2);
	open(image(3, 2, 16, halves.size(), data));
	Memory memory(28);
	ASSERT_EQ(read(range(memory.get(), 0, 100, PEERDMA_VIEW_AS_F32)), 7);
	EXPECT_TRUE(memory.bytes() == expected);
	EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_GPU));
	open(expected, "f32:bf16");
	Memory again(28);
	ASSERT_EQ(read(range(again.get(), 0, 7)), 7);
	EXPECT_TRUE(again.bytes() == expected);
	EXPECT_EQ(result.moved, 14u);
}

TEST_F(Gpu, AnyKindOfMemoryAndThreadsWithoutAContext)
{
	const Values values = random_values(50000, 20);
	open(image(1, 1, 20, values.size(), packed(values, 20)));
	for (const int current : {0, 1, -1})
		for (const int device : {0, 1})
			for (const int kind : {0, 1, 2}) {
				fake_set_current(current);
				check(values, 5, 40000, PEERDMA_VIEW_AS_FILE, 4, 0, device, kind);
				CUcontext now = nullptr;
				EXPECT_EQ(cuCtxGetCurrent(&now), 0);
				EXPECT_EQ(now != nullptr, current >= 0) << "the thread's context is as it was";
			}
	// Pinned host memory is host memory.
	fake_set_current(0);
	void *pinned = nullptr;
	ASSERT_EQ(cuMemHostAlloc(&pinned, 40000, 0), 0);
	ASSERT_EQ(read(range(pinned, 0, 10000)), 10000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_CPU));
	EXPECT_TRUE(std::string(static_cast<char *>(pinned), 40000) == bytes_of(part_of(values, 0, 10000), 4));
	EXPECT_EQ(cuMemFreeHost(pinned), 0);
}

TEST_F(Gpu, InTheOrderOfAStream)
{
	const Values values = random_values(3000000, 16);
	const size_t bytes = values.size() * 4;
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	CUstream stream = nullptr;
	ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	for (const uint32_t flags : {0U, PEERDMA_VIEW_READ_IN_PLACE}) {
		Memory memory(bytes);
		std::string before(bytes, '\0'), after(bytes, '\0');
		auto what = range(memory.get(), 0, values.size());
		what.stream = stream;
		what.flags = flags;
		{
			// The stream's earlier work uses the memory: what it writes must not come after the elements,
			// and what it reads must not be elements.
			Hold hold(stream);
			ASSERT_EQ(cuMemsetD8Async(number(memory.get()), 0x11, bytes, stream), 0);
			ASSERT_EQ(cuMemcpyDtoHAsync(before.data(), number(memory.get()), bytes, stream), 0);
			std::thread later([&] {
				usleep(50000);
				EXPECT_TRUE(memory.bytes() == std::string(bytes, guard)) << "nothing came before";
				hold.release();
			});
			EXPECT_EQ(read(what), static_cast<int64_t>(values.size()));
			ASSERT_EQ(cuMemcpyDtoHAsync(after.data(), number(memory.get()), bytes, stream), 0);
			later.join();
			ASSERT_EQ(cuStreamSynchronize(stream), 0);
		}
		EXPECT_TRUE(before == std::string(bytes, 0x11));
		EXPECT_TRUE(after == bytes_of(values, 4));
	}
	// A short read does not wait for the stream at all.
	Memory memory(4000);
	Hold hold(stream);
	auto what = range(memory.get(), 0, 1000);
	what.stream = stream;
	EXPECT_EQ(read(what), 1000);
	EXPECT_TRUE(memory.is_kept_outside(0, 0));
	hold.release();
	ASSERT_EQ(cuStreamSynchronize(stream), 0);
	EXPECT_TRUE(memory.bytes() == bytes_of(part_of(values, 0, 1000), 4));
	EXPECT_EQ(cuStreamDestroy(stream), 0);
}

// A read whose stream is held back has a slot that is not free yet, though the call has returned.
TEST_F(Gpu, AReadDoesNotWaitForTheStreamOfAnEarlierOne)
{
	const Values values = random_values(3000000, 16);
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	OwnStream held, idle;
	Memory first(4000), second(4000), third(4000), fourth(values.size() * 4);
	const auto begin = [&](const Memory &memory, const OwnStream *stream, uint64_t count = 1000) {
		auto what = range(memory.get(), 0, count);
		what.stream = stream ? stream->get() : nullptr;
		EXPECT_EQ(read(what), static_cast<int64_t>(count));
	};
	const auto is_there = [&](const Memory &memory, uint64_t count = 1000) {
		return memory.bytes() == bytes_of(part_of(values, 0, count), 4);
	};
	// The slots are made here, so that none of what follows has to.
	begin(fourth, nullptr, values.size());
	Hold hold(held.get(), std::chrono::minutes(2));
	begin(first, &held);
	begin(second, &idle);
	idle.wait();
	EXPECT_TRUE(is_there(second)) << "in another stream";
	begin(third, nullptr);
	EXPECT_TRUE(is_there(third)) << "in none";
	begin(fourth, nullptr, values.size());
	EXPECT_TRUE(is_there(fourth, values.size())) << "with more than one slot";
	begin(second, &held);
	EXPECT_FALSE(hold.is_over()) << "a read waited for a stream that is not its own";
	EXPECT_TRUE(first.is_kept_outside(0, 0));
	hold.release();
	held.wait();
	EXPECT_TRUE(is_there(first));
	EXPECT_TRUE(is_there(second));
}

// More reads under way than there can be slots.
TEST_F(Gpu, WithoutASlotThatIsFreeAReadWaitsForOne)
{
	const Values values = random_values(1000, 16);
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	OwnStream held;
	constexpr int reads = 40;
	std::vector<std::unique_ptr<Memory>> memory;
	Hold hold(held.get());
	std::thread later([&] {
		usleep(200000);
		hold.release();
	});
	for (int i = 0; i < reads; i++) {
		auto what = range(memory.emplace_back(std::make_unique<Memory>(4000))->get(), 0, 1000);
		what.stream = held.get();
		EXPECT_EQ(read(what), 1000);
	}
	EXPECT_TRUE(hold.is_over());
	later.join();
	held.wait();
	for (const auto &one : memory)
		EXPECT_TRUE(one->bytes() == bytes_of(values, 4));
}

// The last view waits for what its reads still deliver. Other threads need not.
TEST_F(Gpu, AViewIsOpenedWhileTheLastOneIsClosed)
{
	const Values values = random_values(1000, 16);
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	OwnStream held;
	Memory first(4000), second(4000);
	Hold hold(held.get(), std::chrono::minutes(2));
	auto what = range(first.get(), 0, 1000);
	what.stream = held.get();
	EXPECT_EQ(read(what), 1000);
	std::thread closing([last = std::exchange(view, nullptr)] { peerdma_view_close(last); });
	usleep(100000); // until it waits
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	EXPECT_EQ(read(range(second.get(), 0, 1000)), 1000);
	EXPECT_FALSE(hold.is_over()) << "it waited for the one that is closed";
	EXPECT_TRUE(second.bytes() == bytes_of(values, 4));
	hold.release();
	closing.join();
	held.wait();
	EXPECT_TRUE(first.bytes() == bytes_of(values, 4));
}

// The device may still copy when a call fails after that. The read must not return before it has: the program may free or
// reuse the destination, and the stream has nothing that says so.
TEST_F(Gpu, AReadThatFailsWithCopiesUnderWayWaitsForThem)
{
	const Values values = random_values(1000, 17);
	open(image(1, 1, 17, values.size(), packed(values, 17)));
	OwnStream held;
	Memory memory(4000);
	for (const auto &[name, after] : {std::pair{"cuEventRecord", 2}, std::pair{"cuStreamWaitEvent", 1}}) {
		Hold hold(held.get());
		std::thread later([&] {
			usleep(100000);
			hold.release();
		});
		auto what = range(memory.get(), 0, 1000);
		what.stream = held.get();
		fake_fail(name, after, 719);
		EXPECT_EQ(read(what), -EIO) << name;
		EXPECT_EQ(result.done, 0u);
		EXPECT_TRUE(hold.is_over()) << name << ": elements came later than the error";
		fake_fail(nullptr, 0, 0);
		later.join();
		held.wait();
	}
}

TEST_F(Gpu, StreamsThatCannotBeUsed)
{
	const Values values = random_values(1000, 16);
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	Memory memory(4000);
	CUstream stream = nullptr;
	fake_set_current(1);
	ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	fake_set_current(0);
	auto what = range(memory.get(), 0, 1000);
	what.stream = stream;
	EXPECT_EQ(read(what), -EINVAL) << "of another device";
	EXPECT_EQ(cuStreamDestroy(stream), 0);
	ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	what.stream = stream;
	EXPECT_EQ(read(what), -EBUSY);
	// A capture elsewhere forbids nothing.
	what.stream = nullptr;
	EXPECT_EQ(read(what), 1000);
	CUgraph graph = nullptr;
	EXPECT_EQ(cuStreamEndCapture(stream, &graph), 0) << "and is not spoiled";
	EXPECT_EQ(cuGraphDestroy(graph), 0);
	EXPECT_EQ(cuStreamDestroy(stream), 0);
	for (const CUstream named : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
		what.stream = named;
		EXPECT_EQ(read(what), 1000);
		EXPECT_EQ(cuStreamSynchronize(named), 0);
		// That of the thread's context, which is not the memory's.
		fake_set_current(1);
		EXPECT_EQ(read(what), -EINVAL);
		fake_set_current(0);
	}
}

TEST_F(Gpu, ManyThreadsOnOneView)
{
	const Values values = random_values(2000000, 18);
	for (const bool plain : {false, true}) {
		open(plain ? bytes_of(values, 4) : image(1, 1, 18, values.size(), packed(values, 18)), "u32:18");
		std::vector<std::thread> threads;
		for (unsigned t = 0; t < 40; t++) // more than there are slots for
			threads.emplace_back([&, t] {
				std::mt19937_64 random(t);
				fake_set_current(0);
				CUstream stream = nullptr;
				EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
				for (int i = 0; i < 3; i++) {
					const uint64_t first = random() % 1000000, count = 1 + random() % 900000;
					Memory memory(count * 4);
					auto what = range(memory.get(), first, count);
					what.stream = random() % 2 ? stream : nullptr;
					what.flags = random() % 2 ? PEERDMA_VIEW_READ_IN_PLACE : 0;
					EXPECT_EQ(peerdma_view_read(view, &what, nullptr), static_cast<int64_t>(count));
					EXPECT_EQ(cuStreamSynchronize(stream), 0);
					EXPECT_TRUE(memory.bytes() == bytes_of(part_of(values, first, count), 4));
					EXPECT_TRUE(memory.is_kept_outside(0, count * 4));
				}
				EXPECT_EQ(cuStreamDestroy(stream), 0);
			});
		for (std::thread &thread : threads)
			thread.join();
	}
}

TEST_F(Gpu, ManyThreadsOnOneViewIntoHostMemory)
{
	const Values values = random_values(400000, 18);
	const std::string plain = bytes_of(values, 4), served = image(1, 1, 18, values.size(), packed(values, 18));
	for (const auto &[bytes, flags] : {std::pair{&served, 0U}, std::pair{&served, PEERDMA_VIEW_OPEN_VERIFY},
					   std::pair{&plain, 0U}, std::pair{&plain, PEERDMA_VIEW_OPEN_MAP}}) {
		open(*bytes, "u32:18", flags);
		std::vector<std::thread> threads;
		for (unsigned t = 0; t < 8; t++)
			threads.emplace_back([&, t] {
				std::mt19937_64 random(t);
				for (int i = 0; i < 4; i++) {
					const uint64_t first = random() % 200000, count = 1 + random() % 200000;
					std::string memory(count * 4 + 1, guard);
					const auto what = range(memory.data(), first, count);
					EXPECT_EQ(peerdma_view_read(view, &what, nullptr), static_cast<int64_t>(count));
					EXPECT_EQ(memory.back(), guard);
					memory.pop_back();
					EXPECT_TRUE(memory == bytes_of(part_of(values, first, count), 4));
				}
			});
		for (std::thread &thread : threads)
			thread.join();
	}
}

// The slots go with the last view, and a thread may open the next one at that moment.
TEST_F(Gpu, ManyThreadsThatOpenAndClose)
{
	const Values values = random_values(50000, 18);
	open(image(1, 1, 18, values.size(), packed(values, 18)));
	peerdma_view_close(std::exchange(view, nullptr));
	std::vector<std::thread> threads;
	for (unsigned t = 0; t < 6; t++)
		threads.emplace_back([&] {
			fake_set_current(0);
			OwnStream stream;
			for (int i = 0; i < 10; i++) {
				struct peerdma_view *own = nullptr;
				ASSERT_EQ(peerdma_view_open(nullptr, path_.c_str(), nullptr, &own), 0);
				Memory memory(values.size() * 4);
				auto what = range(memory.get(), 0, values.size());
				what.stream = i % 2 ? stream.get() : nullptr;
				EXPECT_EQ(peerdma_view_read(own, &what, nullptr), 50000);
				peerdma_view_close(own);
				stream.wait();
				EXPECT_TRUE(memory.bytes() == bytes_of(values, 4));
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	EXPECT_EQ(fake_live(), 0) << "slots are left";
}

// The driver is the parent's, and so is what the parent has there.
TEST_F(Gpu, AChildClosesTheParentsViewWithoutTheDriver)
{
	const Values values = random_values(1000, 18);
	open(image(1, 1, 18, values.size(), packed(values, 18)));
	Memory memory(4000);
	ASSERT_EQ(read(range(memory.get(), 0, 1000)), 1000);
	const int live = fake_live();
	EXPECT_GT(live, 0);
	const pid_t child = fork();
	if (!child) {
		const bool is_refused = read(range(memory.get(), 0, 1000)) == -ECHILD;
		peerdma_view_close(view);
		_exit(is_refused && fake_live() == live && !fake_wrongs() ? 0 : 1);
	}
	int status = 0;
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	check(values, 0, 1000, PEERDMA_VIEW_AS_FILE, 4);
}

TEST_F(Gpu, WhatDoesNotFit)
{
	Values values = random_values(5000000, 17);
	values[4999000] = 1 << 17;
	open(bytes_of(values, 4), "u32:17");
	Memory memory(values.size() * 4);
	EXPECT_EQ(read(range(memory.get(), 0, values.size())), -ERANGE);
	EXPECT_EQ(result.misfit, 4999000u);
	EXPECT_GT(result.done, 1000000u);
	ASSERT_LE(result.done, 4999000u);
	EXPECT_TRUE(memory.bytes().substr(0, result.done * 4) == bytes_of(part_of(values, 0, result.done), 4))
		<< "what counts as delivered is there";
	fs::resize_file(path_, 400000);
	EXPECT_EQ(read(range(memory.get(), 0, 100001)), -ENODATA);
	EXPECT_EQ(read(range(memory.get(), 0, 100000)), 100000);
}

TEST_F(Gpu, RangesThatAreNotAllInDeviceMemory)
{
	const Values values = random_values(100000, 16);
	open(image(1, 1, 16, values.size(), packed(values, 16)));
	Memory memory(4000);
	EXPECT_EQ(read(range(memory.get(), 0, 1000 + around / 4 + 1)), -EFAULT);
	EXPECT_TRUE(memory.is_kept_outside(0, 0));
	EXPECT_EQ(read(range(memory.get() + 2, 0, 10)), -EINVAL);
	EXPECT_EQ(read(range(memory.get() + 4, 0, 10, PEERDMA_VIEW_AS_I64)), -EINVAL);
	// To the last byte of the allocation.
	EXPECT_EQ(read(range(memory.get(), 0, 1000 + around / 4)), 1000 + around / 4);
}

TEST_F(Gpu, CallsOfTheDriverThatFail)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "one thread, and slow under ThreadSanitizer";
#endif
	const Values values = random_values(3000000, 17);
	const std::string bytes = image(1, 1, 17, values.size(), packed(values, 17));
	CUstream stream = nullptr;
	ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	for (const char *const name :
	     {"cuPointerGetAttributes", "cuMemHostAlloc", "cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate",
	      "cuEventSynchronize", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuLaunchKernel", "cuKernelGetFunction",
	      "cuStreamWaitEvent", "cuStreamSynchronize"}) {
		bool failed = false;
		for (int after = 0; after < 3; after++) {
			open(bytes);
			Memory memory(values.size() * 4);
			auto what = range(memory.get(), 0, values.size());
			what.stream = std::strcmp(name, "cuStreamWaitEvent") ? nullptr : stream;
			fake_fail(name, after, 719);
			const int64_t n = read(what);
			fake_fail(nullptr, 0, 0);
			EXPECT_TRUE(n == -EIO || n == static_cast<int64_t>(values.size())) << name << " " << n;
			failed = failed || n == -EIO;
			EXPECT_EQ(cuCtxSynchronize(), 0);
			// And the next read is right.
			EXPECT_EQ(read(range(memory.get(), 0, values.size())), static_cast<int64_t>(values.size()));
			EXPECT_TRUE(memory.bytes() == bytes_of(values, 4));
		}
		EXPECT_TRUE(failed) << name;
	}
	EXPECT_EQ(cuStreamDestroy(stream), 0);
	// One slot is enough.
	Memory memory(values.size() * 4);
	for (const int error : {int{CUDA_ERROR_OUT_OF_MEMORY}, 304}) { // 304: of the operating system
		open(bytes);
		fake_fail("cuMemHostAlloc", 1, error);
		EXPECT_EQ(read(range(memory.get(), 0, values.size())), static_cast<int64_t>(values.size()));
		EXPECT_TRUE(memory.bytes() == bytes_of(values, 4));
	}
	open(bytes);
	fake_fail("cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT_EQ(read(range(memory.get(), 0, values.size())), -ENOMEM);
}

TEST_F(Gpu, AContextThatIsDestroyedWithWhatIsInIt)
{
	const Values values = random_values(10000, 17);
	open(image(1, 1, 17, values.size(), packed(values, 17)));
	for (int i = 0; i < 3; i++) { // the next one has the address of the last one
		CUcontext context = nullptr;
		CUdeviceptr memory = 0;
		ASSERT_EQ(cuCtxCreate(&context, 0, 0), 0);
		ASSERT_EQ(cuMemAlloc(&memory, 40000), 0);
		ASSERT_EQ(read(range(reinterpret_cast<void *>(memory), 0, 10000)), 10000);
		std::string bytes(40000, '\0');
		ASSERT_EQ(cuMemcpyDtoH(bytes.data(), memory, bytes.size()), 0);
		EXPECT_TRUE(bytes == bytes_of(values, 4));
		ASSERT_EQ(cuCtxDestroy(context), 0);
	}
	fake_set_current(0);
}
