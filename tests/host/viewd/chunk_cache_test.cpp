// SPDX-License-Identifier: MIT
// The cache of reduced chunks: each request gets its chunk's bytes or an error, whatever else happens; memory is bounded.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "../allocations.hpp"
#include "viewd/chunk_cache.hpp"

namespace
{

using viewd::ChunkCache;
using viewd::ChunkKey;
using namespace std::chrono_literals;

// Fills a chunk with its number.
int fill(uint64_t chunk, std::byte *to)
{
	std::memset(to, static_cast<int>(chunk), ChunkCache::chunk_size);
	return 0;
}

struct Answer {
	ChunkCache::Held chunk;
	int error = 0;
};

std::future<Answer> ask(ChunkCache &cache, ChunkKey key)
{
	auto promise = std::make_shared<std::promise<Answer>>();
	std::future<Answer> answer = promise->get_future();
	cache.get(key, [promise](ChunkCache::Held chunk, int error) { promise->set_value({std::move(chunk), error}); });
	return answer;
}

bool is_there(const std::future<Answer> &answer) { return answer.wait_for(0s) == std::future_status::ready; }

bool holds(const Answer &answer, uint64_t chunk)
{
	return !answer.error && answer.chunk && answer.chunk.bytes()[0] == static_cast<std::byte>(chunk) &&
	       answer.chunk.bytes()[ChunkCache::chunk_size - 1] == static_cast<std::byte>(chunk);
}

// Loads that stand still until they are let go on.
class Gate
{
public:
	int load(uint64_t chunk, std::byte *to)
	{
		std::unique_lock lock(mutex_);
		arrived_++;
		changed_.notify_all();
		changed_.wait(lock, [&] { return open_; });
		return fill(chunk, to);
	}
	void wait_for(int arrived)
	{
		std::unique_lock lock(mutex_);
		changed_.wait(lock, [&] { return arrived_ >= arrived; });
	}
	int arrived()
	{
		const std::lock_guard lock(mutex_);
		return arrived_;
	}
	void open()
	{
		const std::lock_guard lock(mutex_);
		open_ = true;
		changed_.notify_all();
	}

private:
	std::mutex mutex_;
	std::condition_variable changed_;
	int arrived_ = 0;
	bool open_ = false;
};

template <class Condition> void until(Condition &&condition)
{
	const auto end = std::chrono::steady_clock::now() + 60s;
	while (!condition()) {
		ASSERT_LT(std::chrono::steady_clock::now(), end) << "it does not come";
		std::this_thread::sleep_for(1ms);
	}
}

TEST(ChunkCache, LoadsOnceAndKeeps)
{
	ChunkCache cache(2, 1);
	std::atomic<int> loads = 0;
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) {
		loads++;
		return fill(chunk, to);
	});
	EXPECT_TRUE(holds(ask(cache, {view, 7}).get(), 7));
	std::future<Answer> again = ask(cache, {view, 7});
	EXPECT_TRUE(is_there(again));
	EXPECT_TRUE(holds(again.get(), 7));
	EXPECT_EQ(loads, 1);
	EXPECT_EQ(cache.counts().hits, 1u);
	EXPECT_EQ(cache.counts().misses, 1u);
}

TEST(ChunkCache, GivesAllWhoWaitTheSameLoad)
{
	Gate gate;
	ChunkCache cache(3, 2);
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); });
	std::vector<std::future<Answer>> answers;
	for (int i = 0; i < 10; i++)
		answers.push_back(ask(cache, {view, 3}));
	gate.wait_for(1);
	answers.push_back(ask(cache, {view, 3}));
	gate.open();
	for (std::future<Answer> &answer : answers)
		EXPECT_TRUE(holds(answer.get(), 3));
	EXPECT_EQ(cache.counts().misses, 11u);
}

