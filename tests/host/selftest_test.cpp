// SPDX-License-Identifier: MIT
//
// peerdma selftest on a machine in memory: a good one, and one that does a single thing wrong.

#include <cerrno>

#include <gtest/gtest.h>

#include "fake_env.hpp"
#include "selftest.hpp"

namespace
{

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

class Selftest : public ::testing::Test
{
protected:
	Selftest()
	{
		env.add_provider(0, 0x0100, 2, 0, 64 << 20);
		env.contents["/my/secret"] = {};
	}
	~Selftest() override
	{
		EXPECT_TRUE(env.fds.empty());
		EXPECT_TRUE(env.buffers.empty());
		EXPECT_TRUE(env.mappings.empty());
		EXPECT_EQ(env.queues, 0u);
	}

	cli::Report run() { return cli::selftest("/my/secret", ""); }

	// The names of the steps that are not good.
	std::vector<std::string> wrong()
	{
		std::vector<std::string> names;
		report = run();
		for (const auto &step : report.json["steps"])
			if (step["state"] != "good")
				names.push_back(step["name"]);
		EXPECT_EQ(report.status, names.empty() ? 0 : 1) << report.text;
		EXPECT_EQ(report.json["works"], names.empty());
		return names;
	}

	// After each READ or WRITE of the real fake.
	void spoil(std::function<void(unsigned long, peerdma_io &)> how)
	{
		env.on_ioctl = [this, how](unsigned long request, void *arg) {
			if (request != PEERDMA_READ && request != PEERDMA_WRITE)
				return 1;
			const auto hook = std::exchange(env.on_ioctl, nullptr);
			const int rc = env.ioctl(device_fd(), request, arg);
			env.on_ioctl = hook;
			how(request, *static_cast<peerdma_io *>(arg));
			return rc;
		};
	}
	int device_fd() const
	{
		for (const auto &[fd, name] : env.fds)
			if (name == "/dev/peerdma")
				return fd;
		return -1;
	}

	FakeEnv env;
	cli::Report report;
};

} // namespace

TEST_F(Selftest, NoStepBeginsAfterAMinute)
{
	// Each step begins half a minute after the one before; the first look at the clock is before all of them.
	const auto start = std::chrono::steady_clock::now();
	int looks = 0;
	report = cli::selftest("/my/secret", "", [&] { return start + std::chrono::seconds(30) * looks++; });
	const auto steps = report.json["steps"];
	ASSERT_GT(steps.size(), 10u);
	for (size_t i = 0; i < steps.size(); i++) {
		EXPECT_EQ(steps[i]["state"], i < 1 ? "good" : "bad") << i;
		EXPECT_EQ(steps[i]["found"], i < 1 ? "" : "no time was left for it") << i;
	}
	EXPECT_EQ(report.status, 1) << "what was not looked at does not work";
	EXPECT_FALSE(report.json["works"].get<bool>());
}

TEST_F(Selftest, AGoodMachine)
{
	EXPECT_EQ(wrong(), std::vector<std::string>{}) << report.text;
	EXPECT_EQ(report.json["steps"].size(), 15u);
	EXPECT_FALSE(has(report.text, "secret")) << "others read it";
	EXPECT_FALSE(has(report.json.dump(), "secret"));
	EXPECT_TRUE(has(report.text, "result   works: 15 of 15 steps are good\n")) << report.text;
}

TEST_F(Selftest, OtherBlocks)
{
	for (uint32_t block : {512u, 4096u})
		for (uint32_t mem : {1u, 512u}) {
			env.block = block;
			env.mem_align = mem;
			EXPECT_EQ(wrong(), std::vector<std::string>{}) << report.text;
		}
}

TEST_F(Selftest, OneWrongByteInTheBuffer)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_READ && io.len == 100003)
			env.buffers.begin()->second.bytes[io.buf_off + 70000] ^= 1;
	});
	EXPECT_EQ(wrong(), std::vector<std::string>{"read, odd offset and length"});
	EXPECT_TRUE(has(report.text, "wrong in the buffer: 1 bytes differ, the first at 74219")) << report.text;
}

TEST_F(Selftest, AByteBesideTheRange)
{
	for (int64_t beside : {-1, 100}) {
		spoil([&](unsigned long request, peerdma_io &io) {
			if (request == PEERDMA_READ && io.len == 100)
				env.buffers.begin()->second.bytes[static_cast<uint64_t>(
					static_cast<int64_t>(io.buf_off) + beside)] ^= 1;
		});
		EXPECT_EQ(wrong(), std::vector<std::string>{"read, inside a block"});
	}
}

