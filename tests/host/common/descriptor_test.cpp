// SPDX-License-Identifier: MIT
//
// A program closes the library's descriptors, as closefrom(3) does, and opens other files under their numbers.
#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fake_syscalls.hpp"
#include "peerdma.hpp"
#include "ring_descriptors.hpp"

namespace
{

class Numbers : public ::testing::Test
{
protected:
	Numbers()
	{
		sys.contents["/f"].bytes = std::string(8192, 'f');
		sys.contents["/other"].bytes = std::string(8192, 'o');
		sys.contents["/dir"].mode = S_IFDIR | 0755;
		sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
		EXPECT_EQ(peerdma_open(&device, 0), 0);
		EXPECT_EQ(peerdma_buf_create(device, 1, 1 << 16, 0, &buf, nullptr), 0);
	}
	~Numbers() override
	{
		peerdma_buf_destroy(buf);
		peerdma_close(device);
		EXPECT_TRUE(sys.file_ids.empty()) << "a registered file leaked";
		EXPECT_TRUE(sys.mappings.empty()) << "a mapping leaked";
	}

	peerdma_file *open(int flags, bool shared = false)
	{
		peerdma_file *file = nullptr;
		if (!shared) {
			EXPECT_EQ(peerdma_file_open(device, "/f", flags, &file), 0);
			return file;
		}
		// Opened from a descriptor of the program, which shares its open file description with the library's.
		const int own = sys.open("/f", flags);
		EXPECT_EQ(peerdma_file_from_fd(device, own, &file), 0);
		sys.flags[sys.fds.rbegin()->first] = flags;
		sys.close(own);
		return file;
	}
	// Gives the other file the numbers of all descriptors of this path.
	void reuse(const std::string &path = "/f", const std::string &by = "/other")
	{
		const auto now = sys.fds;
		for (const auto &[fd, name] : now)
			if (name == path)
				sys.reuse(fd, by);
	}
	size_t open_by(const std::string &path) const
	{
		size_t n = 0;
		for (const auto &[fd, name] : sys.fds)
			n += name == path;
		return n;
	}
	void refuse_direct()
	{
		sys.contents["/f"].refused_errno = EXDEV;
		sys.contents["/f"].refused_reason = PEERDMA_REASON_FILESYSTEM;
	}
	const std::string &memory() { return sys.buffers.begin()->second.bytes; }
	const std::string &bytes_of(const std::string &path) { return sys.contents[path].bytes; }

	// Flags, and whether the open file description is shared.
	const std::pair<int, bool> ways[4] = {
		{O_RDWR, false}, {O_RDWR, true}, {O_RDWR | O_DIRECT, false}, {O_RDWR | O_DIRECT, true}};

	FakeSyscalls sys;
	peerdma_device *device = nullptr;
	peerdma_buf *buf = nullptr;
	peerdma_io_result result = peerdma::detail::sized<peerdma_io_result>();
};

TEST_F(Numbers, DirectIOIsOfTheFileThatWasOpened)
{
	for (const auto &[flags, shared] : ways) {
		peerdma_file *file = open(flags, shared);
		reuse();
		EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 0, &result), 4096);
		EXPECT_EQ(memory().substr(0, 4096), std::string(4096, 'f'));
		EXPECT_EQ(peerdma_write(file, buf, 0, 4096, 4096), 4096);
		EXPECT_EQ(bytes_of("/other"), std::string(8192, 'o'));
		peerdma_file_close(file);
		EXPECT_EQ(open_by("/other"), 1u) << "the number is another file's: it stays open";
		reuse("/other", "gone");
	}
}

TEST_F(Numbers, TheWayThroughThePageCacheNoticesIt)
{
	refuse_direct();
	for (const auto &[flags, shared] : ways) {
		peerdma_file *file = open(flags, shared);
		EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
		reuse();
		sys.posix_fds.clear();
		EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 0, &result), -EBADF);
		EXPECT_EQ(result.error, static_cast<uint32_t>(EBADF));
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
		EXPECT_EQ(peerdma_write(file, buf, 0, 4096, 0), -EBADF);
		EXPECT_EQ(bytes_of("/other"), std::string(8192, 'o'));
		EXPECT_TRUE(sys.posix_fds.empty());
		const size_t others = open_by("/other");
		peerdma_file_close(file);
		EXPECT_EQ(open_by("/other"), others);
		reuse("/other", "gone");
	}
}

