// SPDX-License-Identifier: MIT
// How I/Os are cut into pieces, how the results of pieces combine, and how a batch reports them.
#include <chrono>
#include <climits>
#include <thread>

#include "cufile/async/batch.hpp"
#include "program.hpp"

using cufile::Batch;
using cufile::Job;

namespace
{

cufile::Request request(uint64_t size, uint64_t offset)
{
	cufile::Request one;
	one.size = size;
	one.offset = offset;
	one.address = reinterpret_cast<char *>(uintptr_t{1} << 40);
	return one;
}

// --- Pieces
struct Cut {
	uint64_t size, offset, piece;
	std::vector<uint64_t> sizes;
};
class CufileJobCut : public ::testing::TestWithParam<Cut>
{
};
constexpr uint64_t k = 1024;
INSTANTIATE_TEST_SUITE_P(At, CufileJobCut,
			 ::testing::Values(Cut{1, 0, 64 * k, {1}}, Cut{64 * k, 0, 64 * k, {64 * k}},
					   Cut{64 * k, 100, 64 * k, {64 * k}}, Cut{64 * k + 1, 0, 64 * k, {64 * k, 1}},
					   Cut{128 * k, 0, 64 * k, {64 * k, 64 * k}},
					   Cut{128 * k, 1, 64 * k, {64 * k - 1, 64 * k, 1}},
					   Cut{65 * k, 63 * k, 64 * k, {k, 64 * k}},
					   Cut{100 * k, 64 * k, 64 * k, {64 * k, 36 * k}},
					   Cut{UINT64_MAX / 2, 7, UINT64_MAX, {UINT64_MAX / 2}},
					   Cut{200 * k, 3 * k, 64 * k, {61 * k, 64 * k, 64 * k, 11 * k}}),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileJobCut, AtWholePiecesOfTheFile)
{
	const Cut &cut = GetParam();
	Job job;
	job.add(request(10, 5), 64 * k); // another request before it
	job.add(request(cut.size, cut.offset), cut.piece);
	ASSERT_EQ(job.nr_pieces(), cut.sizes.size() + 1);
	ASSERT_EQ(job.nr_requests(), 2u);
	uint64_t at = 0;
	for (size_t i = 0; i < cut.sizes.size(); i++) {
		const Job::Piece &piece = job.piece(i + 1);
		EXPECT_EQ(piece.request, 1u);
		EXPECT_EQ(piece.size, cut.sizes[i]) << i;
		EXPECT_EQ(piece.offset, cut.offset + at) << i;
		EXPECT_EQ(piece.address, job.request(1).address + at) << i;
		at += piece.size;
	}
	EXPECT_EQ(at, cut.size);
}

// --- Results
struct Outcome {
	const char *name;
	std::vector<int64_t> pieces; // results of pieces of 4 KiB
	int64_t result;
	bool write = false;
};
class CufileJobResult : public ::testing::TestWithParam<Outcome>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileJobResult,
			 ::testing::Values(Outcome{"all", {4096, 4096, 4096}, 12288},
					   Outcome{"a_short_end", {4096, 4096, 10}, 8202},
					   Outcome{"an_end_between", {4096, 0, 0}, 4096},
					   Outcome{"nothing", {0, 0, 0}, 0},
					   Outcome{"what_follows_an_end", {4096, 10, 4096}, 4106},
					   Outcome{"what_follows_nothing", {4096, 0, 4096}, 4096},
					   Outcome{"an_error_at_once", {-EIO, 4096, 4096}, -EIO},
					   Outcome{"an_error_behind_bytes", {4096, -EIO, 4096}, -EIO},
					   Outcome{"an_error_at_the_end", {4096, 4096, -ENOSPC}, -ENOSPC},
					   Outcome{"an_error_of_a_write", {4096, -EIO, 4096}, -EIO, true},
					   Outcome{"a_full_disk", {4096, 512, 4096}, 4608, true},
					   Outcome{"a_full_disk_behind_bytes", {4096, -ENOSPC, 4096}, 4096, true},
					   Outcome{"a_quota_behind_bytes", {4096, 4096, -EDQUOT}, 8192, true},
					   Outcome{"a_full_disk_at_once", {-ENOSPC, -ENOSPC, 4096}, -ENOSPC, true},
					   Outcome{"an_error_behind_an_end", {10, -EIO, -EIO}, 10},
					   Outcome{"an_error_behind_nothing", {0, -EIO, 4096}, 0},
					   Outcome{"the_first_of_two_errors", {-EIO, -ENOSPC, 4096}, -EIO},
					   Outcome{"an_error_of_ours", {-5030, 4096, 4096}, -5030}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileJobResult, UpToTheFirstThatIsMissing)
{
	const Outcome &outcome = GetParam();
	Job job;
	cufile::Request whole = request(outcome.pieces.size() * 4096, 0);
	whole.write = outcome.write;
	job.add(std::move(whole), 4096);
	std::vector<Job::Piece *> taken;
	while (Job::Piece *piece = job.take())
		taken.push_back(piece);
	ASSERT_EQ(taken.size(), outcome.pieces.size());
	// In any order of completion.
	for (size_t i = taken.size(); i-- > 0;)
		job.finish(*taken[i], outcome.pieces[i]);
	job.wait();
	EXPECT_EQ(job.result(0), outcome.result);
}

// --- Cancellation: of requests that have no taken piece.
class CufileJobCancel : public ::testing::TestWithParam<size_t>
{
};
INSTANTIATE_TEST_SUITE_P(Taken, CufileJobCancel, ::testing::Range(size_t{0}, size_t{10}));

TEST_P(CufileJobCancel, WhatNobodyHasBegun)
{
	Job job;
	for (int i = 0; i < 3; i++)
		job.add(request(3 * 4096, 0), 4096);
	std::vector<Job::Piece *> taken;
	for (size_t i = 0; i < GetParam(); i++)
		taken.push_back(job.take());
	const size_t begun = (GetParam() + 2) / 3;
	EXPECT_EQ(job.cancel(), begun);
	EXPECT_EQ(job.cancel(), 3u) << "there is no more to take back";
	// Requests that have begun still complete.
	while (Job::Piece *piece = job.take())
		taken.push_back(piece);
	EXPECT_EQ(taken.size(), begun * 3);
	EXPECT_EQ(job.end_index(), begun * 3);
	for (Job::Piece *piece : taken)
		job.finish(*piece, 4096);
	job.wait();
	for (size_t i = 0; i < begun; i++)
		EXPECT_EQ(job.result(i), 3 * 4096);
}

// --- Capacity of a batch
struct Room {
	unsigned capacity, begun, ended, fetched, more; // entries submitted, completed, fetched, to submit next
	CUfileOpError error;                            // of submitting `more` entries
};
class CufileBatchRoom : public ::testing::TestWithParam<Room>
{
};
INSTANTIATE_TEST_SUITE_P(For, CufileBatchRoom,
			 ::testing::Values(Room{4, 0, 0, 0, 4, CU_FILE_SUCCESS},
					   Room{4, 0, 0, 0, 5, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 0, 0, 0, 0, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{1, 0, 0, 0, 1, CU_FILE_SUCCESS},
					   Room{4, 4, 0, 0, 1, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 4, 4, 0, 1, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 4, 4, 1, 1, CU_FILE_SUCCESS},
					   Room{4, 4, 4, 1, 2, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 4, 4, 4, 4, CU_FILE_SUCCESS}, Room{4, 3, 1, 0, 1, CU_FILE_SUCCESS},
					   Room{4, 3, 1, 0, 2, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 3, 1, 1, 2, CU_FILE_SUCCESS},
					   Room{4, 2, 2, 2, 5, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR},
					   Room{4, 1, 0, 0, UINT_MAX, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR}),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

CUfileIOEvents_t event(uintptr_t cookie) { return {reinterpret_cast<void *>(cookie), CUFILE_COMPLETE, cookie}; }

const auto nobody = [](Job &) {};

TEST_P(CufileBatchRoom, IsKept)
{
	const Room &room = GetParam();
	Batch batch(room.capacity);
	if (room.begun) {
		ASSERT_EQ(batch.begin(room.begun, {}), CU_FILE_SUCCESS);
	}
	for (unsigned i = 0; i < room.ended; i++)
		batch.complete_request(event(i));
	CUfileIOEvents_t events[8];
	unsigned n = room.fetched;
	ASSERT_EQ(batch.fetch(room.fetched, n, 0, nobody, events), CU_FILE_SUCCESS);
	ASSERT_EQ(n, room.fetched);
	EXPECT_EQ(batch.begin(room.more, {}), room.error);
}

// --- Status
struct Question {
	unsigned begun, ended, least, room;
	CUfileOpError error;
	unsigned got; // without waiting
};
class CufileBatchFetch : public ::testing::TestWithParam<Question>
{
};
INSTANTIATE_TEST_SUITE_P(
	Of, CufileBatchFetch,
	::testing::Values(Question{0, 0, 0, 8, CU_FILE_SUCCESS, 0}, Question{0, 0, 1, 8, CU_FILE_SUCCESS, 0},
			  Question{4, 0, 0, 8, CU_FILE_SUCCESS, 0}, Question{4, 0, 4, 8, CU_FILE_SUCCESS, 0},
			  Question{4, 0, 5, 8, CU_FILE_SUCCESS, 0}, Question{4, 4, 5, 8, CU_FILE_SUCCESS, 4},
			  Question{4, 4, 4, 8, CU_FILE_SUCCESS, 4}, Question{4, 4, 4, 4, CU_FILE_SUCCESS, 4},
			  Question{4, 4, 4, 3, CU_FILE_INVALID_VALUE, 3}, Question{4, 4, 0, 3, CU_FILE_SUCCESS, 3},
			  Question{4, 4, 2, 3, CU_FILE_SUCCESS, 3}, Question{4, 3, 4, 8, CU_FILE_SUCCESS, 3},
			  Question{4, 1, 0, 0, CU_FILE_SUCCESS, 0}, Question{4, 2, 1, 1, CU_FILE_SUCCESS, 1}),
	[](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileBatchFetch, TellsEachOnceAndInTheOrderOfTheirEnds)
{
	const Question &question = GetParam();
	Batch batch(8);
	if (question.begun) {
		ASSERT_EQ(batch.begin(question.begun, {}), CU_FILE_SUCCESS);
	}
	for (unsigned i = 0; i < question.ended; i++)
		batch.complete_request(event(i));
	CUfileIOEvents_t events[8] = {};
	unsigned n = question.room;
	ASSERT_EQ(batch.fetch(question.least, n, 0, nobody, events), question.error);
	EXPECT_EQ(n, question.got);
	if (question.error)
		return;
	for (unsigned i = 0; i < n; i++)
		EXPECT_EQ(events[i].ret, i);
	// The remaining events are returned later, once their I/O has ended.
	for (unsigned i = question.ended; i < question.begun; i++)
		batch.complete_request(event(i));
	unsigned more = 8;
	ASSERT_EQ(batch.fetch(question.begun - n, more, -1, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(more, question.begun - n);
	for (unsigned i = 0; i < more; i++)
		EXPECT_EQ(events[i].ret, n + i);
}

TEST(CufileBatch, WhoWaitsIsToldInTime)
{
	Batch batch(4);
	ASSERT_EQ(batch.begin(4, {}), CU_FILE_SUCCESS);
	CUfileIOEvents_t events[4];
	unsigned n = 4;
	const auto before = std::chrono::steady_clock::now();
	EXPECT_EQ(batch.fetch(2, n, 30'000'000, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 0u);
	EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(30));
	std::thread other([&] {
		for (uintptr_t i = 0; i < 4; i++)
			batch.complete_request(event(i));
	});
	n = 4;
	EXPECT_EQ(batch.fetch(2, n, -1, nobody, events), CU_FILE_SUCCESS);
	EXPECT_GE(n, 2u);
	unsigned rest = 4;
	EXPECT_EQ(batch.fetch(4 - n, rest, 60'000'000'000, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n + rest, 4u);
	batch.drain();
	other.join();
}

// The number of pending events changes while the caller waits.
TEST(CufileBatch, AMinimumAboveWhatIsLeft)
{
	Batch batch(4);
	CUfileIOEvents_t events[8];
	unsigned n = 8;
	EXPECT_EQ(batch.fetch(8, n, -1, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 0u) << "of nothing that is all";
	ASSERT_EQ(batch.begin(3, {}), CU_FILE_SUCCESS);
	batch.complete_request(event(1));
	n = 8;
	EXPECT_EQ(batch.fetch(3, n, 0, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 1u);
	std::thread other([&] {
		batch.complete_request(event(2));
		batch.complete_request(event(3));
	});
	n = 8;
	EXPECT_EQ(batch.fetch(3, n, 60'000'000'000, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 2u);
	other.join();
	n = 2;
	EXPECT_EQ(batch.fetch(3, n, 0, nobody, events), CU_FILE_INVALID_VALUE) << "more than there is room for";
}

// Each of several waiters gets its minimum, the smallest first.
TEST(CufileBatch, SeveralWait)
{
	for (int round = 0; round < 20; round++) {
		Batch batch(12);
		ASSERT_EQ(batch.begin(12, {}), CU_FILE_SUCCESS);
		std::atomic<unsigned> seen{0};
		std::vector<std::thread> waiters;
		for (const unsigned want : {1u, 2u, 3u})
			waiters.emplace_back([&, want] {
				CUfileIOEvents_t events[12];
				unsigned n = want;
				EXPECT_EQ(batch.fetch(want, n, -1, nobody, events), CU_FILE_SUCCESS);
				seen += n;
			});
		for (uintptr_t i = 0; i < 12; i++)
			batch.complete_request(event(i));
		for (auto &waiter : waiters)
			waiter.join();
		EXPECT_EQ(seen, 6u);
		CUfileIOEvents_t events[12];
		unsigned n = 12;
		EXPECT_EQ(batch.fetch(0, n, 0, nobody, events), CU_FILE_SUCCESS);
		EXPECT_EQ(n, 6u);
	}
}

TEST(CufileBatch, OnlyWhoMustWaitForAllHelps)
{
	Batch batch(4);
	auto job = std::make_shared<Job>();
	job->add(request(10, 0), 4096);
	ASSERT_EQ(batch.begin(2, {job}), CU_FILE_SUCCESS);
	int helped = 0;
	const auto help = [&](Job &with) {
		EXPECT_EQ(&with, job.get());
		helped++;
		batch.complete_request(event(1));
		batch.complete_request(event(2));
	};
	CUfileIOEvents_t events[4];
	unsigned n = 4;
	EXPECT_EQ(batch.fetch(1, n, 0, help, events), CU_FILE_SUCCESS) << "fewer";
	n = 4;
	EXPECT_EQ(batch.fetch(2, n, 1000, help, events), CU_FILE_SUCCESS) << "with a deadline";
	EXPECT_EQ(helped, 0);
	n = 4;
	EXPECT_EQ(batch.fetch(2, n, -1, help, events), CU_FILE_SUCCESS);
	EXPECT_EQ(helped, 1);
	EXPECT_EQ(n, 2u);
	// A finished job is not accessed again.
	job.reset();
	ASSERT_EQ(batch.begin(1, {}), CU_FILE_SUCCESS);
	std::thread other([&] { batch.complete_request(event(3)); });
	n = 4;
	EXPECT_EQ(batch.fetch(1, n, -1, help, events), CU_FILE_SUCCESS);
	EXPECT_EQ(helped, 1);
	other.join();
}

// Canceled entries are reported until the next submission, which waits for the I/O that has begun, since the program
// reuses its memory and cookies. After that only the new entries are reported, and they have the full capacity.
TEST(CufileBatch, AfterACancelOnlyTheNewOnesAreTold)
{
	Batch batch(4);
	ASSERT_EQ(batch.begin(4, {}), CU_FILE_SUCCESS);
	batch.complete_request(event(1));
	batch.cancel();
	batch.complete_request(event(2));
	CUfileIOEvents_t events[4];
	unsigned n = 1;
	EXPECT_EQ(batch.fetch(1, n, -1, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 0u) << "there is nothing to wait for";
	n = 1;
	EXPECT_EQ(batch.fetch(0, n, -1, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 1u) << "a poll is told until then";
	std::atomic<bool> begun{false};
	std::thread submitter([&] {
		EXPECT_EQ(batch.begin(4, {}), CU_FILE_SUCCESS) << "there is room for all";
		begun = true;
	});
	std::this_thread::sleep_for(std::chrono::milliseconds(20));
	EXPECT_FALSE(begun) << "two of before are under way";
	batch.complete_request(event(3));
	batch.complete_request(event(4));
	submitter.join();
	n = 4;
	EXPECT_EQ(batch.fetch(0, n, 0, nobody, events), CU_FILE_SUCCESS);
	EXPECT_EQ(n, 0u) << "of before";
	for (uintptr_t i = 11; i <= 14; i++)
		batch.complete_request(event(i));
	n = 4;
	EXPECT_EQ(batch.fetch(4, n, -1, nobody, events), CU_FILE_SUCCESS);
	ASSERT_EQ(n, 4u);
	for (unsigned i = 0; i < 4; i++)
		EXPECT_EQ(events[i].ret, 11u + i);
}

} // namespace
