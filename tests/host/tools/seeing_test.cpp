// SPDX-License-Identifier: MIT
//
// peerdma stat, witness and topo: their results from the kernel's data.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/stat/stat.hpp"
#include "tools/topo/topology.hpp"
#include "tools/trace/transfer_audit.hpp"

namespace
{

const std::string fdinfo = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t128\npeerdma-file:\t7\npeerdma-buffers:\t2\n"
			   "peerdma-buffer-bytes:\t8192\npeerdma-reads:\t5\npeerdma-writes:\t1\n"
			   "peerdma-direct-bytes:\t18446744073709551615\npeerdma-near-bytes:\t193\n"
			   "peerdma-host-bytes:\t0\npeerdma-errors:\t0\npeerdma-refused:\t3\npeerdma-refused-4:\t2\n"
			   "peerdma-refused-3:\t1\n";

class Seeing : public ::testing::Test
{
protected:
	void open_in(int pid, const std::string &fd, const std::string &comm, const std::string &info = fdinfo,
		     const std::string &node = "/dev/peerdma")
	{
		const std::string process = "/proc/" + std::to_string(pid);
		sys.files[process + "/fdinfo/" + fd] = info;
		sys.files[process + "/comm"] = comm + "\n";
		sys.links[process + "/fd/" + fd] = node;
	}
	// The process has the number of the thread unless another one is given. async: the request's number.
	cli::TracedRequest request(int tid, const std::string &how, unsigned async, int pid) const
	{
		return {{how == "write", file_dev, 12, 1}, pid ? pid : tid, async != 0, async};
	}
	void submit(int tid, const std::string &how = "read", unsigned async = 0, int pid = 0)
	{
		witness.on_submit(tid, request(tid, how, async, pid));
	}
	void issue(int tid, const std::string &how, uint64_t bytes, cli::DeviceNumber to = {259, 0},
		   unsigned hint = 513)
	{
		witness.on_issue(tid, {to, how == "W", bytes, hint});
	}
	void complete(int tid, const cli::TracedResult &result, const std::string &how = "read", unsigned async = 0,
		      int pid = 0)
	{
		witness.on_complete(tid, request(tid, how, async, pid), result);
	}
	const cli::TransferRecord &only() const { return witness.files().begin()->second; }
	uint64_t unmoved() const
	{
		uint64_t sum = 0;
		for (const auto &[key, bytes] : witness.unmoved())
			sum += bytes;
		return sum;
	}
	cli::Json verdict() const
	{
		return witness.report([](const std::string &dev) { return dev; }).json["files"][0]["verdict"];
	}