// The first fallback opens the file again, by the number.
TEST_F(Numbers, AFileIsNotOpenedAgainByAnothersNumber)
{
	refuse_direct();
	for (const bool shared : {false, true}) {
		peerdma_file *file = open(O_RDWR | O_DIRECT, shared);
		const auto now = sys.fds;
		for (const auto &[fd, name] : now)
			if (name == "/f") {
				sys.reuse(fd, "/other");
				sys.flags[fd] = O_RDWR | O_DIRECT;
			}
		EXPECT_EQ(peerdma_write(file, buf, 0, 4096, 0), -EBADF);
		EXPECT_EQ(bytes_of("/other"), std::string(8192, 'o'));
		EXPECT_EQ(open_by("/other"), 1u) << "a descriptor leaked";
		peerdma_file_close(file);
		reuse("/other", "gone");
	}
}

// The program closed the descriptor and opened the same file again: another open file description, perhaps with other
// flags.
TEST_F(Numbers, TheSameFileByAnotherDescriptionIsNotTheLibrarys)
{
	refuse_direct();
	peerdma_file *file = open(O_RDWR);
	reuse("/f", "/f");
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EBADF);
	peerdma_file_close(file);
	EXPECT_EQ(open_by("/f"), 1u);
}

TEST_F(Numbers, QuestionsAreNotAnsweredForAnotherFile)
{
	for (const auto &[flags, shared] : ways) {
		peerdma_file *file = open(flags, shared);
		reuse();
		uint64_t size = 17;
		auto why = peerdma::detail::sized<peerdma_explanation>();
		EXPECT_EQ(peerdma_file_size(file, &size), -EBADF);
		EXPECT_EQ(size, 17u);
		EXPECT_EQ(peerdma_explain(file, 1, &why), -EBADF);
		peerdma_file_close(file);
	}
}

TEST_F(Numbers, ARuleIsNotDecidedForAnotherFile)
{
	sys.files["/etc/peerdma/rules"] = "deny file=/f\n";
	peerdma_device *strict = nullptr;
	ASSERT_EQ(peerdma_open(&strict, 0), 0);
	peerdma_buf *to = nullptr;
	ASSERT_EQ(peerdma_buf_create(strict, 1, 4096, 0, &to, nullptr), 0);
	peerdma_file *file = nullptr;
	ASSERT_EQ(peerdma_file_open(strict, "/f", O_RDONLY, &file), 0);
	const int fd = sys.fds.rbegin()->first;
	sys.reuse(fd, "/other");
	sys.links["/proc/self/fd/" + std::to_string(fd)] = "/other";
	EXPECT_EQ(peerdma_read(file, to, 0, 4096, 0), -EBADF);
	EXPECT_EQ(sys.buffers.rbegin()->second.bytes[0], '\0');
	peerdma_file_close(file);
	peerdma_buf_destroy(to);
	peerdma_close(strict);
}

TEST_F(Numbers, WhatHasNoIdIsNotReadByNumber)
{
	peerdma_file *dir = nullptr;
	ASSERT_EQ(peerdma_file_open(device, "/dir", O_RDONLY, &dir), 0);
	reuse("/dir");
	EXPECT_EQ(peerdma_read_result(dir, buf, 0, 4096, 0, &result), -EISDIR);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_FILE_TYPE));
	peerdma_ring *ring = nullptr;
	ASSERT_EQ(peerdma_ring_create(device, 4, 4, 0, &ring), 0);
	const peerdma_op op = {PEERDMA_OP_READ, 0, dir, buf, 0, 512, 0, 1};
	EXPECT_EQ(peerdma_ring_queue(ring, &op, 1), -EISDIR);
	peerdma_ring_destroy(ring);
	peerdma_file_close(dir);
}

