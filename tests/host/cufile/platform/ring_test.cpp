// SPDX-License-Identifier: MIT
// O_DIRECT reads through a ring: a fake one controlled by the test, and the kernel's.
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cufile/platform/real_dependencies.hpp"
#include "program.hpp"
#include "ring_descriptors.hpp"

namespace
{

namespace fs = std::filesystem;

constexpr uint64_t mib = 1 << 20;

// Static: without optimization generating it is slow.
const std::string &long_pattern()
{
	static const std::string bytes = random_bytes(20 * mib + 700);
	return bytes;
}

class CufileRing : public ::testing::Test, protected Fakes
{
protected:
	CufileRing()
	{
		cuda.present = true;
		cuda.device.assign(size, 'd');
		fd = system.program_fd(bytes, O_RDWR | O_DIRECT);
		cached_fd = system.program_fd(bytes, O_RDWR);
	}
	~CufileRing() override
	{
		close();
		EXPECT_EQ(system.rings.wrong, 0u) << "outside of the buffer, or left under way";
		EXPECT_EQ(system.rings.live, 0u) << "a ring is left";
		EXPECT_EQ(system.rings.held, -1) << "it still has a file";
		EXPECT_EQ(cuda.pinned, 0) << "pinned memory leaked";
		EXPECT_EQ(system.fds.size(), 2u) << "a descriptor leaked";
	}
	void close() { close_all(library); }
	CUfileHandle_t add(int of) { return register_file(library, of); }
	CUfileHandle_t add() { return add(fd); }
	int64_t read(CUfileHandle_t fh, uint64_t n, uint64_t from, uint64_t to = 0)
	{
		std::memset(cuda.device.data(), 'd', size);
		return library.router.transfer(fh, cuda.device.data(), n, static_cast<off_t>(from),
					       static_cast<off_t>(to), false);
	}
	// Exactly the expected bytes, and nothing around them.
	bool right(int64_t n, uint64_t from, uint64_t to = 0) const
	{
		static const std::string untouched(size, 'd');
		const auto end = to + static_cast<uint64_t>(std::max<int64_t>(n, 0));
		const char *const all = cuda.device.data();
		return !std::memcmp(all, untouched.data(), to) &&
		       (n <= 0 || !std::memcmp(all + to, bytes.data() + from, end - to)) &&
		       !std::memcmp(all + end, untouched.data(), size - end);
	}
	void expect(CUfileHandle_t fh, uint64_t n, uint64_t from, uint64_t to = 0)
	{
		const uint64_t there = from < bytes.size() ? std::min(n, bytes.size() - from) : 0;
		const int64_t moved = read(fh, n, from, to);
		ASSERT_EQ(moved, static_cast<int64_t>(there)) << n << ' ' << from;
		ASSERT_TRUE(right(moved, from, to)) << n << ' ' << from << ' ' << to;
		ASSERT_EQ(system.rings.under_way, 0u);
	}

