// SPDX-License-Identifier: MIT
//
// peerdma bench on a machine in memory: its requests, its sums and its refusals.

#include <cerrno>
#include <ctime>

#include <gtest/gtest.h>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/bench/bench.hpp"
#include "tools/selftest/selftest.hpp"

namespace
{

// Elements are nested properly, and every < and & belongs to XML.
bool well_formed(const std::string &text)
{
	std::vector<std::string> open;
	for (size_t at = 0; at < text.size(); at++) {
		if (text[at] == '&') {
			const std::string entity = text.substr(at, text.find(';', at) - at + 1);
			if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;")
				return false;
		}
		if (text[at] != '<')
			continue;
		const size_t end = text.find('>', at);
		if (end == text.npos || text.find('<', at + 1) < end)
			return false;
		const std::string tag = text.substr(at + 1, end - at - 1);
		const std::string name =
			tag.substr(tag.starts_with('/'), tag.find_first_of(" /", 1) - tag.starts_with('/'));
		if (tag.starts_with('/')) {
			if (open.empty() || open.back() != name)
				return false;
			open.pop_back();
		} else if (!tag.ends_with('/')) {
			open.push_back(name);
		}
		at = end;
	}
	return open.empty();
}

class Bench : public ::testing::Test
{
protected:
	Bench()
	{
		sys.add_provider(0, 0x0100, 2, 0, 64 << 20);
		sys.contents["/f"].bytes = cli::pattern(7, 0, 1 << 20);
		sys.contents["/dir"] = {.bytes = "", .mode = S_IFDIR | 0755};
		sys.posix_limit = 1 << 20;
		options.target = "/f";
		options.settings = {{"io_size", "64K"}, {"bytes", "512K"}};
	}
	~Bench() override
	{
		EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
		EXPECT_TRUE(sys.buffers.empty()) << "a buffer leaked";
		EXPECT_TRUE(sys.mappings.empty());
		EXPECT_EQ(sys.queues, 0u);
	}

	// The error of a job that is refused as a whole.
	std::string refusal()
	{
		try {
			cli::bench(options);
		} catch (const cli::Usage &usage) {
			return usage.what;
		} catch (const cli::Failure &failure) {
			return failure.line();
		}
		return "nothing";
	}

	FakeSyscalls sys;
	cli::BenchOptions options;
};

} // namespace

TEST(Latencies, Percentiles)
{
	cli::Latencies latencies;
	EXPECT_EQ(latencies.percentile(50), 0u);
	EXPECT_EQ(latencies.max(), 0u);
	for (uint64_t ns = 1; ns <= 100; ns++)
		latencies.add(ns);
	// Below 128 each value has its own bucket.
	EXPECT_EQ(latencies.percentile(50), 50u);
	EXPECT_EQ(latencies.percentile(90), 90u);
	EXPECT_EQ(latencies.percentile(99), 99u);
	EXPECT_EQ(latencies.percentile(99.9), 100u);
	EXPECT_EQ(latencies.percentile(0), 1u);
	latencies.add(UINT64_MAX);
	EXPECT_EQ(latencies.percentile(100), UINT64_MAX);
	EXPECT_EQ(latencies.max(), UINT64_MAX);
	EXPECT_EQ(latencies.count(), 101u);
}

TEST(Latencies, NeverBelowAndAtMostA64thAbove)
{
	for (unsigned shift = 0; shift < 63; shift++)
		for (const uint64_t add : {0, 1, 3}) {
			const uint64_t ns = (1ull << shift) + (add << (shift > 2 ? shift - 2 : 0));
			cli::Latencies latencies;
			latencies.add(ns);
			latencies.add(UINT64_MAX);
			EXPECT_GE(latencies.percentile(50), ns);
			EXPECT_LE(latencies.percentile(50) - ns, ns / 64) << ns;
		}
}

TEST(Latencies, OfSeveralThreads)
{
	cli::Latencies one, other;
	one.add(10);
	other.add(20);
	other.add(30);
	one.add(other);
	EXPECT_EQ(one.count(), 3u);
	EXPECT_EQ(one.percentile(50), 20u);
	EXPECT_EQ(one.max(), 30u);
}

