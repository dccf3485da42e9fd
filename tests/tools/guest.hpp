// SPDX-License-Identifier: MIT
// Operations of the guest's test programs on the system.
#pragma once

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <unistd.h>

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

} // namespace guest