	static constexpr uint64_t size = 24 * mib;
	const std::string &bytes = long_pattern();
	int fd, cached_fd;
};

// File system blocks larger than pages: memory need not be aligned to blocks.
TEST_F(CufileRing, LargeBlocks)
{
	system.limits = {512, 65536};
	const CUfileHandle_t fh = add();
	expect(fh, 16 * mib, 0);
	expect(fh, 3 * mib + 4096, 3 * 65536, 4096);
	EXPECT_GT(system.rings.reads, 32u);
	const auto cached =
		std::count_if(system.calls.begin(), system.calls.end(), [](const auto &call) { return !call.direct; });
	EXPECT_EQ(cached, 1) << "the last 4096 bytes";
	expect(fh, 16 * mib, 512);
}

// A file larger than the page cache, opened without O_DIRECT.
TEST_F(CufileRing, ALargeFile)
{
	system.texts["/proc/meminfo"] = "MemTotal: 1048576 kB\n";
	system.claimed = 1200 * mib;
	const CUfileHandle_t fh = add(cached_fd);
	expect(fh, 16 * mib, 0);
	EXPECT_EQ(system.rings.reads, 32u);
	EXPECT_EQ(system.cache_asked, 32) << "of each piece the kernel is asked once, of the first one too";
	EXPECT_EQ(system.threads, std::set{std::this_thread::get_id()});
	// Of a partly cached range, each piece takes its own path, by several threads.
	system.calls.clear();
	system.cached_to = 4 * mib;
	system.cache_asked = 0;
	expect(fh, 16 * mib, 0);
	EXPECT_EQ(system.cache_asked, 32) << "nor twice of one that is in the page cache";
	for (const auto &call : system.calls)
		EXPECT_EQ(call.direct, call.offset >= 4 * mib) << call.offset;
	EXPECT_EQ(system.rings.reads, 32u);
	// Or all goes through the ring if the range begins with uncached bytes.
	system.cached_to = 0;
	expect(fh, 16 * mib, 4096, 4096);
	EXPECT_GT(system.rings.reads, 60u);
}

TEST_F(CufileRing, OneThreadHasManyUnderWay)
{
	const CUfileHandle_t fh = add();
	expect(fh, 16 * mib, 0);
	EXPECT_EQ(system.rings.reads, 32u) << "of 512 KiB";
	EXPECT_EQ(system.rings.most_under_way, 32u) << "a large buffer has room for all";
	EXPECT_EQ(system.threads, std::set{std::this_thread::get_id()}) << "nobody helped";
	EXPECT_EQ(system.calls.size(), 32u) << "and nothing was read twice";
	expect(fh, 16 * mib, 4096, 4096);
	EXPECT_EQ(system.rings.made, 2u) << "one to see whether it can be made, one for the buffer";
}

TEST_F(CufileRing, WhatIsNotForIt)
{
	const CUfileHandle_t cached = add(cached_fd), fh = add();
	expect(cached, 16 * mib, 0);
	expect(fh, mib - 4096, 0);
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 4 * mib, 0, 0, true), static_cast<int64_t>(4 * mib));
	EXPECT_EQ(system.rings.made, 0u) << "page cache, small reads, writes";
	system.bytes(fd) = bytes;
	expect(fh, mib, 0);
	EXPECT_EQ(system.rings.reads, 4u);
}

TEST_F(CufileRing, WhoWantsNoParallelIoHasNone)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_PARALLEL_IO, false).err, 0);
	expect(add(), 16 * mib, 0);
	EXPECT_EQ(system.rings.made, 0u);
}

// Any depth and any place: with more units than a buffer has slabs, and unaligned parts in between.
TEST_F(CufileRing, EveryByteIsRight)
{
	for (const unsigned depth : {1u, 2u, 3u, 64u}) {
		close();
		EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, depth).err, 0);
		const CUfileHandle_t fh = add();
		for (const uint64_t n : {mib, mib + 1, 2 * mib + 511, 5 * mib, 17 * mib, 21 * mib})
			for (const uint64_t from : {uint64_t{0}, uint64_t{1}, uint64_t{512}, 4095 + 3 * mib})
				for (const uint64_t to : {0, 3})
					ASSERT_NO_FATAL_FAILURE(expect(fh, n, from, to)) << depth;
		EXPECT_LE(system.rings.most_under_way, depth);
	}
}

TEST_F(CufileRing, ALittlePoolIsEnough)
{
	const size_t sizes[] = {4}, counts[] = {1};
	EXPECT_EQ(library.driver.set_slabs(cufile::posix_pool, sizes, counts, 1).err, 0);
	const CUfileHandle_t fh = add();
	for (const uint64_t from : {0, 1, 4095})
		expect(fh, 20 * mib, from);
	EXPECT_GT(system.rings.reads, 100u);
}

