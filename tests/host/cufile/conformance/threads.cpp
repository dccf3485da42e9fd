// SPDX-License-Identifier: MIT
//
// Many threads in libcufile at once. This file is part of cufile_conformance and, with most files of that, of
// cufile_threads. For the latter, the library and the stand-in are compiled with ThreadSanitizer.
#include "conformance.hpp"

using namespace conformance;

namespace
{

#ifdef __SANITIZE_THREAD__
constexpr int rounds = 12;
#else
constexpr int rounds = 40;
#endif
constexpr size_t part = 96 << 10; // large enough for threads, rings and bounce buffers

class Threads : public Cufile
{
protected:
	// Runs the body in this many threads at once, each with its number.
	template <class Body> static void at_once(unsigned threads, Body &&body)
	{
		std::atomic<unsigned> ready{0};
		std::vector<std::thread> all;
		for (unsigned i = 0; i < threads; i++)
			all.emplace_back([&, i] {
				fake_set_current(0);
				ready++;
				while (ready < threads)
					std::this_thread::yield();
				body(i);
			});
		for (std::thread &thread : all)
			thread.join();
	}
	static off_t location(unsigned i) { return static_cast<off_t>(i * part); }
};

TEST_F(Threads, ReadAndWriteOneFile)
{
	constexpr unsigned threads = 6;
	const std::string bytes = pattern(threads * part);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(threads * part), registered(threads * part);
	ASSERT_EQ(code(lib().cuFileBufRegister, registered.get(), threads * part, 0), 0);
	at_once(threads, [&](unsigned i) {
		for (int round = 0; round < rounds; round++) {
			char *const at = round % 2 ? memory.get() : registered.get();
			const auto size = static_cast<ssize_t>(round % 3 ? part : part - 1000);
			EXPECT_EQ(read(fh, at, static_cast<size_t>(size), location(i), location(i)), size);
			EXPECT_EQ(write(fh, at, static_cast<size_t>(size), location(i), location(i)), size);
		}
	});
	EXPECT_TRUE(content("f") == bytes);
	EXPECT_TRUE(memory.bytes(0, part - 1000) == bytes.substr(0, part - 1000));
	EXPECT_EQ(code(lib().cuFileBufDeregister, registered.get()), 0);
}

// Each thread does one thing only: the locks of a second would order accesses that the first forgot to lock.
TEST_F(Threads, FilesAndMemoryComeAndGo)
{
	const std::string bytes = pattern(part);
	const CUfileHandle_t shared = handle("shared", bytes);
	const int fd = open_file("f", bytes);
	Device memory(4 * part);
	std::atomic<int> registering{2};
	at_once(4, [&](unsigned i) {
		for (int round = 0; !i && round < 8 * rounds; round++) {
			CUfileHandle_t own = nullptr;
			EXPECT_EQ(add(fd, own), 0);
			lib().cuFileHandleDeregister(own);
		}
		for (int round = 0; i == 1 && round < 8 * rounds; round++) {
			EXPECT_EQ(code(lib().cuFileBufRegister, memory.get() + location(i), part, 0), 0);
			EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get() + location(i)), 0);
		}
		if (i < 2)
			registering.fetch_sub(1, std::memory_order_relaxed);
		do
			EXPECT_EQ(read(shared, memory.get(), part, 0, location(i)), static_cast<ssize_t>(part));
		while (registering.load(std::memory_order_relaxed));
	});
	EXPECT_TRUE(memory.bytes(2 * part, part) == bytes);
}

TEST_F(Threads, StreamsOfTheirOwnAndOneOfAll)
{
	constexpr unsigned threads = 4;
	struct Io {
		size_t size = part;
		off_t from = 0, to = 0;
		ssize_t result = 0;
	};
	const std::string bytes = pattern(part);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(2 * threads * part);
	void *const all = fake_stream(0);
	std::vector<Io> ios(threads * rounds * 2);
	at_once(threads, [&](unsigned i) {
		void *const own = fake_stream(0);
		EXPECT_EQ(code(lib().cuFileStreamRegister, static_cast<CUstream>(own), 15U), 0);
		for (int round = 0; round < rounds; round++)
			for (const bool shared : {false, true}) {
				Io &io = ios[(i * rounds + static_cast<unsigned>(round)) * 2 + shared];
				io.to = location(2 * i + shared);
				EXPECT_EQ(lib().cuFileReadAsync(fh, memory.get(), &io.size, &io.from, &io.to,
								&io.result, static_cast<CUstream>(shared ? all : own))
						  .err,
					  0);
			}
		fake_sync(own);
		EXPECT_EQ(code(lib().cuFileStreamDeregister, static_cast<CUstream>(own)), 0);
		fake_stream_destroy(own);
	});
	fake_sync(all);
	fake_stream_destroy(all);
	for (const Io &io : ios)
		EXPECT_EQ(io.result, static_cast<ssize_t>(part));
	for (unsigned i = 0; i < 2 * threads; i++)
		EXPECT_TRUE(memory.bytes(i * part, part) == bytes);
	lib().cuFileDriverClose_v2();
}

