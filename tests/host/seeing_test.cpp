// SPDX-License-Identifier: MIT
//
// peerdma stat, witness and topo: what they make of what the kernel says.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fake_env.hpp"
#include "stat.hpp"
#include "topo.hpp"
#include "witness.hpp"

namespace
{

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

const std::string fdinfo = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t128\npeerdma-file:\t7\npeerdma-buffers:\t2\n"
			   "peerdma-buffer-bytes:\t8192\npeerdma-reads:\t5\npeerdma-writes:\t1\n"
			   "peerdma-direct-bytes:\t18446744073709551615\npeerdma-near-bytes:\t193\n"
			   "peerdma-host-bytes:\t0\npeerdma-errors:\t0\npeerdma-refused:\t3\npeerdma-refused-4:\t2\n"
			   "peerdma-refused-3:\t1\n";

class Seeing : public ::testing::Test
{
protected:
	void open_in(int pid, const std::string &fd, const std::string &comm, const std::string &info = fdinfo)
	{
		const std::string process = "/proc/" + std::to_string(pid);
		env.files[process + "/fdinfo/" + fd] = info;
		env.files[process + "/comm"] = comm + "\n";
		env.links[process + "/fd/" + fd] = "/dev/peerdma";
	}
	// The lines of a trace as they are, but for the time.
	static std::string traced(int tid, const std::string &event, const std::string &comm = "pdio")
	{
		std::string line = std::string(16 - comm.size(), ' ') + comm + "-" + std::to_string(tid);
		return line + "     [001] .....    12.345678: " + event;
	}
	void submit(int tid, const std::string &how = "read")
	{
		witness.hear(traced(tid, "peerdma_submit: " + how + " " + file));
	}
	void bio(int tid, const std::string &how, int sectors, const std::string &dev = "259,0")
	{
		witness.hear(traced(tid, "block_bio_queue: " + dev + " " + how + " 2048 + " + std::to_string(sectors) +
						 " [pdio]"));
	}
	void complete(int tid, const std::string &numbers, const std::string &how = "read")
	{
		witness.hear(traced(tid, "peerdma_complete: " + how + " " + file + " " + numbers));
	}
	const cli::Testimony &only() const { return witness.files().begin()->second; }

	FakeEnv env;
	const std::string file = "dev=259:0 ino=12 file_off=0 len=4096 buffer=1 provider=1";
	const std::string all_direct = "done=4096 direct=4096 near=0 host=0 reason=0 error=0";
	cli::Witness witness{[](const std::string &dev) { return dev != "253:0"; }};
};

} // namespace

TEST_F(Seeing, FdinfoIsReadByKey)
{
	const auto counters = cli::parse_fdinfo(fdinfo);
	EXPECT_EQ(counters.at("reads"), 5u);
	EXPECT_EQ(counters.at("direct-bytes"), UINT64_MAX);
	EXPECT_EQ(counters.at("refused-4"), 2u);
	EXPECT_FALSE(counters.count("pos"));
	EXPECT_TRUE(cli::parse_fdinfo("peerdma-reads: x\npeerdma-writes\npeerdma-near-bytes:\n").empty());
}

TEST_F(Seeing, StatShowsEachOpenFileOnce)
{
	open_in(10, "3", "one");
	open_in(10, "4", "one");
	open_in(11, "3", "child");
	env.files["/proc/12/fdinfo/5"] = fdinfo;
	env.links["/proc/12/fd/5"] = "/dev/null";
	env.files["/proc/self/fdinfo/5"] = fdinfo;
	const auto all = cli::open_files(env);
	ASSERT_EQ(all.files.size(), 1u);
	EXPECT_EQ(all.files[0].id, 7u);
	EXPECT_EQ(all.files[0].pids, (std::vector<int>{10, 11}));
	EXPECT_EQ(all.files[0].comm, "one");
}

TEST_F(Seeing, StatOfTwoFilesAndOfDebugfs)
{
	open_in(10, "3", "one\x1b[2J");
	std::string other = fdinfo;
	open_in(11, "3", "two", other.replace(other.find("file:\t7"), 7, "file:\t8"));
	env.files["/sys/kernel/debug/peerdma/stats"] =
		"total reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1 refused-34=1\n"
		"provider id=1 pci=0000:01:00.0 reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1\n"
		"device dev=259:0 reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1\n"
		"file id=7 pid=10 buffers=2 buffer-bytes=8192 reads=5 writes=1 direct=1 near=2 host=3 errors=0 "
		"refused=0 comm=o\\040ne\n";
	env.links["/sys/dev/block/259:0"] = "../../devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1";
	const auto report = cli::stat();
	EXPECT_EQ(report.json["files"].size(), 2u);
	EXPECT_EQ(report.json["files"][0]["refused_by_reason"]["FILE_ALIGN"], 2);
	EXPECT_EQ(report.json["files"][0]["buffer_bytes"], 8192);
	EXPECT_EQ(report.json["total"]["host_bytes"], 5);
	EXPECT_EQ(report.json["total"]["refused_by_reason"]["DISTANCE"], 1);
	EXPECT_EQ(report.json["providers"][0]["pci"], "0000:01:00.0");
	EXPECT_EQ(report.json["devices"][0]["name"], "nvme0n1");
	EXPECT_TRUE(has(report.text, "device nvme0n1"));
	EXPECT_FALSE(has(report.text, "\x1b")) << "a process's name must not steer the terminal";
	const auto lines = cli::parse_stats(env.files["/sys/kernel/debug/peerdma/stats"]);
	ASSERT_EQ(lines.size(), 4u);
	EXPECT_EQ(lines[3].words.at("comm"), "o\\040ne");
	EXPECT_EQ(lines[3].counters.at("near-bytes"), 2u);
}

