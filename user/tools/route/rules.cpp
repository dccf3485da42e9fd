// SPDX-License-Identifier: MIT
//
// Checks a rules file, and explains which rule decides. For a file of this process use peerdma explain.

#include "common/rules.hpp"

#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/cli/cli.hpp"
#include "tools/cli/output.hpp"

namespace cli
{
namespace
{

using peerdma_impl::Rules;

constexpr const char *verb_names[] = {"allow", "deny", "prefer"};

// Only the default file may be missing.
Rules read(const std::string &path)
{
	const int there = peerdma_impl::system_calls().access(path, F_OK);
	if (there < 0 && path != peerdma_impl::rules_path)
		throw Failure{fmt::format("cannot read {}", path), -there, 0, "", {}};
	Rules rules;
	std::string fault;
	if (peerdma_impl::load_rules(peerdma_impl::system_calls(), path, rules, fault) < 0)
		throw Failure{
			fault, 0, 0, "Until it is fixed, PeerDMA refuses every process that reads these rules.", {}};
	return rules;
}

// Resolves symbolic links in the part of the path that exists: the rules compare the kernel's path of an open file.
std::string without_links(const std::string &path)
{
	std::error_code ignored;
	const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path), ignored);
	return whole.empty() ? path : whole.string();
}

// Parses NAME, ADDRESS or NAME=ADDRESS into the names that the rules compare.
peerdma_impl::DiskName disk_name(const Rules &rules, const std::string &text)
{
	const size_t equals = text.find('=');
	const auto address = PciAddress::parse(equals == std::string::npos ? text : text.substr(equals + 1));
	std::string name = equals != std::string::npos || !address ? text.substr(0, equals) : "";
	if (name.starts_with("/dev/"))
		name = name.substr(5);
	if (equals != std::string::npos && !address)
		throw Usage{fmt::format("rules explain: {}: expected a PCI address after =", text)};
	for (const auto &rule : rules.all()) {
		const bool lacks = (rule.disk_address && !address) || (!rule.disk_name.empty() && name.empty());
		if (lacks)
			throw Usage{fmt::format("rules explain: line {} needs a disk's {}; give --disk NAME=ADDRESS",
						rule.line, address ? "name" : "PCI address")};
	}
	return {name, address.value_or(PciAddress{})};
}

Report check(const std::string &path)
{
	const Rules rules = read(path);
	const bool there = peerdma_impl::system_calls().access(path, F_OK) == 0;
	Report report;
	report.json = {{"ok", true}, {"rules", there ? Json(path) : Json()}, {"count", rules.all().size()}};
	report.text = there ? fmt::format("{}: {} rule{}, without a fault\n", escaped(path), rules.all().size(),
					  rules.all().size() == 1 ? "" : "s") :
			      fmt::format("there is no {}: everything is allowed\n", escaped(path));
	return report;
}

Report explain(const RulesOptions &options, const std::string &path)
{
	auto &sys = peerdma_impl::system_calls();
	const Rules rules = read(path);
	if (options.provider.empty())
		throw Usage{"rules explain: missing --provider, the PCI address of the device"};
	if (options.file.empty() && !options.disks.empty())
		throw Usage{"rules explain: --disk needs --file"};
	if (!options.file.empty() && options.disks.empty() && rules.has_disks())
		throw Usage{"rules explain: these rules have conditions on disks; give --disk for each disk that "
			    "peerdma explain lists"};
	peerdma_impl::RuleQuery question = {peerdma_impl::function_name(sys, device_or_usage(options.provider)),
					    options.cgroup.empty() ? peerdma_impl::own_cgroup(sys) : options.cgroup,
					    {},
					    {},
					    false};
	if (!options.file.empty()) {
		question.file = without_links(options.file);
		question.disks.emplace();
		for (const std::string &disk : options.disks)
			question.disks->push_back(disk_name(rules, disk));
	}
	const peerdma_impl::Rule *rule = rules.decide(question);
	const char *verb = rule ? verb_names[static_cast<int>(rule->verb)] : "allow";
	Report report;
	report.json = {{"ok", true},
		       {"verdict", verb},
		       {"line", rule ? Json(rule->line) : Json()},
		       {"rule", rule ? Json(rule->text) : Json()},
		       {"rules", path},
		       {"provider", question.provider.address.str()},
		       {"file", question.file ? Json(*question.file) : Json()},
		       {"cgroup", question.cgroup.empty() ? Json() : Json(question.cgroup)}};
	report.text = rule ? fmt::format("{}: {}:{}: {}\n", verb, escaped(path), rule->line, rule->text) :
			     fmt::format("allow: no rule of {} fits\n", escaped(path));
	return report;
}

} // namespace

Report rules(const RulesOptions &options)
{
	const std::string path = options.rules.empty() ? peerdma_impl::rules_path : options.rules;
	if (options.action == "explain")
		return explain(options, path);
	if (!options.provider.empty() || !options.file.empty() || !options.cgroup.empty() || !options.disks.empty())
		throw Usage{"rules check: --provider, --file, --disk and --cgroup are only valid with rules explain"};
	return check(path);
}

} // namespace cli
