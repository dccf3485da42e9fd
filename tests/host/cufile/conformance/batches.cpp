// SPDX-License-Identifier: MIT
//
// Batches that are canceled while they run, or waited for with a deadline, or whose entries end differently.
#include <climits>

#include "conformance.hpp"

using namespace conformance;

namespace
{

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int status(CUfileBatchHandle_t id, unsigned least, unsigned &n, CUfileIOEvents_t *events, struct timespec *timeout)
{
	return code(lib().cuFileBatchIOGetStatus, id, least, &n, events, timeout);
}

uintptr_t cookie_of(const CUfileIOEvents_t &event) { return reinterpret_cast<uintptr_t>(event.cookie); }

// With worker threads and with a ring, buffered and O_DIRECT, with and without help from the waiting thread.
TEST_F(Batches, CanceledWhileItRuns)
{
	constexpr unsigned count = 64;
	constexpr size_t size = 60000, apart = 65536;
	const CUfileHandle_t cached = fh_;
	const CUfileHandle_t past = has_direct() ? handle("g", bytes_, O_RDONLY | O_DIRECT) : cached;
	const auto id = set_up(count);
	unsigned canceled = 0, complete = 0;
#ifdef __SANITIZE_THREAD__
	constexpr unsigned rounds = 20;
#else
	constexpr unsigned rounds = 80;
#endif
	// Repeat until both outcomes occur: with one CPU a batch may complete before another thread cancels it.
	for (unsigned round = 0; round < rounds || (round < 4000 && !(canceled && complete)); round++) {
		memory_.fill(0x77);
		std::vector<CUfileIOParams_t> ios;
		for (unsigned i = 0; i < count; i++) {
			fh_ = i % 2 ? past : cached;
			ios.push_back(io(size, i * 65000, i * apart, i));
		}
		ASSERT_EQ(submit(id, ios), 0);
		if (round % 4 == 0) {
			EXPECT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
		}
		std::thread canceller([&] {
			usleep(round % 80 / 2 * 50);
			EXPECT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
		});
		// Wait either before the cancel, or after it, when nothing is left to wait for.
		std::map<uintptr_t, CUfileIOEvents_t> all;
		CUfileIOEvents_t first[count];
		unsigned came = count;
		ASSERT_EQ(status(id, round % 2 ? count : 1, came, first, nullptr), 0);
		for (unsigned i = 0; i < came; i++)
			EXPECT_TRUE(all.emplace(cookie_of(first[i]), first[i]).second);
		canceller.join();
		poll(id, count, all);
		ASSERT_EQ(all.size(), count);
		for (const auto &[i, event] : all) {
			if (event.status == CUFILE_CANCELED) {
				canceled++;
				EXPECT_EQ(event.ret, 0u);
				EXPECT_TRUE(memory_.untouched(i * apart, i * apart + size)) << i;
				continue;
			}
			complete++;
			EXPECT_EQ(event.status, CUFILE_COMPLETE);
			EXPECT_EQ(event.ret, size);
			EXPECT_TRUE(memory_.bytes(i * apart, size) == bytes_.substr(i * 65000, size)) << i;
		}
		CUfileIOEvents_t event;
		unsigned n = 1;
		EXPECT_EQ(status(id, 0, n, &event, nullptr), 0);
		EXPECT_EQ(n, 0u) << "something is told twice";
	}
	EXPECT_GT(canceled, 0u);
	EXPECT_GT(complete, 0u);
}

// The number of pending events changes during the test: one is returned between two calls with the same minimum.
TEST_F(Gated, AMinimumAboveWhatIsLeftMeansAllThatIsLeft)
{
	constexpr unsigned count = 4;
	const auto id = set_up(count);
	std::vector<CUfileIOParams_t> ios;
	std::vector<char> memory(10 * count); // host memory: each request ends on its own
	for (unsigned i = 0; i < count; i++) {
		ios.push_back(io(10, 0, i * 10, i));
		ios.back().u.batch.devPtr_base = memory.data();
	}
	ASSERT_EQ(submit(id, ios), 0);
	CUfileIOEvents_t events[count];
	std::map<uintptr_t, CUfileIOEvents_t> all;
	for (int turn = 0; turn < 2000 && all.size() < count; turn++) {
		unsigned n = count;
		struct timespec soon = {0, 20'000'000};
		ASSERT_EQ(status(id, count, n, events, &soon), 0) << all.size() << " were told";
		for (unsigned i = 0; i < n; i++)
			EXPECT_TRUE(all.emplace(cookie_of(events[i]), events[i]).second);
		gate_.some++;
	}
	EXPECT_EQ(all.size(), count);
	// With no event pending, the call returns at once.
	unsigned n = count;
	EXPECT_EQ(status(id, 1, n, events, nullptr), 0);
	EXPECT_EQ(n, 0u);
	// Without a deadline the waiting thread helps.
	ASSERT_EQ(submit(id, ios), 0);
	n = 16;
	CUfileIOEvents_t more[16];
	gate_.open = 1;
	EXPECT_EQ(status(id, 16, n, more, nullptr), 0);
	EXPECT_EQ(n, count);
}

// KvikIO's basic_io.cpp and NVIDIA's batch_cancel.cc wait for all entries of a canceled batch and expect no events.
TEST_F(Batches, ACanceledBatchHasNothingToWaitFor)
{
	constexpr unsigned count = 4;
	const auto id = set_up(count);
	std::vector<CUfileIOParams_t> ios;
	for (unsigned i = 0; i < count; i++)
		ios.push_back(io(1024, i * 1024, i * 1024, i + 1));
	for (int round = 0; round < 100; round++) {
		CUfileIOEvents_t events[count];
		unsigned n = count;
		ASSERT_EQ(submit(id, ios), 0);
		ASSERT_EQ(status(id, count, n, events, nullptr), 0);
		ASSERT_EQ(n, count);
		ASSERT_EQ(submit(id, ios), 0) << "the batch has room for all again";
		if (round % 2)
			usleep(round * 20); // some or all of it completes first
		ASSERT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
		ASSERT_EQ(status(id, count, n, events, nullptr), 0);
		ASSERT_EQ(n, 0u) << round;
	}
	lib().cuFileBatchIODestroy(id);
}

// Mooncake's GdsTransport cancels a batch after an entry has failed and polls until every entry is reported.
TEST_F(Gated, ACanceledBatchIsToldToWhoPolls)
{
	constexpr unsigned count = 16;
	const auto id = set_up(count);
	auto ios = reads(count, 0, 10);
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	ASSERT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
	CUfileIOEvents_t events[count];
	unsigned n = count;
	EXPECT_EQ(status(id, 1, n, events, nullptr), 0) << "does not wait for what has begun";
	EXPECT_EQ(n, 0u);
	std::map<uintptr_t, CUfileIOEvents_t> all;
	n = count;
	ASSERT_EQ(status(id, 0, n, events, nullptr), 0);
	for (unsigned i = 0; i < n; i++) {
		EXPECT_EQ(events[i].status, CUFILE_CANCELED) << "what has begun has not ended";
		EXPECT_TRUE(all.emplace(cookie_of(events[i]), events[i]).second);
	}
	EXPECT_LT(all.size(), count);
	gate_.open = 1;
	poll(id, count, all);
	unsigned complete = 0;
	for (const auto &[cookie, event] : all) {
		complete += event.status == CUFILE_COMPLETE && event.ret == 10;
		EXPECT_TRUE(event.status == CUFILE_CANCELED || event.status == CUFILE_COMPLETE);
	}
	EXPECT_GE(complete, 1u);
}

// A thread that is already waiting when the batch is canceled gets the canceled entries.
TEST_F(Gated, AWaitThatACancelEnds)
{
	constexpr unsigned count = 16;
	const auto id = set_up(count);
	auto ios = reads(count, 0, 10);
	ASSERT_EQ(submit(id, ios), 0);
	std::atomic<unsigned> came{0};
	std::thread waiter([&] {
		CUfileIOEvents_t events[count];
		unsigned n = count;
		EXPECT_EQ(status(id, count - 1, n, events, nullptr), 0);
		came = n;
	});
	while (gate_.inside < 4)
		usleep(1000);
	usleep(50000);
	ASSERT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
	gate_.open = 1;
	waiter.join();
	EXPECT_GE(came, count - 1);
}

TEST_F(Gated, ADeadlineGivesWhatHasComeByThen)
{
	const CUfileHandle_t gated = fh_;
	const CUfileHandle_t plain = handle("plain", bytes_);
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios;
	std::vector<char> memory(40); // host memory: device requests that share a slab end together
	for (unsigned i = 0; i < 4; i++) {
		fh_ = i < 2 ? gated : plain;
		ios.push_back(io(10, 0, i * 10, i));
		ios.back().u.batch.devPtr_base = memory.data();
	}
	ASSERT_EQ(submit(id, ios), 0);
	CUfileIOEvents_t events[8];
	const auto ask = [&](unsigned least, struct timespec time) {
		unsigned n = 8;
		const auto begin = steady_clock::now();
		EXPECT_EQ(status(id, least, n, events, &time), 0);
		return std::pair(n, steady_clock::now() - begin);
	};
	const auto [came, after] = ask(3, {1, 0});
	ASSERT_EQ(came, 2u);
	EXPECT_EQ(cookie_of(events[0]) + cookie_of(events[1]), 2u + 3u);
	EXPECT_GE(after, milliseconds(1000)) << "one more might have come";
	EXPECT_LT(after, std::chrono::seconds(20));
	// A timeout of zero with and without a minimum, and any timeout without a minimum.
	for (const auto &[least, time] : std::initializer_list<std::pair<unsigned, struct timespec>>{
		     {2, {0, 0}}, {0, {0, 0}}, {0, {1000, 0}}, {0, {LONG_MAX, 999'999'999}}}) {
		const auto [none, at_once] = ask(least, time);
		EXPECT_EQ(none, 0u);
		EXPECT_LT(at_once, std::chrono::seconds(20)) << least;
	}
	unsigned n = 8;
	struct timespec soon = {0, 1'000'000}, wrong = {0, -1};
	EXPECT_EQ(status(id, 3, n, events, &soon), 0) << "only two are to come: that is all of them";
	EXPECT_EQ(n, 0u);
	n = 8;
	EXPECT_EQ(status(id, 1, n, events, &wrong), 5022);
	// The longest timeout must not overflow into an expired one.
	std::thread opener([&] {
		usleep(100'000);
		gate_.open = 1;
	});
	const auto [rest, waited] = ask(2, {1L << 62, 0}); // in nanoseconds this wraps to 0
	opener.join();
	EXPECT_EQ(rest, 2u);
	EXPECT_GE(waited, milliseconds(50));
}

TEST_F(Gated, WhatEndsFirstIsToldFirst)
{
	const auto id = set_up(2);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1)};
	fh_ = handle("plain", bytes_);
	ios.push_back(io(10, 0, 10, 2));
	std::vector<char> memory(20);
	for (auto &one : ios)
		one.u.batch.devPtr_base = memory.data();
	ASSERT_EQ(submit(id, ios), 0);
	CUfileIOEvents_t event;
	for (const uintptr_t cookie : {2, 1}) {
		unsigned n = 1;
		ASSERT_EQ(status(id, 1, n, &event, nullptr), 0);
		ASSERT_EQ(n, 1u);
		EXPECT_EQ(cookie_of(event), cookie);
		gate_.open = 1;
	}
}

