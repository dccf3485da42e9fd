// SPDX-License-Identifier: MIT
// The inputs of check, topo, publish and unpublish from sysfs and the kernel's configuration. Each line of the input is
// a file's path or its number in the list, a blank, and the contents.
#include <algorithm>
#include <cerrno>
#include <iterator>

#include "../../host/fake_syscalls.hpp"
#include "input.hpp"
#include "tools/check/check.hpp"
#include "tools/topo/topology.hpp"

namespace
{

const char *const places[] = {
	"/sys/bus/pci/devices/0000:01:00.0/resource",
	"/sys/bus/pci/devices/0000:01:00.0/driver_override",
	"/sys/bus/pci/devices/0000:01:00.0/class",
	"/sys/bus/pci/devices/0000:01:00.0/numa_node",
	"/sys/bus/pci/devices/0000:01:00.0/vendor",
	"/sys/bus/pci/devices/0000:01:00.0/device",
	"/sys/bus/pci/devices/0000:01:00.0",
	"/sys/block/nvme0n1",
	"/sys/block/nvme0n1/hidden",
	"/proc/config.gz",
	"/boot/config-1.0",
	"/proc/cmdline",
	"/proc/self/mountinfo",
	"/proc/self/limits",
	"/proc/self/status",
	"/proc/self/cgroup",
	"/proc/self/uid_map",
	"/sys/kernel/security/lockdown",
	"/lib/modules/1.0/modules.dep",
	"/sys/bus/pci/devices/0000:01:00.0/config",
	"/sys/bus/pci/devices/0000:02:00.0",
	"/sys/bus/pci/devices/0000:02:00.0/config",
	"/sys/bus/pci/devices/0000:01:00.0/resource2_resize",
	"/sys/class/block/nvme0n1/slaves/nvme0n1",
};

template <typename F> void quietly(F &&body)
{
	try {
		body();
	} catch (const cli::Failure &failure) {
		failure.line();
	} catch (const cli::Usage &) {
	}
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FakeSyscalls sys;
	sys.add_function("0000:01:00.0", 1 << 20);
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	for (const std::string &line : input::lines(data, size)) {
		if (line.size() < 2)
			continue;
		const std::string path = places[static_cast<unsigned char>(line[0]) % std::size(places)];
		sys.files[path] += line.substr(1) + "\n";
		sys.links[path] = line.substr(1);
	}
	const cli::Host host{sys, "1.0"};
	cli::check_config(host);
	cli::check_iommu(host, {});
	cli::check_signing(host);
	cli::check_headers(host, ENOENT);
	cli::candidates(host);
	cli::path_between(host, "0000:01:00.0", "0000:02:00.0");
	cli::check_bar(host, "0000:01:00.0");
	cli::block_stack(host, "nvme0n1");
	const cli::Host record{sys, "1.0", true, true};
	for (const char *path : {"/dev/md0", "/mnt/a b"})
		cli::check_filesystem(record, cli::subject_of(record, path));
	for (const auto &check :
	     {cli::check_container, cli::check_uring, cli::check_memlock, cli::check_nofile, cli::check_quota})
		check(host);
	cli::check_module(host, 0);
	cli::check_module(host, EACCES);
	cli::nvme_disks(host);
	quietly([] { cli::check({}); });
	quietly([] { cli::topo({}); });
	quietly([] { cli::topo({.svg = "", .dot = true}); });
	quietly([] { cli::publish({.device = "0000:01:00.0"}); });
	quietly([] { cli::unpublish("0000:01:00.0"); });
	return 0;
}