TEST_F(Numbers, AFileWithoutAnIdDoesNotOpen)
{
	const size_t before = sys.fds.size();
	for (const auto &[kernel, library] :
	     {std::pair{-EMFILE, -EMFILE}, {-ENOMEM, -ENOMEM}, {-ENOTTY, -EOPNOTSUPP}}) {
		sys.on_ioctl = [rc = kernel](unsigned long request, void *) {
			return request == PEERDMA_FILE_ADD ? rc : 1;
		};
		peerdma_file *file = nullptr;
		EXPECT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), library);
		EXPECT_EQ(file, nullptr);
		EXPECT_EQ(sys.fds.size(), before) << "a descriptor leaked";
	}
}

// Another thread replaces the descriptor between open() and the ioctl.
TEST_F(Numbers, AnIdOfAnotherFileIsGivenBack)
{
	sys.on_ioctl = [this](unsigned long request, void *arg) {
		if (request == PEERDMA_FILE_ADD)
			sys.reuse(static_cast<peerdma_file_add *>(arg)->fd, "/other");
		return 1;
	};
	peerdma_file *file = nullptr;
	EXPECT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), -EBADF);
	EXPECT_TRUE(sys.file_ids.empty());
	EXPECT_EQ(open_by("/other"), 1u);
}

// Ids start at 1 on each open /dev/peerdma.
TEST_F(Numbers, AHandleIsNotOfADeviceThatIsOpenedByItsNumber)
{
	peerdma_file *file = open(O_RDWR);
	const int fd = peerdma_fd(device);
	sys.close(fd);
	// The kernel uses the lowest free number.
	const int next = sys.next_fd(fd);
	peerdma_device *later = nullptr;
	ASSERT_EQ(peerdma_open(&later, 0), 0);
	sys.next_fd(next);
	ASSERT_EQ(peerdma_fd(later), fd);
	EXPECT_EQ(peerdma_fd(device), -EBADF);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EBADF);
	EXPECT_EQ(memory()[0], '\0');
	void *at = nullptr;
	EXPECT_EQ(peerdma_buf_map(buf, &at), -EBADF);
	peerdma_ring *ring = nullptr;
	EXPECT_EQ(peerdma_ring_create(device, 4, 4, 0, &ring), -EBADF);
	peerdma_file_close(file);
	peerdma_buf_destroy(buf);
	peerdma_close(device);
	EXPECT_EQ(peerdma_fd(later), fd) << "its descriptor stays open";
	EXPECT_FALSE(sys.buffers.empty()) << "and so does what has the same id";
	buf = nullptr;
	device = later;
	sys.file_ids.clear();
}

TEST_F(Numbers, NorOfAnotherFileByThatNumber)
{
	const int fd = peerdma_fd(device);
	sys.reuse(fd, "/other");
	EXPECT_EQ(peerdma_fd(device), -EBADF);
	// Must not be EOPNOTSUPP, which means that the module is too old.
	peerdma_file *file = nullptr;
	EXPECT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), -EBADF);
	peerdma_buf *from = nullptr;
	uint32_t reason = 4711;
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, 0x10000, 65536, 0, &from, &reason), -EBADF);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	int exported = -1;
	EXPECT_EQ(peerdma_buf_export_dmabuf(buf, 0, 4096, &exported, &reason), -EBADF);
	peerdma_device_info info = peerdma::detail::sized<peerdma_device_info>();
	EXPECT_EQ(peerdma_query(device, &info), -EBADF);
	peerdma_buf_destroy(buf);
	peerdma_close(device);
	EXPECT_EQ(open_by("/other"), 1u) << "its number is another file's: it stays open";
	buf = nullptr;
	device = nullptr;
	sys.buffers.clear();
}

