// SPDX-License-Identifier: MIT
//
// The peerdma command as its users see it: arguments in, text and exit status out.

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/output.hpp"

namespace
{

class Cli : public ::testing::Test
{
protected:
	void publish_one(uint64_t len = 1 << 20)
	{
		sys.add_function("0000:01:00.0", len, "peerdma");
		sys.add_provider(0, 0x0100, 2, 0, len);
	}
	~Cli() override
	{
		EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
		EXPECT_TRUE(sys.buffers.empty()) << "a buffer leaked";
	}

	FakeSyscalls sys;
};

// As with --svg. The output would be created under the link's own name, so a dangling link is refused.
TEST(OutputFile, ALinkThatLeadsNowhereIsNamed)
{
	const std::string folder = ::testing::TempDir() + "cli_output." + std::to_string(::getpid());
	std::filesystem::create_directory(folder);
	const std::string link = folder + "/link";
	std::filesystem::create_symlink("nowhere", link);
	std::string said;
	try {
		cli::Output output(link);
	} catch (const cli::Failure &failure) {
		said = failure.line();
	}
	EXPECT_TRUE(has(said, "cannot write " + link + ", a symbolic link to nowhere")) << said;
	EXPECT_TRUE(has(said, "ENOENT")) << said;
	EXPECT_FALSE(std::filesystem::exists(folder + "/nowhere"));
	std::filesystem::remove_all(folder);
}

} // namespace

TEST_F(Cli, UsageErrorsEndWith2)
{
	const std::vector<std::vector<std::string>> cases = {
		{},
		{"frobnicate"},
		{"providers", "extra"},
		{"publish"},
		{"publish", "banana"},
		{"publish", "0000:01:00.0", "--bar", "6"},
		{"publish", "0000:01:00.0", "--bar", "x"},
		{"publish", "0000:01:00.0", "--size", "1Q"},
		{"publish", "0000:01:00.0", "--offset", "-4096"},
		{"publish", "0000:01:00.0", "--what"},
		{"unpublish"},
		{"unpublish", "1"},
		{"explain"},
		{"cp", "/f"},
		{"cp", "gpu:", "/g"},
		{"cp", "/f", "gpu:", "--provider", "1"},
		{"bench"},
		{"bench", "/f", "--io-size", "x"},
		{"bench", "/f", "--jobs", "/j"},
		{"bench", "/f", "--frob"},
		{"help", "frobnicate"},
		{"cp", "/f", "gpu:x"},
		{"cp", "/f", "gpu:+x"},
		{"cp", "/f", "gpu:1+"},
		{"cp", "/f", "gpu:", "more"},
		{"explain", "/f", "--provider", "x"},
		{"stat", "often"},
		{"stat", "0"},
		{"stat", "1", "0"},
		{"stat", "1", "-1"},
		{"stat", "nan"},
		{"stat", "inf"},
		{"stat", "infinity"},
		{"stat", "-nan"},
		{"stat", "0x1"},
		{"stat", "0x1p3"},
		{"stat", " 1"},
		{"stat", "1 "},
		{"stat", "+1"},
		{"stat", "1e2"},
		{"stat", "1s"},
		{"stat", "1,5"},
		{"stat", "."},
		{"stat", "1."},
		{"stat", "1e999"},
		{"stat", "1", "4294967296"},
		{"stat", "1", "18446744073709551617"},
		{"stat", "1", " 1"},
		{"stat", "1", "+1"},
		{"stat", "1", "1.0"},
		{"publish", "0000:01:00.0", "--bar", "-1"},
		{"publish", "0000:01:00.0", "--bar", "+1"},
		{"publish", "0000:01:00.0", "--bar", " 1"},
		{"publish", "0000:01:00.0", "--bar", "1 "},
		{"publish", "0000:01:00.0", "--bar", "1'0"},
		{"publish", "0000:01:00.0", "--bar", "4294967297"},
		{"publish", "0000:01:00.0", "--size", "nan"},
		{"publish", "0000:01:00.0", "--size", "16777216T"},
		{"bench", "/f", "--runtime", "nan"},
		{"bench", "/f", "--runtime", "inf"},
		{"bench", "/f", "--runtime", "-1"},
		{"bench", "/f", "--runtime", "0"},
		{"bench", "/f", "--threads", "+1"},
		{"bench", "/f", "--threads", " 5"},
		{"bench", "/f", "--threads", "5 "},
		{"bench", "/f", "--threads", "1, 5"},
		{"bench", "/f", "--io-size", "4K\t"},
		{"bench", "/f", "--route", " host"},
		{"bench", "/f", "--depth", "1 ,2"},
		{"bench", "/f", "--depth", " "},
		{"bench", "/f", "--depth", "0x"},
		{"verify", "/f", "--size", "1e3"},
		{"witness", "0"},
		{"witness", "2147483648"},
		{"witness", " 1"},
		{"cp", "/f", "gpu:0x1"},
		{"cp", "/f", "gpu:4294967296"},
		{"stat", "1", "2", "3"},
		{"witness"},
		{"witness", "x"},
		{"witness", "--"},
		{"witness", "1", "--", "true"},
		{"topo", "--dot", "--svg", "x"},
		{"rules"},
		{"rules", "mend"},
		{"rules", "check", "a", "b"},
		{"rules", "check", "--file", "/f"},
		{"rules", "explain"},
		{"rules", "explain", "--provider", "gpu"},
		{"rules", "explain", "--provider", "01:00.0", "--disk", "nvme0n1"},
	};
	for (const auto &words : cases) {
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 2) << (words.empty() ? "nothing" : words.back());
		EXPECT_EQ(outcome.out, "");
		EXPECT_NE(outcome.err, "");
	}
}

