// SPDX-License-Identifier: MIT
#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include "allocations.hpp"
#include "machine.hpp"

namespace
{

// An open handle, a file of 64 KiB with different 512-byte blocks, a buffer of the same size, and a ring.
class Rings : public Machine
{
protected:
	Rings()
	{
		for (unsigned i = 0; i < 128; i++)
			sys.contents["/f"].bytes += std::string(512, static_cast<char>('0' + i % 64));
		EXPECT_EQ(peerdma_open(&device, 0), 0);
		EXPECT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), 0);
		EXPECT_EQ(peerdma_buf_create(device, 1, 1 << 16, 0, &buf, nullptr), 0);
	}
	~Rings() override
	{
		peerdma_ring_destroy(ring);
		EXPECT_EQ(sys.queues, 0u) << "a queue leaked";
	}

	void create(uint32_t depth, uint32_t capacity, uint32_t flags = 0)
	{
		ASSERT_EQ(peerdma_ring_create(device, depth, capacity, flags, &ring), 0);
	}

	// Reads block tag of the file to the same offset in the buffer.
	peerdma_op read(uint64_t tag) const { return {PEERDMA_OP_READ, 0, file, buf, tag * 512, 512, tag * 512, tag}; }

	int queue(uint64_t tag)
	{
		const peerdma_op op = read(tag);
		return peerdma_ring_queue(ring, &op, 1);
	}

	std::vector<peerdma_done> wait(uint32_t min, int32_t timeout_ms = -1, uint32_t max = 64)
	{
		std::vector<peerdma_done> done(max);
		int n = peerdma_ring_wait(ring, done.data(), max, min, timeout_ms);
		EXPECT_GE(n, 0) << n;
		done.resize(static_cast<size_t>(std::max(n, 0)));
		return done;
	}

	const std::string &bytes() { return sys.buffers.begin()->second.bytes; }

	peerdma_ring *ring = nullptr;
};

TEST_F(Rings, EachRequestEndsOnceAndMoreThanFitMakeProgress)
{
	create(4, 128);
	for (uint64_t tag = 0; tag < 128; tag++)
		ASSERT_EQ(queue(tag), 1);
	EXPECT_EQ(queue(128), -EAGAIN);
	std::map<uint64_t, int> ends;
	size_t deepest = 0;
	while (ends.size() < 128) {
		ASSERT_GE(peerdma_ring_submit(ring), 0);
		deepest = std::max(deepest, sys.under_way.size());
		const auto done = wait(3);
		ASSERT_GE(done.size(), std::min<size_t>(3, 128 - ends.size()));
		for (const auto &one : done) {
			EXPECT_EQ(one.result, 512);
			EXPECT_EQ(++ends[one.tag], 1) << one.tag;
		}
	}
	EXPECT_EQ(deepest, 4u);
	EXPECT_TRUE(wait(1).empty()) << "nothing is left to wait for";
	EXPECT_EQ(bytes(), sys.contents["/f"].bytes);
	EXPECT_EQ(sys.file_ids.size(), 1u) << "registered once";
}

TEST_F(Rings, WhatWaitsCanBeTakenBackWhatWasSentCannot)
{
	create(2, 8);
	sys.hold = true;
	for (uint64_t tag = 0; tag < 4; tag++)
		ASSERT_EQ(queue(tag), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 2);
	EXPECT_EQ(peerdma_ring_cancel(ring, 0), -EALREADY);
	EXPECT_EQ(peerdma_ring_cancel(ring, 3), 0);
	EXPECT_EQ(peerdma_ring_cancel(ring, 3), -ENOENT);
	EXPECT_EQ(peerdma_ring_cancel(ring, 9), -ENOENT);
	sys.hold = false;
	std::map<uint64_t, int64_t> ends;
	while (ends.size() < 4)
		for (const auto &one : wait(1))
			EXPECT_TRUE(ends.emplace(one.tag, one.result).second);
	EXPECT_EQ(ends, (std::map<uint64_t, int64_t>{{0, 512}, {1, 512}, {2, 512}, {3, -ECANCELED}}));
	EXPECT_EQ(sys.commands.size(), 3u);
}