	FakeSyscalls sys;
	cli::DeviceNumber file_dev = {259, 0};
	const cli::TracedResult all_direct = {.done = 4096, .direct = 4096};
	cli::TransferAudit witness{{5}};
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
	open_in(12, "5", "socket", fdinfo, "socket:[7]");
	open_in(13, "5", "other", "pos:\t0\nflags:\t02\n", "/dev/null");
	sys.files["/proc/self/fdinfo/5"] = fdinfo;
	const auto all = cli::open_files(sys);
	ASSERT_EQ(all.files.size(), 1u);
	EXPECT_EQ(all.files[0].id, 7u);
	EXPECT_EQ(all.files[0].pids, (std::vector<int>{10, 11}));
	EXPECT_EQ(all.files[0].comm, "one");
}

// A provider's node may be removed while it is open, and a container may use another name for it.
TEST_F(Seeing, StatShowsANodeByWhateverName)
{
	unsigned id = 10;
	for (const char *node : {"/dev/peerdma", "/dev/peerdma3", "/dev/peerdma3 (deleted)", "/dev/gpu"}) {
		std::string info = fdinfo;
		info.replace(info.find("file:\t7"), 7, "file:\t" + std::to_string(++id));
		open_in(static_cast<int>(id), "3", "one", info, node);
	}
	EXPECT_EQ(cli::open_files(sys).files.size(), 4u);
}

TEST_F(Seeing, StatOfTwoFilesAndOfDebugfs)
{
	open_in(10, "3", "one\x1b[2J");
	std::string other = fdinfo;
	open_in(11, "3", "two", other.replace(other.find("file:\t7"), 7, "file:\t8"));
	sys.files["/sys/kernel/debug/peerdma/stats"] =
		"total reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1 refused-34=1\n"
		"provider id=1 pci=0000:01:00.0 reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1\n"
		"disk provider=1 dev=9:0 name=md0 leaves=nvme0n1,nvme1n1 reads=6 writes=1 direct=8192 near=0 "
		"host=5 errors=0 refused=1\n"
		"disk provider=1 dev=8:0 name=sda reads=1 writes=0 direct=0 near=0 host=0 errors=0 refused=1\n"
		"user uid=1000 buffer-bytes=12288\n"
		"file id=7 pid=10 buffers=2 buffer-bytes=8192 reads=5 writes=1 direct=1 near=2 host=3 errors=0 "
		"refused=0 comm=o\\040ne\n";
	const auto report = cli::stat();
	EXPECT_EQ(report.json["files"].size(), 2u);
	EXPECT_EQ(report.json["files"][0]["refused_by_reason"]["FILE_ALIGN"], 2);
	EXPECT_EQ(report.json["files"][0]["buffer_bytes"], 8192);
	EXPECT_EQ(report.json["total"]["host_bytes"], 5);
	EXPECT_EQ(report.json["total"]["refused_by_reason"]["DISTANCE"], 1);
	EXPECT_EQ(report.json["providers"][0]["pci"], "0000:01:00.0");
	EXPECT_EQ(report.json["disks"][0]["name"], "md0");
	EXPECT_EQ(report.json["disks"][0]["provider"], 1);
	EXPECT_EQ(report.json["disks"][0]["leaves"], (std::vector<std::string>{"nvme0n1", "nvme1n1"}));
	EXPECT_TRUE(report.json["disks"][1]["leaves"].empty());
	EXPECT_TRUE(has(report.text, "disk md0, provider 1"));
	EXPECT_TRUE(has(report.text, "by way of nvme0n1,nvme1n1"));
	EXPECT_FALSE(has(report.text, "\x1b")) << "a process's name must not steer the terminal";
	const auto lines = cli::parse_stats(sys.files["/sys/kernel/debug/peerdma/stats"]);
	ASSERT_EQ(lines.size(), 6u);
	EXPECT_EQ(report.json["users"], cli::Json::parse(R"([{"uid": 1000, "buffer_bytes": 12288}])"));
	EXPECT_TRUE(has(report.text, "user 1000 has 12"));
	EXPECT_EQ(lines[5].words.at("comm"), "o\\040ne");
	EXPECT_EQ(lines[5].counters.at("near-bytes"), 2u);
}

TEST_F(Seeing, StatHasTheOldestFirst)
{
	// As text 102 sorts before 98.
	open_in(98, "3", "one");
	open_in(102, "4", "one");
	std::string other = fdinfo;
	open_in(102, "3", "two", other.replace(other.find("file:\t7"), 7, "file:\t8"));
	const auto files = cli::stat().json["files"];
	ASSERT_EQ(files.size(), 2u);
	EXPECT_EQ(files[0]["pids"], (std::vector<int>{98, 102}));
	EXPECT_EQ(files[1]["pids"], (std::vector<int>{102}));
}

TEST_F(Seeing, StatWithoutAnything)
{
	const auto report = cli::stat();
	EXPECT_EQ(report.status, 0);
	EXPECT_TRUE(report.json["total"].is_null());
	EXPECT_TRUE(has(report.text, "no readable process"));
	EXPECT_TRUE(has(report.text, "need root"));
}

TEST_F(Seeing, WitnessProvesWhatADeviceMoved)
{
	submit(5);
	issue(5, "R", 2048);
	issue(5, "R", 2048);
	complete(5, all_direct);
	EXPECT_TRUE(witness.proved());
	EXPECT_EQ(only().direct, 4096u);
	EXPECT_EQ(unmoved(), 0u);
	EXPECT_EQ(only().devices.at({259, 0}), 4096u);
	const auto report = witness.report([](const std::string &) { return "nvme0n1"; });
	EXPECT_EQ(report.status, 0);
	EXPECT_TRUE(report.json["proved"].get<bool>());
	EXPECT_EQ(report.json["files"][0]["verdict"], "direct");
	EXPECT_TRUE(has(report.text, "moved      4096 bytes by nvme0n1"));
	EXPECT_TRUE(has(report.text, "cannot see"));
}

TEST_F(Seeing, WitnessMissesBytesThatNobodyMoved)
{
	submit(5);
	issue(5, "R", 512);
	complete(5, all_direct);
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(unmoved(), 3584u);
	const auto report = witness.report([](const std::string &dev) { return dev; });
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["files"][0]["verdict"], "unproved");
	EXPECT_TRUE(has(report.text, "UNMOVED"));
}

