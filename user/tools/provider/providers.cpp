// SPDX-License-Identifier: MIT
#include <cerrno>
#include <vector>

#include <fmt/format.h>

#include "tools/cli/cli.hpp"

namespace cli
{

Report providers()
{
	Device device = open_device();
	std::vector<uint32_t> ids;
	int count = peerdma_provider_list(device.get(), nullptr, 0);
	// The number may grow between two calls: repeat until all ids fit.
	while (count > static_cast<int>(ids.size())) {
		ids.resize(static_cast<size_t>(count));
		count = peerdma_provider_list(device.get(), ids.data(), ids.size());
	}
	if (count < 0)
		throw Failure{"cannot query the module's providers", -count, 0, "", {}};
	ids.resize(static_cast<size_t>(count));

	Report report;
	report.json = {{"ok", true}, {"providers", Json::array()}};
	for (uint32_t id : ids) {
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		if (peerdma_provider_get(device.get(), id, &info) < 0)
			continue; // unpublished meanwhile
		report.json["providers"].push_back(provider_json(info));
		if (report.text.empty())
			report.text = fmt::format("{:>3}  {:<12}  {:<9}  {:>3}  {:>12}  {:>10}  {:>10}  {:>4}\n", "ID",
						  "PCI", "DEVICE", "BAR", "OFFSET", "SIZE", "FREE", "NUMA");
		report.text +=
			fmt::format("{:>3}  {:<12}  {:04x}:{:04x}  {:>3}  {:>#12x}  {:>10}  {:>10}  {:>4}\n", info.id,
				    pci_text(info.pci_domain, info.pci_bdf), info.pci_vendor, info.pci_device, info.bar,
				    info.bar_offset, size_text(info.len), size_text(info.available),
				    info.numa_node < 0 ? "-" : std::to_string(info.numa_node));
	}
	if (report.text.empty())
		report.text = "no provider is published. " + advice_without_provider() + "\n";
	return report;
}

} // namespace cli
