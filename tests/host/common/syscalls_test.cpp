// SPDX-License-Identifier: MIT
//
// How the real Syscalls reads untrusted files.

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/rules.hpp"
#include "common/syscalls.hpp"

using peerdma_impl::kernel_syscalls;
using peerdma_impl::refusal;

namespace
{

class ReadBounded : public ::testing::Test
{
protected:
	void SetUp() override { ASSERT_NE(mkdtemp(dir), nullptr); }
	void TearDown() override { ASSERT_EQ(std::system(("rm -rf " + std::string(dir)).c_str()), 0); }
	std::string at(const std::string &name) const { return std::string(dir) + "/" + name; }
	int read(const std::string &path, uint64_t most = 4096)
	{
		alarm(20); // kills a test that waits for a writer
		out = "old";
		const int rc = kernel_syscalls().read_bounded(path, most, out);
		alarm(0);
		if (rc < 0) {
			EXPECT_EQ(out, "") << path;
		}
		return rc;
	}
	char dir[32] = "/tmp/peerdma-env-XXXXXX";
	std::string out;
};

} // namespace

TEST_F(ReadBounded, NothingButRegularFiles)
{
	ASSERT_EQ(mkfifo(at("fifo").c_str(), 0600), 0);
	struct sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	at("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
	const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ASSERT_EQ(bind(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)), 0);
	ASSERT_EQ(symlink("fifo", at("link").c_str()), 0);
	for (const std::string &path : {at("fifo"), at("socket"), at("link"), std::string("/dev/zero")})
		EXPECT_EQ(read(path), -ESPIPE) << path;
	close(fd);
	EXPECT_EQ(read(dir), -EISDIR);
	EXPECT_EQ(read(at("none")), -ENOENT);
	ASSERT_EQ(symlink("itself", at("itself").c_str()), 0);
	EXPECT_EQ(read(at("itself")), -ELOOP);
}

TEST_F(ReadBounded, ALimitOfSizeAlsoWhereTheSizeReadsZero)
{
	std::ofstream(at("file")) << std::string(4096, 'x');
	EXPECT_EQ(read(at("file")), 0);
	EXPECT_EQ(out.size(), 4096u);
	EXPECT_EQ(read(at("file"), 4095), -EFBIG);
	ASSERT_EQ(truncate(at("file").c_str(), off_t{3} << 30), 0);
	EXPECT_EQ(read(at("file"), peerdma_impl::file_limit), -EFBIG);
	// A file of procfs: st_size is 0.
	EXPECT_EQ(read("/proc/self/status", 1 << 20), 0);
	EXPECT_GT(out.size(), 100u);
	EXPECT_EQ(read("/proc/self/status", 100), -EFBIG);
}

TEST_F(ReadBounded, EachRefusalHasWords)
{
	for (int rc : {-ESPIPE, -EISDIR, -EFBIG})
		EXPECT_NE(refusal(rc), nullptr);
	for (int rc : {0, -ENOENT, -EACCES})
		EXPECT_EQ(refusal(rc), nullptr);
}

TEST_F(ReadBounded, RulesThatAreAFifoAreAFault)
{
	ASSERT_EQ(mkfifo(at("rules").c_str(), 0600), 0);
	peerdma_impl::Rules rules;
	std::string fault;
	alarm(20);
	EXPECT_EQ(load_rules(kernel_syscalls(), at("rules"), rules, fault), -EBADMSG);
	alarm(0);
	EXPECT_EQ(fault, at("rules") + " cannot be read: it is not a regular file");
	ASSERT_EQ(unlink(at("rules").c_str()), 0);
	std::ofstream(at("rules")) << "# " << std::string(peerdma_impl::written_limit, 'x');
	EXPECT_EQ(load_rules(kernel_syscalls(), at("rules"), rules, fault), -EBADMSG);
	EXPECT_EQ(fault, at("rules") + " cannot be read: it is too large");
}

