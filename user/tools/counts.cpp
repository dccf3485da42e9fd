// SPDX-License-Identifier: MIT
#include "counts.hpp"

#include <fmt/format.h>

#include "stat.hpp"

namespace cli
{

std::optional<Counts> counted(peerdma_impl::Env &env, const Device &device)
{
	std::string text;
	if (env.read_file(fmt::format("/proc/self/fdinfo/{}", peerdma_fd(device.get())), text) < 0)
		return {};
	const Counters all = parse_fdinfo(text);
	auto at = [&](std::string_view key) {
		const auto found = all.find(key);
		return found == all.end() ? 0 : found->second;
	};
	return Counts{at("direct-bytes"), at("near-bytes"), at("host-bytes")};
}

} // namespace cli