// Another thread replaces the descriptor between two calls of the library. The kernel maps or registers the other file.
TEST_F(Numbers, WhatIsMadeOfAnotherFileIsGivenBack)
{
	const int fd = peerdma_fd(device);
	sys.on_ioctl = [this, fd](unsigned long request, void *) {
		if (request == PEERDMA_INFO)
			sys.reuse(fd, "/other");
		return 1;
	};
	peerdma_ring *ring = nullptr;
	EXPECT_EQ(peerdma_ring_create(device, 4, 4, 0, &ring), -EBADF);
	EXPECT_EQ(ring, nullptr);
	EXPECT_EQ(sys.queues, 0u);
	void *at = nullptr;
	sys.features |= PEERDMA_FEATURE_ON_DEMAND;
	sys.reuse(fd, "/dev/peerdma");
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 4096, &at), -EBADF);
	EXPECT_EQ(peerdma_buf_map(buf, &at), -EBADF);
	EXPECT_EQ(at, nullptr);
	EXPECT_TRUE(sys.mappings.empty());
	sys.on_ioctl = nullptr;
	sys.reuse(fd, "/dev/peerdma");
	EXPECT_EQ(peerdma_buf_map(buf, &at), 0);
}

// Real rings of the kernel. Each has its own inode.
TEST(Queues, AreKnownByMoreThanTheirNumber)
{
	const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
	std::unique_ptr<peerdma_impl::Queue> queue, other;
	const int rc = peerdma_impl::kernel_queue(nothing, 4, false, queue);
	if (rc == -ENOSYS || rc == -EPERM)
		GTEST_SKIP() << "no io_uring here";
	ASSERT_EQ(rc, 0);
	const auto descriptors = ring_descriptors();
	ASSERT_EQ(descriptors.size(), 1u);
	const int number = descriptors[0];
	ASSERT_EQ(::close(number), 0);
	ASSERT_EQ(peerdma_impl::kernel_queue(nothing, 4, false, other), 0);
	ASSERT_EQ(ring_descriptors(), descriptors);
	EXPECT_TRUE(queue->push({0, 0, 0, 0, 0, 0, 1}));
	EXPECT_EQ(queue->submit(), -EBADF);
	peerdma_impl::Completion done;
	EXPECT_EQ(queue->wait(&done, 1, 0), -EBADF);
	EXPECT_EQ(queue->wait(&done, 1, -1), -EBADF);
	queue.reset();
	EXPECT_EQ(ring_descriptors(), descriptors) << "the other's was closed";
	other.reset();
	EXPECT_TRUE(ring_descriptors().empty());
	::close(nothing);
}

// What a program without standard input gets when it makes a ring.
struct Made {
	int rc;
	bool is_stdin; // a descriptor of the ring has number 0 while the ring exists
};

Made make_without_stdin(rlim_t descriptors)
{
	const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
	const int kept = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);
	struct rlimit before = {};
	::getrlimit(RLIMIT_NOFILE, &before);
	const struct rlimit most = {std::min(descriptors, before.rlim_cur), before.rlim_max};
	::close(STDIN_FILENO);
	::setrlimit(RLIMIT_NOFILE, &most);
	std::unique_ptr<peerdma_impl::Queue> queue;
	const int rc = peerdma_impl::kernel_queue(nothing, 4, false, queue);
	const bool taken = ::fcntl(STDIN_FILENO, F_GETFD) >= 0;
	::setrlimit(RLIMIT_NOFILE, &before);
	::close(STDIN_FILENO);
	if (kept >= 0) {
		::dup2(kept, STDIN_FILENO);
		::close(kept);
	}
	::close(nothing);
	return {rc, taken};
}

TEST(Queues, AreNoStandardStreams)
{
	const Made made = make_without_stdin(RLIM_INFINITY);
	if (made.rc == -ENOSYS || made.rc == -EPERM)
		GTEST_SKIP() << "no io_uring here";
	EXPECT_EQ(made.rc, 0);
	EXPECT_FALSE(made.is_stdin);
}

TEST(Queues, LeaveNoStandardStreamWhenRefused)
{
	const Made made = make_without_stdin(STDERR_FILENO + 1);
	if (made.rc == -ENOSYS || made.rc == -EPERM)
		GTEST_SKIP() << "no io_uring here";
	EXPECT_LT(made.rc, 0);
	EXPECT_FALSE(made.is_stdin) << "a descriptor leaked";
}

} // namespace