TEST_F(Cli, AnEmptyArgumentIsNotNone)
{
	publish_one();
	sys.contents["/f"].bytes = "x";
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{""},
						   {"help", ""},
						   {"check", ""},
						   {"check", "--root", ""},
						   {"check", "--root="},
						   {"publish", ""},
						   {"unpublish", ""},
						   {"explain", ""},
						   {"explain", "/f", "--provider", ""},
						   {"explain", "/f", "--provider="},
						   {"cp", "", "gpu:"},
						   {"cp", "/f", ""},
						   {"cp", "/f", "/g", "--provider", ""},
						   {"bench", ""},
						   {"bench", "--jobs", ""},
						   {"bench", "/f", "--svg", ""},
						   {"bench", "/f", "--svg="},
						   {"selftest", ""},
						   {"selftest", "/tmp", "--provider", ""},
						   {"verify", ""},
						   {"verify", "/f", "--size", ""},
						   {"verify", "/f", "--provider", ""},
						   {"stat", ""},
						   {"stat", "1", ""},
						   {"witness", ""},
						   {"rules", ""},
						   {"rules", "check", ""},
						   {"rules", "explain", "--provider", "01:00.0", "--cgroup", ""},
						   {"rules", "explain", "--provider", "01:00.0", "--file", ""},
						   {"topo", "--svg", ""}}) {
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 2) << words.front();
		EXPECT_EQ(outcome.out, "");
		EXPECT_TRUE(one_line(outcome.err) && has(outcome.err, " is empty")) << outcome.err;
	}
}

TEST_F(Cli, NamesDoNotReachTheTerminalAsTheyAre)
{
	publish_one();
	const std::string name = "/\033[2J\r\nbell\a\x7f\xc2\x9b\xe2\x80\xae\xff\\ \xc3\xa9";
	const std::string shown = R"(/\033[2J\r\nbell\a\177\302\233\342\200\256\377\\ )"
				  "\xc3\xa9";
	sys.contents[name].bytes = "x";
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{"explain", name}, {"cp", name, "gpu:"}}) {
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 0) << outcome.err;
		EXPECT_TRUE(has(outcome.out, "file       " + shown)) << outcome.out;
	}
	// Errors, and invalid words.
	const std::string none = "/none" + name.substr(1);
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{"explain", none},
						   {"verify", none},
						   {"cp", none, "gpu:"},
						   {"cp", none, "/tmp/x"},
						   {"cp", name, "gpu:" + name},
						   {"bench", none},
						   {"bench", "/f", "--rw", name},
						   {"bench", "--jobs", none},
						   {"publish", name},
						   {"explain", name, "--provider", name},
						   {"stat", name},
						   {"stat", "1", name},
						   {"witness", name},
						   {"rules", name},
						   {"rules", "check", none},
						   {"help", name},
						   {name},
						   {"providers", name},
						   {"providers", "--" + name}}) {
		const Outcome outcome = run(words);
		EXPECT_NE(outcome.status, 0);
		EXPECT_EQ(outcome.out, "");
		EXPECT_TRUE(one_line(outcome.err)) << outcome.err;
		for (const char c : {'\033', '\r', '\a', '\x7f', '\xff', '\x9b'})
			EXPECT_FALSE(has(outcome.err, std::string(1, c))) << words[0];
		EXPECT_TRUE(has(outcome.err, R"(\033[2J\r\nbell\a\177)")) << outcome.err;
	}
}

TEST_F(Cli, HelpAndVersionEndWith0)
{
	EXPECT_EQ(run({"--version"}).out, "peerdma 0.2.0\n");
	const Outcome help = run({"--help"});
	EXPECT_EQ(run({"help"}).out, help.out);
	EXPECT_EQ(help.status, 0);
	for (const char *name :
	     {"check", "providers", "publish", "unpublish", "explain", "cp", "bench", "stat", "witness", "topo"}) {
		EXPECT_TRUE(has(help.out, name));
		EXPECT_EQ(run({name, "--help"}).status, 0);
		EXPECT_TRUE(has(run({name, "--help"}).out, "--json"));
		EXPECT_EQ(run({"help", name}).out, run({name, "--help"}).out);
	}
}

TEST_F(Cli, WithoutTheModuleEveryCommandSaysHowToLoadIt)
{
	sys.node_error = -ENOENT;
	sys.contents["/f"].bytes = "x";
	for (const std::vector<std::string> &words : std::vector<std::vector<std::string>>{
		     {"providers"}, {"publish", "01:00.0"}, {"explain", "/f"}, {"cp", "/f", "gpu:"}}) {
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 1);
		EXPECT_TRUE(one_line(outcome.err));
		EXPECT_TRUE(has(outcome.err, "/dev/peerdma"));
		EXPECT_TRUE(has(outcome.err, "insmod peerdma.ko"));
	}
	// The node that was tried is named.
	::setenv("PEERDMA_DEVICE", "/dev/peerdma4", 1);
	for (const std::vector<std::string> &words : std::vector<std::vector<std::string>>{
		     {"providers"}, {"publish", "01:00.0"}, {"explain", "/f"}, {"cp", "/f", "gpu:"}}) {
		const Outcome outcome = run(words);
		EXPECT_TRUE(has(outcome.err, "cannot open /dev/peerdma4: ")) << outcome.err;
		EXPECT_TRUE(has(outcome.err, "unset the variable")) << outcome.err;
		EXPECT_FALSE(has(outcome.err, "insmod")) << outcome.err;
	}
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{"topo"}, {"check", "--verbose"}, {"check", "--json"}}) {
		const Outcome outcome = run(words);
		EXPECT_TRUE(has(outcome.out, "cannot open /dev/peerdma4 (ENOENT)")) << outcome.out;
		EXPECT_FALSE(has(outcome.out, "/dev/peerdma ")) << outcome.out;
	}
	const std::string verdict = "/dev/peerdma4, which PEERDMA_DEVICE names, does not open (ENOENT)";
	EXPECT_TRUE(has(run({"check"}).out, verdict));
	::unsetenv("PEERDMA_DEVICE");
	// A package has installed it where modprobe finds it.
	sys.files["/proc/sys/kernel/osrelease"] = "7.2.13\n";
	sys.files["/lib/modules/7.2.13/modules.dep"] = "updates/dkms/peerdma.ko:\n";
	for (const std::vector<std::string> &words : std::vector<std::vector<std::string>>{
		     {"providers"}, {"publish", "01:00.0"}, {"explain", "/f"}, {"cp", "/f", "gpu:"}}) {
		const Outcome outcome = run(words);
		EXPECT_TRUE(has(outcome.err, "Load the module first: modprobe peerdma.")) << outcome.err;
		EXPECT_FALSE(has(outcome.err, "insmod"));
	}
}