TEST_F(CufileRing, AFileThatIsHeldIsLetGo)
{
	const CUfileHandle_t fh = add();
	std::atomic<int> seen{-1};
	std::thread reader([&] {
		system.rings.closed = true;
		std::thread opener([&] {
			while (!system.rings.under_way)
				std::this_thread::yield();
			seen = system.rings.held.load();
			system.rings.closed = false;
		});
		expect(fh, 16 * mib, 0);
		opener.join();
	});
	reader.join();
	EXPECT_GE(seen, 0);
	EXPECT_EQ(system.rings.held, -1);
}

// The results are those of the file's own read.

TEST_F(CufileRing, ShortReadsGoOn)
{
	const CUfileHandle_t fh = add();
	for (const uint64_t most : {512u, 3 * 512u, 100 * 512u}) {
		system.rings.most = most;
		expect(fh, 5 * mib, 4096);
	}
}

TEST_F(CufileRing, TheEndOfTheFile)
{
	const CUfileHandle_t fh = add();
	for (const uint64_t before : {1ul, 188ul, 700ul, 512ul + 188, 4096ul, mib - 1, mib, 5 * mib + 13})
		expect(fh, 8 * mib, bytes.size() - before);
	expect(fh, 8 * mib, bytes.size());
	expect(fh, 8 * mib, bytes.size() + 100 * mib);
	system.bytes(fd).resize(4 * mib + 100);
	EXPECT_EQ(read(fh, 4 * mib + mib, 0), static_cast<int64_t>(4 * mib + 100));
	EXPECT_TRUE(right(4 * mib + 100, 0));
}

TEST_F(CufileRing, WhatItCannotDoTheFileDoes)
{
	for (const int64_t result : {-EINTR, -EAGAIN, -EIO, -ECANCELED, -ENOMEM}) {
		const CUfileHandle_t fh = add();
		for (size_t i = 0; i < 40; i += 3)
			system.rings.results[system.rings.reads + i] = result;
		expect(fh, 18 * mib, 512);
		library.deregister_file(fh);
	}
	EXPECT_EQ(system.rings.made, 2u);
}

TEST_F(CufileRing, ErrorsAreTheFiles)
{
	const CUfileHandle_t fh = add();
	// Of the first piece, of one in the middle, and of the rest of a short one.
	system.rings.results = {{0, -EAGAIN}};
	system.errors.assign(1000, -EIO);
	EXPECT_EQ(read(fh, 16 * mib, 0), -EIO);
	system.errors.clear();
	system.error_at[3 * mib] = -EIO;
	EXPECT_EQ(read(fh, 16 * mib, 0), -EIO);
	system.error_at = {{3 * mib + 512, -ENOMEM}};
	system.rings.most = 512;
	EXPECT_EQ(read(fh, 16 * mib, 0), -ENOMEM);
	system.rings.most = UINT64_MAX;
	system.error_at.clear();
	system.rings.results = {{system.rings.reads + 3, -EIO}};
	system.rings.most = 0;
	EXPECT_EQ(read(fh, 16 * mib, 0), 0) << "nothing is there";
	system.rings.most = UINT64_MAX;
	expect(fh, 16 * mib, 0);
}

TEST_F(CufileRing, AFileSystemThatKnowsNoRingIsLeftToThreads)
{
	for (const int64_t result : {-EINVAL, -EOPNOTSUPP, -EFAULT}) {
		const CUfileHandle_t fh = add();
		for (size_t i = 0; i < 32; i++)
			system.rings.results[system.rings.reads + i] = result;
		expect(fh, 16 * mib, 0);
		const size_t reads = system.rings.reads;
		expect(fh, 16 * mib, 0);
		EXPECT_EQ(system.rings.reads, reads);
		library.deregister_file(fh);
	}
}

