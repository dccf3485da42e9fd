// SPDX-License-Identifier: MIT
//
// What the module says: the kernel's own word on each disk and provider.

#include "tools/check/check.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

#include "common/node.hpp"

namespace cli
{
namespace
{

// Of two answers the one that is worth more: direct, by software, refused, none.
int rank(const RouteResult &result)
{
	if (result.error < 0)
		return 0;
	return result.why.error ? 1 : result.why.map == PEERDMA_MAP_SOFTWARE ? 2 : 3;
}

RouteResult ask_best(const Module &module, const Subject &subject, const std::string &disk, const std::string &path)
{
	RouteResult best{.disk = disk, .error = -ENOENT};
	struct peerdma_file *opened = nullptr;
	const int rc = peerdma_file_open(module.device.get(), path.c_str(), O_RDONLY, &opened);
	const File file(opened);
	if (rc < 0) {
		best.error = rc;
		return best;
	}
	for (const auto &provider : module.providers) {
		if (subject.named_device && pci_text(provider.pci_domain, provider.pci_bdf) != subject.devices.front())
			continue;
		RouteResult one{.disk = disk, .error = 0, .provider = provider};
		one.why.size = sizeof(one.why);
		one.error = peerdma_explain(file.get(), provider.id, &one.why);
		if (rank(one) > rank(best) || best.error == -ENOENT)
			best = one;
	}
	return best;
}

// None is published: what would be one.
Finding without_provider(const Host &host, const Subject &subject, Finding finding)
{
	const Advice how = provide(host, subject.devices);
	const auto gpu = only_vendors(host, subject.devices);
	if (!gpu) {
		finding.gist = "no device has published memory";
		return finding.set(State::bad, "none is published", how);
	}
	const Finding driver = check_driver(host, gpu->pci);
	if (driver.state != State::good) {
		finding.gist = fmt::format("none, see driver of {}", gpu->pci);
		return finding.set(
			State::bad,
			fmt::format("none is published, and memory of {} cannot be registered yet", gpu->pci),
			{driver.change, driver.undo, driver.brief});
	}
	finding.found = fmt::format("none now: {} is one while a program has registered memory of it", gpu->pci);
	return finding;
}

} // namespace

std::string in_words(uint32_t reason)
{
	return fmt::format("{}: {}", peerdma_reason_name(reason), peerdma_reason_text(reason));
}

std::vector<RouteResult> route_results_of(const Module &module, const Subject &subject)
{
	std::vector<RouteResult> results;
	if (!module.device)
		return {{.error = -ENODEV}};
	// A directory has no way of its own; a file in it goes as its disk does.
	if (!subject.path.empty() && subject.directory && subject.disks.empty())
		results.push_back({.disk = subject.path, .error = -EISDIR});
	else if (!subject.path.empty() && !subject.directory)
		results.push_back(ask_best(module, subject, subject.path, subject.path));
	else
		for (const std::string &disk : subject.disks)
			results.push_back(ask_best(module, subject, disk, "/dev/" + disk));
	return results;
}

Finding check_providers(const Host &host, const Module &module, const Subject &subject)
{
	Finding finding{.id = "providers", .why = "files are read into the memory of a device that has published it"};
	if (host.recorded)
		return finding.set(State::unknown, "a record does not say", "peerdma providers, on the machine",
				   "it changes nothing");
	if (!module.device)
		return finding.set(State::unknown,
				   fmt::format("not known: cannot open {} ({})",
					       peerdma_impl::first_node(peerdma_impl::named_node()),
					       errno_name(-module.open_error)),
				   "see node, and ask again", "see node");
	if (module.providers.empty())
		return without_provider(host, subject, finding);
	for (const auto &provider : module.providers)
		finding.found += fmt::format("{}{}, {}", finding.found.empty() ? "" : "; ",
					     pci_text(provider.pci_domain, provider.pci_bdf), size_text(provider.len));
	return finding;
}

Finding check_route(const RouteResult &result, const Advice &how)
{
	Finding finding{.id = "route", .about = result.disk, .why = "this is the kernel's own word on the pair"};
	const auto &why = result.why;
	if (result.disk.empty())
		return finding.set(State::unknown, "only the module can ask the kernel",
				   "load the module, " + how.change + ", and ask again", how.undo + ", rmmod peerdma");
	if (result.error == -ENOENT && !result.provider.id)
		return finding.set(State::unknown, result.disk + ": no such provider to ask about",
				   how.change + ", and ask again", how.undo);
	if (result.error < 0)
		return finding.set(State::unknown,
				   fmt::format("{}: cannot ask ({})", result.disk, errno_name(-result.error)),
				   result.error == -EISDIR ? "name a file in it" : "run peerdma check as root",
				   "it changes nothing");
	const std::string advice = peerdma_reason_advice(why.reason);
	if (why.error)
		return finding.set(State::bad, fmt::format("{}: no ({})", result.disk, in_words(why.reason)),
				   advice.empty() ? "peerdma explain says more" : advice, "as before");
	if (why.map == PEERDMA_MAP_SOFTWARE)
		return finding.set(State::warn,
				   fmt::format("{}: by software to provider {} ({})", result.disk, result.provider.id,
					       in_words(PEERDMA_REASON_RDMA_SOFTWARE)),
				   peerdma_reason_advice(PEERDMA_REASON_RDMA_SOFTWARE), "as before");
	finding.found = fmt::format("{}: direct to provider {}, distance {}, {}", result.disk, result.provider.id,
				    why.distance, peerdma_map_name(why.map));
	return finding;
}

} // namespace cli