// A container may have only one provider's node. The node opens; later failures must name it.
TEST_F(Cli, AFailureBehindAProvidersNodeNamesThatNode)
{
	sys.node_error = -EACCES;
	sys.provider_nodes = {{"/dev/peerdma3", 0}};
	sys.files["/dev/peerdma3"] = "";
	sys.abi = PEERDMA_ABI_VERSION + 1;
	EXPECT_TRUE(has(run({"providers"}).err, "cannot open /dev/peerdma3: "));
	const Outcome topo = run({"topo"}), check = run({"check"});
	EXPECT_TRUE(has(topo.out, "cannot open /dev/peerdma3 (EPROTONOSUPPORT)")) << topo.out;
	EXPECT_EQ(run({"topo", "--json"}).parsed()["open_node"], "/dev/peerdma3");
	EXPECT_TRUE(has(check.out, "/dev/peerdma3 does not open (EPROTONOSUPPORT)")) << check.out;
	EXPECT_FALSE(has(check.out, "/dev/peerdma does not open")) << check.out;
}

TEST_F(Cli, WithoutPermissionItSaysSo)
{
	sys.node_error = -EACCES;
	const Outcome outcome = run({"providers", "--json"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "EACCES"));
	EXPECT_FALSE(outcome.parsed()["ok"].get<bool>());
	EXPECT_EQ(outcome.parsed()["error"]["errno"], "EACCES");
}

TEST_F(Cli, Providers)
{
	EXPECT_TRUE(has(run({"providers"}).out,
			"no provider is published. Publish a device's memory with peerdma publish"));
	EXPECT_EQ(run({"providers", "--json"}).parsed()["providers"].size(), 0u);
	publish_one();
	const Outcome text = run({"providers"});
	EXPECT_EQ(text.status, 0);
	EXPECT_TRUE(has(text.out, "0000:01:00.0"));
	EXPECT_TRUE(has(text.out, "1 MiB"));
	const auto json = run({"providers", "--json"}).parsed();
	EXPECT_EQ(json["providers"][0]["pci"], "0000:01:00.0");
	EXPECT_EQ(json["providers"][0]["len"], 1 << 20);
	EXPECT_EQ(json["providers"][0]["vendor"], "1af4");
}

TEST_F(Cli, PublishAndUnpublish)
{
	sys.add_function("0000:01:00.0", 1 << 20);
	const Outcome first = run({"publish", "01:00.0", "--bar", "2", "--offset", "64K", "--size", "0x10000"});
	EXPECT_EQ(first.status, 0) << first.err;
	EXPECT_TRUE(has(first.out, "provider 1: 0000:01:00.0 publishes 64 KiB of BAR 2 at offset 0x10000"));
	// Publishing the same range again is not an error; another range is.
	const Outcome again = run({"publish", "01:00.0", "--offset", "65536", "--json"});
	EXPECT_EQ(again.status, 0);
	EXPECT_TRUE(again.parsed()["already"].get<bool>());
	const Outcome other = run({"publish", "01:00.0", "--offset", "0"});
	EXPECT_EQ(other.status, 1);
	EXPECT_TRUE(one_line(other.err));
	EXPECT_TRUE(has(other.err, "peerdma unpublish 0000:01:00.0"));

	EXPECT_EQ(run({"unpublish", "01:00.0"}).status, 0);
	const Outcome twice = run({"unpublish", "01:00.0"});
	EXPECT_EQ(twice.status, 0);
	EXPECT_TRUE(has(twice.out, "was not published"));
	EXPECT_EQ(run({"unpublish", "7:00.0"}).status, 1);
}

TEST_F(Cli, PublishNamesTheDriverInUse)
{
	sys.add_function("0000:01:00.0", 1 << 20, "nvme");
	const Outcome refused = run({"publish", "01:00.0", "--json"});
	EXPECT_EQ(refused.status, 1);
	EXPECT_TRUE(one_line(refused.err));
	EXPECT_TRUE(has(refused.err, "0000:01:00.0 is in use by the driver 'nvme'"));
	EXPECT_TRUE(has(refused.err, "--force"));
	EXPECT_EQ(refused.parsed()["driver"], "nvme");
	EXPECT_EQ(sys.driver_of("0000:01:00.0"), "nvme");
	EXPECT_EQ(run({"unpublish", "01:00.0"}).status, 1);
	EXPECT_EQ(run({"publish", "01:00.0", "--force"}).status, 0);
}