TEST(ChunkCache, DropsWhatWasUsedLeastRecently)
{
	ChunkCache cache(2, 1);
	const uint64_t view = cache.add(fill);
	ask(cache, {view, 1}).get();
	ask(cache, {view, 2}).get();
	ask(cache, {view, 1}).get();
	ask(cache, {view, 3}).get(); // in the memory of 2
	EXPECT_TRUE(is_there(ask(cache, {view, 1})));
	const uint64_t misses = cache.counts().misses;
	ask(cache, {view, 2}).get();
	EXPECT_EQ(cache.counts().misses, misses + 1);
}

TEST(ChunkCache, KeepsWhatIsHeldAndWaitsForMemory)
{
	ChunkCache cache(2, 1);
	const uint64_t view = cache.add(fill);
	Answer first = ask(cache, {view, 1}).get(), second = ask(cache, {view, 2}).get();
	std::future<Answer> third = ask(cache, {view, 3});
	EXPECT_EQ(third.wait_for(50ms), std::future_status::timeout);
	EXPECT_TRUE(holds(first, 1));
	second.chunk = {};
	EXPECT_TRUE(holds(third.get(), 3));
	EXPECT_TRUE(holds(first, 1));
}

// What is asked for while it is being done may come too late for that: it is done once more.
TEST(ChunkCache, RunsOnceMoreWhatIsAskedForMeanwhile)
{
	Gate gate;
	ChunkCache cache(2, 2);
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) {
		gate.load(chunk, to);
		return -ENODATA;
	});
	const ChunkKey question = {view, ChunkCache::no_chunk};
	std::future<Answer> first = ask(cache, question);
	gate.wait_for(1);
	std::future<Answer> second = ask(cache, question), third = ask(cache, question);
	cache.run(question);
	EXPECT_EQ(gate.arrived(), 1);
	gate.open();
	EXPECT_EQ(second.get().error, -ENODATA);
	EXPECT_EQ(third.get().error, -ENODATA);
	EXPECT_EQ(first.get().error, -ENODATA);
	EXPECT_EQ(gate.arrived(), 2);
	EXPECT_EQ(cache.counts().misses, 0u);
}

TEST(ChunkCache, TriesAgainAfterAnError)
{
	ChunkCache cache(2, 1);
	std::atomic<int> error = -EIO;
	const uint64_t view =
		cache.add([&](uint64_t chunk, std::byte *to) { return error ? error.load() : fill(chunk, to); });
	for (int i = 0; i < 5; i++)
		EXPECT_EQ(ask(cache, {view, 1}).get().error, -EIO);
	error = 0;
	EXPECT_TRUE(holds(ask(cache, {view, 1}).get(), 1));
}

TEST(ChunkCache, Prefetches)
{
	ChunkCache cache(4, 1);
	const uint64_t view = cache.add(fill);
	cache.prefetch({view, 1});
	until([&] { return cache.counts().prefetched == 1; });
	std::future<Answer> answer = ask(cache, {view, 1});
	EXPECT_TRUE(is_there(answer));
	EXPECT_TRUE(holds(answer.get(), 1));
	EXPECT_EQ(cache.counts().misses, 0u);
	cache.prefetch({view, 1}); // it is there
	cache.prefetch({view, 2});
	until([&] { return cache.counts().prefetched == 2; });
	EXPECT_EQ(cache.counts().wasted, 0u);
}

TEST(ChunkCache, PrefetchesIntoHalfOfItsMemory)
{
	ChunkCache cache(6, 1);
	const uint64_t view = cache.add(fill);
	for (const uint64_t chunk : {1, 2, 3, 4})
		cache.prefetch({view, chunk});
	until([&] { return cache.counts().prefetched == 3; });
	std::this_thread::sleep_for(20ms);
	EXPECT_EQ(cache.counts().prefetched, 3u);
	EXPECT_TRUE(is_there(ask(cache, {view, 1}))); // its memory is then used for 4
	until([&] { return cache.counts().prefetched == 4; });
	for (const uint64_t chunk : {2, 3, 4})
		EXPECT_TRUE(is_there(ask(cache, {view, chunk}))) << chunk;
	EXPECT_EQ(cache.counts().wasted, 0u);
}

