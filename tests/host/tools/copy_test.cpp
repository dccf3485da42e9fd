// SPDX-License-Identifier: MIT
//
// peerdma cp from file to file: the bytes that a FileCopier moves on a machine in memory, and a real file that gets its
// name only when it is complete.

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/copy/copy.hpp"
#include "tools/selftest/selftest.hpp"

namespace
{

class Pumped : public ::testing::Test
{
protected:
	static constexpr uint64_t piece = 8192, size = 10 * piece + 777;

	Pumped()
	{
		sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
		sys.contents["/from"].bytes = cli::pattern(3, 0, size);
		sys.contents["/to"].bytes = std::string(size, '\0');
	}
	~Pumped() override
	{
		EXPECT_TRUE(sys.fds.empty());
		EXPECT_TRUE(sys.buffers.empty());
		EXPECT_EQ(sys.queues, 0u);
		EXPECT_TRUE(sys.under_way.empty());
	}

	// Copies these ranges; returns the failure, or "".
	std::string copy(std::vector<cli::Range> ranges = {{0, size}}, uint32_t flags = 0)
	{
		const cli::Device device = cli::open_device(flags);
		const auto provider = cli::find_provider(device, "");
		const cli::File from = cli::open_file(device, "/from", O_RDONLY),
				to = cli::open_file(device, "/to", O_RDWR);
		cli::FileCopier copier(sys, device, {from, "/from", from_block, from_software}, {to, "/to", to_block},
				       cli::create_buffer(device, provider, 4 * piece), piece, 4,
				       [&](uint64_t bytes) { progress = bytes; });
		std::string failed;
		try {
			for (const cli::Range range : ranges)
				copier.copy(range);
		} catch (const cli::Failure &failure) {
			failed = failure.line();
		}
		counts = copier.counts();
		read = copier.read();
		written = copier.written();
		ring = copier.by_ring();
		done = copier.done();
		return failed;
	}

	FakeSyscalls sys;
	uint64_t from_block = 512, to_block = 512, progress = 0, done = 0;
	cli::Counts counts;
	cli::BounceCounts read, written;
	bool ring = false, from_software = false;
};

// A temporary folder of this test.
class Drafts : public ::testing::Test
{
protected:
	Drafts()
	{
		std::string name = "/tmp/peerdma-copy-XXXXXX";
		dir = ::mkdtemp(name.data());
		target = dir + "/target";
	}
	~Drafts() override { std::filesystem::remove_all(dir); }

