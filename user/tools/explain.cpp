// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <fmt/format.h>

#include "cli.hpp"

namespace cli
{

Report explain(const std::string &path, const std::string &name)
{
	Device device = open_device();
	const auto provider = find_provider(device, name);
	File file = open_file(device, path, O_RDONLY);
	const auto why = ask(file, path, provider);

	Report report;
	report.json = {{"ok", true},
		       {"file", path},
		       {"filesystem", why.fs_name},
		       {"provider", provider_json(provider)},
		       {"route", peerdma_route_name(why.route)},
		       {"direct", why.error == 0},
		       {"errno", why.error ? Json(errno_name(static_cast<int>(why.error))) : Json()},
		       {"reason", peerdma_reason_name(why.reason)},
		       {"text", peerdma_reason_text(why.reason)},
		       {"advice", peerdma_reason_advice(why.reason)},
		       {"leaf", leaf_json(why)},
		       {"distance", why.distance},
		       {"map", peerdma_map_name(why.map)},
		       {"dio_mem_align", why.dio_mem_align},
		       {"dio_offset_align", why.dio_offset_align}};

	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", path, why.fs_name[0] ? why.fs_name : "unknown filesystem"));
	row("route", why.error ? fmt::format("none ({})", errno_name(static_cast<int>(why.error))) :
				 peerdma_route_name(why.route));
	row("reason", fmt::format("{}: {}", peerdma_reason_name(why.reason), peerdma_reason_text(why.reason)));
	if (*peerdma_reason_advice(why.reason))
		row("advice", peerdma_reason_advice(why.reason));
	row("leaf", leaf_text(why));
	row("provider", fmt::format("{}  provider {}, BAR {}", pci_text(provider.pci_domain, provider.pci_bdf),
				    provider.id, provider.bar));
	row("distance", why.distance < 0 ? "no route" : std::to_string(why.distance));
	row("mapping", peerdma_map_name(why.map));
	if (why.dio_offset_align)
		row("alignment", fmt::format("file offset and length {}, buffer offset {} bytes", why.dio_offset_align,
					     why.dio_mem_align));
	return report;
}

} // namespace cli
