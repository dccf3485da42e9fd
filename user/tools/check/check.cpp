// SPDX-License-Identifier: MIT
//
// Is this host ready? Each item is looked at on its own, so that one run names everything that is missing. All that is
// read comes from below one root, so that a machine's files can be recorded and looked at elsewhere.

#include "tools/check/check.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/cli/output.hpp"
#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

// Without parameters it can only fail: the errno says whether it would be let in.
int try_uring()
{
	const int error = ::syscall(SYS_io_uring_setup, 1, nullptr) < 0 ? errno : 0;
	return error == EPERM || error == ENOSYS || error == EACCES ? -error : 0;
}

Module ask_module(const Host &host)
{
	Module module;
	struct peerdma_device *raw = nullptr;
	module.open_error = host.recorded ? -EOPNOTSUPP : peerdma_open(&raw, PEERDMA_OPEN_REQUIRE_DIRECT);
	module.device = Device(raw);
	uint32_t ids[64];
	const int count = raw ? peerdma_provider_list(raw, ids, std::size(ids)) : 0;
	for (int i = 0; i < std::min(count, static_cast<int>(std::size(ids))); i++) {
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		if (peerdma_provider_get(raw, ids[i], &info) == 0)
			module.providers.push_back(info);
	}
	return module;
}

Subject parse_targets(const Host &host, const Module &module, const std::vector<std::string> &targets)
{
	std::string path, device;
	for (const std::string &target : targets) {
		const auto address = target.find('/') == target.npos ? PciAddress::parse(target) : std::nullopt;
		std::string &to = address ? device : path;
		if (!to.empty())
			throw Usage{fmt::format(
				"'{}' and '{}' are two of a kind: name one file, disk or mount point, and one PCI "
				"address",
				to, target)};
		to = address ? address->str() : target;
	}
	Subject subject;
	if (path.empty())
		subject.disks = nvme_disks(host);
	else
		subject = subject_of(host, path);
	subject.named_device = !device.empty();
	if (!device.empty())
		subject.devices = {device};
	else if (!module.providers.empty())
		for (const auto &provider : module.providers)
			subject.devices.push_back(pci_text(provider.pci_domain, provider.pci_bdf));
	else
		subject.devices = candidates(host);
	return subject;
}

std::vector<PciPair> pairs_of(const Host &host, const Subject &subject)
{
	std::vector<PciPair> pairs;
	for (const std::string &disk : subject.disks)
		for (const std::string &device : block_stack(host, disk).backing)
			if (const std::string from = function_of(host, device); !from.empty())
				for (const std::string &to : subject.devices)
					pairs.push_back({disk, from, to});
	return pairs;
}

std::vector<Finding> findings_of(const Host &host, const Module &module, const Subject &subject)
{
	const auto pairs = pairs_of(host, subject);
	const auto results = route_results_of(module, subject);
	const Advice how = provide(host, subject.devices);
	std::vector<std::string> functions;
	for (const PciPair &pair : pairs)
		for (const std::string &function : {pair.from, pair.to})
			if (std::find(functions.begin(), functions.end(), function) == functions.end())
				functions.push_back(function);

	std::vector<Finding> findings = {check_kernel(host),
					 check_config(host),
					 check_headers(host, module.open_error),
					 check_signing(host),
					 check_module(host, module.open_error),
					 check_node(host, module.open_error),
					 check_container(host),
					 check_providers(host, module, subject)};
	if (subject.devices.empty())
		findings.push_back(Finding{.id = "bar", .why = "there has to be memory to publish"}.set(
			host.sysfs ? State::bad : State::unknown,
			host.sysfs ? "no device of class display, memory or accelerator has a 64-bit prefetchable BAR" :
				     "not known without /sys",
			"name the device: peerdma check ADDRESS", "it changes nothing"));
	for (const std::string &device : subject.devices) {
		findings.push_back(check_bar(host, device));
		findings.push_back(check_memtype(host, device));
		findings.push_back(check_driver(host, device));
	}
	if (!subject.path.empty())
		findings.push_back(check_filesystem(host, subject));
	for (const auto &check : {check_disks, check_stack, check_multipath, check_rdma})
		findings.push_back(check(host, subject));
	findings.push_back(check_iommu(host, functions));
	findings.push_back(check_acs(host, pairs));
	findings.push_back(check_bridge(host, pairs, results, how));
	for (const RouteResult &result : results)
		findings.push_back(check_route(result, how));
	for (const auto &check : {check_memlock, check_nofile, check_quota, check_uring})
		findings.push_back(check(host));
	return findings;
}