TEST_F(Cli, PublishNamesTheFileThatRefused)
{
	sys.add_function("0000:01:00.0", 1 << 20);
	sys.write_errors["/sys/bus/pci/devices/0000:01:00.0/driver_override"] = -EACCES;
	const Outcome outcome = run({"publish", "01:00.0"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "driver_override"));
	EXPECT_TRUE(has(outcome.err, "Publish it as root"));
}

TEST_F(Cli, Explain)
{
	publish_one();
	sys.contents["/f"].bytes = "x";
	const Outcome direct = run({"explain", "/f"});
	EXPECT_EQ(direct.status, 0);
	for (const char *part : {"direct", "0000:03:00.0", "nvme0n1", "0000:01:00.0", "bus address", "ext4"})
		EXPECT_TRUE(has(direct.out, part)) << part;
	sys.contents["/f"].leaves = 2;
	const Outcome two = run({"explain", "/f"});
	for (const char *part : {"0000:03:00.0  nvme0n1  distance 4", "0000:04:00.0  nvme1n1  distance 4"})
		EXPECT_TRUE(has(two.out, part)) << part;
	const auto leaves = run({"explain", "--json", "/f"}).parsed()["leaves"];
	ASSERT_EQ(leaves.size(), 2u);
	EXPECT_EQ(leaves[1]["name"], "nvme1n1");
	EXPECT_EQ(leaves[1]["reason"], "NONE");
	sys.contents["/f"].map = PEERDMA_MAP_SOFTWARE;
	const auto software = run({"explain", "--json", "/f"}).parsed();
	EXPECT_FALSE(software["direct"].get<bool>()) << "the CPU copies each byte";
	EXPECT_EQ(software["errno"], nullptr);
	EXPECT_EQ(software["map"], "software");
	EXPECT_EQ(software["reason"], "NONE") << "the module refuses nothing";
	sys.contents["/f"].refused_errno = EXDEV;
	sys.contents["/f"].refused_reason = PEERDMA_REASON_DISTANCE;
	const auto json = run({"explain", "--json", "--provider", "0000:01:00.0", "/f"}).parsed();
	EXPECT_FALSE(json["direct"].get<bool>());
	EXPECT_EQ(json["errno"], "EXDEV");
	EXPECT_EQ(json["reason"], "DISTANCE");
	EXPECT_TRUE(has(run({"explain", "/f"}).out, "advice"));
	EXPECT_EQ(run({"explain", "/f", "--provider", "2"}).status, 1);
	EXPECT_EQ(run({"explain", "/none"}).status, 1);
}

TEST_F(Cli, ExplainSaysWhyItIsBounced)
{
	publish_one();
	sys.contents["/f"].bytes = "x";
	EXPECT_FALSE(has(run({"explain", "/f"}).out, "\nbounced "));
	EXPECT_EQ(run({"explain", "--json", "/f"}).parsed()["bounced"], nullptr);
	sys.contents["/f"].map = PEERDMA_MAP_SOFTWARE;
	const Outcome text = run({"explain", "/f"});
	EXPECT_EQ(text.status, 0);
	EXPECT_TRUE(has(text.out, "\nroute      bounced through host memory\n"
				  "reason     NONE: nothing stands in the way\n"
				  "bounced    RDMA_SOFTWARE: the RDMA device is software: the CPU copies every byte\n"
				  "advice     Use a network card with RDMA in hardware."))
		<< text.out;
	const auto bounced = run({"explain", "--json", "/f"}).parsed()["bounced"];
	EXPECT_EQ(bounced["reason"], "RDMA_SOFTWARE");
	EXPECT_EQ(bounced["text"], peerdma_reason_text(PEERDMA_REASON_RDMA_SOFTWARE));
	EXPECT_EQ(bounced["advice"], peerdma_reason_advice(PEERDMA_REASON_RDMA_SOFTWARE));
	// A refused request is not bounced.
	sys.contents["/f"].refused_errno = EXDEV;
	sys.contents["/f"].refused_reason = PEERDMA_REASON_DISTANCE;
	EXPECT_FALSE(has(run({"explain", "/f"}).out, "\nbounced "));
	EXPECT_EQ(run({"explain", "--json", "/f"}).parsed()["bounced"], nullptr);
}

TEST_F(Cli, Copy)
{
	publish_one();
	sys.contents["/f"].bytes = std::string(5000, 'x');
	const Outcome text = run({"cp", "/f", "gpu:"});
	ASSERT_EQ(text.status, 0) << text.err;
	for (const char *part : {"direct", "5000", "nvme0n1", "0000:01:00.0", "bus address", "BAR 2 offset 0x0"})
		EXPECT_TRUE(has(text.out, part)) << part;
	ASSERT_EQ(sys.ios.size(), 1u);
	EXPECT_EQ(sys.ios[0].len, 5120u) << "whole blocks";

	sys.providers[1].used = 0;
	const Outcome outcome = run({"cp", "/f", "gpu:0000:01:00.0+4K", "--json"});
	ASSERT_EQ(outcome.status, 0) << outcome.err;
	const auto json = outcome.parsed();
	EXPECT_TRUE(json["ok"].get<bool>());
	EXPECT_EQ(json["bytes"], 5000);
	EXPECT_EQ(json["bytes_direct"], 4608);
	EXPECT_EQ(json["bytes_near"], 392);
	EXPECT_EQ(json["bytes_host"], 0);
	EXPECT_EQ(json["bar_offset"], 4096);
	EXPECT_EQ(json["buffer"]["len"], 12288);
	EXPECT_EQ(json["leaf"]["pci"], "0000:03:00.0");
	EXPECT_EQ(json["distance"], 4);
	EXPECT_EQ(json["map"], "bus address");
	EXPECT_GE(json["seconds"].get<double>(), 0);
	EXPECT_FALSE(json["verified"].get<bool>());
}

