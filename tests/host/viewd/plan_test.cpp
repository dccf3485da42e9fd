// SPDX-License-Identifier: MIT
// What is prefetched along a plan, and how the position follows the reads.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "viewd/plan.hpp"

namespace
{

using viewd::Plan;

constexpr uint64_t MiB = 1 << 20;

std::vector<uint64_t> all_next(Plan &plan, uint64_t most)
{
	std::vector<uint64_t> chunks;
	while (const auto chunk = plan.next(most))
		chunks.push_back(*chunk);
	return chunks;
}

using Chunks = std::vector<uint64_t>;

TEST(Plan, IsFollowed)
{
	Plan plan({{7 * MiB, 8 * MiB}, {3 * MiB, 4 * MiB}, {9 * MiB, 10 * MiB}, {0, MiB}});
	EXPECT_EQ(plan.length(), 4u);
	EXPECT_EQ(plan.position(), 0u);
	EXPECT_EQ(all_next(plan, 2), (Chunks{7, 3}));
	EXPECT_EQ(all_next(plan, 2), Chunks{}) << "two wait to be read";
	EXPECT_TRUE(plan.on_read(7 * MiB, 7 * MiB + 4096)) << "its begin";
	EXPECT_EQ(plan.position(), 0u);
	EXPECT_TRUE(plan.on_read(7 * MiB + 4096, 8 * MiB));
	EXPECT_EQ(plan.position(), 1u);
	EXPECT_EQ(all_next(plan, 2), Chunks{9});
	EXPECT_FALSE(plan.on_read(5 * MiB, 6 * MiB)) << "not of it";
	EXPECT_TRUE(plan.on_read(9 * MiB, 10 * MiB)) << "before the one that comes first";
	EXPECT_EQ(plan.position(), 1u);
	EXPECT_EQ(all_next(plan, 2), Chunks{0});
	EXPECT_TRUE(plan.on_read(3 * MiB, 4 * MiB));
	EXPECT_EQ(plan.position(), 3u);
	EXPECT_TRUE(plan.on_read(0, MiB));
	EXPECT_TRUE(plan.is_done());
	EXPECT_EQ(plan.position(), 4u);
	EXPECT_FALSE(plan.on_read(0, MiB));
	EXPECT_EQ(all_next(plan, 9), Chunks{});
}

TEST(Plan, PrefetchesBesideTheOneThatIsBeingRead)
{
	Plan plan({{7 * MiB, 8 * MiB}, {3 * MiB, 4 * MiB}, {9 * MiB, 10 * MiB}, {7 * MiB, 8 * MiB}});
	EXPECT_EQ(all_next(plan, 1), Chunks{7});
	plan.on_read(7 * MiB, 7 * MiB + 4096);
	EXPECT_EQ(all_next(plan, 1), Chunks{3});
	plan.on_read(9 * MiB, 9 * MiB + 4096);
	EXPECT_EQ(all_next(plan, 1), Chunks{}) << "7 and 3 are not read: only one is left out";
	plan.on_read(7 * MiB + 4096, 8 * MiB);
	EXPECT_EQ(all_next(plan, 1), Chunks{});
	plan.on_read(3 * MiB, 3 * MiB + 4096);
	EXPECT_EQ(all_next(plan, 1), Chunks{9});
	plan.on_read(3 * MiB + 4096, 4 * MiB);
	EXPECT_EQ(all_next(plan, 1), Chunks{7}) << "9 is being read since";
	EXPECT_EQ(all_next(plan, 0), Chunks{});
}

// A view that has a new plan prefetches without a read: one of no bytes.
TEST(Plan, AReadOfNoBytesBeginsNothing)
{
	Plan plan({{0, MiB}, {3 * MiB, 4 * MiB}, {7 * MiB, 8 * MiB}});
	EXPECT_FALSE(plan.on_read(0, 0));
	EXPECT_EQ(all_next(plan, 1), Chunks{0}) << "no other beside it, as it is not being read";
	EXPECT_FALSE(plan.on_read(MiB, MiB)) << "at its end";
	EXPECT_EQ(plan.position(), 0u);
}

TEST(Plan, OfNothingIsDone)
{
	Plan plan({});
	EXPECT_TRUE(plan.is_done());
	EXPECT_FALSE(plan.on_read(0, MiB));
	EXPECT_EQ(plan.next(4), std::nullopt);
}

TEST(Plan, TakesLargeRangesChunkByChunk)
{
	Plan plan({{5 * MiB - 100, 8 * MiB + 1}, {0, 10}});
	EXPECT_EQ(all_next(plan, 9), (Chunks{4, 5, 6, 7, 8, 0}));
	EXPECT_TRUE(plan.on_read(5 * MiB - 4096, 7 * MiB));
	EXPECT_EQ(plan.position(), 0u);
	EXPECT_TRUE(plan.on_read(7 * MiB, 8 * MiB + 4096));
	EXPECT_EQ(plan.position(), 1u);
}

TEST(Plan, PrefetchesOnceForNeighbours)
{
	// 4 KiB each, of two chunks by turns of eight.
	std::vector<Plan::Range> ranges;
	for (uint64_t i = 0; i < 64; i++)
		ranges.push_back({i / 8 % 2 * MiB + i * 4096, i / 8 % 2 * MiB + (i + 1) * 4096});
	Plan plan(ranges);
	EXPECT_EQ(all_next(plan, 3), (Chunks{0, 1, 0}));
	// A read of several of them.
	EXPECT_TRUE(plan.on_read(0, 8 * 4096));
	EXPECT_EQ(plan.position(), 8u);
	EXPECT_EQ(all_next(plan, 3), Chunks{1});
}

TEST(Plan, ReadsTwiceWhatItHasTwice)
{
	Plan plan({{0, MiB}, {5 * MiB, 6 * MiB}, {0, MiB}});
	plan.on_read(0, MiB);
	EXPECT_EQ(plan.position(), 1u);
	plan.on_read(5 * MiB, 6 * MiB);
	EXPECT_EQ(plan.position(), 2u);
	plan.on_read(0, MiB);
	EXPECT_EQ(plan.position(), 3u);
}

TEST(Plan, DoesNotWaitForWhatIsLeftOut)
{
	std::vector<Plan::Range> ranges;
	for (uint64_t i = 0; i < 1000; i++)
		ranges.push_back({(999 - i) * MiB, (1000 - i) * MiB});
	Plan plan(ranges);
	all_next(plan, 3);
	size_t prefetched = 3;
	for (size_t i = 1; i < ranges.size(); i++) { // all but the first
		EXPECT_TRUE(plan.on_read(ranges[i].begin, ranges[i].end)) << i;
		prefetched += all_next(plan, 3).size();
	}
	EXPECT_EQ(plan.position(), 1000u);
	EXPECT_EQ(prefetched, 1000u);
	// One that goes on far behind.
	Plan far(ranges);
	EXPECT_TRUE(far.on_read(ranges[200].begin, ranges[200].end));
	EXPECT_GE(far.position(), 150u);
	EXPECT_LE(far.position(), 200u);
}

TEST(Plan, ReadsAPartAgainThoughOneBeforeIsLeftOut)
{
	Plan plan({{9 * MiB, 10 * MiB}, {0, MiB}, {MiB, 2 * MiB}, {0, MiB}});
	EXPECT_TRUE(plan.on_read(0, MiB));
	EXPECT_TRUE(plan.on_read(MiB, 2 * MiB));
	EXPECT_TRUE(plan.on_read(0, MiB));
	EXPECT_EQ(plan.position(), 0u);
	EXPECT_TRUE(plan.on_read(9 * MiB, 10 * MiB));
	EXPECT_TRUE(plan.is_done());
}

TEST(Plan, FollowsReadsThatAreOutOfOrder)
{
	std::mt19937 random(1);
	std::vector<Plan::Range> ranges;
	for (uint64_t i = 0; i < 2000; i++)
		ranges.push_back({i * MiB, (i + 1) * MiB});
	std::ranges::shuffle(ranges, random);
	Plan plan(ranges);
	std::vector<Plan::Range> reads = ranges;
	for (size_t i = 0; i + 16 <= reads.size(); i += 16)
		std::shuffle(reads.begin() + static_cast<long>(i), reads.begin() + static_cast<long>(i + 16), random);
	std::vector<int> prefetched(2000);
	for (const Plan::Range &read : reads) {
		for (const uint64_t chunk : all_next(plan, 20))
			prefetched[chunk]++;
		EXPECT_TRUE(plan.on_read(read.begin, read.end));
	}
	EXPECT_TRUE(plan.is_done());
	EXPECT_EQ(std::ranges::count(prefetched, 1), 2000);
}

} // namespace
