// SPDX-License-Identifier: MIT
//
// The progress line of bench, cp, view read and view publish: one line on a terminal, erased at the end; no output without a terminal.

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include "../view/temporary_files.hpp"
#include "command.hpp"
#include "fake_service.hpp"
#include "fake_syscalls.hpp"
#include "tools/cli/cli.hpp"
#include "tools/selftest/selftest.hpp"
#include "tools/view/view.hpp"

namespace
{

// The output of work on stderr, which is a terminal or a pipe.
std::string stderr_of(bool terminal, const std::function<void()> &work)
{
	int ends[2] = {-1, -1}; // read end, write end
	EXPECT_EQ(terminal ? ::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) : ::pipe(ends), 0);
	const int old = ::dup(STDERR_FILENO);
	::dup2(ends[1], STDERR_FILENO);
	::close(ends[1]);
	work();
	std::fflush(stderr);
	std::string said;
	char bytes[4096];
	struct pollfd readable = {ends[0], POLLIN, 0};
	while (::poll(&readable, 1, 0) == 1 && readable.revents & POLLIN) {
		const ssize_t n = ::read(ends[0], bytes, sizeof(bytes));
		said.append(bytes, n > 0 ? static_cast<size_t>(n) : 0);
	}
	::dup2(old, STDERR_FILENO);
	::close(old);
	::close(ends[0]);
	return said;
}

class Terminal : public ::testing::Test
{
protected:
	Terminal()
	{
		sys.add_provider(0, 0x0100, 2, 0, 64 << 20);
		sys.contents["/f"].bytes = cli::pattern(7, 0, 1 << 20);
		// A slow drive: the line is written at most five times per second.
		sys.on_ioctl = [](unsigned long request, void *) {
			if (request == PEERDMA_READ)
				std::this_thread::sleep_for(std::chrono::milliseconds(60));
			return 1;
		};
	}

	FakeSyscalls sys;
};

// The line is the last output on the terminal, and is erased.
const std::string wiped = "\r\033[K";

} // namespace

TEST_F(Terminal, BenchSaysWhichRowAndHowFar)
{
	cli::BenchOptions options;
	options.target = "/f";
	options.settings = {{"io_size", "64K"}, {"bytes", "512K"}, {"route", "direct"}};
	cli::Report report;
	const std::string said = stderr_of(true, [&] { report = cli::bench(options); });
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(said.starts_with("\ropening /f\033[K")) << said;
	EXPECT_TRUE(has(said, "\r1 of 1: direct 64 KiB, 1 threads, depth 1: 0.")) << said;
	EXPECT_TRUE(has(said, "/s\033[K")) << "so much a second: " << said;
	EXPECT_TRUE(said.ends_with(wiped)) << said;
	EXPECT_FALSE(has(said, "\n")) << "one line, over and over";
	EXPECT_EQ(stderr_of(false, [&] { report = cli::bench(options); }), "");
	EXPECT_EQ(report.status, 0);
}

TEST_F(Terminal, CopySaysHowMuchHasArrived)
{
	const cli::CopyOptions options = {.source = "/f", .target = "gpu:", .provider = "", .verify = true};
	const std::string said = stderr_of(true, [&] { EXPECT_EQ(cli::copy(options).status, 0); });
	EXPECT_TRUE(has(said, "\r1 MiB of 1 MiB, ")) << said;
	EXPECT_TRUE(has(said, "\rcomparing\033[K")) << said;
	EXPECT_TRUE(said.ends_with(wiped)) << said;
	EXPECT_FALSE(has(said, "\n"));
	EXPECT_EQ(stderr_of(false, [&] { EXPECT_EQ(cli::copy(options).status, 0); }), "");
}

TEST(TerminalOfAView, ReadSaysHowFarItIs)
{
	TemporaryFiles files;
	cli::ViewOptions options;
	options.device = files.write("a", std::vector<char>(5 << 20));
	options.output = "/dev/null";
	const std::string said = stderr_of(true, [&] { EXPECT_EQ(cli::view_read(options).status, 0); });
	EXPECT_TRUE(said.starts_with("\r80.0 %, 4 MiB, ")) << said;
	EXPECT_TRUE(said.ends_with(wiped)) << said;
	EXPECT_FALSE(has(said, "\n"));
	EXPECT_EQ(stderr_of(false, [&] { EXPECT_EQ(cli::view_read(options).status, 0); }), "");
}

TEST(TerminalOfAView, PublishSaysHowFarTheScanIs)
{
	const TemporaryFiles files;
	cli::ViewOptions options;
	options.socket = files.folder / "socket";
	options.name = "v";
	options.files = {"/data/a"};
	options.wait = true;
	const std::string start = R"({"views":[{"name":"v","state":)", end = "}]}";
	const std::vector<std::string> answers = {"{}", start + R"("scanning","scanned":0.25)" + end,
						  start + R"("scanning","scanned":0.5)" + end,
						  start + R"("published")" + end};
	const auto publish = [&] {
		const FakeService service(options.socket, answers);
		EXPECT_EQ(cli::view_publish(options).status, 0);
	};
	EXPECT_EQ(stderr_of(true, publish), "\rv: scanned 25.0 %\033[K\rv: scanned 50.0 %\033[K" + wiped);
	EXPECT_EQ(stderr_of(false, publish), "");
}