TEST_F(CufileRing, ARingThatBreaks)
{
	for (const size_t after : {0u, 1u, 7u, 31u, 32u, 35u, 39u}) {
		const CUfileHandle_t fh = add();
		system.rings.break_at = system.rings.reads + after;
		for (const uint64_t from : {0, 1})
			expect(fh, 20 * mib, from);
		system.rings.break_at = SIZE_MAX;
		const size_t reads = system.rings.reads;
		expect(fh, 16 * mib, 0);
		EXPECT_EQ(system.rings.reads, reads + 32) << "the next has a new one";
		library.deregister_file(fh);
	}
}

TEST_F(CufileRing, WhereThereIsNoneThreadsRead)
{
	system.variables["CUFILE_LOGGING_LEVEL"] = "WARN";
	system.rings.errors = {-EPERM};
	const CUfileHandle_t fh = add();
	for (int i = 0; i < 3; i++)
		expect(fh, 16 * mib, 0);
	EXPECT_EQ(system.rings.made, 0u);
	const size_t at = system.to_stderr.find("io_uring");
	EXPECT_NE(at, std::string::npos) << system.to_stderr;
	EXPECT_EQ(system.to_stderr.find("io_uring", at + 1), std::string::npos) << "said once: " << system.to_stderr;
	close();
	expect(add(), 16 * mib, 0);
	EXPECT_EQ(system.rings.made, 2u) << "a driver that is opened again looks again";
}

TEST_F(CufileRing, ALaneThatGetsNone)
{
	system.rings.errors = {0, -ENOMEM};
	const CUfileHandle_t fh = add();
	expect(fh, 16 * mib, 1);
	expect(fh, 16 * mib, 1);
	EXPECT_EQ(system.rings.made, 1u) << "and nobody asks again so soon";
	system.now += 10'000'000;
	expect(fh, 16 * mib, 1);
	EXPECT_EQ(system.rings.made, 3u) << "one to find out, and the buffer's";
}

// A shortage of descriptors or memory is retried; a kernel without io_uring is not.
TEST_F(CufileRing, AShortageOfRingsPasses)
{
	system.variables["CUFILE_LOGGING_LEVEL"] = "WARN";
	constexpr uint64_t second = 1'000'000'000;
	const CUfileHandle_t fh = add();
	for (const int error : {EMFILE, ENFILE, ENOMEM, EAGAIN, EINVAL}) {
		close();
		const CUfileHandle_t again = add();
		system.to_stderr.clear();
		system.rings.errors = {-error};
		const size_t made = system.rings.made;
		expect(again, 16 * mib, 0);
		EXPECT_EQ(system.rings.made, made);
		EXPECT_NE(system.to_stderr.find("there is no io_uring"), std::string::npos);
		system.now += second / 100;
		expect(again, 16 * mib, 0);
		EXPECT_GT(system.rings.made, made) << error;
		EXPECT_NE(system.to_stderr.find("io_uring reads past the page cache again"), std::string::npos);
	}
	for (const int error : {ENOSYS, EPERM}) {
		close();
		const CUfileHandle_t again = add();
		system.rings.errors = {-error};
		const size_t made = system.rings.made;
		for (int i = 0; i < 3; i++) {
			expect(again, 16 * mib, 0);
			system.now += 100 * second;
		}
		EXPECT_EQ(system.rings.made, made) << error;
	}
	(void)fh;
}

TEST_F(CufileRing, CopiesThatFail)
{
	const CUfileHandle_t fh = add();
	for (const uint64_t n : {2 * mib, 16 * mib, 20 * mib})
		for (int calls = 0; calls < 14; calls++) {
			cuda.calls_until_error = calls;
			const int64_t moved = read(fh, n, 1);
			const bool failed = cuda.calls_until_error < 0;
			cuda.calls_until_error = -1;
			EXPECT_EQ(system.rings.under_way, 0u);
			if (!failed) {
				EXPECT_EQ(moved, static_cast<int64_t>(n));
			} else {
				EXPECT_EQ(moved, -EIO);
			}
			const auto good = static_cast<uint64_t>(std::max<int64_t>(moved, 0));
			EXPECT_EQ(cuda.device.compare(0, good, bytes, 1, good), 0);
			expect(fh, n, 0);
		}
}

