// SPDX-License-Identifier: MIT
//
// The identity of a process, queried by a child that was forked while another thread was querying it.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process.hpp"

namespace
{

// The first query of a thread blocks until a child exists.
std::atomic<bool> is_slow{false}, is_inside{false}, is_forked{false};

} // namespace

extern "C" int madvise(void *at, size_t bytes, int advice) noexcept
{
	if (advice == MADV_WIPEONFORK && is_slow.exchange(false)) {
		is_inside = true;
		while (!is_forked)
			::usleep(100);
	}
	return static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
}

namespace
{

// Needs a process without an earlier query. A child that waits for a thread that it does not have is killed by SIGALRM.
int ask_while_forked()
{
	is_slow = true;
	std::thread other([] { peerdma_impl::this_process(); });
	while (!is_inside)
		::usleep(100);
	const pid_t child = ::fork();
	if (child == 0) {
		::alarm(5);
		::_exit(peerdma_impl::this_process() ? 0 : 1);
	}
	is_forked = true;
	other.join();
	int status = 0;
	::waitpid(child, &status, 0);
	return status;
}

TEST(ProcessDeathTest, AChildDoesNotWaitForAThreadThatItDoesNotHave)
{
	GTEST_FLAG_SET(death_test_style, "threadsafe"); // in a new process: this one has queried already
	EXPECT_EXIT(::_exit(ask_while_forked() != 0), ::testing::ExitedWithCode(0), "");
}

} // namespace
