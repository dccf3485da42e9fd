// SPDX-License-Identifier: MIT
//
// What is where on the PCI bus, and which disk reaches which provider's memory. The tree is sysfs's; the
// verdicts are the kernel's own, by the same question that peerdma explain asks.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check.hpp"
#include "fd.hpp"
#include "node.hpp"
#include "output.hpp"
#include "sysfs.hpp"
#include "topo.hpp"

extern char **environ;

namespace cli
{
namespace
{

std::string root_in(const std::string &path)
{
	const size_t at = path.find("/pci");
	return at == std::string::npos ? "" : path.substr(at + 1, path.find('/', at + 1) - at - 1);
}

// Base class and subclass of the PCI code and ID assignment specification; what matters to a reader here.
std::string class_text(const std::string &code)
{
	const std::string number = code.starts_with("0x") ? code.substr(2) : code;
	for (const auto &[prefix, text] :
	     std::initializer_list<std::pair<const char *, const char *>>{{"0600", "host bridge"},
									  {"0601", "ISA bridge"},
									  {"0604", "PCI bridge"},
									  {"0108", "NVMe drive"},
									  {"01", "storage"},
									  {"02", "network"},
									  {"03", "display"},
									  {"0500", "memory"},
									  {"06", "bridge"},
									  {"0c05", "SMBus"},
									  {"12", "accelerator"}})
		if (number.starts_with(prefix))
			return text;
	return "class " + number;
}

void add_disks(peerdma_impl::Env &env, std::vector<Function> &functions)
{
	std::vector<std::string> disks;
	env.list_dir("/sys/block", disks);
	for (const std::string &disk : disks) {
		std::string target;
		if (env.read_link("/sys/block/" + disk, target) < 0 ||
		    line_of(env, "/sys/block/" + disk + "/hidden") == "1")
			continue;
		const auto path = addresses_in(target);
		if (path.empty())
			continue;
		for (Function &function : functions)
			if (function.pci == path.back())
				function.disks.push_back(disk);
	}
}

// Depth first, as the tree is printed.
void put(std::vector<Function> &from, const std::string &parent, std::vector<Function> &to)
{
	for (const Function &function : from)
		if (function.parent == parent) {
			to.push_back(function);
			put(from, function.pci, to);
		}
}

std::string verdict_name(const Pair &pair)
{
	if (pair.error)
		return "unknown";
	return pair.why.error ? "refused" : why_not_direct(pair.why) ? "by software" : "direct";
}

std::string pair_text(const Pair &pair)
{
	std::string text =
		fmt::format("{} ({}) to provider {} ({}): ", pair.disk, pair.place, pair.provider, pair.provider_pci);
	if (pair.error)
		return text +
		       fmt::format("unknown, /dev/{} could not be asked ({})", pair.disk, errno_name(pair.error));
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

std::string leaf_name(const Leaf &leaf)
{
	std::string text = leaf.name;
	if (!leaf.transport.empty() && leaf.transport != "pcie")
		text += " by " + leaf.transport;
	return leaf.pci.empty() ? text : text + " " + leaf.pci;
}

std::string place_of(const OtherDisk &disk)
{
	// What is its own leaf is named already.
	if (disk.leaves.size() == 1 && disk.leaves[0].name == disk.name)
		return disk.leaves[0].transport.empty() ? "no PCI function" : "by " + disk.leaves[0].transport;
	std::vector<std::string> names;
	for (const Leaf &leaf : disk.leaves)
		names.push_back(leaf_name(leaf));
	return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<uint32_t> provider_ids(const Device &device)
{
	std::vector<uint32_t> ids;
	// There may be more from one look to the next.
	for (;;) {
		const int count = peerdma_provider_list(device.get(), ids.data(), ids.size());
		const bool all = count <= static_cast<int>(ids.size());
		ids.resize(static_cast<size_t>(std::max(count, 0)));
		if (all)
			return ids;
	}
}

void ask_of(const Device &device, const std::string &disk, const std::string &pci, const std::string &place,
	    Topology &topo)
{
	struct peerdma_file *opened = nullptr;
	const int rc = peerdma_file_open(device.get(), ("/dev/" + disk).c_str(), O_RDONLY, &opened);
	const File file(opened);
	for (const auto &provider : topo.providers) {
		Pair pair{disk, pci, place, provider.id, pci_text(provider.pci_domain, provider.pci_bdf)};
		pair.why.size = sizeof(pair.why);
		pair.error = -(rc < 0 ? rc : peerdma_explain(file.get(), provider.id, &pair.why));
		topo.pairs.push_back(pair);
	}
}

Topology look()
{
	auto &env = peerdma_impl::system_env();
	Topology topo;
	topo.functions = pci_functions(env);
	topo.others = other_disks(env);
	topo.consumers = consumers_of(env);
	peerdma_impl::load_rules(env, peerdma_impl::rules_path, topo.rules, topo.fault);
	struct peerdma_device *raw = nullptr;
	// Without the module, or without the right to use it, the tree is still worth something.
	topo.open_error = peerdma_open(&raw, PEERDMA_OPEN_REQUIRE_DIRECT);
	if (topo.open_error < 0) {
		topo.open_node = peerdma_impl::first_node(peerdma_impl::named_node());
		return topo;
	}
	const Device device(raw);
	for (uint32_t id : provider_ids(device)) {
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		if (peerdma_provider_get(device.get(), id, &info) == 0)
			topo.providers.push_back(info);
	}
	for (const Function &function : topo.functions)
		for (const std::string &disk : function.disks)
			ask_of(device, disk, function.pci, function.pci, topo);
	for (const OtherDisk &disk : topo.others)
		ask_of(device, disk.name, "", place_of(disk), topo);
	return topo;
}

std::vector<uint32_t> providers_of(const Topology &topo, const Function &function)
{
	std::vector<uint32_t> ids;
	for (const auto &provider : topo.providers)
		if (pci_text(provider.pci_domain, provider.pci_bdf) == function.pci)
			ids.push_back(provider.id);
	return ids;
}

std::string tree_text(const Topology &topo)
{
	std::string text;
	std::vector<std::string> path; // of bridges above
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

// The driver that has a provider's device; empty if it is not known.
std::string publisher(const Topology &topo, const struct peerdma_provider_info &provider)
{
	const Function *function = function_of(topo, pci_text(provider.pci_domain, provider.pci_bdf));
	return function ? function->driver : "";
}

// Those that can be about this provider, whatever else they want.
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

bool consumes(const OpenFile &file) { return counted(file.counters, "buffers"); }

// Of a process's buffers the kernel does not say which providers' they are: where there is one, they are its.
bool is_known(const Topology &topo) { return topo.providers.size() == 1; }

std::string process_text(const OpenFile &file)
{
	return fmt::format("process {} {}: {} in {} buffer{}\n", fmt::join(file.pids, ", "), escaped(file.comm),
			   size_text(counted(file.counters, "buffer-bytes")), counted(file.counters, "buffers"),
			   counted(file.counters, "buffers") == 1 ? "" : "s");
}

std::string processes_text(const Topology &topo, const char *indent)
{
	std::string text;
	for (const OpenFile &file : topo.consumers.files.files)
		if (consumes(file))
			text += indent + process_text(file);
	return text;
}

// Who publishes, by which rules, how much of it is free, and who has the rest.
std::string shares_text(const Topology &topo)
{
	std::string text;
	for (const auto &provider : topo.providers) {
		const std::string driver = publisher(topo, provider),
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
		text += fmt::format("{} processes of others were not looked at\n", topo.consumers.files.unseen);
	if (!topo.fault.empty())
		text += fmt::format("no process gets anything: {}\n", topo.fault);
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
				       {"buffers", counted(file.counters, "buffers")},
				       {"buffer_bytes", counted(file.counters, "buffer-bytes")}});
	return all;
}

Json others_json(const Topology &topo)
{
	Json all = Json::array();
	for (const OtherDisk &disk : topo.others) {
		Json leaves = Json::array();
		for (const Leaf &leaf : disk.leaves)
			leaves.push_back({{"name", leaf.name},
					  {"pci", leaf.pci.empty() ? Json() : Json(leaf.pci)},
					  {"transport", leaf.transport.empty() ? Json() : Json(leaf.transport)}});
		all.push_back({{"disk", disk.name}, {"leaves", leaves}});
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
		const std::string driver = publisher(topo, provider);
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

// In double quotes of DOT a quote and a backslash need a backslash; names come from the kernel.
std::string dot_string(std::string_view text)
{
	std::string out = "\"";
	for (char c : text) {
		if (c == '"' || c == '\\')
			out += '\\';
		out += c;
	}
	return out + "\"";
}

class Child
{
public:
	Child(const char *program, std::vector<const char *> argv, int input, int output)
	{
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
		posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
		argv.push_back(nullptr);
		error_ = ::posix_spawnp(&pid_, program, &actions, nullptr, const_cast<char **>(argv.data()), environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	int error() const { return error_; }
	int wait() const
	{
		int status = 0;
		while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR)
			;
		return status;
	}

private:
	pid_t pid_ = -1;
	int error_;
};

// Files that have no name: what a program reads and writes, whatever the order.
Fd open_memory(const char *name)
{
	const int fd = ::memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		throw Failure{"cannot make a file in memory", errno, 0, "", {}};
	return {peerdma_impl::kernel_env(), fd};
}

// dot does not say whether its own file was written.
void draw(const std::string &source, Output &output)
{
	const Fd input = open_memory("dot"), drawn = open_memory("svg");
	if (const int64_t rc = input.write(source, 0); rc < 0)
		throw Failure{"cannot make a file in memory", static_cast<int>(-rc), 0, "", {}};
	const Child child("dot", {"dot", "-Tsvg"}, input.get(), drawn.get());
	if (child.error())
		throw Failure{"cannot run dot, which draws the picture",
			      child.error(),
			      0,
			      "Install the package graphviz, or take the source of the picture from --dot.",
			      {}};
	const int status = child.wait();
	std::string picture(static_cast<size_t>(std::max<int64_t>(peerdma_impl::kernel_env().size_of(drawn.get()), 0)),
			    '\0');
	const int64_t n = drawn.read(picture, 0);
	if (status || picture.empty() || n != static_cast<int64_t>(picture.size()))
		throw Failure{"dot could not draw the picture", 0, 0, "", {}};
	output.write(picture);
}

} // namespace

std::vector<Function> pci_functions(peerdma_impl::Env &env)
{
	std::vector<std::string> names;
	std::vector<Function> found, ordered;
	env.list_dir("/sys/bus/pci/devices", names);
	for (const std::string &name : names) {
		const std::string dir = pci_devices + name;
		std::string target;
		Function function;
		function.pci = name;
		env.read_link(dir, target);
		const auto path = addresses_in(target);
		// Of those above the nearest that is listed: not all of a guest's bridges are.
		for (auto above = path.rbegin(); function.parent.empty() && above != path.rend(); ++above)
			if (*above != name && std::find(names.begin(), names.end(), *above) != names.end())
				function.parent = *above;
		function.root = root_in(target);
		function.class_name = class_text(line_of(env, dir + "/class"));
		const std::string vendor = line_of(env, dir + "/vendor"), device = line_of(env, dir + "/device");
		if (vendor.size() > 2 && device.size() > 2)
			function.id = vendor.substr(2) + ":" + device.substr(2);
		if (env.read_link(dir + "/driver", target) == 0)
			function.driver = base(target);
		const std::string node = line_of(env, dir + "/numa_node");
		std::from_chars(node.data(), node.data() + node.size(), function.numa_node);
		found.push_back(function);
	}
	add_disks(env, found);
	put(found, "", ordered);
	return ordered;
}

std::vector<OtherDisk> other_disks(peerdma_impl::Env &env)
{
	const Host host{.env = env, .release = ""};
	std::vector<std::string> names;
	std::vector<OtherDisk> others;
	env.list_dir("/sys/block", names);
	for (const std::string &name : names) {
		const std::string size = line_of(env, "/sys/block/" + name + "/size");
		std::string target;
		env.read_link("/sys/block/" + name, target);
		if (name.starts_with("loop") || name.starts_with("ram") || name.starts_with("zram") || size.empty() ||
		    size == "0" || line_of(env, "/sys/block/" + name + "/hidden") == "1" ||
		    !addresses_in(target).empty())
			continue;
		OtherDisk disk{name, {}};
		for (const std::string &leaf : below(host, name).leaves)
			disk.leaves.push_back({leaf, function_of(host, leaf), transport_of(host, leaf)});
		others.push_back(disk);
	}
	return others;
}

std::string topo_dot(const Topology &topo)
{
	std::string text = "digraph topology {\n\trankdir=TB;\n\tnode [shape=box, fontname=\"sans-serif\"];\n"
			   "\tedge [fontname=\"sans-serif\"];\n";
	std::vector<std::string> roots;
	for (const Function &function : topo.functions) {
		std::string label = function.pci + "\\n" + function.class_name, style;
		for (const std::string &disk : function.disks)
			label += "\\ndisk " + disk;
		for (uint32_t id : providers_of(topo, function))
			label += fmt::format("\\nprovider {}", id);
		if (function.numa_node >= 0)
			label += fmt::format("\\nnode {}", function.numa_node);
		if (!function.disks.empty())
			style = ", style=filled, fillcolor=lightblue";
		else if (!providers_of(topo, function).empty())
			style = ", style=filled, fillcolor=lightgreen";
		// The label's line breaks are DOT's own.
		text += fmt::format("\t{} [label=\"{}\"{}];\n", dot_string(function.pci), label, style);
		const std::string &above = function.parent.empty() ? function.root : function.parent;
		if (function.parent.empty() && std::find(roots.begin(), roots.end(), above) == roots.end()) {
			roots.push_back(above);
			text += fmt::format("\t{} [shape=ellipse];\n", dot_string(above));
		}
		text += fmt::format("\t{} -> {} [dir=none];\n", dot_string(above), dot_string(function.pci));
	}
	for (const OtherDisk &disk : topo.others) {
		const std::string node = dot_string("disk " + disk.name);
		text += fmt::format("\t{} [label=\"disk {}\\n{}\", style=filled, fillcolor=lightblue];\n", node,
				    disk.name, place_of(disk));
		for (const Leaf &leaf : disk.leaves)
			if (!leaf.pci.empty())
				text += fmt::format("\t{} -> {} [dir=none, style=dashed];\n", dot_string(leaf.pci),
						    node);
	}
	for (const Pair &pair : topo.pairs) {
		std::string label = verdict_name(pair);
		if (!pair.error && pair.why.distance >= 0)
			label += fmt::format("\\ndistance {}", pair.why.distance);
		if (!pair.error)
			label += fmt::format("\\n{}", pair.why.error ? peerdma_reason_name(pair.why.reason) :
								       peerdma_map_name(pair.why.map));
		text += fmt::format("\t{} -> {} [label=\"{}: {}\", style={}, color={}, constraint=false];\n",
				    dot_string(pair.disk_pci.empty() ? "disk " + pair.disk : pair.disk_pci),
				    dot_string(pair.provider_pci), pair.disk, label, pair.error ? "dotted" : "bold",
				    pair.error               ? "gray" :
				    pair.why.error           ? "red" :
				    why_not_direct(pair.why) ? "orange" :
							       "darkgreen");
	}
	return text + "}\n";
}

Report topo(const TopoOptions &options)
{
	if (options.dot && !options.svg.empty())
		throw Usage{"--dot and --svg exclude each other"};
	std::optional<Output> svg;
	if (!options.svg.empty())
		svg.emplace(options.svg);
	const Topology topo = look();
	Report report;
	report.json = topo_json(topo);
	if (options.dot) {
		report.json["dot"] = report.text = topo_dot(topo);
		return report;
	}
	if (!options.svg.empty()) {
		draw(topo_dot(topo), *svg);
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