TEST_F(Bench, TheWaysBesideEachOther)
{
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 0) << report.text;
	ASSERT_EQ(report.json["rows"].size(), 4u);
	EXPECT_TRUE(report.json["ok"].get<bool>());
	const std::vector<std::string> routes = {"direct", "bounce", "host", "naive"};
	for (size_t i = 0; i < 4; i++) {
		const auto &row = report.json["rows"][i];
		EXPECT_EQ(row["route"], routes[i]);
		EXPECT_EQ(row["ios"], 8) << "so many bytes, and no more";
		EXPECT_EQ(row["bytes"], 8 * 65536);
		EXPECT_EQ(row["bytes_direct"], i ? 0 : 8 * 65536);
		EXPECT_EQ(row["bytes_host"], i ? 8 * 65536 : 0);
		EXPECT_TRUE(row["error"].is_null());
		EXPECT_GT(row["seconds"].get<double>(), 0);
		const auto &latency = row["latency_us"];
		EXPECT_LE(latency["p50"], latency["p90"]);
		EXPECT_LE(latency["p90"], latency["p99"]);
		EXPECT_LE(latency["p99"], latency["p99.9"]);
		EXPECT_LE(latency["p99.9"], latency["max"]);
		EXPECT_TRUE(has(report.text, routes[i]));
	}
	ASSERT_EQ(sys.ios.size(), 8u);
	for (size_t i = 0; i < 8; i++) {
		EXPECT_EQ(sys.ios[i].flags, PEERDMA_IO_NO_BOUNCE);
		EXPECT_EQ(sys.ios[i].file_off, i * 65536) << "one after the other";
		EXPECT_EQ(sys.ios[i].len, 65536u);
	}
	EXPECT_EQ(report.json["jobs"][0]["reason"], "NONE");
	EXPECT_FALSE(report.json["emulated"].get<bool>());
}

TEST_F(Bench, WhatTheCpuHasSpentIsForEachGigabyte)
{
	cli::BenchRow row;
	EXPECT_EQ(row.cpu_per_gb(), 0) << "nothing was moved";
	row.ios = 500;
	row.size = 1000000;
	row.user = 0.25;
	row.system = 0.5;
	EXPECT_DOUBLE_EQ(row.cpu_per_gb(), 1.5);

	// Each request uses 5 ms of CPU time.
	sys.on_ioctl = [](unsigned long request, void *) {
		struct timespec begun = {}, now = {};
		auto busy = [&] { return (now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec; };
		if (request == PEERDMA_READ)
			for (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun), now = begun; busy() < 5000000;)
				::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		return 1;
	};
	options.settings["route"] = "direct,host";
	const cli::Report report = cli::bench(options);
	ASSERT_EQ(report.json["rows"].size(), 2u) << report.text;
	for (const auto &one : report.json["rows"]) {
		const double spent = one["cpu_user_seconds"].get<double>() + one["cpu_system_seconds"].get<double>();
		EXPECT_DOUBLE_EQ(one["cpu_seconds_per_gb"].get<double>(), spent * 1e9 / (8 * 65536));
		EXPECT_GE(spent, one["route"] == "direct" ? 8 * 0.005 * 0.9 : 0) << "less a tick of the kernel's clock";
	}
}

TEST_F(Bench, ARingForADepth)
{
	options.settings["route"] = "direct";
	options.settings["depth"] = "1,4";
	options.settings["rw"] = "randread";
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 0) << report.text;
	ASSERT_EQ(report.json["rows"].size(), 2u);
	EXPECT_EQ(report.json["rows"][1]["depth"], 4);
	EXPECT_EQ(report.json["rows"][1]["bytes"], 8 * 65536);
	EXPECT_EQ(sys.commands, std::vector<uint32_t>(8, PEERDMA_URING_READ));
	bool in_order = true;
	for (size_t i = 0; i < sys.ios.size(); i++) {
		EXPECT_LE(sys.ios[i].file_off, (1u << 20) - 65536);
		EXPECT_EQ(sys.ios[i].file_off % 65536, 0u);
		in_order = in_order && sys.ios[i].file_off == i % 8 * 65536;
	}
	EXPECT_FALSE(in_order);
}

TEST_F(Bench, CallsThroughTheCacheHaveNoDepth)
{
	options.settings["route"] = "direct,naive";
	options.settings["depth"] = "2,4";
	const cli::Report report = cli::bench(options);
	ASSERT_EQ(report.json["rows"].size(), 3u);
	EXPECT_EQ(report.json["rows"][1]["route"], "naive");
	EXPECT_EQ(report.json["rows"][1]["depth"], 1);
	EXPECT_TRUE(has(report.text, "naive rows have depth 1")) << "it is said";
}

TEST_F(Bench, WhatIsNotDirectIsNoDirectRow)
{
	sys.contents["/f"].refused_errno = EXDEV;
	sys.contents["/f"].refused_reason = PEERDMA_REASON_FILESYSTEM;
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 1);
	EXPECT_FALSE(report.json["ok"].get<bool>());
	EXPECT_EQ(report.json["rows"][0]["error"]["reason"], "FILESYSTEM");
	EXPECT_EQ(report.json["rows"][0]["ios"], 0);
	for (size_t i = 1; i < 4; i++)
		EXPECT_EQ(report.json["rows"][i]["ios"], 8) << "the others are measured";
	EXPECT_TRUE(has(report.text, "failed: direct: /f has no direct route: "));
}