TEST_F(Cli, CopyThatLooksAgain)
{
	publish_one();
	sys.contents["/f"].bytes = std::string(5000, 'x');
	const Outcome good = run({"cp", "--verify", "/f", "gpu:+4K", "--json"});
	ASSERT_EQ(good.status, 0) << good.err;
	EXPECT_TRUE(good.parsed()["verified"].get<bool>());
	// The drive's bytes differ from those in the page cache.
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request != PEERDMA_READ)
			return 1;
		EXPECT_EQ(sys.perform(request, arg), 0);
		sys.buffers.begin()->second.bytes[4321] ^= 1;
		return 0;
	};
	EXPECT_EQ(run({"cp", "/f", "gpu:"}).status, 0) << "nobody asked";
	const Outcome bad = run({"cp", "--verify", "/f", "gpu:"});
	EXPECT_EQ(bad.status, 1);
	EXPECT_TRUE(has(bad.err, "1 bytes differ, the first at 4321")) << bad.err;
}

TEST_F(Cli, CopyOfABlockDevice)
{
	publish_one();
	sys.contents["/dev/nvme0n1"] = {.bytes = std::string(8192, 'x'), .mode = S_IFBLK};
	EXPECT_EQ(run({"cp", "/dev/nvme0n1", "gpu:1", "--json"}).parsed()["bytes"], 8192);
}

TEST_F(Cli, CopyRefusals)
{
	publish_one();
	auto refused = [&](const std::string &file, const std::string &target, const std::string &part) {
		const Outcome outcome = run({"cp", file, target});
		EXPECT_EQ(outcome.status, 1);
		EXPECT_EQ(outcome.out, "");
		EXPECT_TRUE(one_line(outcome.err)) << outcome.err;
		EXPECT_TRUE(has(outcome.err, part)) << outcome.err;
		EXPECT_TRUE(has(outcome.err, file)) << outcome.err;
	};
	refused("/none", "gpu:", "ENOENT");
	sys.contents["/empty"].bytes = "";
	refused("/empty", "gpu:", "is empty");
	sys.contents["/big"].bytes = std::string((1 << 20) + 1, 'x');
	refused("/big", "gpu:", "does not fit");
	sys.contents["/fits"].bytes = std::string(1 << 20, 'x');
	refused("/fits", "gpu:+512", "does not fit");
	refused("/fits", "gpu:+1T", "does not fit");
}

TEST_F(Cli, CopyWithoutARoute)
{
	publish_one();
	sys.contents["/f"] = {.bytes = "x", .refused_errno = EXDEV, .refused_reason = PEERDMA_REASON_QUEUE};
	const Outcome outcome = run({"cp", "/f", "gpu:", "--json"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "/f cannot be read directly into 0000:01:00.0"));
	EXPECT_TRUE(has(outcome.err, peerdma_reason_text(PEERDMA_REASON_QUEUE)));
	EXPECT_TRUE(has(outcome.err, peerdma_reason_advice(PEERDMA_REASON_QUEUE)));
	EXPECT_EQ(outcome.parsed()["error"]["reason"], "QUEUE");
	EXPECT_EQ(outcome.parsed()["leaf"]["name"], "nvme0n1");
}

TEST_F(Cli, CopyThatFailsHalfWay)
{
	publish_one();
	sys.contents["/f"].bytes = std::string(16384, 'x');
	sys.io_limit = 8192;
	int calls = 0;
	sys.on_ioctl = [&](unsigned long request, void *) { return request == PEERDMA_READ && ++calls > 1 ? -EIO : 1; };
	const Outcome outcome = run({"cp", "/f", "gpu:"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "8192 of 16384 bytes"));
	EXPECT_TRUE(has(outcome.err, "EIO"));
}

TEST_F(Cli, CopyOfAFileThatShrinks)
{
	publish_one();
	sys.contents["/f"].bytes = std::string(8192, 'x');
	sys.on_ioctl = [&](unsigned long request, void *) {
		if (request == PEERDMA_READ)
			sys.contents["/f"].bytes.resize(1000);
		return 1;
	};
	const Outcome outcome = run({"cp", "/f", "gpu:"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "changed while it was read"));
}

TEST_F(Cli, WhatHasAnotherSizeThanItSaysIsNotVerified)
{
	publish_one();
	// Like files of procfs and sysfs.
	sys.contents["/more"] = {.bytes = "123\n", .size = 0};
	sys.contents["/fewer"] = {.bytes = "123\n", .size = 4096};
	for (const std::string name : {"/more", "/fewer"})
		for (const std::vector<std::string> &words :
		     std::vector<std::vector<std::string>>{{"cp", "--verify", name, "gpu:"},
							   {"cp", "--verify", name, "/tmp/no-such-target"},
							   {"cp", name, "/tmp/no-such-target"},
							   {"verify", name},
							   {"verify", name, "--size", "2"}}) {
			const Outcome outcome = run(words);
			EXPECT_EQ(outcome.status, 1) << words[0];
			EXPECT_EQ(outcome.out, "");
			EXPECT_TRUE(has(outcome.err, name + " has " + name.substr(1) + " bytes than its size of "))
				<< outcome.err;
		}
}