TEST_F(CufileRing, ManyThreadsHaveTheirOwn)
{
	const CUfileHandle_t fh = add();
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (uint64_t t = 0; t < 8; t++)
		threads.emplace_back([&, t] {
			for (uint64_t i = 0; i < 6; i++) {
				const uint64_t n = 3 * mib - t * 512, from = i * mib + t * 100;
				const bool whole = library.router.transfer(fh, cuda.device.data() + t * 3 * mib, n,
									   static_cast<off_t>(from), 0,
									   false) == static_cast<int64_t>(n);
				good += whole && !cuda.device.compare(t * 3 * mib, n, bytes, from, n);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 48);
	EXPECT_EQ(system.rings.under_way, 0u);
	EXPECT_LE(system.rings.live, 8u);
}

class CufileRingBatch : public CufileRing
{
protected:
	~CufileRingBatch() override { library.batches.destroy(id); }
	CUfileBatchHandle_t set_up(unsigned nr)
	{
		EXPECT_EQ(library.create_batch(&id, nr).err, 0);
		return id;
	}
	void ask(CUfileHandle_t fh, uint64_t n, uint64_t from, uint64_t to, int opcode = CUFILE_READ)
	{
		ios.push_back(batch_io(fh, cuda.device.data(), n, static_cast<off_t>(from), static_cast<off_t>(to),
				       reinterpret_cast<void *>(ios.size()), opcode));
	}
	void submit() { EXPECT_EQ(library.batches.submit(id, static_cast<unsigned>(ios.size()), ios.data()).err, 0); }
	// Results by number. A canceled batch is not waited for.
	std::vector<CUfileIOEvents_t> fetch(unsigned least = 1)
	{
		std::vector<CUfileIOEvents_t> all(ios.size());
		for (size_t done = 0; done < all.size();) {
			CUfileIOEvents_t events[32];
			unsigned n = 32;
			EXPECT_EQ(library.batches.status(id, least, &n, events, nullptr).err, 0);
			for (unsigned i = 0; i < n; i++)
				all[reinterpret_cast<uintptr_t>(events[i].cookie)] = events[i];
			done += n;
		}
		return all;
	}
	bool is_right(size_t i) const
	{
		const auto &io = ios[i].u.batch;
		return !cuda.device.compare(static_cast<size_t>(io.devPtr_offset), io.size, bytes,
					    static_cast<size_t>(io.file_offset), io.size);
	}

	CUfileBatchHandle_t id = nullptr;
	std::vector<CUfileIOParams_t> ios;
};

TEST_F(CufileRingBatch, FilesOfBothKinds)
{
	set_up(128);
	const CUfileHandle_t fh = add(), cached = add(cached_fd);
	for (int round = 0; round < 3; round++) {
		ios.clear();
		// Blocks, parts of blocks and long ranges, from both files.
		uint64_t to = 0;
		for (uint64_t i = 0; i < 100; i++) {
			const uint64_t n = i % 10 == 9 ? 700000 + i : i % 2 ? 65536 : 5000 + i;
			ask(i % 3 == 2 ? cached : fh, n, i % 2 ? i * 512 * 300 : i * 130001, to);
			to += n + i % 5;
		}
		submit();
		const auto all = fetch();
		for (size_t i = 0; i < all.size(); i++) {
			EXPECT_EQ(all[i].status, CUFILE_COMPLETE);
			EXPECT_EQ(all[i].ret, ios[i].u.batch.size);
			EXPECT_TRUE(is_right(i)) << round << ' ' << i;
		}
	}
	EXPECT_GT(system.rings.reads, 100u);
}

TEST_F(CufileRingBatch, OneThreadIsEnough)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 1).err, 0);
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 5).err, 0);
	const CUfileHandle_t fh = add();
	set_up(128);
	for (uint64_t i = 0; i < 64; i++)
		ask(fh, 300000, i * 307200 / 512 * 512, i * 300000);
	submit();
	const auto all = fetch();
	for (size_t i = 0; i < all.size(); i++)
		EXPECT_TRUE(all[i].ret == 300000u && is_right(i)) << i;
}