TEST_F(Rings, ATimeoutEndsTheWaitAndLosesNothing)
{
	create(4, 4);
	sys.hold = true;
	ASSERT_EQ(queue(1), 1);
	EXPECT_TRUE(wait(1, 0).empty());
	EXPECT_TRUE(wait(1, 5).empty());
	sys.hold = false;
	ASSERT_EQ(wait(1).size(), 1u);
	EXPECT_TRUE(wait(0).empty());
}

// A signal every 20 ms, whose handler interrupts system calls.
class Ticks
{
public:
	Ticks()
	{
		struct sigaction action = {};
		action.sa_handler = [](int) { seen = seen + 1; };
		seen = 0;
		::sigaction(SIGALRM, &action, &old_);
		const itimerval often = {{0, 20000}, {0, 20000}};
		::setitimer(ITIMER_REAL, &often, nullptr);
	}
	~Ticks()
	{
		const itimerval never = {};
		::setitimer(ITIMER_REAL, &never, nullptr);
		::sigaction(SIGALRM, &old_, nullptr);
	}
	static inline volatile sig_atomic_t seen;

private:
	struct sigaction old_ = {};
};

TEST_F(Rings, ASignalEndsTheWaitAndLosesNothing)
{
	create(4, 4);
	ASSERT_EQ(queue(1), 1);
	ASSERT_EQ(queue(2), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 2);
	peerdma_done done[2];
	for (const int timeout_ms : {-1, 60000}) {
		sys.hold = true;
		sys.sleeps = 5; // a wait that continues after a signal would use them up
		const Ticks ticks;
		EXPECT_EQ(peerdma_ring_wait(ring, done, 2, 1, timeout_ms), -EINTR);
		EXPECT_GE(Ticks::seen, 1);
	}
	sys.hold = false;
	sys.held = 1;
	{
		const Ticks ticks;
		ASSERT_EQ(peerdma_ring_wait(ring, done, 2, 2, -1), 1) << "what has ended is not kept back";
	}
	EXPECT_EQ(done[0].tag, 1u);
	sys.held = sys.sleeps = 0;
	ASSERT_EQ(wait(1).size(), 1u);
}

// The kernel's own queue, for /dev/null: that completes a command with any result.
class NullQueue : public ::testing::Test
{
protected:
	~NullQueue() override
	{
		queue.reset();
		::close(null);
	}
	// Leaves no queue if this host has no such io_uring.
	void create(bool one_thread)
	{
		ASSERT_GE(null, 0);
		const int rc = peerdma_impl::kernel_queue(null, 4, one_thread, queue);
		if (rc == -ENOSYS || rc == -EPERM || rc == -EINVAL)
			GTEST_SKIP() << "no such io_uring on this host";
		ASSERT_EQ(rc, 0);
	}

	const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
	std::unique_ptr<peerdma_impl::Queue> queue;
};

TEST_F(NullQueue, ASignalEndsAWait)
{
	create(false);
	if (!queue)
		return;
	peerdma_impl::Completion done = {};
	{
		const Ticks ticks;
		EXPECT_EQ(queue->wait(&done, 1, -1), -EINTR);
		EXPECT_EQ(queue->wait(&done, 1, 60'000'000'000), -EINTR);
	}
}

TEST_F(Rings, LookingWithoutWaitingFetchesAndSendsTheRest)
{
	create(2, 8);
	for (uint64_t tag = 0; tag < 5; tag++)
		ASSERT_EQ(queue(tag), 1);
	std::set<uint64_t> ended;
	for (unsigned look = 0; look < 3; look++) {
		EXPECT_EQ(ended.size(), look * 2);
		for (const auto &one : wait(0))
			ended.insert(one.tag);
	}
	EXPECT_EQ(ended.size(), 5u);
	sys.hold = true;
	ASSERT_EQ(queue(5), 1);
	EXPECT_TRUE(wait(0).empty());
	EXPECT_EQ(sys.under_way.size(), 1u) << "and it sends";
	sys.hold = false;
}

TEST_F(Rings, LookingSaysWhyNothingCanBeSeen)
{
	create(2, 2);
	ASSERT_EQ(queue(1), 1);
	sys.submit_error = -EBUSY;
	peerdma_done done;
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 0, 0), -EBUSY);
	sys.submit_error = 0;
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	sys.wait_error = -EEXIST;
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 0, 0), -EEXIST);
	sys.wait_error = 0;
	EXPECT_EQ(wait(1).size(), 1u) << "nothing is lost";
}

