// SPDX-License-Identifier: MIT
//
// The PCI tree, and which disk reaches which provider's memory. The tree comes from sysfs. The verdicts come from the
// kernel, by the query that peerdma explain uses.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/output.hpp"
#include "tools/topo/topology.hpp"

namespace cli
{
namespace
{

std::string pair_text(const Pair &pair)
{
	std::string text =
		fmt::format("{} ({}) to provider {} ({}): ", pair.disk, pair.place, pair.provider, pair.provider_pci);
	if (pair.error)
		return text + fmt::format("unknown, cannot query /dev/{} ({})", pair.disk, errno_name(pair.error));
	text += verdict_name(pair);
	if (pair.why.distance >= 0)
		text += fmt::format(", distance {}", pair.why.distance);
	if (pair.why.reason == PEERDMA_REASON_RULE)
		return text + fmt::format(", RULE: {}", pair.why.refused_name);
	if (pair.why.error)
		return text + fmt::format(", {}: {}", peerdma_reason_name(pair.why.reason),
					  peerdma_reason_text(pair.why.reason));
	return text + fmt::format(", {}", peerdma_map_name(pair.why.map));
}

std::string tree_text(const Topology &topo)
{
	std::string text;
	std::vector<std::string> path; // bridges above it
	for (const Function &function : topo.functions) {
		while (!path.empty() && path.back() != function.parent)
			path.pop_back();
		text += fmt::format("{:{}}{}  {} {}", "", path.size() * 2, function.pci, function.class_name,
				    function.id);
		if (!function.driver.empty())
			text += ", " + function.driver;
		if (function.numa_node >= 0)
			text += fmt::format(", node {}", function.numa_node);
		for (const std::string &disk : function.disks)
			text += ", disk " + disk;
		for (uint32_t id : providers_of(topo, function))
			text += fmt::format(", provider {}", id);
		text += '\n';
		path.push_back(function.pci);
	}
	for (const OtherDisk &disk : topo.others)
		text += fmt::format("disk {}: {}\n", disk.name, place_of(disk));
	return text;
}

const Function *function_of(const Topology &topo, const std::string &pci)
{
	const auto found = std::find_if(topo.functions.begin(), topo.functions.end(),
					[&](const Function &function) { return function.pci == pci; });
	return found == topo.functions.end() ? nullptr : &*found;
}

// The driver of a provider's device; empty if it is not known.
std::string driver_of(const Topology &topo, const struct peerdma_provider_info &provider)
{
	const Function *function = function_of(topo, pci_text(provider.pci_domain, provider.pci_bdf));
	return function ? function->driver : "";
}

// The rules that can apply to this provider, whatever their other conditions.
std::vector<peerdma_impl::Rule> rules_about(const Topology &topo, const struct peerdma_provider_info &provider)
{
	std::vector<peerdma_impl::Rule> found;
	const peerdma_impl::FunctionName name = {{provider.pci_domain, provider.pci_bdf},
						 provider.pci_vendor << 16 | provider.pci_device};
	for (const auto &rule : topo.rules.all())
		if (rule.is_about(name))
			found.push_back(rule);
	return found;
}

bool consumes(const OpenFile &file) { return counter_value(file.counters, "buffers"); }

// The kernel does not tell the provider of a process's buffers. It is known only if there is one provider.
bool is_known(const Topology &topo) { return topo.providers.size() == 1; }

std::string process_text(const OpenFile &file)
{
	return fmt::format("process {} {}: {} in {} buffer{}\n", fmt::join(file.pids, ", "), escaped(file.comm),
			   size_text(counter_value(file.counters, "buffer-bytes")),
			   counter_value(file.counters, "buffers"),
			   counter_value(file.counters, "buffers") == 1 ? "" : "s");
}

std::string processes_text(const Topology &topo, const char *indent)
{
	std::string text;
	for (const OpenFile &file : topo.consumers.files.files)
		if (consumes(file))
			text += indent + process_text(file);
	return text;
}

// Each provider with its driver, its rules, its free memory and its users.
std::string shares_text(const Topology &topo)
{
	std::string text;
	for (const auto &provider : topo.providers) {
		const std::string driver = driver_of(topo, provider),
				  pci = pci_text(provider.pci_domain, provider.pci_bdf);
		text += fmt::format(
			"provider {}: {} ({:04x}:{:04x}{}) publishes {} of BAR {} at offset {:#x}, {} free\n",
			provider.id, pci, provider.pci_vendor, provider.pci_device,
			driver.empty() ? "" : ", driver " + driver, size_text(provider.len), provider.bar,
			provider.bar_offset, size_text(provider.available));
		for (const auto &rule : rules_about(topo, provider))
			text += fmt::format("  {}: {}\n", rule.place(), rule.text);
		for (const CgroupShare &share : topo.consumers.cgroups)
			if (share.pci == pci)
				text += fmt::format("  cgroup {}: {}\n", escaped(share.cgroup), size_text(share.bytes));
		for (const Traffic &traffic : topo.consumers.traffic)
			if (traffic.provider == provider.id)
				text += fmt::format("  disk {}: moved {} direct, {} near, {} host; {} refused\n",
						    traffic.disk, size_text(traffic.direct), size_text(traffic.near),
						    size_text(traffic.host), traffic.refused);
		if (is_known(topo))
			text += processes_text(topo, "  ");
	}
	if (!is_known(topo))
		text += processes_text(topo, "");
	for (const UserShare &user : topo.consumers.users)
		text += fmt::format("user {}: {} in buffers\n", user.uid, size_text(user.bytes));
	if (topo.consumers.files.unseen)
		text += fmt::format("{} processes of other users were not readable\n", topo.consumers.files.unseen);
	if (!topo.fault.empty())
		text += fmt::format("every process is refused: {}\n", topo.fault);
	return text;
}

Json consumers_json(const Topology &topo)
{
	Json all = Json::array();
	for (const OpenFile &file : topo.consumers.files.files)
		if (consumes(file))
			all.push_back({{"file", file.id},
				       {"pids", file.pids},
				       {"comm", file.comm},
				       {"provider", is_known(topo) ? Json(topo.providers[0].id) : Json()},
				       {"buffers", counter_value(file.counters, "buffers")},
				       {"buffer_bytes", counter_value(file.counters, "buffer-bytes")}});
	return all;
}

Json others_json(const Topology &topo)
{
	Json all = Json::array();
	for (const OtherDisk &disk : topo.others) {
		Json devices = Json::array();
		for (const BackingDevice &device : disk.devices)
			devices.push_back({{"name", device.name},
					   {"pci", device.pci.empty() ? Json() : Json(device.pci)},
					   {"transport", device.transport.empty() ? Json() : Json(device.transport)}});
		all.push_back({{"disk", disk.name}, {"leaves", devices}});
	}
	return all;
}

Json topo_json(const Topology &topo)
{
	Json json = {
		{"ok", true}, {"functions", Json::array()}, {"providers", Json::array()}, {"pairs", Json::array()}};
	for (const Function &function : topo.functions)
		json["functions"].push_back({{"pci", function.pci},
					     {"parent", function.parent.empty() ? Json() : Json(function.parent)},
					     {"root", function.root},
					     {"class", function.class_name},
					     {"id", function.id},
					     {"driver", function.driver.empty() ? Json() : Json(function.driver)},
					     {"numa_node", function.numa_node},
					     {"disks", function.disks},
					     {"providers", providers_of(topo, function)}});
	for (const auto &provider : topo.providers) {
		const std::string driver = driver_of(topo, provider);
		Json entry = provider_json(provider);
		entry["driver"] = driver.empty() ? Json() : Json(driver);
		entry["rules"] = Json::array();
		for (const auto &rule : rules_about(topo, provider))
			entry["rules"].push_back({{"line", rule.line}, {"rule", rule.text}});
		entry["cgroups"] = entry["disks"] = Json::array();
		for (const CgroupShare &share : topo.consumers.cgroups)
			if (share.pci == entry["pci"])
				entry["cgroups"].push_back({{"cgroup", share.cgroup}, {"bytes", share.bytes}});
		for (const Traffic &traffic : topo.consumers.traffic)
			if (traffic.provider == provider.id)
				entry["disks"].push_back({{"disk", traffic.disk},
							  {"direct_bytes", traffic.direct},
							  {"near_bytes", traffic.near},
							  {"host_bytes", traffic.host},
							  {"refused", traffic.refused}});
		json["providers"].push_back(entry);
	}
	json["other_disks"] = others_json(topo);
	json["consumers"] = consumers_json(topo);
	json["users"] = Json::array();
	for (const UserShare &user : topo.consumers.users)
		json["users"].push_back({{"uid", user.uid}, {"buffer_bytes", user.bytes}});
	json["unseen_processes"] = topo.consumers.files.unseen;
	json["open_error"] = topo.open_error ? Json(errno_name(-topo.open_error)) : Json();
	json["open_node"] = topo.open_error ? Json(topo.open_node) : Json();
	json["rules_fault"] = topo.fault.empty() ? Json() : Json(topo.fault);
	for (const Pair &pair : topo.pairs) {
		const bool known = !pair.error;
		json["pairs"].push_back(
			{{"disk", pair.disk},
			 {"disk_pci", pair.disk_pci.empty() ? Json() : Json(pair.disk_pci)},
			 {"provider", pair.provider},
			 {"provider_pci", pair.provider_pci},
			 {"verdict", verdict_name(pair)},
			 {"distance", known && pair.why.distance >= 0 ? Json(pair.why.distance) : Json()},
			 {"map", known ? Json(peerdma_map_name(pair.why.map)) : Json()},
			 {"reason", known ? Json(peerdma_reason_name(pair.why.reason)) : Json()},
			 {"refused_by", known && pair.why.refused_name[0] ? Json(pair.why.refused_name) : Json()},
			 {"errno", pair.error ? Json(errno_name(pair.error)) : Json()}});
	}
	return json;
}

} // namespace

Report topo(const TopoOptions &options)
{
	if (options.dot && !options.svg.empty())
		throw Usage{"--dot and --svg exclude each other"};
	std::optional<Output> svg;
	if (!options.svg.empty())
		svg.emplace(options.svg);
	const Topology topo = read_topology();
	Report report;
	report.json = topo_json(topo);
	if (options.dot) {
		report.json["dot"] = report.text = topo_dot(topo);
		return report;
	}
	if (!options.svg.empty()) {
		svg->write(render_svg(topo_dot(topo)));
		report.json["svg"] = options.svg;
		report.text = fmt::format("drawn in {}\n", escaped(options.svg));
		return report;
	}
	report.text = tree_text(topo);
	if (topo.open_error < 0)
		report.text += fmt::format("providers are not known: cannot open {} ({})\n", escaped(topo.open_node),
					   errno_name(-topo.open_error));
	else if (topo.providers.empty())
		report.text += "no provider is published\n";
	report.text += shares_text(topo);
	for (const Pair &pair : topo.pairs)
		report.text += pair_text(pair) + "\n";
	return report;
}

} // namespace cli