TEST_F(Cli, WhatGrowsOrShrinksMeanwhileIsNotVerified)
{
	publish_one(64 << 20);
	for (const size_t len : {5120, 5000, 4000, 8192}) {
		for (const std::vector<std::string> &words :
		     std::vector<std::vector<std::string>>{{"cp", "/f", "gpu:"}, {"verify", "/f"}}) {
			sys.contents["/f"].bytes = std::string(5120, 'x');
			sys.on_ioctl = [&](unsigned long request, void *) {
				if (request == PEERDMA_READ)
					sys.contents["/f"].bytes.resize(len, 'x');
				return 1;
			};
			const Outcome outcome = run(words);
			EXPECT_EQ(outcome.status, len == 5120 ? 0 : 1) << words[0] << " " << len << outcome.out;
			EXPECT_EQ(has(outcome.err, "changed while it was read"), len != 5120) << outcome.err;
		}
	}
	sys.on_ioctl = nullptr;
}

TEST_F(Cli, WhatIsNoFileIsNotCopied)
{
	publish_one();
	sys.contents["/fifo"] = {.bytes = "", .mode = S_IFIFO};
	sys.contents["/zero"] = {.bytes = "", .mode = S_IFCHR};
	sys.contents["/folder"] = {.bytes = "", .mode = S_IFDIR};
	for (const std::string name : {"/fifo", "/zero", "/folder"})
		for (const std::string target : {"gpu:", "/tmp/no-such-target"}) {
			const Outcome outcome = run({"cp", "--verify", name, target});
			EXPECT_EQ(outcome.status, 1);
			EXPECT_EQ(outcome.out, "");
			EXPECT_TRUE(one_line(outcome.err) && has(outcome.err, name)) << outcome.err;
		}
}