TEST_F(Seeing, StatWithoutAnything)
{
	const auto report = cli::stat();
	EXPECT_EQ(report.status, 0);
	EXPECT_TRUE(report.json["total"].is_null());
	EXPECT_TRUE(has(report.text, "no process"));
	EXPECT_TRUE(has(report.text, "for root"));
}

TEST_F(Seeing, TraceLines)
{
	const std::string line = traced(123, "peerdma_submit: read dev=1:2");
	const auto parsed = cli::parse_trace(line);
	ASSERT_TRUE(parsed);
	EXPECT_EQ(parsed->tid, 123);
	EXPECT_EQ(parsed->event, "peerdma_submit");
	EXPECT_EQ(parsed->text, "read dev=1:2");
	// A process may take a name that looks like a trace.
	const std::string forged = traced(7, "block_bio_queue: 1,2 R 0 + 8 [x]", "-9 [0] 1: a: b");
	ASSERT_TRUE(cli::parse_trace(forged));
	EXPECT_EQ(cli::parse_trace(forged)->tid, 7);
	EXPECT_EQ(cli::parse_trace(forged)->event, "block_bio_queue");
	for (const char *text : {"", "CPU:0 [LOST 3 EVENTS]", "            pdio-x", "            pdio-1 nothing"})
		EXPECT_FALSE(cli::parse_trace(text)) << text;
}

TEST_F(Seeing, WitnessProvesWhatADeviceMoved)
{
	submit(5);
	bio(5, "R", 4);
	bio(5, "R", 4);
	complete(5, all_direct);
	EXPECT_TRUE(witness.proved());
	EXPECT_EQ(only().direct, 4096u);
	EXPECT_EQ(only().unmoved, 0u);
	EXPECT_EQ(only().leaves.at("259:0"), 4096u);
	const auto report = witness.report([](const std::string &) { return "nvme0n1"; });
	EXPECT_EQ(report.status, 0);
	EXPECT_TRUE(report.json["proved"].get<bool>());
	EXPECT_TRUE(has(report.text, "cannot see"));
}

TEST_F(Seeing, WitnessMissesBytesThatNobodyMoved)
{
	submit(5);
	bio(5, "R", 1);
	complete(5, all_direct);
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(only().unmoved, 3584u);
	const auto report = witness.report([](const std::string &dev) { return dev; });
	EXPECT_EQ(report.status, 1);
	EXPECT_TRUE(has(report.text, "UNMOVED"));
}

TEST_F(Seeing, WitnessDoesNotMakeUpForOneRequestWithAnother)
{
	submit(5);
	bio(5, "R", 16);
	complete(5, all_direct);
	submit(5);
	complete(5, all_direct);
	EXPECT_EQ(only().unmoved, 4096u);
}

TEST_F(Seeing, WitnessCountsOnlyBiosOfTheRequest)
{
	bio(5, "R", 8); // before it
	submit(5);
	bio(6, "R", 8);          // another thread
	bio(5, "W", 8);          // another direction
	bio(5, "RM", 8);         // the filesystem's maps
	bio(5, "R", 8, "253:0"); // a device that stands on others: theirs count
	complete(5, all_direct);
	bio(5, "R", 8); // after it
	EXPECT_EQ(only().unmoved, 4096u);
	EXPECT_TRUE(only().leaves.empty());
}

TEST_F(Seeing, WitnessOfWrites)
{
	submit(5, "write");
	bio(5, "WS", 8);
	complete(5, all_direct, "write");
	EXPECT_TRUE(witness.proved());
}

TEST_F(Seeing, WitnessDoubtsWhatItSawInPart)
{
	submit(5);
	bio(5, "R", 8);
	complete(5, all_direct);
	ASSERT_TRUE(witness.proved());
	cli::Witness lost = witness, begun = witness, ended = witness;
	lost.hear("CPU:0 [LOST 12 EVENTS]");
	EXPECT_FALSE(lost.proved());
	begun.hear(traced(6, "peerdma_submit: read " + file));
	EXPECT_FALSE(begun.proved());
	ended.hear(traced(6, "peerdma_complete: read " + file + " " + all_direct));
	EXPECT_FALSE(ended.proved());
}