TEST_F(Seeing, WitnessDoesNotCallAShareAHole)
{
	file_dev = {0, 33};
	submit(5);
	complete(5, all_direct);
	EXPECT_FALSE(witness.proved());
	const auto report = witness.report([](const std::string &) { return "/mnt/share"; });
	EXPECT_EQ(report.json["files"][0]["verdict"], "unproved");
	EXPECT_EQ(report.json["files"][0]["name"], "/mnt/share");
	EXPECT_TRUE(has(report.text, "read of inode 12 on /mnt/share"));
	EXPECT_TRUE(has(report.text, "they belong to NFS, and this command cannot see the device"));
	EXPECT_FALSE(has(report.text, "a hole of the file"));
	const auto odd = witness.report([](const std::string &) { return "/mnt/a\nproved"; });
	EXPECT_TRUE(has(odd.text, "on /mnt/a\\nproved with")) << odd.text;
	EXPECT_EQ(odd.json["files"][0]["name"], "/mnt/a\nproved") << "names are as they are";
}

TEST_F(Seeing, WitnessDoesNotMakeUpForOneRequestWithAnother)
{
	submit(5);
	issue(5, "R", 8192);
	complete(5, all_direct);
	submit(5);
	complete(5, all_direct);
	EXPECT_EQ(unmoved(), 4096u);
}

TEST_F(Seeing, WitnessCountsOnlyCommandsOfTheRequest)
{
	submit(5);
	issue(5, "W", 4096);                // another direction
	issue(5, "R", 4096, {259, 0}, 0);   // not PeerDMA's
	issue(5, "R", 4096, {259, 0}, 514); // for another provider
	complete(5, all_direct);
	EXPECT_EQ(unmoved(), 4096u);
	EXPECT_TRUE(only().devices.empty());
}

TEST_F(Seeing, WitnessOfWrites)
{
	submit(5, "write");
	issue(5, "W", 4096);
	complete(5, all_direct, "write");
	EXPECT_TRUE(witness.proved());
}

TEST_F(Seeing, WitnessVerdicts)
{
	submit(5);
	issue(5, "R", 4096);
	complete(5, {.done = 4000, .direct = 3584, .near = 416, .reason = 4});
	EXPECT_EQ(verdict(), "direct, edges near");
	EXPECT_TRUE(witness.proved());
	submit(5);
	complete(5, {.done = 100, .host = 100, .reason = 5});
	EXPECT_EQ(verdict(), "partly host");
	submit(5);
	complete(5, {.done = 100, .near = 100, .reason = 4});
	EXPECT_EQ(unmoved(), 100u) << "what was bounced near the device came from a drive too";
	EXPECT_EQ(verdict(), "unproved");
}

TEST_F(Seeing, WitnessOfRequestsSentWithoutWaiting)
{
	submit(5, "read", 1);
	submit(5, "read", 2);
	issue(5, "R", 8192); // covers both, after both
	complete(0, all_direct, "read", 2, 5);
	EXPECT_EQ(unmoved(), 0u);
	EXPECT_FALSE(witness.proved()) << "one has not ended";
	EXPECT_EQ(only().requests, 1u);
	EXPECT_EQ(witness.report([](const std::string &dev) { return dev; }).json["unfinished"], 1);
	complete(77, all_direct, "read", 1, 5);
	EXPECT_TRUE(witness.proved());
	EXPECT_EQ(only().requests, 2u);
	submit(5, "read", 3);
	complete(0, all_direct, "read", 3, 5);
	EXPECT_EQ(unmoved(), 4096u);
}