TEST_F(Rings, AKernelThatTakesNothingIsAnErrorNotAHang)
{
	create(4, 4);
	ASSERT_EQ(queue(1), 1);
	ASSERT_EQ(queue(2), 1);
	sys.submit_error = -EAGAIN;
	peerdma_done done;
	EXPECT_EQ(peerdma_ring_submit(ring), -EAGAIN);
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 1, -1), -EAGAIN);
	sys.submit_error = 0;
	sys.submit_most = 1; // and a queue that takes them one by one
	EXPECT_EQ(wait(2).size(), 2u);
	EXPECT_EQ(sys.commands.size(), 2u);
}

TEST_F(Rings, NeighboursBecomeOneCommand)
{
	create(4, 600, PEERDMA_RING_VECTORS);
	std::vector<peerdma_op> ops;
	for (uint64_t tag = 0; tag < 100; tag++)
		ops.push_back(read(tag));
	ops[50].kind = PEERDMA_OP_WRITE;
	ops[98].file_off = 128 * 512 - 100; // short
	ops[99].file_off = 128 * 512;       // beyond the end
	ASSERT_EQ(peerdma_ring_queue(ring, ops.data(), 100), 100);
	std::map<uint64_t, int64_t> ends;
	while (ends.size() < 100)
		for (const auto &one : wait(1))
			EXPECT_TRUE(ends.emplace(one.tag, one.result).second);
	EXPECT_EQ(sys.commands, (std::vector<uint32_t>{PEERDMA_URING_READV, PEERDMA_URING_WRITE, PEERDMA_URING_READV,
						       PEERDMA_URING_READ}))
		<< "the last asks whether there is more behind the short one";
	for (const auto &[tag, result] : ends)
		EXPECT_EQ(result, tag == 98 ? 100 : tag == 99 ? 0 : 512) << tag;
	sys.commands.clear();
	for (uint64_t tag = 0; tag < 300; tag++)
		ASSERT_EQ(queue(tag % 128), 1);
	EXPECT_EQ(wait(300, -1, 300).size(), 300u);
	EXPECT_EQ(sys.commands.size(), 2u) << "no command has more than the kernel takes";
}

TEST_F(Rings, WithoutMemoryNothingIsLostOrDoneTwice)
{
	create(8, 64, PEERDMA_RING_VECTORS);
	std::map<uint64_t, int> ends;
	std::vector<peerdma_done> done(64);
	unsigned refused = 0;
	for (int memory = 0; memory < 40; memory++) {
		ends.clear();
		std::vector<peerdma_op> ops;
		for (uint64_t tag = 0; tag < 60; tag++) {
			ops.push_back(read(tag));
			ops.back().kind = tag / 10 % 2; // six groups
		}
		allocations_left = memory;
		const int queued = peerdma_ring_queue(ring, ops.data(), 60);
		for (int tries = 0; tries < 200 && queued > 0 && ends.size() < static_cast<size_t>(queued); tries++) {
			const int n = peerdma_ring_wait(ring, done.data(), 64, 1, -1);
			allocations_left = -1;
			if (n < 0) {
				EXPECT_EQ(n, -ENOMEM);
				refused++;
			}
			for (int i = 0; i < n; i++)
				EXPECT_EQ(++ends[done[static_cast<size_t>(i)].tag], 1);
		}
		allocations_left = -1;
		EXPECT_TRUE(queued == 60 || queued == -ENOMEM || (queued > 0 && queued < 60)) << queued;
		EXPECT_EQ(ends.size(), static_cast<size_t>(std::max(queued, 0)));
		EXPECT_TRUE(wait(0).empty());
	}
	EXPECT_GT(refused, 0u) << "memory never ran out where it matters";
}

