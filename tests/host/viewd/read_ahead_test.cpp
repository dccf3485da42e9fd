// SPDX-License-Identifier: MIT
// Which reads are recognized as sequential, and what is prefetched for them.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "viewd/read_ahead.hpp"

namespace
{

using viewd::ChunkRange;
using viewd::ReadAhead;

constexpr uint64_t MiB = 1 << 20, size = 1000 * MiB;

TEST(ReadAhead, DoublesUpToTheMost)
{
	ReadAhead ahead(size);
	EXPECT_TRUE(ahead.on_read(0, MiB / 2, 8).empty()) << "one read is no stream";
	EXPECT_EQ(ahead.active(), 0u);
	EXPECT_EQ(ahead.on_read(MiB / 2, MiB, 8), (ChunkRange{1, 2}));
	EXPECT_EQ(ahead.active(), 1u);
	EXPECT_EQ(ahead.on_read(MiB, 2 * MiB, 8), (ChunkRange{2, 4}));
	EXPECT_EQ(ahead.on_read(2 * MiB, 3 * MiB, 8), (ChunkRange{4, 7}));
	EXPECT_EQ(ahead.on_read(3 * MiB, 4 * MiB, 8), (ChunkRange{7, 12}));
	EXPECT_EQ(ahead.on_read(4 * MiB, 5 * MiB, 8), (ChunkRange{12, 13})) << "8 chunks behind it";
	EXPECT_EQ(ahead.on_read(5 * MiB, 6 * MiB, 0), (ChunkRange{})) << "no memory";
}

TEST(ReadAhead, EndsWhereTheDataEnds)
{
	ReadAhead ahead(3 * MiB + 1);
	ahead.on_read(0, 4096, 8);
	ahead.on_read(4096, MiB, 8);
	EXPECT_EQ(ahead.on_read(MiB, 2 * MiB, 8), (ChunkRange{2, 4}));
	EXPECT_TRUE(ahead.on_read(2 * MiB, 3 * MiB, 8).empty());
	EXPECT_TRUE(ahead.on_read(3 * MiB, 3 * MiB + 1, 8).empty());
}

TEST(ReadAhead, AStreamThatReachedTheEndIsNoneAnyMore)
{
	ReadAhead ahead(8 * MiB);
	for (int pass = 0; pass < 3; pass++) {
		for (uint64_t at = 0; at < 8 * MiB; at += MiB) {
			EXPECT_EQ(ahead.active(), at > MiB ? 1u : 0u) << pass << " " << at;
			ahead.on_read(at, at + MiB, 4);
		}
		EXPECT_EQ(ahead.active(), 0u);
	}
}

// As what looks for a file system at the end of a drive does.
TEST(ReadAhead, AReadOfTheTailIsOfNoPass)
{
	ReadAhead ahead(8 * MiB);
	ahead.on_read(8 * MiB - 4096, 8 * MiB, 4);
	for (uint64_t at = 0; at < 8 * MiB; at += MiB)
		ahead.on_read(at, at + MiB, 4);
	EXPECT_EQ(ahead.active(), 0u);
}

TEST(ReadAhead, ThoseThatComeLateAreNoNewStream)
{
	ReadAhead ahead(8 * MiB);
	std::vector<uint64_t> order(32);
	std::iota(order.begin(), order.end(), 0);
	std::rotate(order.end() - 4, order.end() - 1, order.end()); // 28 to 30 come after 31
	for (const uint64_t at : order)
		ahead.on_read(at * MiB / 4, (at + 1) * MiB / 4, 4);
	EXPECT_EQ(ahead.active(), 0u);
}

TEST(ReadAhead, GrowsWithTheChunksNotWithTheRequests)
{
	ReadAhead ahead(size);
	for (uint64_t at = 0; at < 256 << 10; at += 4096)
		EXPECT_LE(ahead.on_read(at, at + 4096, 100).end, 2u);
}

TEST(ReadAhead, PrefetchesEachChunkOnceForReadsInAnyOrder)
{
	ReadAhead ahead(size);
	std::vector<uint64_t> places;
	for (uint64_t at = 0; at < 100 * MiB; at += 128 << 10)
		places.push_back(at);
	std::mt19937 random(1);
	// As of a queue of 8: within it, in any order.
	for (size_t i = 0; i + 8 <= places.size(); i += 8)
		std::shuffle(places.begin() + static_cast<long>(i), places.begin() + static_cast<long>(i + 8), random);
	std::vector<int> prefetched(1000);
	for (const uint64_t at : places) {
		const ChunkRange range = ahead.on_read(at, at + (128 << 10), 4);
		for (uint64_t chunk = range.begin; chunk < range.end; chunk++)
			prefetched[chunk]++;
	}
	EXPECT_EQ(*std::ranges::max_element(prefetched), 1);
	EXPECT_GE(std::ranges::count(prefetched, 1), 100);
	EXPECT_LE(std::ranges::count(prefetched, 1), 104);
}

TEST(ReadAhead, KeepsManyStreamsApart)
{
	ReadAhead ahead(100000 * MiB);
	for (uint64_t step = 0; step < 5; step++)
		for (uint64_t stream = 0; stream < 64; stream++) {
			const uint64_t begin = stream * 1000 * MiB + step * MiB;
			const ChunkRange range = ahead.on_read(begin, begin + MiB, 2);
			EXPECT_EQ(range.empty(), step == 0) << stream << " " << step;
		}
	EXPECT_EQ(ahead.active(), 64u);
}

// As of 64 hosts with two readers each.
TEST(ReadAhead, KeepsTwoStreamsOfEachOf64HostsApart)
{
	ReadAhead ahead(512 * MiB);
	for (uint64_t step = 0; step < 3; step++)
		for (uint64_t stream = 0; stream < 128; stream++) {
			const uint64_t begin = (stream * 4 + step) * MiB;
			EXPECT_EQ(ahead.on_read(begin, begin + MiB, 1).empty(), step == 0) << stream << " " << step;
		}
	EXPECT_EQ(ahead.active(), 128u);
}

TEST(ReadAhead, LeavesRandomReadsAlone)
{
	ReadAhead ahead(100000 * MiB);
	std::mt19937_64 random(1);
	uint64_t prefetched = 0;
	for (int i = 0; i < 1000; i++) {
		const uint64_t begin = random() % 99999 * MiB;
		const ChunkRange range = ahead.on_read(begin, begin + 4096, 8);
		prefetched += range.empty() ? 0 : range.end - range.begin;
	}
	EXPECT_LT(prefetched, 20u);
}

TEST(ReadAhead, ForgetsAStreamThatStopped)
{
	ReadAhead ahead(100000 * MiB);
	ahead.on_read(0, MiB, 4);
	ahead.on_read(MiB, 2 * MiB, 4);
	EXPECT_EQ(ahead.active(), 1u);
	std::mt19937_64 random(1);
	for (int i = 0; i < 300; i++) {
		const uint64_t begin = (1000 + random() % 90000) * MiB;
		ahead.on_read(begin, begin + 4096, 4);
	}
	EXPECT_LT(ahead.active(), 5u);
	EXPECT_TRUE(ahead.on_read(2 * MiB, 3 * MiB, 4).empty()) << "it begins anew";
}

} // namespace
