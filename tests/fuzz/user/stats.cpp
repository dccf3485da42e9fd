// SPDX-License-Identifier: MIT
// The inputs of peerdma stat: debugfs, and the fdinfo of every process.
#include <algorithm>

#include "../../host/fake_syscalls.hpp"
#include "input.hpp"
#include "tools/stat/stat.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string text(reinterpret_cast<const char *>(data), size);
	for (const auto &[name, value] : cli::parse_fdinfo(text))
		must(text.find(name) != std::string::npos, "a counter's name is in the text");
	for (const cli::StatsLine &line : cli::parse_stats(text))
		must(line.counters.size() <= line.words.size(), "a counter is a word");
	FakeSyscalls sys;
	sys.files["/sys/kernel/debug/peerdma/stats"] = text;
	sys.files["/proc/7/comm"] = text;
	sys.links["/proc/7/fd/3"] = "/dev/peerdma";
	sys.files["/proc/7/fdinfo/3"] = text;
	try {
		cli::stat().json.dump(2, ' ', false, cli::Json::error_handler_t::replace);
	} catch (const cli::Failure &) {
	}
	return 0;
}
