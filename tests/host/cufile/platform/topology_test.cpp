// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cufile/api/library.hpp"
#include "cufile/platform/pci_topology.hpp"
#include "program.hpp"

namespace
{

using nlohmann::json;

// A GPU and a drive below one switch, a NIC below another port, a drive in another tree, and a bridge.
struct Tree : Fakes {
	Tree()
	{
		const std::string port = "pci0000:00/0000:00:01.0", sw = port + "/0000:01:00.0";
		add("0000:00:01.0", "pci0000:00", "0x060400");
		add("0000:04:00.0", sw + "/0000:02:00.0", "0x030200", "1");
		add("0000:05:00.0", sw + "/0000:02:01.0", "0x010802", "1");
		add("0000:06:00.0", "pci0000:00/0000:00:02.0", "0x020000");
		add("0001:01:00.0", "pci0001:00/0001:00:01.0", "0x010802");
	}

	void add(const std::string &address, const std::string &above, const std::string &pci_class,
		 const std::string &node = "-1")
	{
		const std::string folder = "/sys/bus/pci/devices/" + address;
		system.links[folder] = "../../../devices/" + above + "/" + address;
		system.texts[folder + "/class"] = pci_class + "\n";
		system.texts[folder + "/numa_node"] = node + "\n";
		system.texts[folder + "/vendor"] = "0x10de\n";
		system.texts[folder + "/device"] = "0x2335\n";
	}

	json written() { return json::parse(system.texts.at("/t")); }
};

TEST(CufileTopology, WhoIsWhereAndHowFar)
{
	Tree tree;
	ASSERT_EQ(tree.library.driver.export_topology("/t").err, CU_FILE_SUCCESS);
	const json all = tree.written();
	EXPECT_EQ(all["version"], 1);
	ASSERT_EQ(all["devices"].size(), 4u) << "a bridge is only a way";
	const json gpu =
		json::parse(R"({"address": "0000:04:00.0", "kind": "gpu", "vendor": "0x10de", "device": "0x2335",
		"numa_node": 1, "above": ["pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"]})");
	EXPECT_EQ(all["devices"][0], gpu);
	EXPECT_EQ(all["devices"][1]["kind"], "nvme");
	EXPECT_EQ(all["devices"][2]["kind"], "network");
	EXPECT_EQ(all["devices"][2]["numa_node"], -1);
	const json pairs = json::parse(R"([
		{"memory": "0000:04:00.0", "device": "0000:05:00.0", "meet": "0000:01:00.0", "links": 4},
		{"memory": "0000:04:00.0", "device": "0000:06:00.0", "meet": "pci0000:00", "links": 6},
		{"memory": "0000:04:00.0", "device": "0001:01:00.0", "meet": null, "links": null}])");
	EXPECT_EQ(all["pairs"], pairs);
}

TEST(CufileTopology, WhatCannotBeRead)
{
	Tree tree;
	tree.system.texts.erase("/sys/bus/pci/devices/0000:05:00.0/class");
	tree.system.texts["/sys/bus/pci/devices/0000:06:00.0/numa_node"] = "?";
	tree.system.texts["/sys/bus/pci/devices/0000:06:00.0/vendor"] = "\xff\xfe";
	tree.system.links["/sys/bus/pci/devices/0001:01:00.0"] = "odd";
	ASSERT_EQ(tree.library.driver.export_topology("/t").err, CU_FILE_SUCCESS);
	const json all = tree.written();
	ASSERT_EQ(all["devices"].size(), 3u);
	EXPECT_EQ(all["devices"][1]["numa_node"], -1);
	EXPECT_EQ(all["pairs"][1]["meet"], nullptr);
	tree.system.no_write = true;
	EXPECT_EQ(tree.library.driver.export_topology("/t").err, CU_FILE_INVALID_VALUE);
}

TEST(CufileTopology, TheNearestDrive)
{
	Tree tree;
	uint32_t domain = 9, bdf = 9;
	const auto near = [&](const char *gpu) { return cufile::nearest_drive(tree.system, gpu, domain, bdf); };
	const auto bind = [&](const std::string &address) {
		tree.system.links["/sys/bus/pci/devices/" + address + "/driver"] = "../../../bus/pci/drivers/some";
	};
	EXPECT_FALSE(near("0000:04:00.0")) << "none has a driver";
	bind("0001:01:00.0");
	EXPECT_FALSE(near("0000:04:00.0")) << "another domain";
	bind("0000:06:00.0");
	ASSERT_TRUE(near("0000:04:00.0")) << "a network card, for a share's file";
	EXPECT_EQ(bdf, 0x600u);
	bind("0000:05:00.0");
	ASSERT_TRUE(near("0000:04:00.0"));
	EXPECT_EQ(domain, 0u);
	EXPECT_EQ(bdf, 0x500u);
	tree.add("0000:03:00.0", "pci0000:00/0000:00:03.0", "0x010802");
	bind("0000:03:00.0");
	bind("0000:04:00.0");
	ASSERT_TRUE(near("0000:04:00.0"));
	EXPECT_EQ(bdf, 0x500u) << "the nearer one, though it is not the first";
	tree.add("0000:0a:1f.7", "pci0000:00/0000:00:03.0", "0x030200");
	ASSERT_TRUE(near("0000:0A:1F.7")) << "as CUDA writes it";
	EXPECT_EQ(bdf, 0x300u);
	EXPECT_FALSE(near("0000:77:00.0")) << "no such GPU";
}

// For memory of an unknown GPU.
TEST(CufileTopology, TheDriveNearestToAnyGpu)
{
	Tree tree;
	uint32_t domain = 9, bdf = 9;
	const auto near = [&] { return cufile::nearest_drive(tree.system, "", domain, bdf); };
	const auto bind = [&](const std::string &address) {
		tree.system.links["/sys/bus/pci/devices/" + address + "/driver"] = "../../../bus/pci/drivers/some";
	};
	EXPECT_FALSE(near()) << "none has a driver";
	bind("0001:01:00.0");
	EXPECT_FALSE(near()) << "no GPU is in its domain";
	bind("0000:06:00.0");
	ASSERT_TRUE(near());
	EXPECT_EQ(bdf, 0x600u) << "a network card";
	tree.add("0000:03:00.0", "pci0000:00/0000:00:03.0", "0x010802");
	bind("0000:03:00.0");
	ASSERT_TRUE(near());
	EXPECT_EQ(bdf, 0x300u) << "a drive";
	bind("0000:05:00.0");
	tree.add("0000:02:00.0", "pci0000:00/0000:00:04.0", "0x030000");
	ASSERT_TRUE(near());
	EXPECT_EQ(bdf, 0x500u) << "below one switch with the second GPU, though neither is the first";
	tree.add("0001:02:00.0", "pci0001:00/0001:00:02.0", "0x120000");
	ASSERT_TRUE(near());
	EXPECT_EQ(domain, 0u) << "the other domain has one no nearer";
	tree.system.links.erase("/sys/bus/pci/devices/0000:05:00.0/driver");
	tree.system.links.erase("/sys/bus/pci/devices/0000:03:00.0/driver");
	ASSERT_TRUE(near());
	EXPECT_EQ(domain, 1u);
	EXPECT_EQ(bdf, 0x100u);
}

} // namespace