// Reads here and there, with some chunks prefetched behind each for nothing.
TEST(ChunkCache, KeepsWhatWasUsedBesideWhatWasPrefetchedInVain)
{
	ChunkCache cache(20, 1);
	const uint64_t view = cache.add(fill);
	for (uint64_t i = 0; i < 100; i++) {
		EXPECT_FALSE(ask(cache, {view, 10 * i}).get().error);
		for (uint64_t behind = 1; behind <= 3; behind++)
			cache.prefetch({view, 10 * i + behind});
	}
	std::this_thread::sleep_for(20ms);
	for (uint64_t i = 95; i < 100; i++)
		EXPECT_TRUE(is_there(ask(cache, {view, 10 * i}))) << i;
}

TEST(ChunkCache, DemandTakesPrefetchedMemoryAndCountsIt)
{
	ChunkCache cache(2, 1);
	const uint64_t view = cache.add(fill);
	cache.prefetch({view, 1});
	until([&] { return cache.counts().prefetched == 1; });
	const Answer held = ask(cache, {view, 2}).get();
	EXPECT_TRUE(holds(ask(cache, {view, 3}).get(), 3));
	EXPECT_EQ(cache.counts().wasted, 1u);
}

TEST(ChunkCache, DropsWhatWasPrefetchedInVain)
{
	ChunkCache cache(6, 1);
	const uint64_t view = cache.add(fill);
	for (const uint64_t chunk : {100, 101, 102})
		cache.prefetch({view, chunk});
	until([&] { return cache.counts().prefetched == 3; });
	// Loads go round in the rest of the memory.
	for (uint64_t chunk = 0; chunk < 5; chunk++)
		EXPECT_TRUE(holds(ask(cache, {view, chunk}).get(), chunk));
	EXPECT_EQ(cache.counts().wasted, 0u);
	EXPECT_TRUE(is_there(ask(cache, {view, 101}))) << "one that is used is not dropped";
	for (uint64_t chunk = 10; chunk < 26; chunk++)
		EXPECT_TRUE(holds(ask(cache, {view, chunk}).get(), chunk));
	EXPECT_EQ(cache.counts().wasted, 2u);
	const uint64_t misses = cache.counts().misses;
	for (const uint64_t chunk : {20, 21, 22, 23, 24, 25})
		EXPECT_TRUE(holds(ask(cache, {view, chunk}).get(), chunk));
	EXPECT_EQ(cache.counts().misses, misses) << "their memory is used";
}

TEST(ChunkCache, SharesAmongTheStreamsOfAllViews)
{
	ChunkCache cache(40, 1);
	const uint64_t one = cache.add(fill), other = cache.add(fill);
	EXPECT_EQ(cache.share(one, 0), 20u);
	EXPECT_EQ(cache.share(one, 1), 20u);
	EXPECT_EQ(cache.share(other, 3), 5u);
	EXPECT_EQ(cache.share(one, 1), 5u);
	EXPECT_EQ(cache.share(other, 1), 10u);
	EXPECT_EQ(cache.share(one, 64), 0u);
	cache.remove(one);
	EXPECT_EQ(cache.share(one, 1), 0u);
	EXPECT_EQ(cache.share(other, 1), 20u);
}

