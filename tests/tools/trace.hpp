// SPDX-License-Identifier: MIT
#pragma once

// The module's trace events.
#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "raw.hpp"

namespace trace
{

/// The events of that name during run, one per line.
inline std::vector<std::string> during(const std::string &system, const std::string &event,
				       const std::function<void()> &run)
{
	const std::string tracing = "/sys/kernel/tracing/";
	const std::string enable = tracing + "events/" + system + "/" + event + "/enable";
	raw::put(tracing + "trace", "");
	raw::put(enable, "1");
	run();
	raw::put(enable, "0");
	std::ifstream in(tracing + "trace");
	std::vector<std::string> lines;
	for (std::string line; std::getline(in, line);)
		if (line.find(" " + event + ": ") != std::string::npos)
			lines.push_back(line);
	return lines;
}

/// The events of requests that completed during run.
inline std::vector<std::string> completed_during(const std::function<void()> &run)
{
	return during("peerdma", "peerdma_complete", run);
}

inline int count(const std::vector<std::string> &lines, const char *what)
{
	return int(std::ranges::count_if(lines, [=](auto &line) { return line.find(what) != std::string::npos; }));
}

/// The number of requests submitted asynchronously.
inline int sent(const std::vector<std::string> &lines) { return count(lines, " async=1 "); }

/// The number of those that had to wait after all.
inline int put_off(const std::vector<std::string> &lines) { return count(lines, " error=-11 async=1 "); }

} // namespace trace
