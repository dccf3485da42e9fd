// SPDX-License-Identifier: MIT
#include "tools/stat/io_counts.hpp"

#include <fmt/format.h>

#include "tools/stat/stat.hpp"

namespace cli
{

std::optional<Counts> kernel_counts(peerdma_impl::Syscalls &sys, const Device &device)
{
	std::string text;
	if (sys.read_file(fmt::format("/proc/self/fdinfo/{}", peerdma_fd(device.get())), text) < 0)
		return {};
	const Counters all = parse_fdinfo(text);
	auto at = [&](std::string_view key) {
		const auto found = all.find(key);
		return found == all.end() ? 0 : found->second;
	};
	return Counts{at("direct-bytes"), at("near-bytes"), at("host-bytes")};
}

} // namespace cli