TEST(ChunkCache, EndsARequestWithoutMemory)
{
	ChunkCache cache(2, 1);
	std::atomic<bool> has_none = false;
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) {
		if (has_none)
			throw std::bad_alloc();
		return fill(chunk, to);
	});
	has_none = true;
	EXPECT_EQ(ask(cache, {view, 1}).get().error, -ENOMEM) << "of the load";
	has_none = false;
	EXPECT_TRUE(holds(ask(cache, {view, 1}).get(), 1));
	// Of the request, at each of its allocations.
	int failures = 0;
	for (int left = 0;; left++) {
		std::promise<int> said;
		ChunkCache::Ready ready = [&said](const ChunkCache::Held &, int error) { said.set_value(error); };
		allocations_left = left;
		cache.get({view, static_cast<uint64_t>(100 + left)}, std::move(ready));
		const bool all_allocated = allocations_left > 0;
		allocations_left = -1;
		const int error = said.get_future().get();
		EXPECT_TRUE(error == 0 || error == -ENOMEM) << left;
		failures += error != 0;
		EXPECT_TRUE(holds(ask(cache, {view, static_cast<uint64_t>(100 + left)}).get(),
				  static_cast<uint64_t>(100 + left)))
			<< "afterwards";
		if (all_allocated)
			break;
	}
	EXPECT_GE(failures, 2);
}

TEST(ChunkCache, RemovesAView)
{
	Gate gate;
	ChunkCache cache(3, 1);
	const uint64_t other = cache.add(fill);
	const uint64_t view = cache.add(
		[&](uint64_t chunk, std::byte *to) { return chunk ? gate.load(chunk, to) : fill(chunk, to); });
	const Answer held = ask(cache, {view, 0}).get();
	std::future<Answer> loading = ask(cache, {view, 1}), waiting = ask(cache, {view, 2});
	gate.wait_for(1);
	cache.remove(view); // though its worker is within the view's files
	EXPECT_EQ(loading.get().error, -ENODEV);
	EXPECT_EQ(waiting.get().error, -ENODEV);
	EXPECT_EQ(ask(cache, {view, 0}).get().error, -ENODEV);
	EXPECT_FALSE(cache.wait_until_unused(view, ChunkCache::Clock::now() + 10ms));
	gate.open();
	EXPECT_TRUE(cache.wait_until_unused(view));
	EXPECT_TRUE(holds(held, 0));
	cache.remove(view); // it is gone
	EXPECT_TRUE(holds(ask(cache, {other, 9}).get(), 9));
	EXPECT_EQ(ask(cache, {12345, 0}).get().error, -ENODEV);
}

// A load that waits for its storage takes a worker from nobody else for long.
TEST(ChunkCache, GoesOnWhenAStorageDoesNotAnswer)
{
	Gate gate;
	ChunkCache cache(12, 2, 20ms);
	const auto silent_load = [&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); };
	const uint64_t silent = cache.add(silent_load, 1), beside_it = cache.add(fill, 1);
	std::atomic<int> at_once = 0, most_at_once = 0;
	const auto counted_load = [&](uint64_t chunk, std::byte *to) {
		const int now = ++at_once;
		for (int most = most_at_once; most < now && !most_at_once.compare_exchange_weak(most, now);) {}
		std::this_thread::sleep_for(1ms);
		at_once--;
		return fill(chunk, to);
	};
	const uint64_t other = cache.add(counted_load, 2), third = cache.add(counted_load, 3);
	std::vector<std::future<Answer>> waiting;
	for (uint64_t chunk = 0; chunk < 4; chunk++)
		waiting.push_back(ask(cache, {silent, chunk}));
	gate.wait_for(2);
	std::future<Answer> beside = ask(cache, {beside_it, 5});
	for (uint64_t chunk = 0; chunk < 20; chunk++)
		EXPECT_TRUE(holds(ask(cache, {other, chunk}).get(), chunk));
	EXPECT_EQ(gate.arrived(), 2) << "no more workers than there are wait for one view";
	// Slow, not silent: a view that has no load under way may have one.
	EXPECT_EQ(beside.wait_for(60s), std::future_status::ready);
	const uint64_t as_silent = cache.add(silent_load, 1), not_less = cache.add(silent_load, 1);
	waiting.push_back(ask(cache, {as_silent, 4}));
	gate.wait_for(3);
	waiting.push_back(ask(cache, {not_less, 5}));
	for (uint64_t chunk = 20; chunk < 40; chunk++)
		EXPECT_TRUE(holds(ask(cache, {other, chunk}).get(), chunk));
	EXPECT_EQ(gate.arrived(), 3) << "one more for one storage";
	gate.open();
	EXPECT_TRUE(holds(beside.get(), 5));
	for (uint64_t chunk = 0; chunk < 6; chunk++)
		EXPECT_TRUE(holds(waiting[chunk].get(), chunk));
	// There are as many workers as before.
	waiting.clear();
	most_at_once = 0;
	for (uint64_t chunk = 40; chunk < 60; chunk++) {
		waiting.push_back(ask(cache, {other, chunk}));
		waiting.push_back(ask(cache, {third, chunk}));
	}
	for (std::future<Answer> &answer : waiting)
		EXPECT_EQ(answer.get().error, 0);
	EXPECT_EQ(most_at_once, 2);
}

