// SPDX-License-Identifier: MIT
// The denylists of cufile.json: which files they match.
#include "cufile/config/denylist.hpp"
#include "cufile/platform/errors.hpp"
#include "program.hpp"

namespace
{

using cufile::Denylist;

// A file on a partition of an NVMe drive.
class CufileDenylist : public ::testing::Test
{
protected:
	CufileDenylist()
	{
		lies_on("31", "0:0");
		system.texts["/proc/self/mountinfo"] =
			"3 1 0:0 / /else rw - xfs /dev/vda rw\n"
			"31 1 8:1 / /my\\040data rw,relatime shared:1 master:2 - ext4 /dev/nvme0n1p1 rw\n"
			"32 1 0:50 / /net rw - nfs4 server:/export rw\n"
			"33 1 0:51 / /b rw - btrfs /dev/mapper/one rw\n";
		const std::string controller = "/sys/devices/pci0000:00/0000:00:04.0";
		system.links["/sys/dev/block/0:0"] =
			"../../devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p1";
		system.links[controller + "/driver"] = "../../../bus/pci/drivers/vendors-own";
	}
	// Puts fd on the mount with this ID.
	void lies_on(const std::string &mount, const std::string &numbers)
	{
		system.texts["/proc/self/fdinfo/" + std::to_string(fd)] =
			"pos:\t0\nflags:\t02\nmnt_id:\t" + mount + "\nino:\t7\n";
		if (numbers != "0:0")
			system.links.erase("/sys/dev/block/0:0");
	}
	std::string met(const Denylist &list)
	{
		std::string out;
		EXPECT_EQ(list.matches(system, fd, out), 0);
		return out;
	}
	bool matches(const Denylist &list) { return !met(list).empty(); }
	bool on_device(const std::string &name) { return matches({{}, {name}, {}, {}}); }
	bool by_driver(const std::string &name) { return matches({{name}, {}, {}, {}}); }
	bool on_mount(const std::string &name) { return matches({{}, {}, {name}, {}}); }
	bool on_filesystem(const std::string &name) { return matches({{}, {}, {}, {name}}); }

	FakeSystem system;
	const int fd = system.program_fd("hello", O_RDWR);
};

TEST_F(CufileDenylist, Nothing)
{
	EXPECT_FALSE(matches({}));
	EXPECT_TRUE(Denylist{}.empty());
	EXPECT_FALSE(matches({{"a"}, {"b"}, {"/c"}, {"d"}}));
}

TEST_F(CufileDenylist, Mounts)
{
	EXPECT_TRUE(on_mount("/my data"));
	EXPECT_TRUE(on_mount("/my data/"));
	for (const char *other : {"/my", "/my data/x", "/", "", "/else", "my data"})
		EXPECT_FALSE(on_mount(other)) << other;
	EXPECT_TRUE(on_filesystem("ext4"));
	EXPECT_TRUE(on_filesystem("EXT4")) << "no two differ only in that";
	EXPECT_FALSE(on_filesystem("ext"));
	EXPECT_FALSE(on_filesystem("xfs"));
	EXPECT_EQ(met({{}, {}, {"/x", "/my data"}, {}}), "mounts has /my data");
	lies_on("32", "0:50");
	EXPECT_TRUE(on_filesystem("nfs") && on_filesystem("nfs4"));
	EXPECT_TRUE(by_driver("nfs4")) << "a file system's module";
	EXPECT_FALSE(on_device("server:"));
}

TEST_F(CufileDenylist, WithoutProcNobodySaysWhatItIsOn)
{
	system.texts.clear();
	EXPECT_TRUE(on_mount("/x") && on_filesystem("x"));
	EXPECT_TRUE(on_device("nvme0n1")) << "sysfs says so";
	EXPECT_FALSE(on_device("x"));
}

// Data that exists but cannot be read may match the list. A temporary shortage is returned: the caller retries.
TEST_F(CufileDenylist, WhatCannotBeReadIsNotAllowed)
{
	const std::string disk = "/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1";
	for (const std::string &path :
	     {disk + "/slaves/", disk + "/nvme0n1p1/slaves/", disk + "/transport", disk + "/driver",
	      "/sys/dev/block/0:0" + std::string(), "/proc/self/mountinfo" + std::string(),
	      "/proc/self/fdinfo/" + std::to_string(fd)}) {
		ASSERT_FALSE(matches({{"x"}, {"y"}, {}, {}}));
		std::string out;
		for (const int error : {-EMFILE, -ENFILE, -ENOMEM}) {
			system.read_errors[path] = error;
			EXPECT_EQ((Denylist{{"x"}, {"y"}, {}, {}}.matches(system, fd, out)), error) << path;
		}
		system.read_errors[path] = -EACCES;
		EXPECT_EQ(met({{"x"}, {"y"}, {}, {}}), "devices are not known") << path;
		system.read_errors.clear();
	}
}

// Without /sys the device is unknown.
TEST_F(CufileDenylist, WithoutSysfsNobodySaysWhereItLies)
{
	system.links.clear();
	EXPECT_TRUE(on_device("x") && by_driver("x"));
	EXPECT_FALSE(on_mount("/x") || on_filesystem("x"));
	EXPECT_EQ(met({{}, {"x"}, {}, {}}), "devices are not known");
	lies_on("32", "0:50");
	EXPECT_FALSE(on_device("x") || by_driver("x")) << "on no device";
	system.texts.clear();
	EXPECT_TRUE(on_device("x") && by_driver("x"));
}

TEST_F(CufileDenylist, Devices)
{
	for (const char *its : {"/dev/nvme0n1p1", "/dev/nvme0n1", "nvme0n1", "nvme0", "0000:00:04.0"})
		EXPECT_TRUE(on_device(its)) << its;
	for (const char *other : {"/dev/nvme0n", "/dev/nvme0n1p2", "/dev/nvme1n1", "", "/dev/"})
		EXPECT_FALSE(on_device(other)) << other;
	system.links["/dev/disk/by-id/serial"] = "../../nvme0n1";
	EXPECT_TRUE(on_device("/dev/disk/by-id/serial"));
}

TEST_F(CufileDenylist, Drivers)
{
	EXPECT_TRUE(by_driver("nvme"));
	EXPECT_TRUE(by_driver("vendors-own") && by_driver("vendors_own"));
	EXPECT_FALSE(by_driver("nvme_rdma"));
	system.texts["/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/transport"] = "rdma\n";
	EXPECT_TRUE(by_driver("nvme_rdma") && by_driver("nvme-rdma"));
}

TEST_F(CufileDenylist, DisksThatAreMadeOfDisks)
{
	system.links["/sys/dev/block/0:0"] = "../../devices/virtual/block/dm-3";
	system.links["/sys/devices/virtual/block/dm-3/slaves/md5"] = "";
	system.links["/sys/class/block/md5"] = "../../devices/virtual/block/md5";
	system.links["/sys/devices/virtual/block/md5/slaves/nvme7n1"] = "";
	system.links["/sys/class/block/nvme7n1"] = "../../devices/pci0000:00/0000:00:07.0/nvme/nvme7/nvme7n1";
	for (const char *its : {"/dev/dm-3", "/dev/md5", "/dev/nvme7n1"})
		EXPECT_TRUE(on_device(its)) << its;
	EXPECT_FALSE(on_device("/dev/nvme0n1"));
	EXPECT_TRUE(by_driver("nvme"));
	// A cycle must terminate.
	system.links["/sys/devices/virtual/block/md5/slaves/dm-3"] = "";
	system.links["/sys/class/block/dm-3"] = "../../devices/virtual/block/dm-3";
	EXPECT_FALSE(on_device("/dev/nvme0n1"));
}

// A file system on several disks, with a device number that no disk has.
TEST_F(CufileDenylist, BySourceOfTheMount)
{
	lies_on("33", "0:51");
	system.links["/dev/mapper/one"] = "../dm-1";
	system.links["/sys/class/block/dm-1"] = "../../devices/virtual/block/dm-1";
	EXPECT_TRUE(on_device("/dev/mapper/one") && on_device("dm-1"));
	EXPECT_FALSE(on_device("dm-2"));
}

// I/O to a denied file works, but not directly.
class CufileDenied : public ::testing::Test, protected Fakes
{
protected:
	CufileDenied()
	{
		peerdma.buffer.assign(65536, 'b');
		peerdma.file = system.bytes(fd);
		cuda.also = &peerdma.buffer;
		cuda.present = true;
		// The library's own descriptor is the next number.
		system.texts["/proc/self/fdinfo/" + std::to_string(fd + 1)] = "mnt_id:\t31\n";
		system.texts["/proc/self/mountinfo"] = "31 1 8:1 / /data rw - ext4 /dev/sda rw\n";
	}
	~CufileDenied() override { close_all(library); }