Situation situation_of(const Host &host, const Module &module, const Subject &subject,
		       const std::vector<Finding> &findings)
{
	Situation situation{.no_device = subject.devices.empty() && host.sysfs, .bounces = !module.providers.empty()};
	// libcufile copies CUDA's memory through host memory, with any kernel and without a module.
	for (const std::string &device : subject.devices)
		if (vendor_driver(host, device) == "nvidia")
			situation.bounces = true;
	const auto gpu = only_vendors(host, subject.devices);
	const bool all = std::none_of(findings.begin(), findings.end(), [](const Finding &finding) {
		return finding.id == "driver" && (finding.state == State::good || finding.state == State::unknown);
	});
	if (gpu && all)
		situation.blocked = gpu->pci;
	return situation;
}

} // namespace

Finding &Finding::set(State to, std::string what, std::string how, std::string back)
{
	state = to;
	found = std::move(what);
	change = std::move(how);
	undo = std::move(back);
	return *this;
}

Finding &Finding::set(State to, std::string what, const Advice &advice)
{
	brief = advice.brief;
	return set(to, std::move(what), advice.change, advice.undo);
}

Report report_of(const std::vector<Finding> &findings, const Situation &situation, bool verbose)
{
	Report report;
	bool ready = true;
	report.json = {{"ok", true}, {"ready", true}, {"items", Json::array()}};
	for (const Finding &finding : findings) {
		const bool good = finding.state == State::good;
		ready = ready && finding.state != State::bad;
		// What a route is of its text says already.
		const std::string about =
			finding.about.empty() || finding.found.starts_with(finding.about) ? "" : finding.about + ": ";
		auto row = [&](const char *key, const std::string &value) {
			report.text += fmt::format("           {:<8}{}\n", key, escaped(value));
		};
		report.text += fmt::format("{:<9}{:<11}{}{}\n", state_name(finding.state), finding.id, escaped(about),
					   escaped(finding.found));
		row("why", finding.why);
		if (!good) {
			row("change", finding.change);
			row("undo", finding.undo);
		}
		report.json["items"].push_back({{"id", finding.id},
						{"about", finding.about.empty() ? Json() : Json(finding.about)},
						{"state", state_name(finding.state)},
						{"found", finding.found},
						{"why", finding.why},
						{"change", finding.change},
						{"undo", finding.undo}});
	}
	report.json["ready"] = ready;
	report.text += ready ? "ready\n" : "not ready\n";
	report.text = verbose ? headline_of(findings, situation) + "\n" + report.text : summary_of(findings, situation);
	report.status = ready ? exit_ok : exit_failed;
	return report;
}

Finding check_files(const Host &host, const HostFiles &files)
{
	constexpr size_t most = 64;
	std::vector<std::string> list;
	for (const auto &[path, why] : files.unread())
		if (list.size() < most)
			list.push_back(fmt::format("{}: {}", path, why));
	if (const size_t more = files.unread().size() - list.size())
		list.push_back(fmt::format("{} more", more));
	Finding finding{.id = "files", .why = "what is in them is not known, and was taken as missing"};
	return finding.set(State::unknown, fmt::format("not read: {}", fmt::join(list, "; ")),
			   host.recorded ?
				   "record them again, with regular files, directories and symbolic links only" :
				   "ls -lL shows what they are; move them away, and ask again",
			   host.recorded ? "it changes nothing" : "move them back");
}

Report check(const CheckOptions &options)
{
	const bool recorded = !options.root.empty();
	HostFiles sys(recorded ? peerdma_impl::kernel_syscalls() : peerdma_impl::system_calls(), options.root);
	if (recorded && sys.access("/proc", F_OK) < 0)
		throw Failure{fmt::format("{} is no record of a machine", options.root),
			      ENOENT,
			      0,
			      "It has folders proc, sys and dev.",
			      {}};
	Host host{sys, line_of(sys, "/proc/sys/kernel/osrelease"), sys.access("/sys/module", F_OK) == 0, recorded};
	if (!recorded)
		host.uring = try_uring();
	const Module module = ask_module(host);
	const Subject subject = parse_targets(host, module, options.targets);
	auto findings = findings_of(host, module, subject);
	if (!sys.unread().empty())
		findings.push_back(check_files(host, sys));
	return report_of(findings, situation_of(host, module, subject, findings), options.verbose);
}

} // namespace cli