TEST_F(Selftest, RightBytesOfAnotherPlace)
{
	env.on_ioctl = [&](unsigned long request, void *arg) {
		if (request == PEERDMA_READ && static_cast<peerdma_io *>(arg)->len == 512 << 10)
			static_cast<peerdma_io *>(arg)->file_off += 512;
		return 1;
	};
	EXPECT_EQ(wrong(), std::vector<std::string>{"read, whole blocks"});
}

TEST_F(Selftest, AByteOfTheFileThatNobodyWrote)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_WRITE && io.len == 512)
			env.contents["/my/secret"].bytes[io.file_off + 512] ^= 1;
	});
	// It stays wrong for those that come after.
	const auto names = wrong();
	ASSERT_FALSE(names.empty());
	EXPECT_EQ(names.front(), "write, one block");
	EXPECT_TRUE(has(report.text, "wrong in the file: 1 bytes differ")) << report.text;
}

TEST_F(Selftest, AFileThatGrew)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_WRITE && io.len == 100)
			env.contents["/my/secret"].bytes += "x";
	});
	EXPECT_EQ(wrong().front(), "write, inside a block");
}

TEST_F(Selftest, BytesThatShouldHaveGoneDirect)
{
	spoil([](unsigned long, peerdma_io &io) {
		if (io.len == 512 << 10) {
			io.out_host = io.out_direct;
			io.out_direct = 0;
		}
	});
	EXPECT_EQ(wrong(), (std::vector<std::string>{"read, whole blocks", "write, whole blocks"}));
	EXPECT_TRUE(has(report.text, "524288 bytes moved, 0 of them direct; expected 524288 and 524288"))
		<< report.text;
}

TEST_F(Selftest, ADriveThatFails)
{
	env.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_READ ? -EIO : 1; };
	const auto names = wrong();
	EXPECT_EQ(names.size(), 6u) << "each read by a call, and the others go on";
	EXPECT_TRUE(has(report.text, "EIO")) << report.text;
}

TEST_F(Selftest, ARingThatLosesOrder)
{
	env.io_limit = 4096;
	const auto names = wrong();
	EXPECT_TRUE(std::find(names.begin(), names.end(), "read by ring, whole blocks") != names.end()) << report.text;
}

TEST_F(Selftest, WithoutRings)
{
	env.queue_error = -EPERM;
	report = run();
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(has(report.text, "there are no rings here (EPERM)"));
}

TEST_F(Selftest, NoRouteIsAReason)
{
	env.contents["/my/secret"].refused_errno = EXDEV;
	env.contents["/my/secret"].refused_reason = PEERDMA_REASON_DISTANCE;
	report = run();
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["reason"], "DISTANCE");
	EXPECT_EQ(report.json["steps"].size(), 0u);
	EXPECT_TRUE(has(report.text, peerdma_reason_advice(PEERDMA_REASON_DISTANCE))) << report.text;
	EXPECT_TRUE(env.ios.empty());
}

TEST_F(Selftest, WhatItCannotBeginWith)
{
	for (const int error : {-EACCES, -ENOSPC, -EROFS, -ENOENT}) {
		env.contents["/my/secret"].open_error = error;
		EXPECT_THROW(run(), cli::Failure);
	}
	env.contents["/my/secret"].open_error = 0;
	env.posix_error = -ENOSPC;
	EXPECT_THROW(run(), cli::Failure);
	env.providers.begin()->second.len = 4096;
	EXPECT_THROW(run(), cli::Failure) << "there is no room for the buffer";
}

TEST(SelftestPattern, SaysWhereABytesPlaceIs)
{
	const std::string all = cli::pattern(1, 0, 100000);
	EXPECT_EQ(cli::pattern(1, 777, 5000), all.substr(777, 5000));
	EXPECT_NE(cli::pattern(2, 0, 64), all.substr(0, 64));
	for (size_t shift : {1, 8, 512, 4096})
		EXPECT_NE(all.substr(shift, 64), all.substr(0, 64));
	EXPECT_EQ(cli::difference("abc", "abc"), "");
	EXPECT_EQ(cli::difference("abc", "ab"), "2 bytes, not 3");
}