TEST_F(Bench, ABounceOfADirectRowIsAnError)
{
	options.settings["route"] = "direct";
	sys.block = 4096;
	options.settings["io_size"] = "512";
	cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["rows"][0]["error"]["reason"], "FILE_ALIGN");
	EXPECT_TRUE(sys.ios.empty());
	// The module bounces in spite of the explanation; the kernel's counters show it.
	options.settings["io_size"] = "64K";
	sys.on_ioctl = [&](unsigned long request, void *) {
		for (const auto &[fd, name] : sys.fds)
			if (request == PEERDMA_READ && name == "/dev/peerdma")
				sys.files["/proc/self/fdinfo/" + std::to_string(fd)] =
					"peerdma-direct-bytes:\t458752\npeerdma-near-bytes:\t65536\n";
		return 1;
	};
	report = cli::bench(options);
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["rows"][0]["bytes_near"], 65536);
	EXPECT_TRUE(has(report.text, "the kernel counted 458752 bytes direct, 65536 near")) << report.text;
}

TEST_F(Bench, AnErrorInTheMiddle)
{
	options.settings["route"] = "direct,host";
	int calls = 0;
	sys.on_ioctl = [&](unsigned long request, void *) { return request == PEERDMA_READ && ++calls > 3 ? -EIO : 1; };
	cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["rows"][0]["error"]["errno"], "EIO");
	EXPECT_TRUE(report.json["rows"][1]["error"].is_null());
	sys.on_ioctl = nullptr;
	sys.posix_error = -ENXIO;
	report = cli::bench(options);
	EXPECT_EQ(report.json["rows"][1]["error"]["errno"], "ENXIO");
	// The file has become shorter.
	sys.on_ioctl = [&](unsigned long request, void *) {
		if (request == PEERDMA_READ)
			sys.contents["/f"].bytes.resize(100);
		return 1;
	};
	report = cli::bench(options);
	EXPECT_EQ(report.status, 1);
	for (const auto &row : report.json["rows"])
		EXPECT_EQ(row["error"]["errno"], "EIO");
}

TEST_F(Bench, NoMemoryNoRingNoDirectIo)
{
	options.settings["route"] = "direct";
	options.settings["io_size"] = "1M";
	options.settings["depth"] = "128";
	cli::Report report = cli::bench(options);
	EXPECT_EQ(report.json["rows"][0]["error"]["errno"], "ENOMEM");
	options.settings["depth"] = "2";
	sys.queue_error = -EPERM;
	report = cli::bench(options);
	EXPECT_EQ(report.json["rows"][0]["error"]["errno"], "EPERM");
	options.settings["route"] = "host";
	options.settings["depth"] = "1";
	sys.reopen_error = -EINVAL;
	report = cli::bench(options);
	EXPECT_TRUE(has(report.text, "host: cannot open /f with O_DIRECT")) << report.text;
}

TEST_F(Bench, AFileOfOnesOwnIsNotOverwritten)
{
	options.settings["rw"] = "write";
	const std::string before = sys.contents["/f"].bytes;
	EXPECT_TRUE(has(refusal(), "/f would be overwritten"));
	EXPECT_EQ(sys.contents["/f"].bytes, before);
	options.settings["overwrite"] = "1";
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_NE(sys.contents["/f"].bytes, before);
	EXPECT_EQ(sys.contents["/f"].bytes.size(), before.size());
}

TEST_F(Bench, AFileThatItMakes)
{
	options.target = "/dir";
	options.settings["file_size"] = "1M";
	options.settings["rw"] = "write";
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(report.json["jobs"][0]["made"].get<bool>());
	EXPECT_EQ(report.json["jobs"][0]["file_size"], 1 << 20);
	EXPECT_EQ(report.json["rows"][0]["rw"], "write");
	sys.posix_error = -ENOSPC;
	EXPECT_TRUE(has(refusal(), "cannot create a file of 1 MiB in /dir: ")) << refusal();
}