TEST_F(Seeing, WitnessOfARequestThatHadToWaitAfterAll)
{
	submit(5, "read", 1);
	complete(5, {.error = -11}, "read", 1);
	submit(99, "read", 0, 5); // by a worker thread of the ring
	issue(99, "R", 4096);
	complete(99, all_direct, "read", 0, 5);
	EXPECT_TRUE(witness.proved());
	EXPECT_EQ(only().requests, 1u);
	EXPECT_EQ(only().failed, 0u);
}

TEST_F(Seeing, WitnessDoesNotPayForWaitingRequestsWithOthers)
{
	issue(5, "R", 4096); // may belong to a request that began before the trace
	submit(5);
	complete(5, all_direct);
	EXPECT_EQ(unmoved(), 4096u);
}

TEST_F(Seeing, WitnessOfWhatAThreadOfTheKernelIssues)
{
	submit(5, "write");
	issue(300, "W", 4096);
	issue(300, "W", 4096, {259, 1});
	complete(5, all_direct, "write");
	EXPECT_TRUE(witness.proved()) << "a mirror's thread wrote both legs";
	submit(8, "write"); // another process: the pool's commands can no longer be assigned
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(unmoved(), 4096u);
}

TEST_F(Seeing, WitnessLeavesOthersAlone)
{
	submit(8);
	issue(8, "R", 4096);
	complete(8, all_direct);
	EXPECT_TRUE(witness.files().empty());
	submit(5);
	issue(8, "R", 4096);
	complete(5, all_direct);
	EXPECT_EQ(unmoved(), 4096u);
}

TEST_F(Seeing, WitnessFollowsChildren)
{
	witness.on_fork(5, 6);
	witness.on_fork(8, 7);
	submit(6);
	issue(6, "R", 4096);
	complete(6, all_direct);
	submit(7);
	EXPECT_TRUE(witness.proved());
	EXPECT_EQ(only().requests, 1u);
}

TEST_F(Seeing, WitnessDoubtsWhatItMissed)
{
	submit(5);
	issue(5, "R", 4096);
	complete(5, all_direct);
	ASSERT_TRUE(witness.proved());
	witness.on_lost(12);
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(witness.report([](const std::string &name) { return name; }).json["lost_events"], 12);
}

TEST_F(Seeing, WitnessLeavesOutWhatItSawInPart)
{
	complete(5, all_direct);
	complete(0, all_direct, "read", 7, 5);
	EXPECT_TRUE(witness.files().empty());
	submit(5);
	EXPECT_FALSE(witness.proved());
	const auto json = witness.report([](const std::string &dev) { return dev; }).json;
	EXPECT_EQ(json["begun_before"], 2);
	EXPECT_EQ(json["unfinished"], 1);
}

TEST_F(Seeing, WitnessIsNotContentWithAPart)
{
	submit(5);
	issue(5, "R", 4096);
	complete(5, all_direct);
	ASSERT_TRUE(witness.proved());
	submit(5, "read", 3);
	EXPECT_FALSE(witness.proved()) << "under way";
	EXPECT_EQ(witness.report([](const std::string &dev) { return dev; }).status, 1);
	issue(5, "R", 4096);
	complete(0, all_direct, "read", 3, 5);
	ASSERT_TRUE(witness.proved());
	complete(5, all_direct);
	EXPECT_FALSE(witness.proved()) << "begun before";
}