TEST_F(Seeing, WitnessOfRefusalsAndOfSilence)
{
	EXPECT_FALSE(witness.proved());
	complete(5, "done=0 direct=0 near=0 host=0 reason=4 error=-22");
	complete(5, "done=0 direct=0 near=0 host=0 reason=0 error=-27");
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(only().refused, 1u);
	EXPECT_EQ(only().failed, 1u);
	EXPECT_EQ(witness.report([](const std::string &dev) { return dev; }).json["half_seen"], 0);
}

TEST_F(Seeing, LeavesStandOnNoOther)
{
	env.files["/sys/dev/block/253:0/slaves/nvme0n1"] = "";
	EXPECT_FALSE(cli::stands_on_no_other(env, "253:0"));
	EXPECT_TRUE(cli::stands_on_no_other(env, "259:0"));
}

TEST_F(Seeing, WitnessWithoutTracefsSaysHow)
{
	try {
		cli::witness({.pid = {}, .command = {"true"}, .json = false});
		FAIL() << "there is no tracefs";
	} catch (const cli::Failure &failure) {
		EXPECT_TRUE(has(failure.line(), "mount -t tracefs"));
	}
	EXPECT_THROW(cli::witness({.pid = 1, .command = {"true"}, .json = false}), cli::Usage);
	EXPECT_THROW(cli::witness({}), cli::Usage);
}

TEST_F(Seeing, Topology)
{
	const std::string devices = "/sys/bus/pci/devices/", root = "../../../devices/pci0000:00/0000:00:02.0";
	env.add_function("0000:00:02.0", 1 << 20);
	env.add_function("0000:01:00.0", 1 << 20, "peerdma");
	env.add_function("0000:03:00.0", 1 << 20, "nvme");
	env.links[devices + "0000:00:02.0"] = root;
	env.links[devices + "0000:01:00.0"] = root + "/0000:01:00.0";
	env.links[devices + "0000:03:00.0"] = root + "/0000:03:00.0";
	env.files[devices + "0000:03:00.0/class"] = "0x010802\n";
	env.files[devices + "0000:03:00.0/numa_node"] = "1\n";
	env.files["/sys/block/nvme0n1/size"] = env.files["/sys/block/nvme1n1/size"] = "8\n";
	env.files["/sys/block/nvme1n1/hidden"] = "1\n";
	env.links["/sys/block/nvme0n1"] = "../devices/pci0000:00/0000:00:02.0/0000:03:00.0/nvme/nvme0/nvme0n1";
	env.links["/sys/block/nvme1n1"] = env.links["/sys/block/nvme0n1"];
	env.files["/sys/block/loop0/size"] = "0\n";
	env.links["/sys/block/loop0"] = "../devices/virtual/block/loop0";
	env.add_provider(0, 0x0100, 2, 0, 1 << 20);
	env.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};

	const auto functions = cli::pci_functions(env);
	ASSERT_EQ(functions.size(), 3u);
	EXPECT_EQ(functions[0].parent, "");
	EXPECT_EQ(functions[0].root, "pci0000:00");
	EXPECT_EQ(functions[2].parent, "0000:00:02.0");
	EXPECT_EQ(functions[2].class_name, "NVMe drive");
	EXPECT_EQ(functions[2].numa_node, 1);
	EXPECT_EQ(functions[2].disks, std::vector<std::string>{"nvme0n1"});

	const auto report = cli::topo({});
	EXPECT_TRUE(has(report.text, "\n  0000:03:00.0  NVMe drive"));
	EXPECT_TRUE(has(report.text, "nvme0n1 (0000:03:00.0) to provider 1 (0000:01:00.0): direct, distance 4, bus "
				     "address\n"));
	EXPECT_EQ(report.json["pairs"][0]["distance"], 4);
	const auto dot = cli::topo({.svg = "", .dot = true});
	EXPECT_TRUE(has(dot.text, "\"0000:00:02.0\" -> \"0000:03:00.0\""));
	EXPECT_TRUE(has(dot.text, "distance 4\\nbus address"));
	EXPECT_THROW(cli::topo({.svg = "x", .dot = true}), cli::Usage);

	env.contents["/dev/nvme0n1"].refused_errno = EXDEV;
	env.contents["/dev/nvme0n1"].refused_reason = PEERDMA_REASON_DISTANCE;
	EXPECT_TRUE(has(cli::topo({}).text, "refused, DISTANCE"));
	env.contents["/dev/nvme0n1"].open_error = -EACCES;
	const auto unknown = cli::topo({});
	EXPECT_EQ(unknown.json["pairs"][0]["verdict"], "unknown");
	EXPECT_EQ(unknown.json["pairs"][0]["errno"], "EACCES");
	EXPECT_TRUE(unknown.json["pairs"][0]["distance"].is_null());

	env.node_error = -ENOENT;
	EXPECT_TRUE(has(cli::topo({}).text, "0000:03:00.0"));
	EXPECT_TRUE(env.fds.empty()) << "a descriptor leaked";
}