TEST_F(Bench, Refusals)
{
	options.target = "/none";
	EXPECT_TRUE(has(refusal(), "cannot open /none"));
	options.target = "";
	EXPECT_TRUE(has(refusal(), "expected a file, a directory or --jobs"));
	options.target = "/f";
	options.settings["io_size"] = "4Q";
	EXPECT_TRUE(has(refusal(), "--io-size: '4Q': expected")) << refusal();
	options.settings = {{"io_size", "2M"}};
	const cli::Report report = cli::bench(options);
	EXPECT_TRUE(has(report.text, "is shorter than one request of 2 MiB"));
	sys.contents["/pipe"] = {.bytes = "", .mode = S_IFIFO | 0644};
	options.target = "/pipe";
	EXPECT_TRUE(has(refusal(), "neither a file"));
	options = {.target = "", .jobs = "/jobs", .svg = "", .settings = {}};
	EXPECT_TRUE(has(refusal(), "cannot read /jobs"));
	sys.files["/jobs"] = std::string(peerdma_impl::written_limit + 1, '#');
	EXPECT_TRUE(has(refusal(), "cannot read /jobs: it is too large")) << refusal();
	sys.files["/jobs"] = "[a]\nfilename=/f\nbs=frob\n";
	EXPECT_TRUE(has(refusal(), "/jobs, line 3: bs: "));
	options.target = "/f";
	EXPECT_TRUE(has(refusal(), "--jobs: only --svg and --json"));
}

TEST_F(Bench, JobsOfAFile)
{
	sys.files["/jobs"] =
		"[global]\nbytes=128K\nbs=64K\nfilename=/f\n[a]\nxfer_type=0\ngpu_dev_id=0\n[b]\nxfer_type=1\n";
	options = {.target = "", .jobs = "/jobs", .svg = "", .settings = {}};
	const cli::Report report = cli::bench(options);
	EXPECT_EQ(report.status, 0) << report.text;
	ASSERT_EQ(report.json["rows"].size(), 2u);
	EXPECT_EQ(report.json["rows"][0]["job"], "a");
	EXPECT_EQ(report.json["rows"][0]["route"], "direct");
	EXPECT_EQ(report.json["rows"][1]["job"], "b");
	EXPECT_EQ(report.json["rows"][1]["route"], "host");
	EXPECT_TRUE(report.json["jobs"][1]["provider"].is_null()) << "host memory wants no provider";
	sys.files["/jobs"] = "[a]\nfilename=/f\ngpu_dev_id=3\n";
	EXPECT_TRUE(has(refusal(), "no provider 3"));
}

TEST_F(Bench, AnEmulatorIsNoHardware)
{
	sys.files["/proc/cpuinfo"] = "model name\t: Some CPU\n";
	EXPECT_EQ(cli::emulated_by(sys, "nvme0n1"), "");
	sys.files["/sys/class/block/nvme0n1/device/model"] = "QEMU NVMe Ctrl\n";
	EXPECT_TRUE(has(cli::emulated_by(sys, "nvme0n1"), "nvme0n1 is a drive that QEMU emulates"));
	EXPECT_EQ(cli::emulated_by(sys, ""), "");
	sys.files["/proc/cpuinfo"] = "model name\t: QEMU TCG CPU version 2.5+\n";
	EXPECT_TRUE(has(cli::emulated_by(sys, ""), "QEMU's emulator"));
	const cli::Report report = cli::bench(options);
	EXPECT_TRUE(report.json["emulated"].get<bool>());
	EXPECT_TRUE(has(report.text, "note      this machine's CPU is QEMU's emulator"));
}

TEST(Plot, IsWellFormedWhateverIsInIt)
{
	EXPECT_FALSE(well_formed("<a><b></a></b>"));
	EXPECT_FALSE(well_formed("<a>&x</a>"));
	EXPECT_FALSE(well_formed("<a>"));
	EXPECT_TRUE(well_formed(cli::plot({}, "")));
	EXPECT_TRUE(has(cli::plot({}, ""), "no row succeeded"));
	std::vector<cli::BenchRow> rows;
	for (const auto route : {cli::BenchRoute::direct, cli::BenchRoute::naive})
		for (const uint64_t size : {65536u, 4096u, 512u}) {
			cli::BenchRow row;
			row.job = "<&\"'\xff";
			row.route = route;
			row.size = size;
			row.ios = 100;
			row.seconds = 1;
			row.user = 0.5;
			rows.push_back(row);
		}
	cli::BenchRow failed = rows.front();
	failed.threads = 99;
	failed.failure = cli::Failure{"x", EIO, 0, "", {}};
	rows.push_back(failed);
	const std::string svg = cli::plot(rows, "an emulator's");
	EXPECT_TRUE(well_formed(svg)) << svg;
	size_t lines = 0;
	for (size_t at = svg.find("<polyline"); at != svg.npos; at = svg.find("<polyline", at + 1))
		lines++;
	EXPECT_EQ(lines, 4u) << "two fields with two lines, and nothing of what failed";
	EXPECT_TRUE(has(svg, "an emulator&apos;s") || has(svg, "an emulator's"));
	EXPECT_FALSE(has(svg, "nan"));
	EXPECT_FALSE(has(svg, "99 threads"));
}
