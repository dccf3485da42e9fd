// SPDX-License-Identifier: MIT
// Operations of the guest's test programs on the system.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include "host.hpp"
#include "raw.hpp"

namespace guest
{

/// Polls a condition until the time limit; false if it did not become true.
inline bool within(std::chrono::steady_clock::duration limit, const std::function<bool()> &so)
{
	using Clock = std::chrono::steady_clock;
	for (const auto end = Clock::now() + limit; !so(); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
		if (Clock::now() > end)
			return false;
	return true;
}

/// Writes to a file of sysfs, procfs or a cgroup: false if the kernel refused it.
inline bool put(const std::string &file, const std::string &what)
{
	std::ofstream out(file);
	out << what << std::flush;
	return out.good();
}

/// A number in the debugfs folder of the driver; -1: the driver is not loaded.
inline int debug_number(const std::string &driver, const std::string &what)
{
	std::ifstream in("/sys/kernel/debug/" + driver + "/" + what);
	int n = -1;
	in >> n;
	return n;
}

/// Binds the device to peerdma and publishes its BAR 2, waiting until the device can be bound: 0 or -errno of
/// publishing.
inline int bind_and_publish(const std::string &gpu, uint64_t len)
{
	unsigned domain, bus, slot, function;
	std::sscanf(gpu.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function);
	put("/sys/bus/pci/devices/" + gpu + "/driver_override", "peerdma");
	put("/sys/bus/pci/drivers/peerdma/bind", gpu);
	auto publish = raw::sized<peerdma_publish>();
	publish.pci_domain = domain;
	publish.pci_bdf = bus << 8 | slot << 3 | function;
	publish.bar = 2;
	publish.len = len;
	const int dev = raw::open_device();
	const int err = raw::call(dev, PEERDMA_PUBLISH, publish);
	::close(dev);
	return err;
}

/// Whether the kernel can remove a device from its slot. Not under lockdep, where its own locks trigger a report, which disables
/// lockdep (Documentation/upstream/pciehp-reset-lock); nor on a realtime kernel, whose pciehp does not answer the slot's button (7.2).
inline bool hotplugs()
{
	const std::string variant = std::getenv("LAB_VARIANT");
	return variant != "debug" && variant != "rt";
}

/// Presses the button of the first GPU's slot: the kernel removes the device after 5 s.
inline void unplug() { host::ask(R"(qmp {"execute":"device_del","arguments":{"id":"gpu0"}})"); }

/// The bus of QEMU's that the topology has the first GPU on.
inline std::string gpu_bus()
{
	std::ifstream in(std::string(std::getenv("LAB_ROOT")) + "/qemu/topo/" + std::getenv("LAB_TOPOLOGY") + ".args");
	std::string line;
	while (std::getline(in, line) && line.find("id=gpu0,") == line.npos)
		;
	const auto bus = line.find("bus=");
	return bus == line.npos ? "" : line.substr(bus + 4, line.find(',', bus) - bus - 4);
}

/// Plugs in a GPU with the memory of the previous one. QEMU keeps the registrations of a backend whose device was
/// unplugged and aborts if it is used again, so this adds a new backend on the same file.
inline void plug_in()
{
	static std::string used = "gpu0";
	// No other process of this boot has chosen this name.
	const std::string fresh = "gpu0-" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
	const std::string file = std::getenv("LAB_OUT") + std::string("/gpu-bar.mem");
	auto qmp = [](const std::string &command, const std::string &arguments) {
		return host::ask("qmp {\"execute\":\"" + command + "\",\"arguments\":{" + arguments + "}}")
			       .find("\"error\"") == std::string::npos;
	};
	qmp("object-add", R"("qom-type":"memory-backend-file","share":true,"size":)" +
				  std::to_string(std::filesystem::file_size(file)) + ",\"id\":\"" + fresh +
				  "\",\"mem-path\":\"" + file + "\"");
	within(std::chrono::seconds(60), [&] {
		return qmp("device_add", R"("driver":"ivshmem-plain","id":"gpu0","bus":")" + gpu_bus() +
						 R"(","memdev":")" + fresh + "\"");
	});
	qmp("object-del", "\"id\":\"" + std::exchange(used, fresh) + "\"");
}

} // namespace guest