TEST_F(Seeing, WitnessOfRefusalsAndOfSilence)
{
	EXPECT_FALSE(witness.proved());
	complete(5, {.reason = 4, .error = -22});
	complete(5, {.error = -27});
	cli::TracedRequest ring = request(5, "read", 0, 0);
	ring.async = true;
	witness.on_complete(5, ring, {.reason = 3, .error = -22});
	EXPECT_FALSE(witness.proved());
	EXPECT_EQ(only().refused, 2u) << "a ring's refusal among them";
	EXPECT_EQ(only().failed, 1u);
	EXPECT_EQ(verdict(), "refused");
	EXPECT_EQ(witness.report([](const std::string &dev) { return dev; }).json["begun_before"], 0);
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
	sys.add_function("0000:00:02.0", 1 << 20);
	sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
	sys.add_function("0000:03:00.0", 1 << 20, "nvme");
	sys.links[devices + "0000:00:02.0"] = root;
	sys.links[devices + "0000:01:00.0"] = root + "/0000:01:00.0";
	sys.links[devices + "0000:03:00.0"] = root + "/0000:03:00.0";
	sys.files[devices + "0000:03:00.0/class"] = "0x010802\n";
	sys.files[devices + "0000:03:00.0/numa_node"] = "1\n";
	sys.files["/sys/block/nvme0n1/size"] = sys.files["/sys/block/nvme1n1/size"] = "8\n";
	sys.files["/sys/block/nvme1n1/hidden"] = "1\n";
	sys.links["/sys/block/nvme0n1"] = "../devices/pci0000:00/0000:00:02.0/0000:03:00.0/nvme/nvme0/nvme0n1";
	sys.links["/sys/block/nvme1n1"] = sys.links["/sys/block/nvme0n1"];
	sys.files["/sys/block/loop0/size"] = "0\n";
	sys.links["/sys/block/loop0"] = "../devices/virtual/block/loop0";
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	sys.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};

	const auto functions = cli::pci_functions(sys);
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

	sys.contents["/dev/nvme0n1"].refused_errno = EXDEV;
	sys.contents["/dev/nvme0n1"].refused_reason = PEERDMA_REASON_DISTANCE;
	EXPECT_TRUE(has(cli::topo({}).text, "refused, DISTANCE"));
	sys.contents["/dev/nvme0n1"].open_error = -EACCES;
	const auto unknown = cli::topo({});
	EXPECT_EQ(unknown.json["pairs"][0]["verdict"], "unknown");
	EXPECT_EQ(unknown.json["pairs"][0]["errno"], "EACCES");
	EXPECT_TRUE(unknown.json["pairs"][0]["distance"].is_null());

	sys.node_error = -ENOENT;
	EXPECT_TRUE(has(cli::topo({}).text, "0000:03:00.0"));
	EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
}

TEST_F(Seeing, TopologyOfAFunctionWhoseBridgeIsNotListed)
{
	const std::string devices = "/sys/bus/pci/devices/", root = "../../../devices/pci0000:00/0000:00:02.0";
	sys.add_function("0000:01:00.0", 1 << 20);
	sys.add_function("0000:02:00.0", 1 << 20);
	sys.links[devices + "0000:01:00.0"] = root + "/0000:01:00.0";
	sys.links[devices + "0000:02:00.0"] = root + "/0000:01:00.0/0000:01:01.0/0000:02:00.0";
	const auto functions = cli::pci_functions(sys);
	ASSERT_EQ(functions.size(), 2u);
	EXPECT_EQ(functions[0].parent, "");
	EXPECT_EQ(functions[1].pci, "0000:02:00.0");
	EXPECT_EQ(functions[1].parent, "0000:01:00.0");
	EXPECT_TRUE(has(cli::topo({.svg = "", .dot = true}).text, "\"pci0000:00\" -> \"0000:01:00.0\""));
}