TEST_F(CufileRingBatch, WhatHasNotBegunIsCanceled)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 4).err, 0);
	const CUfileHandle_t fh = add();
	for (const unsigned nr : {64u, 5u, 2u}) {
		library.batches.destroy(id);
		set_up(64);
		ios.clear();
		system.rings.closed = true;
		for (uint64_t i = 0; i < nr; i++)
			ask(fh, 200 * 1024, i * 256 * 1024, i * 200 * 1024);
		submit();
		while (system.rings.under_way < std::min(nr, 4u))
			std::this_thread::yield();
		std::memset(cuda.device.data(), 'd', size);
		EXPECT_EQ(library.batches.cancel(id).err, 0);
		system.rings.closed = false;
		const auto all = fetch(0);
		unsigned complete = 0;
		for (size_t i = 0; i < all.size(); i++) {
			if (all[i].status == CUFILE_COMPLETE) {
				complete++;
				EXPECT_TRUE(is_right(i)) << i;
			} else {
				EXPECT_EQ(all[i].status, CUFILE_CANCELED);
				EXPECT_EQ(cuda.device[i * 200 * 1024], 'd') << i;
			}
		}
		EXPECT_GE(complete, std::min(nr, 4u));
		EXPECT_LE(complete, 5u) << "four, and one that waits for room";
	}
}

TEST_F(CufileRingBatch, ClosingWaitsForWhatIsUnderWay)
{
	const CUfileHandle_t fh = add();
	set_up(64);
	system.rings.closed = true;
	for (uint64_t i = 0; i < 64; i++)
		ask(fh, 128 * 1024, i * 128 * 1024, i * 128 * 1024);
	submit();
	while (!system.rings.under_way)
		std::this_thread::yield();
	std::thread opener([&] {
		usleep(30000);
		EXPECT_GT(system.rings.live, 0u);
		system.rings.closed = false;
	});
	close();
	EXPECT_EQ(system.rings.live, 0u);
	EXPECT_EQ(system.rings.under_way, 0u);
	opener.join();
}

TEST_F(CufileRingBatch, CopiesThatFail)
{
	const CUfileHandle_t fh = add();
	set_up(64);
	for (int calls = 0; calls < 12; calls++) {
		ios.clear();
		std::memset(cuda.device.data(), 'd', size);
		for (uint64_t i = 0; i < 64; i++)
			ask(fh, 256 * 1024, i * 256 * 1024, i * 300 * 1024);
		cuda.calls_until_error = calls;
		submit();
		const auto all = fetch();
		cuda.calls_until_error = -1;
		for (size_t i = 0; i < all.size(); i++) {
			if (all[i].status == CUFILE_COMPLETE)
				EXPECT_TRUE(is_right(i)) << i;
			else
				EXPECT_EQ(static_cast<int64_t>(all[i].ret), -EIO);
		}
	}
}

// The kernel's ring

