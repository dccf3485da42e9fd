// SPDX-License-Identifier: MIT
//
// peerdma check if a module answers or should answer. For checks of files alone see check_tree_test.py.

#include <cerrno>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/check/check.hpp"

using cli::Host;
using cli::State;

namespace
{

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

const std::string good_config = "#\nCONFIG_ZONE_DEVICE=y\nCONFIG_X=y\nCONFIG_IO_URING=y\nCONFIG_PCI_P2PDMA=y\n";

cli::Json item(const cli::Report &report, const std::string &id)
{
	for (const auto &entry : report.json["items"])
		if (entry["id"] == id)
			return entry;
	return {};
}

std::string headline(const cli::Report &report) { return report.text.substr(0, report.text.find('\n')); }

class Check : public ::testing::Test
{
protected:
	FakeSyscalls sys;
	Host host{sys, "6.12.95"};
};

} // namespace

TEST_F(Check, ConfigInEachPlace)
{
	for (const char *path :
	     {"/boot/config-6.12.95", "/lib/modules/6.12.95/config", "/lib/modules/6.12.95/build/.config"}) {
		FakeSyscalls other;
		other.files[path] = good_config;
		const cli::Finding item = cli::check_config({other, "6.12.95"});
		EXPECT_EQ(item.state, State::good);
		EXPECT_TRUE(has(item.found, path));
	}
}

TEST_F(Check, PackedConfigComesFirst)
{
	sys.files["/boot/config-6.12.95"] = good_config;
	// More than one call of the decompressor returns.
	sys.files["/proc/config.gz"] =
		gzip(std::string(100000, '#') + "\n# CONFIG_PCI_P2PDMA is not set\nCONFIG_ZONE_DEVICE=y\n");
	const cli::Finding item = cli::check_config(host);
	EXPECT_EQ(item.state, State::bad);
	EXPECT_TRUE(has(item.found, "CONFIG_PCI_P2PDMA=y missing in /proc/config.gz"));
	EXPECT_FALSE(has(item.found, "ZONE_DEVICE"));
}

TEST_F(Check, DamagedConfigIsPassedOver)
{
	std::string packed = gzip(good_config);
	packed.resize(packed.size() / 2);
	sys.files["/proc/config.gz"] = packed;
	sys.files["/boot/config-6.12.95"] = good_config;
	EXPECT_EQ(cli::check_config(host).state, State::good);
	sys.files["/proc/config.gz"] = "not gzip at all";
	EXPECT_EQ(cli::check_config(host).state, State::good);
}

TEST_F(Check, NamesThatOnlyBeginAlikeDoNotCount)
{
	sys.files["/boot/config-6.12.95"] = "CONFIG_PCI_P2PDMA=yes\nXCONFIG_ZONE_DEVICE=y\n";
	const cli::Finding item = cli::check_config(host);
	EXPECT_EQ(item.state, State::bad);
	EXPECT_TRUE(has(item.found, "CONFIG_PCI_P2PDMA=y and CONFIG_ZONE_DEVICE=y missing"));
}

TEST_F(Check, SymbolsStandInForTheConfig)
{
	EXPECT_EQ(cli::check_config(host).state, State::unknown);
	sys.files["/proc/kallsyms"] = "0000000000000000 T vfs_read\n";
	EXPECT_EQ(cli::check_config(host).state, State::bad);
	sys.files["/proc/kallsyms"] += "0000000000000000 T pci_p2pdma_add_resource\n";
	EXPECT_EQ(cli::check_config(host).state, State::good);
}