TEST_F(Seeing, TopologyOfWhoPublishesAndWhoConsumes)
{
	const std::string devices = "/sys/bus/pci/devices/", root = "../../../devices/pci0000:00/";
	sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
	sys.links[devices + "0000:01:00.0"] = root + "0000:01:00.0";
	sys.add_function("0000:03:00.0", 1 << 20, "nvme");
	sys.links[devices + "0000:03:00.0"] = root + "0000:03:00.0";
	sys.files["/sys/block/nvme0n1/size"] = "8\n";
	sys.links["/sys/block/nvme0n1"] = "../devices/pci0000:00/0000:03:00.0/nvme/nvme0/nvme0n1";
	sys.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	sys.add_provider(0, 0x0200, 2, 4096, 2 << 20);
	sys.providers[1].used = 1 << 19;
	open_in(10, "3", "one\x1b[2J");
	open_in(11, "3", "idle", "peerdma-file:\t8\npeerdma-buffers:\t0\npeerdma-buffer-bytes:\t0\n");
	sys.files["/etc/peerdma/rules"] = "allow provider=07:00.0\ndeny provider=02:00.0 disk=nvme0n1 # not yet\n"
					  "allow file=/srv\nallow provider=1af4:1110\n";
	const auto report = cli::topo({});
	for (const char *line :
	     {"provider 1: 0000:01:00.0 (1af4:1110, driver peerdma) publishes 1 MiB of BAR 2 at offset 0x0, 512 KiB "
	      "free\n"
	      "  /etc/peerdma/rules:3: allow file=/srv\n  /etc/peerdma/rules:4: allow provider=1af4:1110\n",
	      "provider 2: 0000:02:00.0 (1af4:1110) publishes 2 MiB of BAR 2 at offset 0x1000, 2 MiB free\n"
	      "  /etc/peerdma/rules:2: deny provider=02:00.0 disk=nvme0n1\n",
	      "process 10 one\\033[2J: 8 KiB in 2 buffers\n",
	      "nvme0n1 (0000:03:00.0) to provider 1 (0000:01:00.0): direct, distance 4, bus address\n",
	      "nvme0n1 (0000:03:00.0) to provider 2 (0000:02:00.0): refused, distance 4, RULE: /etc/peerdma/rules:2\n"})
		EXPECT_TRUE(has(report.text, line)) << line << report.text;
	EXPECT_FALSE(has(report.text, "idle"));
	const auto &json = report.json;
	EXPECT_EQ(json["providers"][0]["driver"], "peerdma");
	EXPECT_EQ(json["providers"][0]["available"], 1 << 19);
	EXPECT_TRUE(json["providers"][1]["driver"].is_null());
	EXPECT_EQ(json["providers"][1]["rules"][0],
		  cli::Json::parse(R"({"line": 2, "rule": "deny provider=02:00.0 disk=nvme0n1"})"));
	ASSERT_EQ(json["consumers"].size(), 1u);
	EXPECT_EQ(json["consumers"][0]["pids"], std::vector<int>{10});
	EXPECT_EQ(json["consumers"][0]["buffer_bytes"], 8192);
	EXPECT_EQ(json["pairs"][1]["refused_by"], "/etc/peerdma/rules:2");
	EXPECT_TRUE(json["pairs"][0]["refused_by"].is_null());
	EXPECT_TRUE(json["rules_fault"].is_null());
	EXPECT_TRUE(json["open_error"].is_null());
	EXPECT_TRUE(json["open_node"].is_null());

	// The tree is still useful. The report says that nothing works, and why.
	sys.files["/etc/peerdma/rules"] = "denies\n";
	const auto faulty = cli::topo({});
	EXPECT_TRUE(has(faulty.text, "every process is refused: /etc/peerdma/rules:1:1: "));
	EXPECT_TRUE(has(faulty.text, "0000:03:00.0"));
	EXPECT_TRUE(faulty.json["providers"].empty());
	EXPECT_EQ(faulty.json["open_error"], "EBADMSG");
}

// An empty list of providers means that no provider exists only if the node opens.
TEST_F(Seeing, TopologyWithoutANodeThatOpens)
{
	sys.node_error = -ENOENT;
	const auto missing = cli::topo({});
	EXPECT_TRUE(has(missing.text, "providers are not known: cannot open /dev/peerdma (ENOENT)\n")) << missing.text;
	EXPECT_EQ(missing.json["open_error"], "ENOENT");
	EXPECT_EQ(missing.json["open_node"], "/dev/peerdma");
	EXPECT_EQ(cli::topo({.svg = "", .dot = true}).json["open_error"], "ENOENT");

	sys.contents["/dev/null\n"].mode = S_IFCHR;
	sys.on_ioctl = [](unsigned long, void *) { return -ENOTTY; };
	::setenv("PEERDMA_DEVICE", "/dev/null\n", 1);
	const auto other = cli::topo({});
	::unsetenv("PEERDMA_DEVICE");
	EXPECT_TRUE(has(other.text, "providers are not known: cannot open /dev/null\\n (ENOTTY)\n")) << other.text;
	EXPECT_EQ(other.json["open_error"], "ENOTTY");
	EXPECT_EQ(other.json["open_node"], "/dev/null\n") << "names are as they are";

	sys.on_ioctl = nullptr;
	sys.node_error = 0;
	const auto none = cli::topo({});
	EXPECT_TRUE(has(none.text, "no provider is published\n")) << none.text;
	EXPECT_TRUE(none.json["open_error"].is_null());
	EXPECT_TRUE(none.json["open_node"].is_null());
	EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
}

