// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <vector>

#include <fmt/format.h>

#include "cli.hpp"
#include "output.hpp"

namespace cli
{

namespace
{

using Leaves = std::vector<struct peerdma_explanation>;

// One answer per leaf; where there is none, the one answer that says so.
Leaves ask_leaves(const File &file, const std::string &path, const struct peerdma_provider_info &provider)
{
	Leaves leaves = {ask(file, path, provider)};
	for (uint32_t leaf = 1; leaf < leaves.front().nr_leaves; leaf++)
		leaves.push_back(ask(file, path, provider, leaf));
	return leaves;
}

Json leaves_json(const Leaves &leaves)
{
	Json list = Json::array();
	for (const auto &leaf : leaves) {
		if (leaf.nr_leaves)
			list.push_back(leaf_json(leaf));
	}
	return list;
}

// One leaf that is what the whole is.
bool says_all(const Leaves &leaves)
{
	return leaves.size() == 1 && (!leaves[0].nr_leaves || leaves[0].leaf_reason == leaves[0].reason);
}

std::string leaf_verdict(const struct peerdma_explanation &leaf)
{
	if (leaf.leaf_reason)
		return fmt::format("  {}: {}", peerdma_reason_name(leaf.leaf_reason),
				   peerdma_reason_text(leaf.leaf_reason));
	return fmt::format("  distance {}, {}", leaf.leaf_distance, peerdma_map_name(leaf.leaf_map));
}

// Why what is not refused is bounced all the same, a peerdma_reason; 0 if it is not.
uint32_t why_bounced(const struct peerdma_explanation &why) { return why.reason ? 0 : why_not_direct(why); }

Json bounced_json(uint32_t reason)
{
	if (!reason)
		return nullptr;
	return {{"reason", peerdma_reason_name(reason)},
		{"text", peerdma_reason_text(reason)},
		{"advice", peerdma_reason_advice(reason)}};
}

} // namespace

Report explain(const std::string &path, const std::string &name)
{
	Device device = open_device();
	const auto provider = find_provider(device, name);
	File file = open_file(device, path, O_RDONLY);
	const auto leaves = ask_leaves(file, path, provider);
	const auto &why = leaves.front();
	const uint32_t bounced = why_bounced(why);

	Report report;
	report.json = {{"ok", true},
		       {"file", path},
		       {"filesystem", why.fs_name},
		       {"provider", provider_json(provider)},
		       {"route", peerdma_route_name(why.route)},
		       {"direct", why_not_direct(why) == 0},
		       {"errno", why.error ? Json(errno_name(static_cast<int>(why.error))) : Json()},
		       {"reason", peerdma_reason_name(why.reason)},
		       {"text", peerdma_reason_text(why.reason)},
		       {"advice", peerdma_reason_advice(why.reason)},
		       {"bounced", bounced_json(bounced)},
		       {"refused_by", why.refused_name[0] ? Json(why.refused_name) : Json()},
		       {"leaf", leaf_json(why)},
		       {"leaves", leaves_json(leaves)},
		       {"distance", why.distance},
		       {"map", peerdma_map_name(why.map)},
		       {"dio_mem_align", why.dio_mem_align},
		       {"dio_offset_align", why.dio_offset_align}};

	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", escaped(path), why.fs_name[0] ? why.fs_name : "unknown filesystem"));
	row("route", why.error ? fmt::format("none ({})", errno_name(static_cast<int>(why.error))) :
				 peerdma_route_name(why.route));
	row("reason", fmt::format("{}: {}", peerdma_reason_name(why.reason), peerdma_reason_text(why.reason)));
	if (bounced)
		row("bounced", fmt::format("{}: {}", peerdma_reason_name(bounced), peerdma_reason_text(bounced)));
	if (const char *advice = peerdma_reason_advice(bounced ? bounced : why.reason); *advice)
		row("advice", advice);
	if (why.refused_name[0])
		row("refused by", why.refused_name);
	for (const auto &leaf : leaves)
		row("leaf", leaf_text(leaf) + (says_all(leaves) ? "" : leaf_verdict(leaf)));
	row("provider", fmt::format("{}  provider {}, BAR {}", pci_text(provider.pci_domain, provider.pci_bdf),
				    provider.id, provider.bar));
	row("distance", why.map == PEERDMA_MAP_SOFTWARE ? "none" :
			why.distance < 0                ? "no route" :
							  std::to_string(why.distance));
	row("mapping", peerdma_map_name(why.map));
	if (why.dio_offset_align)
		row("alignment", fmt::format("file offset and length {}, buffer offset {} bytes", why.dio_offset_align,
					     why.dio_mem_align));
	return report;
}

} // namespace cli