TEST_F(Check, Module)
{
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::bad);
	// The modules that depend on it are not the module itself.
	sys.files["/lib/modules/6.12.95/modules.dep"] = "updates/peerdma_nfs.ko: updates/peerdma.ko\n";
	EXPECT_TRUE(cli::check_module(host, -ENOENT).change.starts_with("insmod peerdma.ko;"));
	sys.files["/lib/modules/6.12.95/modules.dep"] += "updates/peerdma.ko:\n";
	EXPECT_EQ(cli::check_module(host, -ENOENT).change, "modprobe peerdma");
	// DKMS has it, but so far only for other kernels.
	sys.files.erase("/lib/modules/6.12.95/modules.dep");
	sys.files["/var/lib/dkms/peerdma/0.2.0/source"] = "";
	EXPECT_TRUE(
		cli::check_module(host, -ENOENT).change.starts_with("dkms install --force peerdma/0.2.0 -k 6.12.95, "));
	EXPECT_TRUE(cli::check_module(host, -ENOENT).change.ends_with("; modprobe peerdma"));
	sys.files["/sys/module/peerdma"] = "";
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::good);
}

TEST_F(Check, WithoutSysfs)
{
	host.sysfs = false;
	EXPECT_EQ(cli::check_module(host, 0).state, State::good);
	EXPECT_EQ(cli::check_module(host, -ENOENT).state, State::unknown);
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "--device /dev/peerdma"));
	EXPECT_TRUE(has(cli::check_node(host, -EACCES).change, "group"));
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	const cli::Report report = cli::check({});
	EXPECT_EQ(item(report, "module")["state"], "good");
	EXPECT_EQ(item(report, "disks")["state"], "unknown");
	EXPECT_TRUE(report.json["ready"].get<bool>()) << "what is not known does not stand in the way";
	for (const auto &entry : report.json["items"])
		if (entry["found"] == "not known without /sys") {
			const std::string change = entry["change"];
			EXPECT_TRUE(has(change, "--volume /sys:/sys:ro") || has(change, "peerdma explain")) << entry;
		}
}

TEST_F(Check, ALimitOfACgroupIsLiftedByWhatIsPrinted)
{
	sys.files["/proc/self/cgroup"] = "0::/jobs/one\n";
	sys.files["/sys/fs/cgroup/jobs/one/dmem.max"] = "peerdma/0000:01:00.0 max\n";
	sys.files["/sys/fs/cgroup/jobs/dmem.max"] = "drm/0000:05:00.0/vram0 9\npeerdma/0000:01:00.0 4096\n";
	const cli::Finding item = cli::check_quota(host);
	EXPECT_EQ(item.change, "echo peerdma/0000:01:00.0 max >/sys/fs/cgroup/jobs/dmem.max");
	EXPECT_EQ(item.undo, "echo peerdma/0000:01:00.0 4096 >/sys/fs/cgroup/jobs/dmem.max");
}

TEST_F(Check, AKernelThatLacksSomethingIsReplacedByWhatIsPrinted)
{
	sys.files["/boot/config-6.12.95"] = "CONFIG_ZONE_DEVICE=y\n";
	EXPECT_FALSE(has(cli::check_config(host).change, "linux-image"));
	sys.files["/etc/os-release"] = "ID=debian\nVERSION_ID=\"13\"\n";
	EXPECT_TRUE(has(cli::check_config(host).change, "'^linux-image-"));
	EXPECT_TRUE(has(cli::check_config(host).change, ".*deb13-amd64$'"));
	sys.files.erase("/boot/config-6.12.95");
	EXPECT_TRUE(has(cli::check_config(host).change, "modprobe configs"));
}

TEST_F(Check, OsReleaseAsTheShellReadsIt)
{
	auto of = [&](const std::string &text) {
		sys.files["/etc/os-release"] = text;
		return cli::distribution_of(host);
	};
	EXPECT_EQ(of("ID=ubuntu\n").family, cli::Family::ubuntu);
	EXPECT_EQ(of("# ID=arch\nXID=arch\nID='rhel'\nVERSION_ID=\"9.4\"\n").version, "9.4");
	EXPECT_EQ(of("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n").family, cli::Family::redhat);
	EXPECT_TRUE(of("ID=rocky\n").itself);
	EXPECT_EQ(of("ID=amzn\nID_LIKE='fedora'\n").family, cli::Family::fedora);
	EXPECT_FALSE(of("ID=amzn\nID_LIKE='fedora'\n").itself);
	EXPECT_EQ(of("NAME=\"A \\\"B\\\" C\"\nID=x\n").name, "A \"B\" C");
	EXPECT_EQ(of("ID=arch\nID=debian\n").family, cli::Family::debian);
	EXPECT_EQ(of("").family, cli::Family::unknown);
	EXPECT_EQ(of("ID=\n").name, "this distribution");
	sys.files.erase("/etc/os-release");
	sys.files["/usr/lib/os-release"] = "ID=sles\n";
	EXPECT_EQ(cli::distribution_of(host).family, cli::Family::suse);
}