TEST_F(Seeing, TopologyOfDisksThatAreNoFunctionsOwn)
{
	const std::string devices = "/sys/bus/pci/devices/", root = "../../../devices/pci0000:00/";
	sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
	sys.links[devices + "0000:01:00.0"] = root + "0000:01:00.0";
	sys.add_function("0000:03:00.0", 1 << 20, "nvme");
	sys.links[devices + "0000:03:00.0"] = root + "0000:03:00.0";
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	auto disk = [&](const std::string &name, const std::string &link, const std::string &transport = "") {
		sys.files["/sys/block/" + name + "/size"] = "8\n";
		sys.links["/sys/block/" + name] = sys.links["/sys/class/block/" + name] = "../devices/" + link + name;
		if (!transport.empty())
			sys.files["/sys/class/block/" + name + "/device/transport"] = transport + "\n";
		sys.contents["/dev/" + name] = {.bytes = "x", .mode = S_IFBLK};
	};
	// Disks over a network with and without multipath, by two paths, stacked, and devices that are not disks.
	disk("nvme4n1", "virtual/nvme-subsystem/nvme-subsys4/");
	disk("nvme4c4n1", "virtual/nvme-fabrics/ctl/nvme4/", "rdma");
	disk("nvme5n1", "virtual/nvme-fabrics/ctl/nvme5/", "tcp");
	disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0/");
	disk("nvme0c0n1", "pci0000:00/0000:03:00.0/nvme/nvme0/", "pcie");
	disk("md0", "virtual/block/");
	sys.files["/sys/class/block/md0/slaves/nvme0n1/size"] = "8\n";
	disk("nbd0", "virtual/block/");
	for (const char *none : {"loop0", "ram0", "zram0"})
		disk(none, "virtual/block/");
	disk("dm-9", "virtual/block/");
	sys.files["/sys/block/dm-9/size"] = "0\n";
	for (const char *path : {"nvme4c4n1", "nvme0c0n1"})
		sys.files["/sys/block/" + std::string(path) + "/hidden"] = "1\n";
	sys.contents["/dev/nvme4n1"].map = PEERDMA_MAP_SOFTWARE;
	sys.contents["/dev/nvme5n1"].refused_errno = EXDEV;
	sys.contents["/dev/nvme5n1"].refused_reason = PEERDMA_REASON_FABRIC_TCP;
	sys.contents["/dev/nbd0"].open_error = -EACCES;

	const auto report = cli::topo({});
	for (const char *line :
	     {"\ndisk nvme4n1: nvme4c4n1 by rdma\n", "\ndisk nvme5n1: by tcp\n",
	      "\ndisk nvme0n1: nvme0c0n1 0000:03:00.0\n", "\ndisk md0: nvme0c0n1 0000:03:00.0\n",
	      "\ndisk nbd0: no PCI function\n",
	      "\nnvme4n1 (nvme4c4n1 by rdma) to provider 1 (0000:01:00.0): by software, distance 4, software\n",
	      "\nnvme5n1 (by tcp) to provider 1 (0000:01:00.0): refused, FABRIC_TCP: ",
	      "\nnvme0n1 (nvme0c0n1 0000:03:00.0) to provider 1 (0000:01:00.0): direct, distance 4, bus address\n",
	      "\nmd0 (nvme0c0n1 0000:03:00.0) to provider 1 (0000:01:00.0): direct, ",
	      "\nnbd0 (no PCI function) to provider 1 (0000:01:00.0): unknown, cannot query /dev/nbd0 "
	      "(EACCES)\n"})
		EXPECT_TRUE(has(report.text, line)) << line << report.text;
	EXPECT_EQ(report.json["pairs"].size(), 5u) << "an empty disk, memory and files are none";
	for (const auto &pair : report.json["pairs"]) {
		EXPECT_TRUE(pair["disk_pci"].is_null());
		EXPECT_EQ(pair["verdict"], pair["disk"] == "nvme4n1" ? "by software" :
					   pair["disk"] == "nvme5n1" ? "refused" :
					   pair["disk"] == "nbd0"    ? "unknown" :
								       "direct");
	}
	ASSERT_EQ(report.json["other_disks"].size(), 5u);
	for (const auto &other : report.json["other_disks"])
		EXPECT_TRUE(other["disk"] != "nvme4n1" ||
			    other["leaves"] ==
				    cli::Json::parse(R"([{"name": "nvme4c4n1", "pci": null, "transport": "rdma"}])"));
	const auto dot = cli::topo({.svg = "", .dot = true}).text;
	for (const char *line : {"\"disk nvme4n1\" [label=\"disk nvme4n1\\nnvme4c4n1 by rdma\"",
				 "\"0000:03:00.0\" -> \"disk md0\" [dir=none",
				 "\"disk nvme4n1\" -> \"0000:01:00.0\" [label=\"nvme4n1: by software", "color=orange"})
		EXPECT_TRUE(has(dot, line)) << line << dot;
	EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
}