class CufileKernelRing : public ::testing::Test
{
protected:
	void SetUp() override
	{
		const std::string path = fs::temp_directory_path() / ("cufile-ring-" + std::to_string(getpid()));
		std::ofstream(path, std::ios::binary) << bytes;
		fd = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
		fs::remove(path);
		if (fd < 0)
			GTEST_SKIP() << "no O_DIRECT here";
		const int rc = make();
		if (rc == -EPERM || rc == -ENOSYS)
			GTEST_SKIP() << "no io_uring here";
		ASSERT_EQ(rc, 0);
	}
	~CufileKernelRing() override
	{
		ring.reset();
		munmap(memory, room);
		if (fd >= 0)
			close(fd);
	}
	int make()
	{
		ring.reset();
		return cufile::real_system().make_ring(depth, memory, room, ring);
	}
	// Starts reads of 4 KiB each, from the beginning of the file.
	unsigned begin(unsigned nr)
	{
		unsigned n = 0;
		while (n < nr && ring->read(fd, memory + n * 4096, 4096, n * 4096, n))
			n++;
		return n;
	}
	// Results of the reads; INT64_MIN: not returned.
	std::vector<int64_t> end(unsigned nr)
	{
		std::vector<int64_t> all(nr, INT64_MIN);
		cufile::Ring::Completion completions[3];
		for (unsigned done = 0; done < nr;) {
			const size_t n = ring->reap(completions, std::size(completions), true);
			for (size_t i = 0; i < n; i++) {
				EXPECT_EQ(all[completions[i].tag], INT64_MIN) << "twice";
				all[completions[i].tag] = completions[i].result;
			}
			done += static_cast<unsigned>(n);
			if (!n)
				break;
		}
		return all;
	}

