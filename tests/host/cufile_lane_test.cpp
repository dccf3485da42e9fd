// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "fake_seams.hpp"
#include "lane.hpp"

using cufile::Lane;
using cufile::Lanes;

namespace
{

class CufileLane : public ::testing::Test
{
protected:
	std::unique_ptr<Lane> take(Lanes &lanes, bool large, cufile::Context context = nullptr)
	{
		std::unique_ptr<Lane> lane;
		EXPECT_EQ(lanes.take(context ? context : &cuda, large, lane), 0);
		EXPECT_TRUE(lane);
		return lane;
	}

	FakeSystem system;
	FakeCuda cuda;
};

TEST_F(CufileLane, IsTakenAgain)
{
	Lanes lanes(cuda, system, 1 << 30, 8);
	auto lane = take(lanes, true);
	const char *const memory = lane->memory();
	EXPECT_TRUE(lane->large());
	lanes.give(std::move(lane), false);
	EXPECT_EQ(take(lanes, true)->memory(), memory);
	EXPECT_EQ(lanes.made(), 1u);
}

// Fewer and fewer attempts, and never none.
TEST_F(CufileLane, RingsAreTriedAgain)
{
	Lanes lanes(cuda, system, 1 << 30, 8);
	system.rings.errors.assign(1000, -EMFILE);
	constexpr uint64_t step = 5'000'000, minute = 60'000'000'000;
	for (uint64_t passed = 0; passed < minute; passed += step) {
		EXPECT_EQ(lanes.rings(), -EMFILE);
		system.now += step;
	}
	const size_t attempts = 1000 - system.rings.errors.size();
	EXPECT_GE(attempts, 60u) << "each second";
	EXPECT_LE(attempts, 70u);
	system.rings.errors.clear();
	system.now += 1'000'000'000;
	EXPECT_EQ(lanes.rings(), 0);
	EXPECT_EQ(lanes.rings(), 0);
	EXPECT_EQ(system.rings.made, 1u) << "what is there is not asked for again";
}

// Memory that could not be pinned is not kept for ever.
TEST_F(CufileLane, PinnedMemoryIsTriedAgain)
{
	Lanes lanes(cuda, system, 1 << 30, 8);
	cuda.no_pinned = true;
	auto lane = take(lanes, false);
	EXPECT_FALSE(lane->id_known());
	lanes.give(std::move(lane), false);
	EXPECT_EQ(lanes.made(), 0u);
	cuda.no_pinned = false;
	lane = take(lanes, false);
	EXPECT_TRUE(lane->id_known());
	lanes.give(std::move(lane), false);
	EXPECT_EQ(lanes.made(), 1u);
}

TEST_F(CufileLane, SmallWhereThereIsNoLargeOne)
{
	// Room for one large lane and four small ones.
	Lanes lanes(cuda, system, (cufile::large_lane + 1) * 4 / 3, 8);
	std::vector<std::unique_ptr<Lane>> taken;
	uint64_t bytes = 0;
	for (int i = 0; i < 4; i++) {
		taken.push_back(take(lanes, true));
		EXPECT_EQ(taken.back()->large(), i == 0);
		bytes += taken.back()->bytes();
	}
	EXPECT_LE(bytes, (cufile::large_lane + 1) * 4 / 3);
	EXPECT_EQ(cuda.pinned, 4);
	for (auto &lane : taken)
		lanes.give(std::move(lane), false);
}

// However little memory may be pinned there is one lane, and who has it need not wait for anybody.
TEST_F(CufileLane, OneIsWaitedForByAll)
{
	Lanes lanes(cuda, system, 0, 8);
	std::atomic<int> inside{0}, most{0};
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			// Of two contexts, and of both sizes.
			const cufile::Context context = t % 2 ? static_cast<void *>(&cuda) : &lanes;
			for (int i = 0; i < 200; i++) {
				auto lane = take(lanes, t / 2, context);
				EXPECT_EQ(lane->context(), context);
				most = std::max(most.load(), ++inside);
				std::this_thread::yield();
				inside--;
				lanes.give(std::move(lane), i % 7 == 0);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(most, 1);
	EXPECT_LE(lanes.made(), 1u);
	EXPECT_LE(cuda.pinned, 1);
}

// A file system of the program's own calls us, while its caller waits for it with a lane.
TEST_F(CufileLane, WhoHasOneIsGivenAnother)
{
	Lanes lanes(cuda, system, 0, 8);
	auto first = take(lanes, false);
	{
		const Lanes::Holding holding;
		std::vector<std::unique_ptr<Lane>> nested;
		for (const bool large : {false, true, true}) {
			nested.push_back(take(lanes, large));
			EXPECT_FALSE(nested.back()->large()) << "as little as can be";
		}
		EXPECT_EQ(cuda.pinned, 4);
		for (auto &lane : nested)
			lanes.give(std::move(lane), lane == nested[1]);
		EXPECT_EQ(cuda.pinned, 1) << "none is kept";
		EXPECT_EQ(lanes.made(), 1u);
		lanes.give(std::move(first), false);
		first = take(lanes, false);
		EXPECT_FALSE(first->beyond) << "what there is comes first";
		cuda.no_pinned = true;
		auto plain = take(lanes, false);
		lanes.give(std::move(plain), false);
	}
	std::atomic<bool> got{false};
	std::thread other([&] {
		auto lane = take(lanes, false);
		got = true;
		lanes.give(std::move(lane), false);
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(5));
	EXPECT_FALSE(got) << "who has none waits";
	lanes.give(std::move(first), false);
	other.join();
	EXPECT_EQ(lanes.made(), 1u);
}

TEST_F(CufileLane, ABrokenOneIsNotTakenAgain)
{
	Lanes lanes(cuda, system, 1 << 30, 8);
	lanes.give(take(lanes, false), true);
	EXPECT_EQ(lanes.made(), 0u);
	EXPECT_EQ(cuda.pinned, 0);
}

// Without pinned memory nothing tells a context from a later one at the same address: such a lane is not kept for that.
TEST_F(CufileLane, OneWithoutAnIdIsNotTakenAgain)
{
	Lanes lanes(cuda, system, 1 << 30, 8);
	cuda.no_pinned = true;
	for (const bool large : {false, true}) {
		lanes.give(take(lanes, large), false);
		EXPECT_EQ(lanes.made(), 0u);
	}
	cuda.no_pinned = false;
	lanes.give(take(lanes, true), false);
	EXPECT_EQ(lanes.made(), 1u);
}

// How many of each there may be: by the bytes that may be pinned.
struct Pool {
	uint64_t bytes;
	unsigned small, large;
};
class CufilePool : public CufileLane, public ::testing::WithParamInterface<Pool>
{
};
constexpr uint64_t mib = 1 << 20, one_large = (cufile::large_lane * 4 + 2) / 3;
INSTANTIATE_TEST_SUITE_P(Of, CufilePool,
			 ::testing::Values(Pool{0, 1, 0}, Pool{1, 1, 0}, Pool{4 * cufile::small_lane, 1, 0},
					   Pool{8 * cufile::small_lane - 1, 1, 0}, Pool{8 * cufile::small_lane, 2, 0},
					   Pool{one_large - 2, 5, 0}, Pool{one_large, 5, 1}, Pool{2 * one_large, 10, 2},
					   Pool{64 * mib, 15, 2}, Pool{128 * mib, 31, 5}, Pool{200 * mib, 32, 8},
					   Pool{1 << 30, 32, 8}, Pool{uint64_t{1} << 40, 32, 8}),
			 [](const auto &one) { return "Bytes" + std::to_string(one.param.bytes); });

TEST_P(CufilePool, HasRoomForSoMany)
{
	Lanes lanes(cuda, system, GetParam().bytes, 8);
	std::vector<std::unique_ptr<Lane>> taken;
	unsigned large = 0;
	const unsigned all = GetParam().small + GetParam().large;
	for (unsigned i = 0; i < all; i++) {
		taken.push_back(take(lanes, true));
		large += taken.back()->large();
	}
	EXPECT_EQ(large, GetParam().large);
	EXPECT_EQ(lanes.made(), all);
	// Whoever comes now waits until one is given back.
	std::atomic<bool> got{false};
	std::thread late([&] {
		auto lane = take(lanes, true);
		got = true;
		lanes.give(std::move(lane), false);
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(5));
	EXPECT_FALSE(got) << "there is one more";
	lanes.give(std::move(taken.back()), false);
	taken.pop_back();
	late.join();
	EXPECT_LE(lanes.made(), all);
	for (auto &lane : taken)
		lanes.give(std::move(lane), false);
}

} // namespace