TEST_F(Rings, ARefusedRequestSaysSoAlone)
{
	create(4, 8, PEERDMA_RING_VECTORS);
	sys.contents["/f"].refused_errno = EXDEV;
	ASSERT_EQ(queue(1), 1);
	ASSERT_EQ(queue(2), 1);
	const auto done = wait(2);
	ASSERT_EQ(done.size(), 2u);
	EXPECT_EQ(done[0].result, -EXDEV);
	EXPECT_EQ(done[1].result, -EXDEV);
}

TEST_F(Rings, WhatComesShortIsAskedForTheRest)
{
	for (const uint32_t flags : {0u, PEERDMA_RING_VECTORS}) {
		create(2, 8, flags);
		sys.io_limit = 200;
		for (uint64_t tag = 0; tag < 4; tag++)
			ASSERT_EQ(queue(tag), 1);
		for (const auto &one : wait(4))
			EXPECT_EQ(one.result, 512) << one.tag;
		EXPECT_EQ(bytes().substr(0, 2048), sys.contents["/f"].bytes.substr(0, 2048));
		// The end of the file: the result is short, and returned once.
		peerdma_op op = read(5);
		op.file_off = 128 * 512 - 300;
		ASSERT_EQ(peerdma_ring_queue(ring, &op, 1), 1);
		EXPECT_EQ(wait(1).at(0).result, 300);
		peerdma_ring_destroy(ring);
		ring = nullptr;
	}
}

TEST_F(Rings, AnErrorAfterSomeBytesIsNoShortRead)
{
	create(2, 8);
	sys.io_limit = 256;
	for (const int error : {EIO, ENOSPC})
		for (const bool write : {false, true}) {
			sys.ios.clear();
			sys.io_good = 1;
			sys.io_error = -error;
			peerdma_op op = read(7);
			op.kind = write ? PEERDMA_OP_WRITE : PEERDMA_OP_READ;
			ASSERT_EQ(peerdma_ring_queue(ring, &op, 1), 1);
			EXPECT_EQ(wait(1).at(0).result, write && error == ENOSPC ? 256 : -error);
		}
}

TEST_F(Rings, TheRestOfWhatHasBegunCannotBeTakenBack)
{
	create(1, 8);
	ASSERT_EQ(queue(1), 1);
	ASSERT_EQ(queue(2), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	sys.io_limit = 256;
	sys.submit_error = -EAGAIN; // for the rest of the request
	peerdma_done done;
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 1, -1), -EAGAIN);
	EXPECT_EQ(peerdma_ring_cancel(ring, 1), -EALREADY);
	EXPECT_EQ(peerdma_ring_cancel(ring, 2), 0);
	sys.submit_error = 0;
	std::map<uint64_t, int64_t> ends;
	for (const auto &one : wait(2))
		ends.emplace(one.tag, one.result);
	EXPECT_EQ(ends, (std::map<uint64_t, int64_t>{{1, 512}, {2, -ECANCELED}}));
}

TEST_F(Rings, DestroyingWaitsForWhatIsUnderWayAndDropsTheRest)
{
	create(2, 8);
	for (uint64_t tag = 0; tag < 5; tag++)
		ASSERT_EQ(queue(tag), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 2);
	peerdma_ring_destroy(ring);
	ring = nullptr;
	EXPECT_EQ(sys.commands.size(), 2u);
	EXPECT_TRUE(sys.under_way.empty());
}