TEST_F(Check, WhatTheModuleWouldSayIsInTheLibrarysWords)
{
	auto says = [](const cli::Finding &finding, uint32_t reason, bool advice = true) {
		EXPECT_TRUE(has(finding.found,
				std::string(peerdma_reason_name(reason)) + ": " + peerdma_reason_text(reason)))
			<< finding.found;
		if (advice) {
			EXPECT_TRUE(has(finding.change, peerdma_reason_advice(reason))) << finding.change;
		}
	};
	auto filesystem = [&](const std::string &fs, const std::string &options) {
		return cli::check_filesystem(host, {.path = "/x", .filesystem = fs, .options = options});
	};
	says(filesystem("btrfs", ""), PEERDMA_REASON_FILESYSTEM);
	says(filesystem("overlay", ""), PEERDMA_REASON_FILESYSTEM, false);
	says(filesystem("nfs4", "proto=tcp"), PEERDMA_REASON_NFS_TRANSPORT);
	says(filesystem("nfs4", "proto=rdma"), PEERDMA_REASON_RDMA_MODULE, false);
	says(filesystem("ext4", "data=journal"), PEERDMA_REASON_NO_DIO, false);
	auto disk = [&](const std::string &name, const std::string &transport) {
		sys.files["/sys/class/block/" + name + "/size"] = "1\n";
		if (!transport.empty())
			sys.files["/sys/class/block/" + name + "/device/transport"] = transport + "\n";
		return cli::check_disks(host, {.path = "/x", .filesystem = "ext4", .disks = {name}});
	};
	says(disk("sda", ""), PEERDMA_REASON_QUEUE);
	says(disk("nvme1n1", "tcp"), PEERDMA_REASON_FABRIC_TCP);
	says(disk("nvme2n1", "loop"), PEERDMA_REASON_FABRIC_LOOP);
	says(disk("nvme3n1", "fc"), PEERDMA_REASON_FABRIC_FC);
	auto stack = [&](const std::string &name) {
		sys.files["/sys/class/block/" + name + "/slaves/sda"] = "";
		return cli::check_stack(host, {.path = "/x", .filesystem = "ext4", .disks = {name}});
	};
	sys.files["/sys/class/block/md0/md/level"] = "raid5\n";
	sys.files["/sys/class/block/dm-0/dm/uuid"] = "CRYPT-x\n";
	says(stack("md0"), PEERDMA_REASON_MD_LEVEL);
	says(stack("dm-0"), PEERDMA_REASON_DM_TARGET);
	says(stack("bcache0"), PEERDMA_REASON_STACKED);
	sys.files["/proc/self/limits"] = "Max locked memory         4096  4096  bytes\n";
	says(cli::check_memlock(host), PEERDMA_REASON_MEMLOCK, false);
	cli::RouteResult result{.disk = "x"};
	result.why.error = EXDEV;
	result.why.reason = PEERDMA_REASON_DISTANCE;
	says(cli::check_bridge(host, {}, {result}, {}), PEERDMA_REASON_DISTANCE);
	says(cli::check_route(result, {}), PEERDMA_REASON_DISTANCE);
	result.why.error = 0;
	result.why.map = PEERDMA_MAP_SOFTWARE;
	says(cli::check_route(result, {}), PEERDMA_REASON_RDMA_SOFTWARE);
}

