// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cufile/path/bounce_buffer.hpp"
#include "fake_dependencies.hpp"

using cufile::BounceBuffer;
using cufile::BounceBufferPool;

namespace
{

class CufileBounceBuffer : public ::testing::Test
{
protected:
	std::unique_ptr<BounceBuffer> take(BounceBufferPool &bounce_buffers, bool large,
					   cufile::Context context = nullptr)
	{
		std::unique_ptr<BounceBuffer> buffer;
		EXPECT_EQ(bounce_buffers.acquire(context ? context : &cuda, large, buffer), 0);
		EXPECT_TRUE(buffer);
		return buffer;
	}
	// Another thread gets a buffer only after `taken`, which leaves no other, is released.
	void expect_wait_for(std::unique_ptr<BounceBuffer> taken, BounceBufferPool &bounce_buffers, bool large)
	{
		std::atomic<bool> got{false};
		std::thread late([&] {
			auto buffer = take(bounce_buffers, large);
			got = true;
			bounce_buffers.release(std::move(buffer), false);
		});
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
		EXPECT_FALSE(got) << "there is one more";
		bounce_buffers.release(std::move(taken), false);
		late.join();
	}

	FakeSystem system;
	FakeCuda cuda;
};

TEST_F(CufileBounceBuffer, IsTakenAgain)
{
	BounceBufferPool bounce_buffers(cuda, system, 1 << 30, 8);
	auto buffer = take(bounce_buffers, true);
	const char *const memory = buffer->memory();
	EXPECT_TRUE(buffer->large());
	bounce_buffers.release(std::move(buffer), false);
	EXPECT_EQ(take(bounce_buffers, true)->memory(), memory);
	EXPECT_EQ(bounce_buffers.nr_created(), 1u);
}

// Less and less often, but without end.
TEST_F(CufileBounceBuffer, RingsAreTriedAgain)
{
	BounceBufferPool bounce_buffers(cuda, system, 1 << 30, 8);
	system.rings.errors.assign(1000, -EMFILE);
	constexpr uint64_t step = 5'000'000, minute = 60'000'000'000;
	for (uint64_t passed = 0; passed < minute; passed += step) {
		EXPECT_EQ(bounce_buffers.uring_state(), -EMFILE);
		system.now += step;
	}
	const size_t attempts = 1000 - system.rings.errors.size();
	EXPECT_GE(attempts, 60u) << "each second";
	EXPECT_LE(attempts, 70u);
	system.rings.errors.clear();
	system.now += 1'000'000'000;
	EXPECT_EQ(bounce_buffers.uring_state(), 0);
	EXPECT_EQ(bounce_buffers.uring_state(), 0);
	EXPECT_EQ(system.rings.made, 1u) << "what is there is not asked for again";
}

// Buffers that could not be pinned are replaced.
TEST_F(CufileBounceBuffer, PinnedMemoryIsTriedAgain)
{
	BounceBufferPool bounce_buffers(cuda, system, 1 << 30, 8);
	cuda.no_pinned = true;
	auto buffer = take(bounce_buffers, false);
	EXPECT_FALSE(buffer->id_known());
	bounce_buffers.release(std::move(buffer), false);
	EXPECT_EQ(bounce_buffers.nr_created(), 0u);
	cuda.no_pinned = false;
	buffer = take(bounce_buffers, false);
	EXPECT_TRUE(buffer->id_known());
	bounce_buffers.release(std::move(buffer), false);
	EXPECT_EQ(bounce_buffers.nr_created(), 1u);
}

TEST_F(CufileBounceBuffer, SmallWhereThereIsNoLargeOne)
{
	// Room for one large buffer and four small ones.
	BounceBufferPool bounce_buffers(cuda, system, (cufile::large_buffer + 1) * 4 / 3, 8);
	std::vector<std::unique_ptr<BounceBuffer>> taken;
	uint64_t bytes = 0;
	for (int i = 0; i < 4; i++) {
		taken.push_back(take(bounce_buffers, true));
		EXPECT_EQ(taken.back()->large(), i == 0);
		bytes += taken.back()->bytes();
	}
	EXPECT_LE(bytes, (cufile::large_buffer + 1) * 4 / 3);
	EXPECT_EQ(cuda.pinned, 4);
	for (auto &buffer : taken)
		bounce_buffers.release(std::move(buffer), false);
}

// There is one buffer even if the limit on pinned memory is 0. The thread that owns it waits for no other thread.
TEST_F(CufileBounceBuffer, OneIsWaitedForByAll)
{
	BounceBufferPool bounce_buffers(cuda, system, 0, 8);
	std::atomic<int> inside{0}, most{0};
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			// Two contexts, and both sizes.
			const cufile::Context context = t % 2 ? static_cast<void *>(&cuda) : &bounce_buffers;
			for (int i = 0; i < 200; i++) {
				auto buffer = take(bounce_buffers, t / 2, context);
				EXPECT_EQ(buffer->context(), context);
				most = std::max(most.load(), ++inside);
				std::this_thread::yield();
				inside--;
				bounce_buffers.release(std::move(buffer), i % 7 == 0);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(most, 1);
	EXPECT_LE(bounce_buffers.nr_created(), 1u);
	EXPECT_LE(cuda.pinned, 1);
}

// A userspace file system calls the library while its caller holds a buffer.
TEST_F(CufileBounceBuffer, WhoHasOneIsGivenAnother)
{
	BounceBufferPool bounce_buffers(cuda, system, 0, 8);
	auto first = take(bounce_buffers, false);
	{
		const BounceBufferPool::Holder holding;
		std::vector<std::unique_ptr<BounceBuffer>> nested;
		for (const bool large : {false, true, true}) {
			nested.push_back(take(bounce_buffers, large));
			EXPECT_FALSE(nested.back()->large()) << "as little as can be";
		}
		EXPECT_EQ(cuda.pinned, 4);
		for (auto &buffer : nested)
			bounce_buffers.release(std::move(buffer), buffer == nested[1]);
		EXPECT_EQ(cuda.pinned, 1) << "none is kept";
		EXPECT_EQ(bounce_buffers.nr_created(), 1u);
		bounce_buffers.release(std::move(first), false);
		first = take(bounce_buffers, false);
		EXPECT_FALSE(first->over_limit) << "what there is comes first";
		cuda.no_pinned = true;
		auto plain = take(bounce_buffers, false);
		bounce_buffers.release(std::move(plain), false);
	}
	expect_wait_for(std::move(first), bounce_buffers, false);
	EXPECT_EQ(bounce_buffers.nr_created(), 1u);
}

TEST_F(CufileBounceBuffer, ABrokenOneIsNotTakenAgain)
{
	BounceBufferPool bounce_buffers(cuda, system, 1 << 30, 8);
	bounce_buffers.release(take(bounce_buffers, false), true);
	EXPECT_EQ(bounce_buffers.nr_created(), 0u);
	EXPECT_EQ(cuda.pinned, 0);
}

// Without pinned memory a context cannot be told from a later one at the same address, so the buffer is not reused.
TEST_F(CufileBounceBuffer, OneWithoutAnIdIsNotTakenAgain)
{
	BounceBufferPool bounce_buffers(cuda, system, 1 << 30, 8);
	cuda.no_pinned = true;
	for (const bool large : {false, true}) {
		bounce_buffers.release(take(bounce_buffers, large), false);
		EXPECT_EQ(bounce_buffers.nr_created(), 0u);
	}
	cuda.no_pinned = false;
	bounce_buffers.release(take(bounce_buffers, true), false);
	EXPECT_EQ(bounce_buffers.nr_created(), 1u);
}

// Number of buffers of each size, by the bytes that may be pinned.
struct Pool {
	uint64_t bytes;
	unsigned small, large;
};
class CufilePool : public CufileBounceBuffer, public ::testing::WithParamInterface<Pool>
{
};
constexpr uint64_t mib = 1 << 20, one_large = (cufile::large_buffer * 4 + 2) / 3;
INSTANTIATE_TEST_SUITE_P(Of, CufilePool,
			 ::testing::Values(Pool{0, 1, 0}, Pool{1, 1, 0}, Pool{4 * cufile::small_buffer, 1, 0},
					   Pool{8 * cufile::small_buffer - 1, 1, 0},
					   Pool{8 * cufile::small_buffer, 2, 0}, Pool{one_large - 2, 5, 0},
					   Pool{one_large, 5, 1}, Pool{2 * one_large, 10, 2}, Pool{64 * mib, 15, 2},
					   Pool{128 * mib, 31, 5}, Pool{200 * mib, 32, 8}, Pool{1 << 30, 32, 8},
					   Pool{uint64_t{1} << 40, 32, 8}),
			 [](const auto &one) { return "Bytes" + std::to_string(one.param.bytes); });

TEST_P(CufilePool, HasRoomForSoMany)
{
	BounceBufferPool bounce_buffers(cuda, system, GetParam().bytes, 8);
	std::vector<std::unique_ptr<BounceBuffer>> taken;
	unsigned large = 0;
	const unsigned all = GetParam().small + GetParam().large;
	for (unsigned i = 0; i < all; i++) {
		taken.push_back(take(bounce_buffers, true));
		large += taken.back()->large();
	}
	EXPECT_EQ(large, GetParam().large);
	EXPECT_EQ(bounce_buffers.nr_created(), all);
	expect_wait_for(std::move(taken.back()), bounce_buffers, true);
	taken.pop_back();
	EXPECT_LE(bounce_buffers.nr_created(), all);
	for (auto &buffer : taken)
		bounce_buffers.release(std::move(buffer), false);
}

} // namespace