TEST_F(Rings, DestroyingNeverSendsAndNeverLeaks)
{
	create(4, 8);
	ASSERT_EQ(queue(0), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	ASSERT_EQ(queue(1), 1);
	sys.submit_error = -EAGAIN;
	EXPECT_EQ(peerdma_ring_submit(ring), -EAGAIN);
	peerdma_ring_destroy(ring);
	ring = nullptr;
	EXPECT_EQ(sys.queues, 0u);
	EXPECT_EQ(sys.commands.size(), 1u);
	EXPECT_TRUE(sys.under_way.empty());
	sys.submit_error = 0;

	create(4, 8); // and a queue that refuses to wait
	ASSERT_EQ(queue(0), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	sys.wait_error = -EEXIST;
	peerdma_ring_destroy(ring);
	ring = nullptr;
	EXPECT_EQ(sys.queues, 0u);
}

TEST_F(NullQueue, OneThreadIsTheOneThatSubmitsFirst)
{
	create(true);
	if (!queue)
		return;
	ASSERT_TRUE(queue->push({PEERDMA_URING_READ, 0, 0, 512, 0, 0, 77}));
	int submitted = 0, ended = 0;
	peerdma_impl::Completion done = {};
	std::thread([&] {
		submitted = queue->submit();
		if (submitted == 1)
			ended = queue->wait(&done, 1, 1'000'000'000);
	}).join();
	EXPECT_EQ(submitted, 1);
	EXPECT_EQ(ended, 1);
	EXPECT_EQ(done.tag, 77u);
}

TEST_F(Rings, WrongUseIsRefused)
{
	peerdma_ring *none = nullptr;
	EXPECT_EQ(peerdma_ring_create(device, 0, 8, 0, &none), -EINVAL);
	EXPECT_EQ(peerdma_ring_create(device, 8, 4, 0, &none), -EINVAL);
	EXPECT_EQ(peerdma_ring_create(device, 5000, 5000, 0, &none), -EINVAL);
	EXPECT_EQ(peerdma_ring_create(nullptr, 1, 1, 0, &none), -EINVAL);
	EXPECT_EQ(peerdma_ring_create(device, 1, 1, 64, &none), -EOPNOTSUPP);
	sys.features = PEERDMA_FEATURE_URING;
	EXPECT_EQ(peerdma_ring_create(device, 1, 1, PEERDMA_RING_VECTORS, &none), -EOPNOTSUPP);
	sys.features = 0;
	EXPECT_EQ(peerdma_ring_create(device, 1, 1, 0, &none), -EOPNOTSUPP);
	sys.features = PEERDMA_FEATURE_URING;
	sys.queue_error = -ENOSYS;
	EXPECT_EQ(peerdma_ring_create(device, 1, 1, 0, &none), -ENOSYS);
	sys.queue_error = 0;
	EXPECT_EQ(none, nullptr);

	create(2, 4);
	auto refused = [&](auto spoil) {
		peerdma_op op = read(1);
		spoil(op);
		return peerdma_ring_queue(ring, &op, 1);
	};
	EXPECT_EQ(refused([](peerdma_op &op) { op.kind = 2; }), -EINVAL);
	EXPECT_EQ(refused([](peerdma_op &op) { op.flags = 1; }), -EINVAL);
	EXPECT_EQ(refused([](peerdma_op &op) { op.file = nullptr; }), -EINVAL);
	EXPECT_EQ(refused([](peerdma_op &op) { op.buf = nullptr; }), -EINVAL);
	EXPECT_EQ(refused([](peerdma_op &op) { op.len = 0; }), -EINVAL);
	EXPECT_EQ(refused([](peerdma_op &op) { op.len = 0x7ffff001; }), -EINVAL);
	peerdma_device *other = nullptr;
	peerdma_buf *others = nullptr;
	ASSERT_EQ(peerdma_open(&other, 0), 0);
	ASSERT_EQ(peerdma_buf_create(other, 1, 4096, 0, &others, nullptr), 0);
	EXPECT_EQ(refused([&](peerdma_op &op) { op.buf = others; }), -ENOENT);
	peerdma_buf_destroy(others);
	peerdma_close(other);
	peerdma_done done;
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 0, 0, 0), -EINVAL);
	EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 2, 0), -EINVAL);
	EXPECT_EQ(peerdma_ring_wait(ring, nullptr, 1, 1, 0), -EINVAL);
	EXPECT_EQ(peerdma_ring_cancel(nullptr, 0), -EINVAL);
	EXPECT_EQ(peerdma_ring_submit(nullptr), -EINVAL);
	peerdma_ring_destroy(nullptr);
	EXPECT_TRUE(sys.commands.empty());
}

} // namespace