TEST_F(Seeing, TopologyOfWhoConsumesWhatOfEachProvider)
{
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	sys.add_provider(0, 0x0200, 2, 0, 1 << 20);
	open_in(10, "3", "one");
	const std::string cgroups = "/sys/fs/cgroup", current = "/dmem.current";
	sys.files[cgroups + "/cgroup.procs"] = "1\n";
	sys.files[cgroups + "/jobs" + current] = "peerdma/0000:01:00.0 12288\ndrm/0000:05:00.0/vram0 7\n"
						 "peerdma/0000:02:00.0 4096\n";
	sys.files[cgroups + "/jobs/a" + current] = "peerdma/0000:01:00.0 8192\npeerdma/0000:02:00.0 4096\n";
	sys.files[cgroups + "/jobs/b" + current] = "peerdma/0000:01:00.0 0\n";
	sys.files[cgroups + "/other" + current] = "";
	sys.files["/sys/kernel/debug/peerdma/stats"] =
		"total reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1\n"
		"user uid=1000 buffer-bytes=16384\n"
		"provider id=2 pci=0000:02:00.0 reads=6 writes=1 direct=8192 near=0 host=5 errors=0 refused=1\n"
		"disk provider=2 dev=259:3 name=nvme4n1 leaves=nvme4c4n1 reads=6 writes=1 direct=8192 near=1 host=5 "
		"errors=0 refused=1\n"
		"disk provider=1 dev=8:0 name=sda reads=0 writes=0 direct=0 near=0 host=0 errors=0 refused=0\n";
	const auto two = cli::topo({});
	EXPECT_TRUE(has(two.text, "1 MiB free\n  cgroup /jobs: 4 KiB\n  cgroup /jobs/a: 8 KiB\nprovider 2"))
		<< two.text;
	EXPECT_TRUE(has(two.text, "1 MiB free\n  cgroup /jobs/a: 4 KiB\n  disk nvme4n1: moved 8 KiB direct, 1 byte "
				  "near, 5 bytes host; 1 refused\nprocess 10 one: 8 KiB in 2 buffers\n"
				  "user 1000: 16 KiB in buffers\n"))
		<< two.text;
	EXPECT_EQ(two.json["providers"][1]["cgroups"], cli::Json::parse(R"([{"cgroup": "/jobs/a", "bytes": 4096}])"));
	EXPECT_EQ(two.json["providers"][1]["disks"][0]["direct_bytes"], 8192);
	EXPECT_EQ(two.json["providers"][0]["disks"].size(), 0u);
	EXPECT_EQ(two.json["users"], cli::Json::parse(R"([{"uid": 1000, "buffer_bytes": 16384}])"));
	EXPECT_TRUE(two.json["consumers"][0]["provider"].is_null()) << "which one's it is the kernel does not say";

	sys.providers.erase(2);
	const auto one = cli::topo({});
	EXPECT_TRUE(has(one.text, "  cgroup /jobs/a: 8 KiB\n  process 10 one: 8 KiB in 2 buffers\nuser")) << one.text;
	EXPECT_EQ(one.json["consumers"][0]["provider"], 1);
}

TEST_F(Seeing, TopologyOfManyProviders)
{
	for (uint32_t bus = 1; bus <= 100; bus++)
		sys.add_provider(0, bus << 8, 2, 0, 1 << 20);
	EXPECT_EQ(cli::topo({}).json["providers"].size(), 100u);
}