TEST_F(Check, WhatIsNotReadIsNamedOnAHostOfItsOwn)
{
	sys.files["/sys/module"] = "";
	sys.files["/proc/cpuinfo"] = std::string(peerdma_impl::file_limit + 1, 'x');
	const cli::Report report = cli::check({});
	EXPECT_EQ(item(report, "files")["found"], "not read: /proc/cpuinfo: it is too large");
	EXPECT_EQ(item(report, "files")["state"], "unknown");
	sys.files["/proc/cpuinfo"] = "";
	EXPECT_TRUE(item(cli::check({}), "files").is_null());
}

TEST_F(Check, Node)
{
	EXPECT_EQ(cli::check_node(host, 0).state, State::good);
	EXPECT_TRUE(has(cli::check_node(host, 0).found, "of one provider"));
	sys.files["/dev/peerdma"] = "";
	EXPECT_EQ(cli::check_node(host, 0).found, "/dev/peerdma opens");
	sys.files.erase("/dev/peerdma");
	EXPECT_TRUE(has(cli::check_node(host, -EACCES).change, "root"));
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "load the module"));
	sys.files["/sys/module/peerdma"] = "";
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "devtmpfs"));
	EXPECT_TRUE(has(cli::check_node(host, -EPROTONOSUPPORT).change, "one release"));
	EXPECT_TRUE(has(cli::check_node(host, -EBADMSG).change, "peerdma rules check"));
	sys.files["/.dockerenv"] = "";
	EXPECT_TRUE(has(cli::check_node(host, -ENOENT).change, "--device /dev/peerdma"));
	::setenv("PEERDMA_DEVICE", "/dev/peerdma4", 1);
	EXPECT_EQ(cli::check_node(host, 0).found, "/dev/peerdma4, which PEERDMA_DEVICE names, opens");
	for (const int error : {EACCES, EBADMSG, ENOENT, ENXIO, ENOTTY})
		EXPECT_TRUE(cli::check_node(host, -error)
				    .found.starts_with("/dev/peerdma4, which PEERDMA_DEVICE names, does not open"));
	for (const int error : {ENOENT, ENXIO, ENOTTY})
		EXPECT_TRUE(has(cli::check_node(host, -error).change, "unset PEERDMA_DEVICE"));
	host.recorded = true;
	EXPECT_FALSE(has(cli::check_node(host, 0).found, "/dev/peerdma4")) << "it is not the record's";
	::unsetenv("PEERDMA_DEVICE");
}

TEST_F(Check, IoUringAsItWasTried)
{
	host.uring = 0;
	EXPECT_EQ(cli::check_uring(host).state, State::good);
	sys.files["/proc/sys/kernel/io_uring_disabled"] = "1\n";
	EXPECT_EQ(cli::check_uring(host).state, State::good) << "a member of its group may";
	host.uring = -EPERM;
	EXPECT_EQ(cli::check_uring(host).state, State::warn);
	sys.files["/proc/sys/kernel/io_uring_disabled"] = "0\n";
	sys.files["/proc/self/status"] = "Name:\tx\nSeccomp:\t2\n";
	EXPECT_TRUE(has(cli::check_uring(host).found, "by a seccomp filter"));
	sys.files["/proc/self/status"] = "";
	host.uring = -ENOSYS;
	EXPECT_TRUE(has(cli::check_uring(host).found, "no io_uring"));
}

TEST_F(Check, DrivesOfPciAndOfRdmaCount)
{
	auto add = [&](const std::string &disk, const std::string &transport) {
		sys.files["/sys/block/" + disk + "/size"] = "1\n";
		if (!transport.empty())
			sys.files["/sys/class/block/" + disk + "/device/transport"] = transport + "\n";
	};
	add("sda", "pcie");
	add("nvme0n1", "pcie");
	add("nvme1n1", "tcp");
	add("nvme2n1", "");
	EXPECT_EQ(cli::nvme_disks(host), std::vector<std::string>{"nvme0n1"});
	// Two paths of one disk.
	add("nvme3c3n2", "rdma");
	add("nvme3c4n2", "rdma");
	add("nvme3n2", "");
	EXPECT_EQ(cli::nvme_disks(host), (std::vector<std::string>{"nvme0n1", "nvme3n2"}));
	EXPECT_EQ(cli::block_stack(host, "nvme3n2").backing, (std::vector<std::string>{"nvme3c3n2", "nvme3c4n2"}));
}