	size_t names() const
	{
		return static_cast<size_t>(
			std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator()));
	}
	std::string content() const
	{
		std::ifstream in(target);
		return {std::istreambuf_iterator<char>(in), {}};
	}
	void write(const cli::AtomicFile &replacement, std::string_view text) const
	{
		EXPECT_EQ(::pwrite(replacement.fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
	}

	std::string dir, target;
};

} // namespace

TEST_F(Pumped, EachByteArrivesByARing)
{
	EXPECT_EQ(copy(), "");
	EXPECT_EQ(sys.contents["/to"].bytes, sys.contents["/from"].bytes);
	EXPECT_TRUE(ring);
	EXPECT_EQ(done, size);
	EXPECT_EQ(progress, size);
	// 10 whole pieces and a whole block each way; the rest is bounced near for the read, through the host for the
	// write.
	EXPECT_EQ(counts.direct, 2 * (10 * piece + 512));
	EXPECT_EQ(counts.near, 265u);
	EXPECT_EQ(counts.host, 265u);
	EXPECT_EQ(read.near, 265u);
	EXPECT_EQ(written.host, 265u);
	EXPECT_EQ(written.reason, PEERDMA_REASON_FILE_ALIGN);
	EXPECT_EQ(sys.commands.size(), 22u) << "by the ring, a read and a write of each piece";
}

TEST_F(Pumped, WhatSoftwareCopiesIsTheHosts)
{
	from_software = true;
	EXPECT_EQ(copy(), "");
	EXPECT_EQ(counts.direct, 10 * piece + 512) << "the writes";
	EXPECT_EQ(counts.host, 10 * piece + 512 + 265);
	EXPECT_EQ(read.host, 10 * piece + 512);
	EXPECT_EQ(written.host, 265u);
}

TEST_F(Pumped, SeveralAreUnderWayAtOnce)
{
	EXPECT_EQ(copy(), "");
	ASSERT_GE(sys.commands.size(), 4u);
	for (size_t i = 0; i < 4; i++)
		EXPECT_EQ(sys.commands[i], uint32_t{PEERDMA_URING_READ}) << "four are read before one is written";
}

TEST_F(Pumped, OnlyWhatItIsToldTo)
{
	EXPECT_EQ(copy({{512, 1024}, {4 * piece, 4 * piece + 100}}), "");
	std::string want(size, '\0');
	want.replace(512, 512, sys.contents["/from"].bytes, 512, 512);
	want.replace(4 * piece, 100, sys.contents["/from"].bytes, 4 * piece, 100);
	EXPECT_EQ(sys.contents["/to"].bytes, want);
}

TEST_F(Pumped, OtherBlocksOnEitherSide)
{
	to_block = 4096;
	EXPECT_EQ(copy({{512, size}}), "");
	EXPECT_EQ(sys.contents["/to"].bytes.substr(512), sys.contents["/from"].bytes.substr(512));
}

TEST_F(Pumped, RangesThatShareABlockOfTheOtherSide)
{
	to_block = 4096;
	EXPECT_EQ(copy({{0, 1024}, {2048, 3072}, {3584, 3 * 4096 + 512}, {4 * 4096 + 512, 5 * 4096}}), "");
	EXPECT_EQ(sys.contents["/to"].bytes.substr(0, 3 * 4096 + 512),
		  sys.contents["/from"].bytes.substr(0, 3 * 4096 + 512));
	EXPECT_EQ(sys.contents["/to"].bytes.substr(4 * 4096, 4096), sys.contents["/from"].bytes.substr(4 * 4096, 4096));
	EXPECT_EQ(done, 3 * 4096 + 512 + 4096u) << "no byte twice";
	EXPECT_EQ(counts.all(), 2 * done);
	EXPECT_EQ(progress, done);
}

TEST_F(Pumped, WithoutARouteOnOneSideAndWithoutRings)
{
	sys.contents["/to"].refused_errno = EXDEV;
	sys.contents["/to"].refused_reason = PEERDMA_REASON_FILESYSTEM;
	to_block = 0;
	EXPECT_EQ(copy(), "");
	EXPECT_EQ(sys.contents["/to"].bytes, sys.contents["/from"].bytes);
	EXPECT_FALSE(ring);
	EXPECT_EQ(written.host, size);
	EXPECT_EQ(written.reason, PEERDMA_REASON_FILESYSTEM);
	EXPECT_EQ(read.near, 265u);
	sys.contents["/to"] = {.bytes = std::string(size, '\0')};
	to_block = 512;
	sys.queue_error = -EPERM;
	EXPECT_EQ(copy(), "");
	EXPECT_FALSE(ring);
	EXPECT_EQ(sys.contents["/to"].bytes, sys.contents["/from"].bytes);
}

TEST_F(Pumped, AnErrorSaysWhereAndWhy)
{
	int calls = 0;
	sys.on_ioctl = [&](unsigned long request, void *) { return request == PEERDMA_WRITE && ++calls ? -ENOSPC : 1; };
	EXPECT_TRUE(has(copy(), "writing /to failed 82432 bytes from its start: ")) << copy();
	sys.on_ioctl = nullptr;
	sys.contents["/from"].bytes.resize(3 * piece + 5);
	EXPECT_TRUE(has(copy(), "/from changed while it was copied"));
}

TEST_F(Pumped, ARefusalOfTheRingIsAskedForAgainByACall)
{
	// The file loses its route during the copy: the library falls back and reports it.
	sys.contents["/to"].refused_errno = EXDEV;
	sys.contents["/to"].refused_reason = PEERDMA_REASON_QUEUE;
	EXPECT_EQ(copy(), "");
	EXPECT_EQ(sys.contents["/to"].bytes, sys.contents["/from"].bytes);
	EXPECT_EQ(written.host, size);
	EXPECT_EQ(written.reason, PEERDMA_REASON_QUEUE);
	EXPECT_EQ(counts.all(), 2 * size);
	const std::string refused = copy({{0, size}}, PEERDMA_OPEN_REQUIRE_DIRECT);
	EXPECT_TRUE(has(refused, peerdma_reason_text(PEERDMA_REASON_QUEUE))) << refused;
}

TEST_F(Drafts, GetsItsNameWhenItIsWhole)
{
	std::ofstream(target) << "old";
	{
		cli::AtomicFile replacement(peerdma_impl::kernel_syscalls(), target);
		write(replacement, "new");
		EXPECT_EQ(content(), "old");
		replacement.publish(0640);
	}
	EXPECT_EQ(names(), 1u);
	EXPECT_EQ(content(), "new");
	struct stat st = {};
	EXPECT_EQ(::stat(target.c_str(), &st), 0);
	EXPECT_EQ(st.st_mode & 07777, 0640u);
}

TEST_F(Drafts, LeavesNothingBehind)
{
	std::ofstream(target) << "old";
	{
		cli::AtomicFile replacement(peerdma_impl::kernel_syscalls(), target);
		write(replacement, "new");
	}
	EXPECT_EQ(names(), 1u);
	EXPECT_EQ(content(), "old");
	// A file cannot replace what is at the path now.
	std::filesystem::remove(target);
	std::filesystem::create_directory(target);
	{
		cli::AtomicFile replacement(peerdma_impl::kernel_syscalls(), target);
		EXPECT_THROW(replacement.publish(0600), cli::Failure);
	}
	EXPECT_EQ(names(), 1u);
	EXPECT_THROW(cli::AtomicFile(peerdma_impl::kernel_syscalls(), dir + "/none/target"), cli::Failure);
}

TEST_F(Drafts, WhereEachFileHasAName)
{
	// The error of NFS.
	FakeSyscalls sys;
	sys.contents[dir].open_error = -EOPNOTSUPP;
	std::ofstream(target) << "old";
	{
		cli::AtomicFile replacement(sys, target);
		sys.fds[replacement.fd()] = "real";
		EXPECT_EQ(names(), 2u);
		::close(replacement.fd());
	}
	EXPECT_EQ(names(), 1u) << "it went with the temporary file";
	{
		cli::AtomicFile replacement(sys, target);
		sys.fds[replacement.fd()] = "real";
		write(replacement, "new");
		replacement.publish(0600);
		EXPECT_EQ(names(), 1u);
		EXPECT_EQ(content(), "new");
		::close(replacement.fd());
	}
	EXPECT_EQ(content(), "new");
	// A signal ends the process; its handler first removes the temporary name.
	EXPECT_EXIT(
		{
			cli::AtomicFile replacement(sys, target);
			::raise(SIGTERM);
		},
		::testing::KilledBySignal(SIGTERM), "");
	EXPECT_EQ(names(), 1u);
}

TEST_F(Drafts, WhatCannotBeReadIsNotCompared)
{
	FakeSyscalls sys;
	sys.contents["/a"].bytes = sys.contents["/b"].bytes = std::string(3 << 20, 'x');
	sys.posix_limit = 1 << 20;
	auto compared = [&](uint64_t len) {
		const cli::Fd a(sys, sys.open("/a", O_RDONLY)), b(sys, sys.open("/b", O_RDONLY));
		try {
			cli::compare_files(a, "/a", b, "/b", len);
		} catch (const cli::Failure &failure) {
			return failure.line();
		}
		return std::string("equal");
	};
	EXPECT_EQ(compared(3 << 20), "equal");
	EXPECT_TRUE(has(compared((3 << 20) + 1), "/a changed while it was compared: it ends at 3145728"))
		<< "both end there";
	sys.contents["/b"].bytes.resize(5000);
	EXPECT_TRUE(has(compared(3 << 20), "/b changed while it was compared: it ends at 5000"));
	sys.posix_error = -EIO;
	EXPECT_TRUE(has(compared(3 << 20), "cannot read /a again"));
}

// Files of the kernel on this machine.
TEST(Sources, OfProcAndSysfs)
{
	FakeSyscalls sys;
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	const cli::Device device = cli::open_device(0);
	for (const char *path : {"/proc/self/status", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"}) {
		std::ifstream in(path);
		std::string bytes{std::istreambuf_iterator<char>(in), {}};
		struct stat st = {};
		if (::stat(path, &st) < 0 || bytes.empty() || static_cast<size_t>(st.st_size) == bytes.size())
			continue;
		sys.contents[path] = {.bytes = bytes, .size = static_cast<uint64_t>(st.st_size)};
		EXPECT_THROW(cli::Source(sys, device, path), cli::Failure) << path;
	}
	EXPECT_TRUE(sys.contents.count("/proc/version"));
	sys.contents["/true"].bytes = "x";
	EXPECT_EQ(cli::Source(sys, device, "/true").size(), 1u);
	sys.contents["/empty"] = {};
	EXPECT_EQ(cli::Source(sys, device, "/empty").size(), 0u);
}

TEST(Holes, OfARealFile)
{
	char name[] = "/tmp/peerdma-holes-XXXXXX";
	const int fd = ::mkstemp(name);
	ASSERT_GE(fd, 0);
	::unlink(name);
	ASSERT_EQ(::ftruncate(fd, 3 << 20), 0);
	EXPECT_EQ(cli::data_ranges(fd, 3 << 20).size(), 0u) << "nothing but a hole";
	ASSERT_EQ(::pwrite(fd, "x", 1, 1 << 20), 1);
	const auto ranges = cli::data_ranges(fd, 3 << 20);
	ASSERT_EQ(ranges.size(), 1u);
	EXPECT_LE(ranges[0].begin, 1u << 20);
	EXPECT_GT(ranges[0].end, 1u << 20);
	EXPECT_LT(ranges[0].end - ranges[0].begin, 1u << 20);
	::close(fd);
	const auto unknown = cli::data_ranges(-1, 100);
	ASSERT_EQ(unknown.size(), 1u) << "what knows nothing of holes has none";
	EXPECT_EQ(unknown[0].end, 100u);
}
