// SPDX-License-Identifier: MIT
//
// Job files of peerdma bench: their meaning and their faults.

#include <gtest/gtest.h>

#include "command.hpp"
#include "tools/bench/job_file.hpp"

using cli::BenchRoute;

namespace
{

std::string complaint(const std::string &text)
{
	try {
		cli::parse_jobs("f.ini", text);
	} catch (const cli::Usage &usage) {
		return usage.what;
	}
	return "nothing";
}

} // namespace

TEST(Jobs, AFileOfGdsios)
{
	const auto jobs = cli::parse_jobs("f.ini", "; a comment\r\n"
						   "# another\n"
						   "[global]\n"
						   "name = both\n"
						   "xfer_type=0\n"
						   "rw=randread\n"
						   "bs=0x10000\n"
						   "size=1G\n"
						   "runtime=1.5\n"
						   "do_verify=0\n"
						   "fill_random=0\n"
						   "skip_bufregister=0\n"
						   "enable_nvlinks=0\n"
						   "random_seed=0x7\n"
						   "start_offset=4K\n"
						   "\n"
						   "[job1]\n"
						   "numa_node=0\n"
						   "skip_bufregister=1\n"
						   "enable_nvlinks=1\n"
						   "gpu_dev_id=0X1\n"
						   "num_threads=0x4\n"
						   "directory=/mnt/a\n"
						   "[job2]\n"
						   "xfer_type=2,4,1,6\n"
						   "rw=write\n"
						   "bs=1M:4M:1M\n"
						   "iodepth=1,32\n"
						   "overwrite=1\n"
						   "bytes=1M\n"
						   "filename=/mnt/b/with space\n");
	ASSERT_EQ(jobs.size(), 2u);
	EXPECT_EQ(jobs[0].name, "job1") << "its section's, which comes after the global one";
	EXPECT_EQ(jobs[0].routes, std::vector<BenchRoute>{BenchRoute::direct});
	EXPECT_TRUE(jobs[0].random);
	EXPECT_FALSE(jobs[0].write);
	EXPECT_EQ(jobs[0].sizes, std::vector<uint64_t>{65536});
	EXPECT_EQ(jobs[0].file_size, 1u << 30);
	EXPECT_EQ(jobs[0].runtime, 1.5);
	EXPECT_EQ(jobs[0].seed, 7u);
	EXPECT_EQ(jobs[0].start, 4096u);
	EXPECT_EQ(jobs[0].gpu_index, 1);
	EXPECT_EQ(jobs[0].threads, std::vector<uint64_t>{4});
	EXPECT_EQ(jobs[0].target, "/mnt/a");
	ASSERT_EQ(jobs[0].notes.size(), 3u) << "what is not heeded is said";
	for (size_t i = 0; i < 3; i++)
		EXPECT_TRUE(
			jobs[0].notes[i].starts_with(std::vector{"numa_node", "skip_bufregister", "enable_nvlinks"}[i] +
						     std::string(" is ignored: ")))
			<< jobs[0].notes[i];
	EXPECT_EQ(jobs[1].routes, (std::vector<BenchRoute>{BenchRoute::bounce, BenchRoute::naive, BenchRoute::host,
							   BenchRoute::direct}));
	EXPECT_TRUE(jobs[1].write);
	EXPECT_FALSE(jobs[1].random);
	EXPECT_TRUE(jobs[1].overwrite);
	EXPECT_EQ(jobs[1].bytes, 1u << 20);
	EXPECT_EQ(jobs[1].sizes, (std::vector<uint64_t>{1 << 20, 2 << 20, 3 << 20, 4 << 20}));
	EXPECT_EQ(jobs[1].depths, (std::vector<uint64_t>{1, 32}));
	EXPECT_EQ(jobs[1].threads, std::vector<uint64_t>{1});
	EXPECT_EQ(jobs[1].target, "/mnt/b/with space");
	EXPECT_TRUE(jobs[1].notes.empty());
}

TEST(Jobs, WhatIsWrongNamesItsLine)
{
	const std::string good = "[global]\nrw=read\n[j]\nfilename=/f\n";
	ASSERT_EQ(complaint(good), "nothing");
	const std::pair<const char *, const char *> cases[] = {
		{"frob=1\n", "f.ini, line 5: unknown key 'frob'"},
		{"xfer_type=3\n", "f.ini, line 5: xfer_type: '3': expected a supported transfer type"},
		{"xfer_type=\n", "f.ini, line 5: xfer_type: missing value"},
		{"route=fast\n", "line 5: route: 'fast': expected direct, bounce, host or naive"},
		{"rw=both\n", "line 5: rw: 'both': expected read, write, randread or randwrite"},
		{"rw=randrw\n", "line 5: rw: "},
		{"bs=1000\n", "line 5: bs: '1000': expected a multiple of 512"},
		{"bs=0\n", "line 5: bs: '0': expected a number of bytes"},
		{"bs=2G\n", "line 5: bs: "},
		{"bs=1M:2M\n", "line 5: bs: '1M:2M': expected one size"},
		{"bs=2M:1M:1M\n", "line 5: bs: '1M': expected"},
		{"bs=512:1G:512\n", "line 5: bs: "},
		{"bs=4K,,8K\n", "line 5: bs: "},
		{"num_threads=0\n", "line 5: num_threads: '0': expected a whole number from 1 to 1024"},
		{"iodepth=9999\n", "line 5: iodepth: "},
		{"runtime=-1\n", "line 5: runtime: "},
		{"runtime=nan\n", "line 5: runtime: "},
		{"runtime=0\n", "line 5: runtime: "},
		{"do_verify=1\n",
		 "line 5: do_verify: expected 0: bench only measures; peerdma selftest, verify and cp"},
		{"fill_random=1\n", "line 5: fill_random: expected 0: writes store"},
		{"num_threads=0x\n", "line 5: num_threads: '0x': expected a whole number"},
		{"num_threads=0x1g\n", "line 5: num_threads: '0x1g': expected a whole number"},
		{"num_threads=0x0\n", "line 5: num_threads: '0x0': expected a whole number"},
		{"do_verify=maybe\n", "line 5: do_verify: 'maybe': expected 0 or 1"},
		{"enable_nvlinks=2\n", "line 5: enable_nvlinks: '2': expected 0 or 1"},
		{"gpu_dev_id=x\n", "line 5: gpu_dev_id: "},
		{"just words\n", "line 5: 'just words': expected [section] or"},
		{"[open\n", "line 5: '[open': expected [global]"},
		{"[]\n", "line 5: '[]': expected [global]"},
		{"[global]\n", "line 5: [global] must come before the jobs"},
	};
	for (const auto &[line, want] : cases)
		EXPECT_TRUE(has(complaint(good + line), want)) << complaint(good + line);
	EXPECT_EQ(complaint("rw=read\n"), "f.ini, line 1: setting before the first [section]");
	EXPECT_TRUE(has(complaint(""), "no job; expected a section"));
	EXPECT_TRUE(has(complaint("[global]\nfilename=/f\n"), "no job; expected a section"));
	EXPECT_TRUE(has(complaint("[j]\nrw=read\n"), "[j]: expected filename or directory"));
}
