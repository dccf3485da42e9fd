// SPDX-License-Identifier: MIT
//
// peerdma check, on machines that lack one thing each.

#include <cerrno>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "check.hpp"
#include "fake_env.hpp"

using cli::Host;
using cli::State;

namespace
{

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

std::string gzip(std::string text)
{
	z_stream stream = {};
	deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
	std::string out(deflateBound(&stream, text.size()), '\0');
	stream.next_in = reinterpret_cast<Bytef *>(text.data());
	stream.avail_in = static_cast<uInt>(text.size());
	stream.next_out = reinterpret_cast<Bytef *>(out.data());
	stream.avail_out = static_cast<uInt>(out.size());
	EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
	out.resize(stream.total_out);
	deflateEnd(&stream);
	return out;
}

const std::string good_config = "#\nCONFIG_ZONE_DEVICE=y\nCONFIG_X=y\nCONFIG_PCI_P2PDMA=y\n";

class Check : public ::testing::Test
{
protected:
	FakeEnv env;
	Host host{env, "6.12.95"};
};

} // namespace

TEST_F(Check, Kernel)
{
	EXPECT_EQ(cli::check_kernel({env, "6.12.95+deb13-amd64"}).state, State::ok);
	EXPECT_EQ(cli::check_kernel({env, "7.2.12"}).state, State::ok);
	for (const char *release : {"6.1.0-30-amd64", "6.11.9", "6.18.1", "10.0", "5.15", "strange"}) {
		const cli::Item item = cli::check_kernel({env, release});
		EXPECT_EQ(item.state, State::warn) << release;
		EXPECT_NE(item.change, "");
	}
}

TEST_F(Check, ConfigInEachPlace)
{
	for (const char *path :
	     {"/boot/config-6.12.95", "/lib/modules/6.12.95/config", "/lib/modules/6.12.95/build/.config"}) {
		FakeEnv other;
		other.files[path] = good_config;
		const cli::Item item = cli::check_config({other, "6.12.95"});
		EXPECT_EQ(item.state, State::ok);
		EXPECT_TRUE(has(item.found, path));
	}
}

TEST_F(Check, PackedConfigComesFirst)
{
	env.files["/boot/config-6.12.95"] = good_config;
	// Larger than one round of the unpacker.
	env.files["/proc/config.gz"] =
		gzip(std::string(100000, '#') + "\n# CONFIG_PCI_P2PDMA is not set\nCONFIG_ZONE_DEVICE=y\n");
	const cli::Item item = cli::check_config(host);
	EXPECT_EQ(item.state, State::fail);
	EXPECT_TRUE(has(item.found, "CONFIG_PCI_P2PDMA=y missing in /proc/config.gz"));
	EXPECT_FALSE(has(item.found, "ZONE_DEVICE"));
}

TEST_F(Check, DamagedConfigIsPassedOver)
{
	std::string packed = gzip(good_config);
	packed.resize(packed.size() / 2);
	env.files["/proc/config.gz"] = packed;
	env.files["/boot/config-6.12.95"] = good_config;
	EXPECT_EQ(cli::check_config(host).state, State::ok);
	env.files["/proc/config.gz"] = "not gzip at all";
	EXPECT_EQ(cli::check_config(host).state, State::ok);
}

TEST_F(Check, NamesThatOnlyBeginAlikeDoNotCount)
{
	env.files["/boot/config-6.12.95"] = "CONFIG_PCI_P2PDMA=yes\nXCONFIG_ZONE_DEVICE=y\n";
	const cli::Item item = cli::check_config(host);
	EXPECT_EQ(item.state, State::fail);
	EXPECT_TRUE(has(item.found, "CONFIG_PCI_P2PDMA=y and CONFIG_ZONE_DEVICE=y missing"));
}

TEST_F(Check, SymbolsStandInForTheConfig)
{
	EXPECT_EQ(cli::check_config(host).state, State::warn);
	env.files["/proc/kallsyms"] = "0000000000000000 T vfs_read\n";
	EXPECT_EQ(cli::check_config(host).state, State::fail);
	env.files["/proc/kallsyms"] += "0000000000000000 T pci_p2pdma_add_resource\n";
	EXPECT_EQ(cli::check_config(host).state, State::ok);
}

TEST_F(Check, Module)
{
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::fail);
	env.files["/lib/modules/6.12.95/modules.dep"] = "updates/peerdma.ko:\n";
	EXPECT_EQ(cli::check_module(host, -ENOENT).change, "modprobe peerdma");
	env.files["/sys/module/peerdma"] = "";
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::ok);
}