// Of a storage all loads of which take longer than the patience.
TEST(ChunkCache, PrefetchesOnceASlowStorageHasRoom)
{
	Gate gate;
	ChunkCache cache(8, 1, 10ms);
	const auto load = [&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); };
	const uint64_t slow = cache.add(load, 1), other = cache.add(fill, 2);
	const std::future<Answer> first = ask(cache, {slow, 0});
	gate.wait_for(1);
	cache.prefetch({slow, 1});
	cache.prefetch({other, 0});
	const auto comes = [&](uint64_t prefetched) {
		for (int i = 0; i < 3000 && cache.counts().prefetched < prefetched; i++)
			std::this_thread::sleep_for(10ms);
		return cache.counts().prefetched == prefetched;
	};
	EXPECT_TRUE(comes(1)) << "the other storage's";
	EXPECT_EQ(gate.arrived(), 1);
	gate.open();
	EXPECT_TRUE(comes(2));
}

// However many storages do not answer, there is memory for one that does.
TEST(ChunkCache, LeavesMemoryToOthers)
{
	Gate gate;
	ChunkCache cache(8, 8, 20ms);
	std::vector<uint64_t> silent;
	std::vector<std::future<Answer>> waiting;
	for (uint64_t storage = 1; storage <= 3; storage++) {
		silent.push_back(
			cache.add([&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); }, storage));
		for (uint64_t chunk = 0; chunk < 9; chunk++)
			waiting.push_back(ask(cache, {silent.back(), chunk}));
		gate.wait_for(storage == 1 ? 4 : storage == 2 ? 6 : 7); // half of what is left each time
	}
	const uint64_t other = cache.add(fill, 4);
	for (uint64_t chunk = 0; chunk < 20; chunk++)
		EXPECT_TRUE(holds(ask(cache, {other, chunk}).get(), chunk));
	cache.prefetch({other, 30});
	until([&] { return cache.counts().prefetched == 1; });
	EXPECT_EQ(gate.arrived(), 7);
	gate.open();
	// In the order in which they come: an answer that is not taken keeps its chunk.
	until([&] {
		std::erase_if(waiting,
			      [](std::future<Answer> &answer) { return is_there(answer) && answer.get().error == 0; });
		return waiting.empty();
	});
}

// What a storage may not load as others take the memory is loaded when they have ended, though none of its own loads ends.
TEST(ChunkCache, LoadsMoreOfAStorageOnceOthersHaveEnded)
{
	Gate gate, others;
	ChunkCache cache(4, 2, 20ms);
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); }, 1);
	const uint64_t beside_it = cache.add(fill, 1);
	const uint64_t other = cache.add([&](uint64_t chunk, std::byte *to) { return others.load(chunk, to); }, 2);
	std::future<Answer> silent = ask(cache, {view, 1});
	gate.wait_for(1);
	std::future<Answer> first = ask(cache, {other, 1});
	others.wait_for(1);
	std::future<Answer> parked = ask(cache, {beside_it, 2}); // it may have one of the three chunks that are left
	EXPECT_EQ(parked.wait_for(100ms), std::future_status::timeout);
	others.open();
	EXPECT_TRUE(holds(first.get(), 1));
	EXPECT_EQ(parked.wait_for(60s), std::future_status::ready);
	gate.open();
	EXPECT_TRUE(holds(parked.get(), 2));
	EXPECT_TRUE(holds(silent.get(), 1));
}

