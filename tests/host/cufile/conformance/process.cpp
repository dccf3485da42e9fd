// SPDX-License-Identifier: MIT
//
// Threads that make calls while another one forks, and programs that changed their standard error.
#include <csignal>

#include <pthread.h>

#include "conformance.hpp"

using namespace conformance;

namespace
{

// Threads that make calls without a pause.
class Callers
{
public:
	~Callers()
	{
		stop_ = true;
		for (auto &thread : threads_)
			thread.join();
	}
	template <class Call> void add(Call &&call)
	{
		threads_.emplace_back([this, call] {
			while (!stop_)
				call();
		});
	}

private:
	std::atomic<bool> stop_{false};
	std::vector<std::thread> threads_;
};

// Every call returns, with any result.
int answered()
{
	alarm(20);
	const auto is_answer = [](int error) { return error == 0 || error == 5001; };
	size_t value = 0;
	bool good = is_answer(code(lib().cuFileGetParameterSizeT, CUFILE_PARAM_PROFILE_STATS, &value));
	good &= is_answer(code(lib().cuFileStatsReset));
	const int opened = code(lib().cuFileDriverOpen);
	good &= is_answer(opened) && code(lib().cuFileDriverClose_v2) == opened;
	return !good;
}

// A thread that is canceled inside a call finishes it first and releases its resources.
TEST_F(Cufile, AThreadThatIsCanceled)
{
	EXPECT_EQ(in_child([&] {
			  alarm(20);
			  const CUfileHandle_t fh = handle("f", pattern(1 << 20));
			  Device memory(1 << 20);
			  for (int i = 0; i < 50; i++) {
				  std::atomic<bool> begun{false};
				  std::thread reader([&] {
					  begun = true;
					  for (;;) {
						  if (read(fh, memory.get(), 1 << 20, 0) != 1 << 20)
							  _exit(2);
						  pthread_testcancel();
					  }
				  });
				  while (!begun)
					  usleep(100);
				  pthread_cancel(reader.native_handle());
				  reader.join();
			  }
			  return read(fh, memory.get(), 1 << 20, 0) != 1 << 20;
		  }),
		  0);
}

TEST_F(Cufile, AfterForkInTheMiddleOfCallsOnAClosedDriver)
{
	Callers callers;
	callers.add([] { lib().cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 4); });
	callers.add([] {
		size_t sizes[16], counts[16];
		lib().cuFileGetParameterPosixPoolSlabArray(sizes, counts, 16);
	});
	callers.add([] {
		CUfileDrvProps_t props;
		lib().cuFileDriverGetProperties(&props);
	});
	callers.add([] { lib().cuFileStatsReset(); });
	for (int i = 0; i < 300; i++)
		ASSERT_EQ(in_child(answered), 0) << "the " << i << "th child";
}

TEST_F(Cufile, AfterForkWhileTheDriverIsOpenedAndClosed)
{
	Callers callers;
	callers.add([] {
		lib().cuFileDriverOpen();
		lib().cuFileDriverClose_v2();
	});
	for (int i = 0; i < 300; i++)
		ASSERT_EQ(in_child(answered), 0) << "the " << i << "th child";
}

// A child of a process that must not call the library must not call it either.
TEST_F(Cufile, AfterForkTwice)
{
	ASSERT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(in_child([] { return in_child([] { return code(lib().cuFileDriverOpen) != 5001; }) != 0; }), 0);
	ASSERT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(in_child([] { return in_child([] { return code(lib().cuFileDriverOpen) != 0; }) != 0; }), 0);
}

// Logs a line each time that the driver is opened.
class Loud : public Cufile
{
protected:
	Loud() { json("{ \"odd\": 1 }"); }
	static bool opens()
	{
		const int opened = code(lib().cuFileDriverOpen);
		return !opened && !code(lib().cuFileDriverClose_v2);
	}
};

TEST_F(Loud, DataInThePlaceOfStandardErrorIsLeftAlone)
{
	const std::string data = pattern(4096);
	for (const int flags : {O_RDWR, O_WRONLY, O_WRONLY | O_APPEND}) {
		open_file("data", data);
		EXPECT_EQ(in_child([&] {
				  close(2);
				  const bool there = open(path("data").c_str(), flags) == 2;
				  return !there || !opens();
			  }),
			  0);
		const std::string now = content("data");
		EXPECT_EQ(now == data, flags == O_RDWR) << "what a shell has opened is written to";
		EXPECT_EQ(now.starts_with(data), flags != O_WRONLY);
	}
}

TEST_F(Loud, StandardErrorThatNobodyReads)
{
	EXPECT_EQ(in_child([&] {
			  const auto is_pending = [] {
				  sigset_t now;
				  sigpending(&now);
				  return sigismember(&now, SIGPIPE) == 1;
			  };
			  int ends[2];
			  if (pipe(ends) || dup2(ends[1], 2) != 2 || close(ends[0]) || close(ends[1]))
				  return 2;
			  signal(SIGPIPE, SIG_DFL);
			  int bad = !opens();
			  sigset_t pipe_signal, mask;
			  sigemptyset(&pipe_signal);
			  sigaddset(&pipe_signal, SIGPIPE);
			  pthread_sigmask(SIG_BLOCK, &pipe_signal, &mask);
			  bad |= sigismember(&mask, SIGPIPE) << 2; // unchanged
			  bad |= (!opens() || is_pending()) << 3;
			  raise(SIGPIPE);
			  bad |= (!opens() || !is_pending()) << 4; // the program's own pending signal
			  return bad;
		  }),
		  0);
}

} // namespace