	const int fd = system.program_fd(some_bytes(65536), O_RDWR);
};

TEST_F(CufileDenied, ItBounces)
{
	system.texts["/etc/cufile.json"] =
		R"({"denylist":{"mounts":["/data"]},"logging":{"level":"INFO"},"properties":{"rdma_dynamic_routing":true}})";
	const CUfileHandle_t fh = register_file(library, fd);
	peerdma_cufile_route route = {};
	EXPECT_EQ(library.router.explain(fh, peerdma.buffer.data(), 4096, 0, 0, route), 0);
	EXPECT_EQ(route.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
	EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_DENIED));
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4096, 0, 0, false), 4096);
	EXPECT_TRUE(peerdma.reads.empty());
	EXPECT_EQ(peerdma.buffer.compare(0, 4096, some_bytes(65536), 0, 4096), 0);
	peerdma_cufile_counts counts = {};
	library.router.accounting().counts(counts);
	EXPECT_EQ(counts.ios[PEERDMA_CUFILE_WHY_DENIED], 1u);
	EXPECT_NE(system.to_stderr.find("denylist's mounts has /data"), std::string::npos) << system.to_stderr;
	EXPECT_NE(system.to_stderr.find(
			  "not direct: the file's mount, filesystem, device or driver is denied by cufile.json"),
		  std::string::npos);
	// The same memory with another file.
	const CUfileHandle_t other = register_file(library, system.program_fd(some_bytes(65536), O_RDWR));
	system.texts.clear();
	EXPECT_EQ(library.router.explain(other, peerdma.buffer.data(), 4096, 0, 0, route), 0);
	EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_DENIED)) << "nobody says where";
}

TEST_F(CufileDenied, WhoInsistsOnDirectGetsAnError)
{
	system.texts["/etc/cufile.json"] = R"({"denylist":{"filesystems":["ext4"]}})";
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	const CUfileHandle_t fh = register_file(library, fd);
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4096, 0, 0, false),
		  cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_EQ(peerdma.buffer, std::string(65536, 'b'));
}

TEST_F(CufileDenied, OthersGoDirectly)
{
	system.links["/sys/class/block/sda"] = "../../devices/pci0000:00/0000:00:05.0/block/sda";
	system.texts["/etc/cufile.json"] = R"({"denylist":{"filesystems":["xfs"],"devices":["sdb"]}})";
	const CUfileHandle_t fh = register_file(library, fd);
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4096, 0, 0, false), 4096);
	EXPECT_EQ(peerdma.reads.size(), 1u);
}

} // namespace