	static constexpr unsigned depth = 8;
	static constexpr size_t room = 65536;
	const std::string bytes = random_bytes(50000);
	char *memory =
		static_cast<char *>(mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	std::unique_ptr<cufile::Ring> ring;
	int fd = -1;
};

TEST_F(CufileKernelRing, Reads)
{
	for (const bool held : {false, true, false}) {
		ring->register_file(held ? fd : -1);
		std::memset(memory, 0, room);
		EXPECT_EQ(begin(20), depth) << "then it is full";
		EXPECT_EQ(end(depth), std::vector<int64_t>(depth, 4096));
		EXPECT_EQ(bytes.compare(0, depth * 4096, memory, depth * 4096), 0);
	}
	cufile::Ring::Completion completions[4];
	EXPECT_EQ(ring->reap(completions, 4, false), 0u);
	EXPECT_EQ(ring->reap(completions, 4, true), 0u) << "nothing is under way";
}

TEST_F(CufileKernelRing, EndsAndErrors)
{
	EXPECT_TRUE(ring->read(fd, memory, 4096, 49152, 0));
	EXPECT_TRUE(ring->read(fd, memory, 4096, 1 << 20, 1));
	EXPECT_TRUE(ring->read(fd, memory, 4096, 1, 2));
	EXPECT_TRUE(ring->read(9999, memory, 4096, 0, 3));
	const auto all = end(4);
	EXPECT_EQ(all[0], 848);
	EXPECT_EQ(all[1], 0);
	EXPECT_EQ(all[2], -EINVAL);
	EXPECT_EQ(all[3], -EBADF);
}

TEST_F(CufileKernelRing, MemoryThatCannotBePinnedYet)
{
	ring.reset();
	mprotect(memory, room, PROT_NONE);
	ASSERT_EQ(make(), 0);
	EXPECT_EQ(begin(2), 2u);
	EXPECT_EQ(end(2), std::vector<int64_t>(2, -EFAULT));
	mprotect(memory, room, PROT_READ | PROT_WRITE);
	EXPECT_EQ(begin(2), 2u);
	EXPECT_EQ(end(2), std::vector<int64_t>(2, 4096));
	EXPECT_EQ(bytes.compare(0, 8192, memory, 8192), 0);
}

TEST_F(CufileKernelRing, WhatIsUnderWayIsWaitedFor)
{
	for (int round = 0; round < 200; round++) {
		cufile::Ring::Completion completions[depth];
		begin(depth);
		const size_t n = ring->reap(completions, depth, false);
		ASSERT_LE(n, depth);
		if (round % 10)
			continue;
		ring.reset();
		std::memset(memory, 0x55, room);
		for (size_t i = 0; i < room; i++)
			ASSERT_EQ(memory[i], 0x55) << "it was still written to";
		ASSERT_EQ(make(), 0);
	}
}

// The program has closed the library's ring and has its own ring with that number. The library must neither submit what
// is queued there nor take its completions.
TEST_F(CufileKernelRing, ARingOfTheProgramsHasTheNumber)
{
	ASSERT_EQ(make(), 0);
	const int number = ring_descriptors().at(0);
	io_uring theirs;
	ASSERT_EQ(io_uring_queue_init(8, &theirs, 0), 0);
	ASSERT_EQ(dup2(theirs.ring_fd, number), number);
	close(theirs.ring_fd);
	theirs.ring_fd = theirs.enter_ring_fd = number;
	io_uring_sqe *const sqe = io_uring_get_sqe(&theirs);
	io_uring_prep_nop(sqe);
	sqe->user_data = 4711;
	ASSERT_EQ(io_uring_submit(&theirs), 1);
	EXPECT_EQ(begin(3), 3u);
	EXPECT_EQ(end(3), std::vector<int64_t>(3, -ECANCELED)) << "and nothing waits for the other ring";
	ring.reset();
	EXPECT_GE(fcntl(number, F_GETFD), 0) << "it is not the library's to close";
	io_uring_cqe *cqe = nullptr;
	EXPECT_EQ(io_uring_wait_cqe(&theirs, &cqe), 0);
	EXPECT_EQ(cqe->user_data, 4711u);
	io_uring_queue_exit(&theirs);
}

// A program closed the library's descriptor.
TEST_F(CufileKernelRing, WithoutItsDescriptorAllComesBack)
{
	for (const unsigned before : {0u, 5u}) {
		ASSERT_EQ(make(), 0);
		std::set<uint64_t> tags;
		const auto reap = [&](bool wait) {
			cufile::Ring::Completion completions[depth];
			const size_t n = ring->reap(completions, depth, wait);
			for (size_t i = 0; i < n; i++) {
				EXPECT_TRUE(tags.insert(completions[i].tag).second) << "twice";
				EXPECT_EQ(completions[i].result, completions[i].tag < depth ? 4096 : -ECANCELED);
			}
			return n;
		};
		EXPECT_EQ(begin(before), before);
		reap(false);
		ASSERT_EQ(ring_descriptors().size(), 1u);
		close(ring_descriptors()[0]);
		unsigned more = 0;
		while (ring->read(fd, memory + 32768, 4096, 0, depth + more))
			more++;
		EXPECT_GE(more, depth - before);
		while (tags.size() < before + more)
			ASSERT_GT(reap(true), 0u);
		EXPECT_EQ(reap(true), 0u);
		EXPECT_FALSE(ring->read(fd, memory, 4096, 0, 0)) << "it takes nothing any more";
	}
}

TEST_F(CufileKernelRing, ItsDescriptor)
{
	const pid_t child = fork();
	if (!child) {
		// Leaves the standard streams' numbers free to be taken.
		for (const int one : {0, 1, 2})
			close(one);
		bool good = make() == 0 && ring_descriptors().size() == 1 && ring_descriptors()[0] > 2 &&
			    fcntl(ring_descriptors()[0], F_GETFD) == FD_CLOEXEC;
		good = good && begin(3) == 3 && end(3) == std::vector<int64_t>(3, 4096);
		ring.reset();
		_exit(!good || !ring_descriptors().empty());
	}
	int status;
	waitpid(child, &status, 0);
	EXPECT_EQ(status, 0);
}

TEST_F(CufileKernelRing, LeavesNoStandardStream)
{
	const pid_t child = fork();
	if (!child) {
		for (const int one : {0, 1, 2})
			close(one);
		const struct rlimit few = {3, 3};
		setrlimit(RLIMIT_NOFILE, &few);
		const bool refused = make() < 0 && !ring;
		_exit(!refused || fcntl(0, F_GETFD) >= 0);
	}
	int status;
	waitpid(child, &status, 0);
	EXPECT_EQ(status, 0);
}

} // namespace
