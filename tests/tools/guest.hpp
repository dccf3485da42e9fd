// SPDX-License-Identifier: MIT
// What the guest's test programs do to the system around them.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace guest
{

/// Looks again and again; false if it is not so in that time.
inline bool within(std::chrono::steady_clock::duration limit, const std::function<bool()> &so)
{
	using Clock = std::chrono::steady_clock;
	for (const auto end = Clock::now() + limit; !so(); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
		if (Clock::now() > end)
			return false;
	return true;
}

/// Writes to a file of sysfs, procfs or a cgroup: false if the kernel did not take it.
inline bool put(const std::string &file, const std::string &what)
{
	std::ofstream out(file);
	out << what << std::flush;
	return out.good();
}

} // namespace guest