TEST_F(Gated, WhatIsDeregisteredMeanwhile)
{
	const auto id = set_up(8);
	ASSERT_EQ(code(lib().cuFileBufRegister, memory_.get(), 4 << 20, 0), 0);
	auto ios = reads(8, 0, 10);
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	lib().cuFileHandleDeregister(fh_);
	EXPECT_EQ(code(lib().cuFileBufDeregister, memory_.get()), 0);
	gate_.open = 1;
	for (const auto &[cookie, event] : fetch(id, 8)) {
		EXPECT_EQ(event.status, CUFILE_COMPLETE);
		EXPECT_EQ(event.ret, 10u);
	}
	EXPECT_EQ(memory_.bytes(0, 80), std::string(80, 'g'));
	EXPECT_EQ(submit(id, ios), 5040) << "afterwards there is no such file";
}

// The library does not interpret cookies, so they need not differ.
TEST_F(Batches, CookiesAreTheProgramsOwn)
{
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios;
	for (unsigned i = 0; i < 8; i++)
		ios.push_back(io(100, 0, i * 100, i < 4 ? 0 : UINTPTR_MAX));
	ASSERT_EQ(submit(id, ios), 0);
	CUfileIOEvents_t events[8];
	unsigned n = 8;
	ASSERT_EQ(status(id, 8, n, events, nullptr), 0);
	ASSERT_EQ(n, 8u);
	std::map<uintptr_t, int> told;
	for (const auto &event : events)
		told[cookie_of(event)]++;
	EXPECT_EQ(told, (std::map<uintptr_t, int>{{0, 4}, {UINTPTR_MAX, 4}}));
}