TEST_F(Check, AWholeHost)
{
	sys.files["/sys/module"] = "";
	sys.node_error = -ENOENT;
	cli::Report report = cli::check({});
	EXPECT_EQ(report.status, 1);
	EXPECT_TRUE(report.text.starts_with("cannot work here: no GPU")) << report.text;
	EXPECT_FALSE(has(report.text, "module")) << report.text;
	const std::string all = cli::check({.verbose = true}).text;
	EXPECT_TRUE(has(all, "\nbad      module ")) << all;
	EXPECT_TRUE(has(all, "\nnot ready\n"));
	EXPECT_EQ(item(report, "providers")["state"], "unknown");
	sys.node_error = 0;
	report = cli::check({});
	EXPECT_EQ(item(report, "disks")["state"], "bad");
	EXPECT_EQ(item(report, "providers")["state"], "bad");

	sys.files["/proc/config.gz"] = gzip(good_config);
	sys.files["/proc/sys/kernel/osrelease"] = "7.2.13\n";
	sys.files["/sys/module/peerdma"] = "";
	sys.files["/sys/block/nvme0n1/x"] = sys.files["/sys/class/block/nvme0n1/x"] = "";
	sys.files["/sys/class/block/nvme0n1/device/transport"] = "pcie\n";
	report = cli::check({});
	EXPECT_EQ(item(report, "route")["state"], "unknown") << "no provider to ask about";

	sys.add_function("0000:01:00.0", 4 << 20, "peerdma");
	sys.files["/sys/bus/pci/devices/0000:01:00.0/class"] = "0x030000\n";
	sys.add_provider(0, 0x0100, 2, 0, 4 << 20);
	sys.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};
	report = cli::check({});
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(report.json["ready"].get<bool>());
	EXPECT_EQ(item(report, "route")["state"], "good");
	EXPECT_EQ(item(report, "route")["about"], "nvme0n1");
	EXPECT_EQ(headline(report), "ready for direct I/O");
	EXPECT_TRUE(has(cli::check({.verbose = true}).text,
			"\ngood     route      nvme0n1: direct to provider 1, distance 4, bus address\n"));
	EXPECT_EQ(item(report, "bridge")["found"], "not crossed: the kernel says that a switch turns around");
	EXPECT_FALSE(has(report.text, "this is the kernel's own word"));
	EXPECT_TRUE(has(cli::check({.verbose = true}).text, "this is the kernel's own word"));

	sys.contents["/dev/nvme0n1"].map = PEERDMA_MAP_HOST_BRIDGE;
	EXPECT_EQ(item(cli::check({}), "bridge")["found"], "the kernel trusts it");

	sys.contents["/dev/nvme0n1"].map = PEERDMA_MAP_SOFTWARE;
	report = cli::check({});
	EXPECT_EQ(item(report, "route")["state"], "warn");
	EXPECT_TRUE(has(item(report, "route")["found"], "by software"));
	EXPECT_FALSE(has(item(report, "route")["found"], "direct"));
	EXPECT_TRUE(headline(report).starts_with("works, bounced: nvme0n1: by software to provider 1")) << report.text;
	EXPECT_EQ(report.status, 0) << "nothing is bad";

	sys.contents["/dev/nvme0n1"].refused_errno = EXDEV;
	sys.contents["/dev/nvme0n1"].refused_reason = PEERDMA_REASON_DISTANCE;
	report = cli::check({});
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(item(report, "route")["change"], peerdma_reason_advice(PEERDMA_REASON_DISTANCE));
	EXPECT_EQ(item(report, "bridge")["state"], "bad");
	EXPECT_TRUE(headline(report).starts_with("works, bounced: nvme0n1: no (DISTANCE")) << report.text;

	// Another disk reaches the GPU: the disk that does not is named.
	sys.files["/sys/block/nvme1n1/x"] = sys.files["/sys/class/block/nvme1n1/x"] = "";
	sys.files["/sys/class/block/nvme1n1/device/transport"] = "pcie\n";
	sys.contents["/dev/nvme1n1"] = {.bytes = "x", .mode = S_IFBLK};
	report = cli::check({});
	EXPECT_EQ(report.status, 1);
	EXPECT_TRUE(headline(report).starts_with("ready for direct I/O, but for nvme0n1: no (DISTANCE")) << report.text;
	sys.files.erase("/sys/block/nvme1n1/x");

	sys.contents["/dev/nvme0n1"].open_error = -EACCES;
	report = cli::check({});
	EXPECT_EQ(item(report, "route")["state"], "unknown");
	EXPECT_TRUE(headline(report).starts_with("ready for direct I/O, as far as is known; not known: "))
		<< report.text;
	EXPECT_TRUE(sys.fds.empty());
	for (const auto &entry : report.json["items"])
		EXPECT_EQ(entry["state"] == "good", entry["change"] == "") << entry;
}