TEST_F(Threads, BatchesThatAreFetchedAndCanceled)
{
	constexpr unsigned threads = 4, entries = 8;
	const CUfileHandle_t fh = handle("f", pattern(entries * part));
	Device memory(threads * entries * 4096);
	at_once(threads, [&](unsigned i) {
		for (int round = 0; round < rounds; round++) {
			CUfileBatchHandle_t batch = nullptr;
			ASSERT_EQ(code(lib().cuFileBatchIOSetUp, &batch, entries), 0);
			CUfileIOParams_t ios[entries] = {};
			for (unsigned n = 0; n < entries; n++) {
				ios[n].mode = CUFILE_BATCH;
				ios[n].u.batch = {memory.get(), location(n), (i * entries + n) * 4096, 4096};
				ios[n].fh = fh;
				ios[n].opcode = CUFILE_READ;
			}
			ASSERT_EQ(code(lib().cuFileBatchIOSubmit, batch, entries, ios, 0U), 0);
			if (round % 3 == 0)
				lib().cuFileBatchIOCancel(batch);
			for (unsigned done = 0; round % 3 == 1 && done < entries;) {
				CUfileIOEvents_t events[entries];
				unsigned n = entries;
				ASSERT_EQ(code(lib().cuFileBatchIOGetStatus, batch, 1U, &n, events, nullptr), 0);
				done += n;
			}
			lib().cuFileBatchIODestroy(batch);
		}
	});
}

TEST_F(Threads, TheDriverIsClosedMeanwhile)
{
	const int fd = open_file("f", pattern(part));
	Device memory(4 * part);
	at_once(4, [&](unsigned i) {
		for (int round = 0; round < rounds; round++) {
			if (!i) {
				lib().cuFileDriverOpen();
				lib().cuFileDriverClose_v2();
				continue;
			}
			CUfileHandle_t fh = nullptr;
			if (add(fd, fh))
				continue; // another thread has it
			const ssize_t n = read(fh, memory.get(), part, 0, location(i));
			EXPECT_TRUE(n == static_cast<ssize_t>(part) || n < -5000) << n;
			lib().cuFileHandleDeregister(fh);
		}
	});
}

TEST_F(Threads, WhatIsCountedAndAskedMeanwhile)
{
	const CUfileHandle_t fh = handle("f", pattern(4 * part));
	Device memory(4 * part);
	at_once(4, [&](unsigned i) {
		for (int round = 0; round < rounds; round++) {
			if (i) {
				EXPECT_EQ(read(fh, memory.get(), part, location(i), location(i)),
					  static_cast<ssize_t>(part));
				continue;
			}
			lib().cuFileSetStatsLevel(round % 4);
			lib().cuFileStatsStart();
			CUfileStatsLevel3_t stats;
			lib().cuFileGetStatsL3(&stats);
			lib().cuFileStatsReset();
			struct peerdma_cufile_counts counts = {};
			counts.size = sizeof(counts);
			EXPECT_EQ(lib().peerdma_cufile_count(&counts), 0);
			struct peerdma_cufile_route route = {};
			route.size = sizeof(route);
			lib().peerdma_cufile_explain(fh, memory.get(), part, 0, 0, &route);
			CUfileDrvProps_t props;
			EXPECT_EQ(code(lib().cuFileDriverGetProperties, &props), 0);
			lib().cuFileDriverSetPollMode(round % 2, 4);
			lib().cuFileDriverSetMaxDirectIOSize(round % 2 ? 1024 : 16384);
		}
	});
}

#ifdef __SANITIZE_THREAD__

// Two threads of the library call a userspace file system at once, which has no lock.
struct Unlocked {
	std::atomic<int> inside{0};
	alignas(64) int reads = 0; // ThreadSanitizer remembers only a few accesses of each 8 bytes
};

ssize_t unlocked_read(const void *handle, char *, size_t size, off_t, const cufileRDMAInfo_t *)
{
	auto *const unlocked = static_cast<Unlocked *>(const_cast<void *>(handle));
	unlocked->inside++;
	while (unlocked->inside < 2)
		usleep(1000);
	unlocked->reads++;
	return static_cast<ssize_t>(size);
}

class Race : public Batches
{
};

TEST_F(Race, DISABLED_InACallOfThePrograms)
{
	Unlocked unlocked;
	CUfileFSOps_t ops = {};
	ops.read = unlocked_read;
	CUfileDescr_t d = descr(ops, &unlocked);
	ASSERT_EQ(code(lib().cuFileHandleRegister, &fh_, &d), 0);
	std::vector<CUfileIOParams_t> ios = {io(4096, 0, 0, 1), io(4096, 4096, 4096, 2)};
	const CUfileBatchHandle_t batch = set_up(2);
	ASSERT_EQ(submit(batch, ios), 0);
	fetch(batch, 2);
	EXPECT_EQ(unlocked.reads, 2);
}

// Proves that this program can detect a race.
TEST_F(Race, IsSeen)
{
	int ends[2];
	ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
	const pid_t child = fork();
	if (!child) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		execl("/proc/self/exe", "cufile_threads", "--gtest_also_run_disabled_tests",
		      "--gtest_filter=Race.DISABLED_*", nullptr);
		_exit(3);
	}
	close(ends[1]);
	std::string said;
	char some[4096];
	for (ssize_t n; (n = ::read(ends[0], some, sizeof(some))) > 0;)
		said.append(some, static_cast<size_t>(n));
	close(ends[0]);
	int status = 0;
	waitpid(child, &status, 0);
	EXPECT_EQ(WEXITSTATUS(status), 66) << said;
	EXPECT_NE(said.find("WARNING: ThreadSanitizer: data race"), std::string::npos) << said;
	EXPECT_NE(said.find("unlocked_read"), std::string::npos) << said;
}

#endif

} // namespace

#ifdef __SANITIZE_THREAD__
// Tests of the stand-in start threads in children.
extern "C" const char *__tsan_default_options() { return "die_after_fork=0"; }
#endif