// Each entry ends as the corresponding single call does.
TEST_F(Batches, OfAFileSystemOfTheProgramsOwn)
{
	Shelf shelf{pattern(500000, 4)}, broken;
	broken.fail = -EROFS;
	shelf.most = 70000;
	CUfileFSOps_t ops = {};
	ops.read = shelf_read;
	ops.write = shelf_write;
	const auto on = [&](Shelf &which) {
		CUfileDescr_t d = descr(ops, &which);
		CUfileHandle_t fh = nullptr;
		EXPECT_EQ(code(lib().cuFileHandleRegister, &fh, &d), 0);
		return fh;
	};
	const CUfileHandle_t file = fh_, good = on(shelf), bad = on(broken);
	const auto id = set_up(16);
	fh_ = good;
	std::string host(1000, 'h');
	std::vector<CUfileIOParams_t> ios = {io(300000, 7, 0, 1), io(5000, 499000, 300000, 2),
					     io(10, 500000, 310000, 3), io(1000, 50, 0, 4)};
	ios.back().u.batch.devPtr_base = host.data();
	fh_ = bad;
	ios.push_back(io(10, 0, 320000, 5));
	fh_ = file;
	ios.push_back(io(2000, 11, 330000, 6));
	ASSERT_EQ(submit(id, ios), 0);
	const auto all = fetch(id, 6);
	ASSERT_EQ(all.size(), 6u);
	const auto expect = [&](uintptr_t cookie, ssize_t n) {
		EXPECT_EQ(all.at(cookie).status, n < 0 ? CUFILE_FAILED : CUFILE_COMPLETE) << cookie;
		EXPECT_EQ(static_cast<ssize_t>(all.at(cookie).ret), n) << cookie;
	};
	expect(1, 300000);
	expect(2, 1000);
	expect(3, 0);
	expect(4, 1000);
	expect(5, -EROFS);
	expect(6, 2000);
	EXPECT_TRUE(memory_.bytes(0, 300000) == shelf.bytes.substr(7, 300000));
	EXPECT_TRUE(memory_.bytes(300000, 1000) == shelf.bytes.substr(499000));
	EXPECT_TRUE(memory_.untouched(301000, 330000));
	EXPECT_EQ(host, shelf.bytes.substr(50, 1000));
	EXPECT_TRUE(memory_.bytes(330000, 2000) == bytes_.substr(11, 2000));

	const std::string others = pattern(100000, 5);
	memory_.put(others);
	fh_ = good;
	ios = {io(100000, 450000, 0, 1, CUFILE_WRITE)};
	fh_ = bad;
	ios.push_back(io(10, 0, 0, 2, CUFILE_WRITE));
	ASSERT_EQ(submit(id, ios), 0);
	const auto written = fetch(id, 2);
	EXPECT_EQ(written.at(1).status, CUFILE_COMPLETE);
	EXPECT_EQ(written.at(1).ret, 100000u);
	EXPECT_EQ(written.at(2).status, CUFILE_FAILED);
	EXPECT_EQ(static_cast<ssize_t>(written.at(2).ret), -ENOSPC);
	EXPECT_TRUE(shelf.bytes == pattern(500000, 4).substr(0, 450000) + others);

	ops.write = nullptr;
	fh_ = on(shelf);
	ios = {io(10, 0, 0, 1), io(10, 0, 0, 2, CUFILE_WRITE)};
	EXPECT_EQ(submit(id, ios), 5040) << "it cannot be written to";
	lib().cuFileDriverClose_v2();
}

} // namespace