TEST(ChunkCache, LoadsWhatWaitedBehindAViewThatIsRemoved)
{
	Gate gate;
	ChunkCache cache(6, 1, 20ms);
	const uint64_t view = cache.add([&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); }, 1);
	const uint64_t too = cache.add([&](uint64_t chunk, std::byte *to) { return gate.load(chunk, to); }, 1);
	const uint64_t other = cache.add(fill, 1);
	std::future<Answer> loading = ask(cache, {view, 1}), as_well = ask(cache, {too, 1});
	gate.wait_for(2);
	std::future<Answer> first = ask(cache, {view, 2}), second = ask(cache, {other, 3});
	EXPECT_EQ(second.wait_for(100ms), std::future_status::timeout);
	cache.remove(view);
	gate.open();
	EXPECT_EQ(first.get().error, -ENODEV);
	EXPECT_TRUE(holds(second.get(), 3));
	EXPECT_EQ(loading.get().error, -ENODEV);
	EXPECT_TRUE(holds(as_well.get(), 1));
}

// However much is requested of one view, another one waits for one load.
TEST(ChunkCache, LoadsOfTheViewsInTurns)
{
	Gate gate;
	ChunkCache cache(16, 1, 60s);
	std::vector<ChunkKey> order;
	std::vector<uint64_t> views;
	for (uint64_t view = 0; view < 3; view++)
		views.push_back(cache.add(
			[&, view](uint64_t chunk, std::byte *to) {
				const int error = gate.load(chunk, to);
				order.push_back({view, chunk}); // by one worker
				return error;
			},
			1));
	std::vector<std::future<Answer>> waiting;
	for (uint64_t chunk = 0; chunk < 4; chunk++)
		waiting.push_back(ask(cache, {views[0], chunk}));
	gate.wait_for(1);
	for (uint64_t view : {views[1], views[2]})
		for (uint64_t chunk = 0; chunk < 2; chunk++)
			waiting.push_back(ask(cache, {view, chunk}));
	gate.open();
	for (std::future<Answer> &answer : waiting)
		EXPECT_EQ(answer.get().error, 0);
	const std::vector<ChunkKey> in_turns = {{0, 0}, {0, 1}, {1, 0}, {2, 0}, {0, 2}, {1, 1}, {2, 1}, {0, 3}};
	EXPECT_EQ(order, in_turns);
}

TEST(ChunkCache, GivesEachThreadItsBytes)
{
	ChunkCache cache(5, 3);
	std::vector<uint64_t> views;
	for (int i = 0; i < 3; i++)
		views.push_back(cache.add([i](uint64_t chunk, std::byte *to) {
			std::memset(to, static_cast<int>(chunk * 3 + static_cast<uint64_t>(i)), ChunkCache::chunk_size);
			return chunk % 17 == 16 ? -EIO : 0;
		}));
	std::vector<std::thread> threads;
	std::atomic<int> wrong = 0;
	for (unsigned t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			std::mt19937 random(t);
			for (int round = 0; round < 60; round++) {
				const uint64_t i = random() % 3, chunk = random() % 40;
				if (random() % 4 == 0)
					cache.prefetch({views[i], random() % 40});
				const Answer answer = ask(cache, {views[i], chunk}).get();
				const auto byte = static_cast<std::byte>(chunk * 3 + i);
				if (chunk % 17 == 16 ? answer.error != -EIO :
						       answer.error || answer.chunk.bytes()[0] != byte ||
							       answer.chunk.bytes()[777] != byte)
					wrong++;
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	EXPECT_EQ(wrong, 0);
	for (const uint64_t view : views)
		cache.remove(view);
}

} // namespace