TEST_F(Cli, SeveralProvidersNeedAName)
{
	publish_one();
	sys.add_provider(0, 0x0200, 2, 0, 1 << 20);
	sys.contents["/f"].bytes = "x";
	const Outcome outcome = run({"cp", "/f", "gpu:"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(has(outcome.err, "several providers"));
	EXPECT_EQ(run({"cp", "/f", "gpu:2"}).status, 0);
	EXPECT_EQ(run({"cp", "/f", "gpu:3"}).status, 1);
}

TEST_F(Cli, AGpuIsNotTakenFromItsVendorsDriver)
{
	const std::string gpu = "/sys/bus/pci/devices/0000:01:00.0";
	sys.add_function("0000:01:00.0", 4 << 20, "nvidia");
	sys.files[gpu + "/class"] = "0x030200\n";
	sys.contents["/f"].bytes = "x";
	for (const auto &words :
	     std::vector<std::vector<std::string>>{{"providers"}, {"explain", "/f"}, {"cp", "/f", "gpu:"}}) {
		const Outcome outcome = run(words);
		const std::string said = outcome.out + outcome.err;
		EXPECT_TRUE(has(said, "no provider is published"));
		EXPECT_TRUE(has(said, "0000:01:00.0 is nvidia's, which would lose it by peerdma publish")) << said;
		EXPECT_TRUE(has(said, "peerdma_buf_from_gpu()")) << said;
		EXPECT_FALSE(has(said, "Publish a device's memory")) << said;
	}
}

TEST_F(Cli, RulesAreChecked)
{
	EXPECT_TRUE(has(run({"rules", "check"}).out, "everything is allowed"));
	sys.files["/etc/peerdma/rules"] = "# mine\ndeny provider=01:00.0\nallow\n";
	EXPECT_EQ(run({"rules", "check"}).out, "/etc/peerdma/rules: 2 rules, without a fault\n");
	EXPECT_EQ(run({"rules", "check", "--json"}).parsed()["count"], 2);
	for (const auto &words : std::vector<std::vector<std::string>>{
		     {"rules", "check", "/none"}, {"rules", "explain", "--provider", "01:00.0", "/none"}}) {
		const Outcome missing = run(words);
		EXPECT_EQ(missing.status, 1) << words[1] << ": " << missing.out;
		EXPECT_TRUE(has(missing.err, "cannot read /none") && has(missing.err, "(ENOENT)")) << missing.err;
	}
	sys.files["/other"] = "deny\nallow gpu=1\n";
	const Outcome outcome = run({"rules", "check", "/other", "--json"});
	EXPECT_EQ(outcome.status, 1);
	EXPECT_TRUE(one_line(outcome.err));
	EXPECT_TRUE(has(outcome.err, "/other:2:7: ")) << outcome.err;
	EXPECT_FALSE(outcome.parsed()["ok"].get<bool>());

	sys.files["/etc/peerdma/rules"] = "denies\n";
	publish_one();
	sys.contents["/f"].bytes = "x";
	for (const auto &words :
	     std::vector<std::vector<std::string>>{{"providers"}, {"explain", "/f"}, {"cp", "/f", "gpu:"}}) {
		const Outcome faulty = run(words);
		EXPECT_EQ(faulty.status, 1);
		EXPECT_TRUE(has(faulty.err, "EBADMSG")) << faulty.err;
		EXPECT_TRUE(has(faulty.err, "peerdma rules check")) << faulty.err;
	}
}

TEST_F(Cli, RulesAreExplained)
{
	sys.files["/sys/bus/pci/devices/0000:01:00.0/vendor"] = "0x10de\n";
	sys.files["/sys/bus/pci/devices/0000:01:00.0/device"] = "0x2336\n";
	sys.files["/sys/bus/pci/devices/0000:02:00.0/vendor"] = "0x1002\n";
	sys.files["/sys/bus/pci/devices/0000:02:00.0/device"] = "0x74a1\n";
	sys.files["/proc/self/cgroup"] = "0::/here\n";
	sys.files["/etc/peerdma/rules"] = "deny file=/no/such/secret\n"
					  "prefer provider=10de:2336 cgroup=/there\n"
					  "deny provider=10de:2336\n";
	auto decided = [](std::vector<std::string> words) {
		words.insert(words.begin(), {"rules", "explain", "--json"});
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 0) << outcome.err;
		const auto json = outcome.parsed();
		return json["verdict"].get<std::string>() + " " + json["line"].dump();
	};
	EXPECT_EQ(decided({"--provider", "01:00.0"}), "deny 3");
	EXPECT_EQ(decided({"--provider", "01:00.0", "--cgroup", "/there/below"}), "prefer 2");
	EXPECT_EQ(decided({"--provider", "02:00.0", "--file", "/no/such/file"}), "allow null");
	EXPECT_EQ(decided({"--provider", "02:00.0", "--file", "/no/such/../such/secret/a"}), "deny 1");
	EXPECT_EQ(decided({"--provider", "03:00.0"}), "deny 3") << "what kind of device it is is not known";
	EXPECT_EQ(run({"rules", "explain", "--provider", "01:00.0"}).out,
		  "deny: /etc/peerdma/rules:3: deny provider=10de:2336\n");
	sys.files["/other"] = "allow disk=nvme0n1\nallow disk=04:00.0\ndeny\n";
	const std::vector<std::string> other = {"/other", "--provider", "01:00.0", "--file", "/no/f"};
	auto with = [&](const std::vector<std::string> &more) {
		std::vector<std::string> words = other;
		words.insert(words.end(), more.begin(), more.end());
		return words;
	};
	EXPECT_EQ(decided(with({"--disk", "/dev/nvme0n1=03:00.0"})), "allow 1");
	EXPECT_EQ(decided(with({"--disk", "nvme0n1=03:00.0", "--disk", "nvme1n1=05:00.0"})), "deny 3");
	EXPECT_EQ(decided(with({"--disk", "nvme1n1=0000:04:00.0"})), "allow 2");
	for (const char *half : {"nvme0n1", "0000:04:00.0", "nvme0n1=x"}) {
		auto words = with({"--disk", half});
		words.insert(words.begin(), {"rules", "explain"});
		EXPECT_EQ(run(words).status, 2) << half << ": the rules ask for both";
	}
	std::vector<std::string> undecided = other;
	undecided.insert(undecided.begin(), {"rules", "explain"});
	EXPECT_EQ(run(undecided).status, 2) << "its disks are not known";
}

TEST_F(Cli, WhatARuleDenies)
{
	publish_one();
	sys.contents["/f"].bytes = std::string(5000, 'x');
	sys.files["/etc/peerdma/rules"] = "deny file=/f\ndeny provider=05:00.0\n";
	const Outcome refused = run({"cp", "/f", "gpu:", "--json"});
	EXPECT_EQ(refused.status, 1);
	EXPECT_TRUE(has(refused.err, "(EACCES, RULE)")) << refused.err;
	EXPECT_EQ(refused.parsed()["error"]["reason"], "RULE");
	const auto why = run({"explain", "/f", "--json"}).parsed();
	EXPECT_FALSE(why["direct"].get<bool>());
	EXPECT_EQ(why["refused_by"], "/etc/peerdma/rules:1");
	sys.contents["/g"] = sys.contents["/f"];
	EXPECT_EQ(run({"cp", "/g", "gpu:"}).status, 0);
	sys.add_function("0000:05:00.0", 1 << 20);
	const Outcome unpublished = run({"publish", "05:00.0"});
	EXPECT_EQ(unpublished.status, 1);
	EXPECT_TRUE(has(unpublished.err, "/etc/peerdma/rules:2")) << unpublished.err;
	EXPECT_TRUE(has(unpublished.err, "(EACCES, RULE)")) << unpublished.err;
	EXPECT_EQ(sys.driver_of("0000:05:00.0"), "");
}

TEST_F(Cli, FileNamesThatAreNotUtf8)
{
	publish_one();
	const std::string name = "/\xff\n\033";
	sys.contents[name].bytes = "x";
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{"cp", name, "gpu:", "--json"}, {"explain", name, "--json"}}) {
		const Outcome outcome = run(words);
		EXPECT_EQ(outcome.status, 0);
		EXPECT_FALSE(has(outcome.out, "\033"));
		if (words[0] == "cp")
			continue;
		EXPECT_EQ(outcome.parsed()["file"], "/\xef\xbf\xbd\n\033");
		EXPECT_EQ(outcome.parsed()["file_bytes"], (std::vector<unsigned>{'/', 0xff, '\n', 033}));
	}
	// Valid UTF-8 appears in JSON unchanged, and only once.
	sys.contents["/\033\xc3\xa9"].bytes = "x";
	const auto json = run({"explain", "/\033\xc3\xa9", "--json"}).parsed();
	EXPECT_EQ(json["file"], "/\033\xc3\xa9");
	EXPECT_FALSE(json.contains("file_bytes"));
	const auto failed = run({"explain", "/none\xff", "--json"}).parsed();
	EXPECT_EQ(failed["error"]["what"], "cannot open /none\xef\xbf\xbd");
	EXPECT_EQ(failed["error"]["what_bytes"].size(), 18u);
}