TEST_F(Check, AGpuOfItsVendorsDriver)
{
	const std::string gpu = "/sys/bus/pci/devices/0000:01:00.0";
	sys.files["/sys/module"] = sys.files["/sys/module/peerdma"] = "";
	sys.add_function("0000:01:00.0", 4 << 20, "nvidia");
	sys.files[gpu + "/class"] = "0x030200\n";
	sys.files["/proc/sys/kernel/osrelease"] = "6.12.95\n";
	sys.files["/lib/modules/6.12.95/modules.dep"] = "updates/peerdma_nvidia.ko: updates/peerdma.ko\n";
	sys.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n";
	auto report = cli::check({});
	EXPECT_EQ(item(report, "providers")["state"], "bad");
	EXPECT_TRUE(has(item(report, "providers")["change"], "modprobe peerdma_nvidia"));
	EXPECT_FALSE(has(cli::check({.verbose = true}).text, "peerdma publish ")) << report.text;
	EXPECT_TRUE(has(headline(report), "works, bounced: ")) << report.text;

	// With all requirements met it becomes a provider when a program registers memory.
	sys.files[gpu + "/p2pmem/size"] = "4194304\n";
	sys.files["/sys/module/peerdma_nvidia"] = "";
	report = cli::check({});
	EXPECT_EQ(item(report, "driver")["state"], "good");
	EXPECT_EQ(item(report, "providers")["state"], "good");
	EXPECT_EQ(item(report, "providers")["found"],
		  "none now: 0000:01:00.0 is one while a program has registered memory of it");
}

TEST_F(Check, APairOfSeveral)
{
	sys.files["/sys/module"] = "";
	sys.files["/sys/block/nvme0n1/x"] = "";
	sys.files["/sys/class/block/nvme0n1/device/transport"] = "pcie\n";
	sys.contents["/dev/nvme0n1"] = {.bytes = "x", .mode = S_IFBLK};
	sys.add_provider(0, 0x0100, 2, 0, 4 << 20);
	sys.add_provider(0, 0x0200, 2, 0, 4 << 20);
	auto found = [&](const std::string &device) {
		return item(cli::check({.targets = {device}}), "route")["found"].get<std::string>();
	};
	EXPECT_TRUE(has(found("0000:01:00.0"), "direct to provider 1"));
	EXPECT_TRUE(has(found("02:00.0"), "direct to provider 2"));
	EXPECT_TRUE(has(found("03:00.0"), "no such provider"));
	EXPECT_THROW(cli::check({.targets = {"01:00.0", "02:00.0"}}), cli::Usage);
	EXPECT_THROW(cli::check({.targets = {"/a", "/b"}}), cli::Usage);
	EXPECT_THROW(cli::check({.targets = {"/nonexistent/file"}}), cli::Failure);
}