TEST_F(Check, WithoutSysfs)
{
	host.sysfs = false;
	EXPECT_EQ(cli::check_module(host, 0).state, State::ok);
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::warn);
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "--device /dev/peerdma"));
	EXPECT_TRUE(has(cli::check_node(host, -EACCES).change, "group"));
	EXPECT_EQ(cli::check_iommu(host).state, State::warn);
	const cli::Report report = cli::check();
	std::map<std::string, std::string> states;
	for (const auto &entry : report.json["items"])
		states[entry["id"]] = entry["state"];
	EXPECT_EQ(states["module"], "ok");
	EXPECT_EQ(states["iommu"], "warn");
	EXPECT_EQ(states["disks"], "warn");
	env.add_provider(0, 0x0100, 2, 0, 1 << 20);
	EXPECT_TRUE(cli::check().json["ready"].get<bool>()) << "what is not known does not stand in the way";
}

TEST_F(Check, Node)
{
	EXPECT_EQ(cli::check_node(host, 0).state, State::ok);
	EXPECT_TRUE(has(cli::check_node(host, -EACCES).change, "root"));
	EXPECT_EQ(cli::check_node(host, -ENOENT).change, "load the module");
	env.files["/sys/module/peerdma"] = "";
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "devtmpfs"));
	EXPECT_TRUE(has(cli::check_node(host, -EPROTONOSUPPORT).change, "one release"));
}

TEST_F(Check, Iommu)
{
	EXPECT_EQ(cli::check_iommu(host).state, State::ok);
	env.files["/sys/class/iommu/dmar0/x"] = "";
	env.files["/sys/kernel/iommu_groups/0/type"] = "identity\n";
	EXPECT_EQ(cli::check_iommu(host).state, State::ok);
	env.files["/sys/kernel/iommu_groups/1/type"] = "DMA-FQ\n";
	const cli::Item item = cli::check_iommu(host);
	EXPECT_EQ(item.state, State::warn);
	EXPECT_TRUE(has(item.found, "dmar0 on, 1 of 2 groups translated"));
}

TEST_F(Check, DrivesOfPciAndOfRdmaCount)
{
	env.files["/sys/block/sda/device/transport"] = "pcie\n";
	env.files["/sys/block/nvme0n1/device/transport"] = "pcie\n";
	env.files["/sys/block/nvme1n1/device/transport"] = "tcp\n";
	env.files["/sys/block/nvme2n1/size"] = "1\n";
	EXPECT_EQ(cli::nvme_disks(host), std::vector<std::string>{"nvme0n1"});
	// Two paths of one disk.
	env.files["/sys/block/nvme3c3n2/device/transport"] = "rdma\n";
	env.files["/sys/block/nvme3c4n2/device/transport"] = "rdma\n";
	env.files["/sys/block/nvme3n2/size"] = "1\n";
	EXPECT_EQ(cli::nvme_disks(host), (std::vector<std::string>{"nvme0n1", "nvme3n2"}));
}

TEST_F(Check, AWholeHost)
{
	auto item = [](const cli::Report &report, const std::string &id) {
		for (const auto &entry : report.json["items"])
			if (entry["id"] == id)
				return entry;
		return cli::Json();
	};
	env.files["/sys/module"] = "";
	env.node_error = -ENOENT;
	cli::Report report = cli::check();
	EXPECT_EQ(report.status, 1);
	EXPECT_TRUE(has(report.text, "this host is not ready"));
	env.node_error = 0;
	EXPECT_EQ(item(report, "disks")["state"], "fail");
	EXPECT_EQ(item(report, "providers")["state"], "fail");

	env.files["/proc/config.gz"] = gzip(good_config);
	env.files["/sys/module/peerdma"] = "";
	env.files["/sys/block/nvme0n1/device/transport"] = "pcie\n";
	report = cli::check();
	EXPECT_EQ(item(report, "disks")["state"], "warn") << "no provider to ask about";

	env.add_provider(0, 0x0100, 2, 0, 1 << 20);
	env.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};
	report = cli::check();
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(report.json["ready"].get<bool>());
	EXPECT_EQ(item(report, "disks")["state"], "ok");

	env.contents["/dev/nvme0n1"].map = PEERDMA_MAP_SOFTWARE;
	report = cli::check();
	EXPECT_EQ(item(report, "disks")["state"], "warn");
	EXPECT_TRUE(has(item(report, "disks")["found"], "by software"));
	EXPECT_FALSE(has(item(report, "disks")["found"], "direct"));

	env.contents["/dev/nvme0n1"].refused_errno = EXDEV;
	env.contents["/dev/nvme0n1"].refused_reason = PEERDMA_REASON_DISTANCE;
	report = cli::check();
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(item(report, "disks")["change"], peerdma_reason_advice(PEERDMA_REASON_DISTANCE));

	env.contents["/dev/nvme0n1"].open_error = -EACCES;
	report = cli::check();
	EXPECT_EQ(item(report, "disks")["state"], "warn");
	EXPECT_TRUE(env.fds.empty());
	for (const auto &entry : report.json["items"])
		EXPECT_EQ(entry["state"] == "ok", entry["change"] == "") << entry;
}