TEST_F(ReadBounded, RulesBehindABrokenLinkAreAFault)
{
	peerdma_impl::Rules rules;
	std::string fault;
	const auto load = [&](const std::string &name) {
		return load_rules(kernel_syscalls(), at(name), rules, fault);
	};
	const auto broken = [&](const std::string &name, const std::string &link) {
		return at(name) + " cannot be read: the target of the symbolic link " + at(link) + " does not exist";
	};
	EXPECT_EQ(load("rules"), 0) << "no file: no rules";
	EXPECT_EQ(load("peerdma/rules"), 0) << "no directory: no rules";
	ASSERT_EQ(symlink("gone", at("rules").c_str()), 0);
	EXPECT_EQ(load("rules"), -EBADMSG);
	EXPECT_EQ(fault, broken("rules", "rules"));
	ASSERT_EQ(symlink("gone", at("peerdma").c_str()), 0);
	EXPECT_EQ(load("peerdma/rules"), -EBADMSG);
	EXPECT_EQ(fault, broken("peerdma/rules", "peerdma"));
	ASSERT_EQ(mkdir(at("gone").c_str(), 0700), 0);
	EXPECT_EQ(load("peerdma/rules"), 0) << "an empty directory behind a link: no rules";
	EXPECT_EQ(load_rules(kernel_syscalls(), "no-such-rules", rules, fault), 0) << "a relative path";
}

namespace
{

constexpr size_t two_pages = 8192;

struct Mapping {
	explicit Mapping(int protection)
		: at(static_cast<char *>(mmap(nullptr, two_pages, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
	{
	}
	~Mapping() { munmap(at, two_pages); }
	Mapping(const Mapping &) = delete;
	Mapping &operator=(const Mapping &) = delete;
	char *const at;
};

} // namespace

TEST(Store, CopiesAsTheCpuWould)
{
	for (const size_t len : {size_t{0}, size_t{1}, size_t{65536}, size_t{65537}, size_t{1000003}}) {
		std::string from(len, '\0'), to(len + 2, 'x');
		for (size_t i = 0; i < len; i++)
			from[i] = static_cast<char>(i * 7 + i / 251);
		EXPECT_EQ(kernel_syscalls().store(to.data() + 1, from.data(), len), 0);
		EXPECT_EQ(to, "x" + from + "x");
	}
}

TEST(Store, MemoryThatIsNotThereIsAnError)
{
	const Mapping none(PROT_NONE), half(PROT_READ | PROT_WRITE);
	ASSERT_EQ(mprotect(half.at + 4096, 4096, PROT_NONE), 0);
	const std::string from(two_pages, 'y');
	EXPECT_EQ(kernel_syscalls().store(none.at, from.data(), 1), -EFAULT);
	EXPECT_EQ(kernel_syscalls().store(half.at, from.data(), from.size()), -EFAULT);
	EXPECT_EQ(kernel_syscalls().store(half.at, from.data(), 4096), 0);
	EXPECT_EQ(std::string(half.at, 4096), from.substr(0, 4096));
}

TEST_F(ReadBounded, AMappingOfAFileThatBecomesShorter)
{
	std::ofstream(at("file")) << std::string(two_pages, 'z');
	const int fd = kernel_syscalls().open(at("file").c_str(), O_RDONLY | O_CLOEXEC);
	void *mapped = nullptr;
	ASSERT_EQ(kernel_syscalls().map_file(fd, two_pages, &mapped), 0);
	auto *const bytes = static_cast<char *>(mapped);
	EXPECT_EQ(kernel_syscalls().populate(bytes + 1, two_pages - 1), 0);
	EXPECT_EQ(bytes[two_pages - 1], 'z');
	ASSERT_EQ(truncate(at("file").c_str(), 4096), 0);
	EXPECT_EQ(kernel_syscalls().populate(bytes, 4096), 0);
	EXPECT_EQ(kernel_syscalls().populate(bytes + 4000, 200), -EFAULT);
	EXPECT_EQ(kernel_syscalls().munmap(mapped, two_pages), 0);
	EXPECT_EQ(kernel_syscalls().map_file(-1, two_pages, &mapped), -EBADF);
	kernel_syscalls().close(fd);
}