TEST(Words, Bytes)
{
	EXPECT_EQ(cli::parse_bytes("0"), 0u);
	EXPECT_EQ(cli::parse_bytes("4096"), 4096u);
	EXPECT_EQ(cli::parse_bytes("4096B"), 4096u);
	EXPECT_EQ(cli::parse_bytes("0x1000"), 4096u);
	EXPECT_EQ(cli::parse_bytes("4K"), 4096u);
	EXPECT_EQ(cli::parse_bytes("4k"), 4096u);
	EXPECT_EQ(cli::parse_bytes("4KB"), 4096u);
	EXPECT_EQ(cli::parse_bytes("4KiB"), 4096u);
	EXPECT_EQ(cli::parse_bytes("2M"), 2u << 20);
	EXPECT_EQ(cli::parse_bytes("3G"), 3ull << 30);
	EXPECT_EQ(cli::parse_bytes("1T"), 1ull << 40);
	EXPECT_EQ(cli::parse_bytes("18446744073709551615"), UINT64_MAX);
	for (const char *text :
	     {"", "K", "-1", "+1", " 1", "1 ", "1KK", "1Q", "0x", "1iB", "18446744073709551616", "16777216T", "1.5M"})
		EXPECT_FALSE(cli::parse_bytes(text)) << text;
	EXPECT_EQ(cli::size_text(0), "0 bytes");
	EXPECT_EQ(cli::size_text(1), "1 byte");
	EXPECT_EQ(cli::size_text(1023), "1023 bytes");
	EXPECT_EQ(cli::size_text(1024), "1 KiB");
	EXPECT_EQ(cli::size_text(37000123), "35.3 MiB");
	EXPECT_EQ(cli::size_text((1 << 20) - 1), "1 MiB");
	EXPECT_EQ(cli::size_text(UINT64_MAX), "16 EiB");
}

TEST(Words, Integers)
{
	EXPECT_EQ(cli::parse_integer("0"), 0u);
	EXPECT_EQ(cli::parse_integer("0x1F"), 31u);
	EXPECT_EQ(cli::parse_integer("007"), 7u);
	EXPECT_EQ(cli::parse_integer("18446744073709551615"), UINT64_MAX);
	for (const char *text : {"", "-0", "+1", " 1", "1 ", "\t1", "1\n", "0x", "0x-1", "x1", "1K", "1.0", "nan",
				 "18446744073709551616", "0x10000000000000000"})
		EXPECT_FALSE(cli::parse_integer(text)) << text;
	EXPECT_FALSE(cli::parse_integer(std::string_view("1\0", 2)));
}

TEST(Words, Reals)
{
	EXPECT_EQ(cli::parse_real("0"), 0.0);
	EXPECT_EQ(cli::parse_real("3"), 3.0);
	EXPECT_EQ(cli::parse_real("0.25"), 0.25);
	for (const char *text :
	     {"",   "nan", "NAN", "nan(1)", "inf",   "infinity", "-1",  "+1",   "-0",  " 1",   "1 ",
	      ".5", "5.",  ".",   "1e3",    "1e999", "0x1p3",    "0x1", "1.5s", "1,5", "1..5", "1.2.3"})
		EXPECT_FALSE(cli::parse_real(text)) << text;
	EXPECT_FALSE(cli::parse_real(std::string(400, '9'))) << "no number is so large";
}

TEST(Words, Names)
{
	EXPECT_EQ(cli::escaped("plain name"), "plain name");
	EXPECT_EQ(cli::escaped("\a\b\t\n\v\f\r"), R"(\a\b\t\n\v\f\r)");
	EXPECT_EQ(cli::escaped("\0331"), R"(\0331)");
	EXPECT_EQ(cli::escaped("back\\slash"), R"(back\\slash)");
	EXPECT_EQ(cli::escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	// Invalid UTF-8: truncated, overlong, a surrogate, beyond U+10FFFF.
	EXPECT_EQ(cli::escaped("\xe2\x82"), R"(\342\202)");
	EXPECT_EQ(cli::escaped("\xc0\xaf"), R"(\300\257)");
	EXPECT_EQ(cli::escaped("\xe0\x80\xaf"), R"(\340\200\257)");
	EXPECT_EQ(cli::escaped("\xed\xa0\x80"), R"(\355\240\200)");
	EXPECT_EQ(cli::escaped("\xf4\x90\x80\x80"), R"(\364\220\200\200)");
	EXPECT_EQ(cli::printable("a\n\tb\\\033\r"), "a\n\tb\\\\033\\r");
	// Invisible: format characters and those that terminals ignore.
	for (const char *text :
	     {"\u00ad",     "\u034f",     "\u061c",     "\u115f",     "\u180e",     "\u200b",     "\u200d",
	      "\u2028",     "\u202e",     "\u2060",     "\u2066",     "\u206a",     "\u206f",     "\u3164",
	      "\ufe0f",     "\ufeff",     "\uffa0",     "\ufff9",     "\U000110bd", "\U00013430", "\U0001bca0",
	      "\U0001d173", "\U000e0000", "\U000e0001", "\U000e0041", "\U000e007f", "\U000e01ef"})
		EXPECT_TRUE(cli::escaped(text).starts_with('\\')) << cli::escaped(text);
	for (const char *text : {"\u00ac", "\u00ae", "\u061b", "\u200a", "\u2010", "\u2070", "\ufffd", "\U0001f600"})
		EXPECT_EQ(cli::escaped(text), text);
}

TEST(Words, Targets)
{
	EXPECT_EQ(cli::parse_gpu("gpu:")->provider, "");
	EXPECT_EQ(cli::parse_gpu("gpu:12")->provider, "12");
	EXPECT_EQ(cli::parse_gpu("gpu:+8")->offset, 8u);
	EXPECT_EQ(cli::parse_gpu("gpu:1+4K")->offset, 4096u);
	EXPECT_EQ(cli::parse_gpu("gpu:0000:01:00.0+512")->provider, "0000:01:00.0");
	for (const char *text : {"", "gpu", "GPU:", "gpu:-1", "gpu:1+", "gpu:1+x", "gpu:1+2+3", "/f"})
		EXPECT_FALSE(cli::parse_gpu(text)) << text;
}
