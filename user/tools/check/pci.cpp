// SPDX-License-Identifier: MIT
//
// What lies between a disk and a device, and what the device has to offer: IOMMU, ACS, host bridge, BARs, drivers.

#include "tools/check/check.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/pci_regs.h>
#include <unistd.h>

#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

constexpr uint64_t publish_step = 2 << 20;   // x86: the steps that the kernel lays out its page structures in
constexpr uint64_t small_window = 256 << 20; // what GPUs have whose firmware did not resize the BAR
constexpr size_t most_types = 8;             // the kernel has six
const char memtype_list[] = "/sys/kernel/debug/x86/pat_memtype_list";

enum class Redirect { no, yes, unknown };

uint32_t word_at(const std::string &config, size_t at)
{
	uint32_t value = 0;
	for (size_t i = 0; i < 4; i++)
		value |= uint32_t{static_cast<unsigned char>(config[at + i])} << (8 * i);
	return value;
}

// Does its ACS send requests up that another function below the same bridge is meant to have? As the kernel asks it
// before it lets two functions talk by bus address.
Redirect redirect_of(const Host &host, const std::string &pci)
{
	std::string config;
	if (host.sys.read_file(pci_devices + pci + "/config", config) < 0)
		return Redirect::unknown;
	// PCI Express has 4096 bytes of it; who is not root gets 64, conventional PCI has 256.
	if (config.size() < PCI_CFG_SPACE_EXP_SIZE)
		return config.size() == PCI_CFG_SPACE_SIZE ? Redirect::no : Redirect::unknown;
	size_t at = PCI_CFG_SPACE_SIZE;
	// Each capability is eight bytes at least: a chain that is longer runs in a circle.
	for (int left = (PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE) / 8; at >= PCI_CFG_SPACE_SIZE && left; left--) {
		const uint32_t header = word_at(config, at);
		if (PCI_EXT_CAP_ID(header) == PCI_EXT_CAP_ID_ACS && at + 8 <= config.size()) {
			const uint32_t control =
				word_at(config, at + PCI_ACS_CAP) >> (8 * (PCI_ACS_CTRL - PCI_ACS_CAP));
			return control & (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC) ? Redirect::yes : Redirect::no;
		}
		at = PCI_EXT_CAP_NEXT(header);
	}
	return Redirect::no;
}

// The kernel trusts all host bridges of AMD's from Zen on, and others by a list of its own.
bool is_amd_zen(const Host &host)
{
	std::string info;
	host.sys.read_file("/proc/cpuinfo", info);
	const size_t family = info.find("cpu family\t: ");
	return info.find("vendor_id\t: AuthenticAMD\n") != info.npos && family != info.npos &&
	       std::atoi(&info[family + sizeof("cpu family\t: ") - 1]) >= 0x17;
}

std::string joined(const std::vector<std::string> &list) { return fmt::format("{}", fmt::join(list, ", ")); }

// As resource*_resize of sysfs counts sizes: 2^n MiB.
int order_of(uint64_t bytes)
{
	int order = 0;
	while (order < 43 && uint64_t{1} << (order + 20) < bytes)
		order++;
	return order;
}

// The largest size that a BAR can be given; 0 if it cannot be resized.
uint64_t largest_size(const Host &host, const std::string &pci, int bar)
{
	const std::string sizes = line_of(host.sys, fmt::format("{}{}/resource{}_resize", pci_devices, pci, bar));
	const uint64_t bits = std::strtoull(sizes.c_str(), nullptr, 16);
	uint64_t largest = 0;
	for (unsigned n = 0; n < 44; n++)
		if (bits >> n & 1)
			largest = uint64_t{1} << (n + 20);
	return largest;
}

const Bar *widest(const std::vector<Bar> &bars)
{
	const Bar *best = nullptr;
	for (const Bar &bar : bars)
		if (bar.wide() && (!best || bar.len > best->len))
			best = &bar;
	return best;
}

// What the kernel has mapped of a range by now, by type: "uncached-minus", "write-combining"... False if it cannot be read.
bool types_of(const Host &host, uint64_t start, uint64_t end, std::vector<std::string> &types, int &error)
{
	std::string text, line;
	if ((error = host.sys.read_file(memtype_list, text)) < 0)
		return false;
	std::istringstream lines(text);
	while (std::getline(lines, line)) {
		unsigned long long from, to;
		char type[32];
		// The second address is that of the byte behind.
		if (std::sscanf(line.c_str(), "PAT: [mem 0x%llx-0x%llx] %31s", &from, &to, type) == 3 && from < end &&
		    to > start && types.size() < most_types &&
		    std::find(types.begin(), types.end(), type) == types.end())
			types.push_back(type);
	}
	return true;
}

const std::string firmware = "in the firmware's setup switch on \"Above 4G Decoding\" and \"Resizable BAR\"",
		  back = "switch them off again", switch_on = "firmware: Resizable BAR, above 4G";

} // namespace

PciPath path_between(const Host &host, const std::string &from, const std::string &to)
{
	PciPath way;
	const auto a = pci_path(host.sys, from), b = pci_path(host.sys, to);
	if (a.empty() || b.empty())
		return way;
	way.known = true;
	const auto parting = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
	if (parting.first == a.begin())
		return way; // not even a root port
	way.common = *(parting.first - 1);
	std::vector<std::string> functions = {way.common};
	functions.insert(functions.end(), parting.first, a.end());
	functions.insert(functions.end(), parting.second, b.end());
	for (const std::string &function : functions) {
		const Redirect redirect = redirect_of(host, function);
		if (redirect == Redirect::yes)
			way.redirecting.push_back(function);
		else if (redirect == Redirect::unknown)
			way.hidden.push_back(function);
	}
	return way;
}

std::vector<std::string> candidates(const Host &host)
{
	std::vector<std::string> names, found;
	host.sys.list_dir("/sys/bus/pci/devices", names);
	for (const std::string &pci : names) {
		// Of base class display, memory or accelerator.
		const std::string code = line_of(host.sys, pci_devices + pci + "/class").substr(0, 4);
		const auto bars = bars_of(host.sys, pci);
		const Bar *bar = widest(bars);
		if ((code == "0x03" || code == "0x05" || code == "0x12" ||
		     link_name(host.sys, pci_devices + pci + "/driver") == "peerdma") &&
		    bar && bar->len >= publish_step)
			found.push_back(pci);
	}
	return found;
}

Finding check_iommu(const Host &host, const std::vector<std::string> &functions)
{
	Finding finding{.id = "iommu",
			.why = "a translating IOMMU sends traffic between devices up to the host bridge"};
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	std::vector<std::string> units, groups;
	if (host.sys.list_dir("/sys/class/iommu", units) < 0 || units.empty()) {
		finding.found = "off: devices use physical addresses";
		return finding;
	}
	// Those of the functions in question; of all if there is no question.
	for (const std::string &pci : functions)
		groups.push_back(pci_devices + pci + "/iommu_group");
	if (groups.empty()) {
		host.sys.list_dir("/sys/kernel/iommu_groups", groups);
		for (std::string &group : groups)
			group = "/sys/kernel/iommu_groups/" + group;
	}
	size_t translated = 0, identity = 0;
	for (const std::string &group : groups) {
		const std::string type = line_of(host.sys, group + "/type");
		identity += type == "identity";
		translated += !type.empty() && type != "identity";
	}
	const std::string what = functions.empty() ? "groups" : "functions", line = line_of(host.sys, "/proc/cmdline");
	if (!translated && !identity)
		return finding.set(State::unknown, fmt::format("{} on; what it does is not known", units.front()),
				   "cat /sys/kernel/iommu_groups/*/type, as root", "it changes nothing");
	if (!translated) {
		finding.found =
			fmt::format("passthrough: {} on, none of {} {} translated", units.front(), identity, what);
		return finding;
	}
	const Advice off = kernel_parameter(host, "iommu=pt");
	return finding.set(
		State::warn,
		fmt::format("translated: {} on, {} of {} {} translated", units.front(), translated,
			    translated + identity, what),
		{"reads may still be direct (see route); if not, " + off.change, off.undo, "see route; " + off.brief});
}

Finding check_acs(const Host &host, const std::vector<PciPair> &pairs)
{
	Finding finding{
		.id = "acs",
		.why = "ACS on a switch sends what one port has for another up to the host bridge, which must then "
		       "be one that the kernel trusts; without it the devices below reach each other unwatched by "
		       "the IOMMU"};
	const std::string root = "run this as root: only root sees these registers";
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	if (pairs.empty()) {
		finding.found = "there is no pair of a disk and a device to look at";
		return finding;
	}
	std::vector<std::string> redirecting, hidden;
	size_t known = 0, switched = 0;
	auto add = [](std::vector<std::string> &to, const std::vector<std::string> &some) {
		for (const std::string &one : some)
			if (std::find(to.begin(), to.end(), one) == to.end())
				to.push_back(one);
	};
	for (const PciPair &pair : pairs) {
		const PciPath way = path_between(host, pair.from, pair.to);
		known += way.known;
		switched += !way.common.empty();
		add(redirecting, way.redirecting);
		add(hidden, way.hidden);
	}
	if (!known)
		return finding.set(State::unknown, "what is above disk and device is not in /sys", "lspci -t",
				   "it changes nothing");
	if (!redirecting.empty()) {
		return finding.set(
			State::warn, fmt::format("redirects at {}", joined(redirecting)),
			kernel_parameter(host, fmt::format("pci=disable_acs_redir={}", fmt::join(redirecting, ";"))));
	}
	if (!hidden.empty())
		return finding.set(State::unknown, fmt::format("cannot be read of {}", joined(hidden)), root,
				   "it changes nothing");
	finding.found = switched ? "does not redirect between disk and device" :
				   "does not matter: disk and device have no switch in common";
	return finding;
}

Finding check_bridge(const Host &host, const std::vector<PciPair> &pairs, const std::vector<RouteResult> &results,
		     const Advice &how)
{
	Finding finding{
		.id = "bridge",
		.why = "traffic that no switch turns around crosses the host bridge; the kernel lets it only if it "
		       "knows the bridge to forward it"};
	// The kernel's own word, where there is one.
	size_t distant = 0, crossed = 0, direct = 0;
	for (const RouteResult &result : results) {
		if (result.error < 0)
			continue;
		const uint32_t map = result.why.map;
		distant += result.why.error && result.why.reason == PEERDMA_REASON_DISTANCE;
		crossed += !result.why.error && (map == PEERDMA_MAP_HOST_BRIDGE || map == PEERDMA_MAP_IOVA);
		direct += !result.why.error && map == PEERDMA_MAP_BUS_ADDR;
	}
	if (distant)
		return finding.set(State::bad,
				   "the kernel does not trust it (" + in_words(PEERDMA_REASON_DISTANCE) + ")",
				   peerdma_reason_advice(PEERDMA_REASON_DISTANCE), "put the cards back");
	if (crossed || direct) {
		finding.found =
			crossed ? "the kernel trusts it" : "not crossed: the kernel says that a switch turns around";
		return finding;
	}
	size_t inside = 0, known = 0;
	for (const PciPair &pair : pairs) {
		const PciPath way = path_between(host, pair.from, pair.to);
		known += way.known;
		inside += way.inside() && way.hidden.empty();
	}
	if (known && inside == pairs.size()) {
		finding.found = "not crossed: a switch is above both, and turns around";
		return finding;
	}
	if (is_amd_zen(host)) {
		finding.found = "of an AMD CPU from Zen on, all of which the kernel trusts";
		return finding;
	}
	return finding.set(State::unknown,
			   pairs.empty() ? "no pair of a disk and a device to ask about" :
					   "the kernel's list can be asked through the module only",
			   "load the module, " + how.change + ", and ask again", how.undo + ", rmmod peerdma");
}

Finding check_bar(const Host &host, const std::string &pci)
{
	Finding finding{
		.id = "bar",
		.about = pci,
		.why = "only memory in a 64-bit prefetchable BAR, in steps of 2 MiB, can be published, and no more "
		       "than the BAR shows"};
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	const auto bars = bars_of(host.sys, pci);
	const Bar *bar = widest(bars);
	if (!bar)
		return finding.set(State::bad,
				   bars.empty() ? "no memory BAR is assigned" : "no BAR is 64-bit and prefetchable",
				   {firmware, back, switch_on});
	const std::string what = fmt::format("BAR {}, {}, 64-bit, prefetchable", bar->number, size_text(bar->len));
	if (bar->len < publish_step)
		return finding.set(State::bad, what + ": too small to be published", {firmware, back, switch_on});
	const uint64_t largest = largest_size(host, pci, bar->number);
	if (largest > bar->len) {
		const std::string file = fmt::format("{}{}/resource{}_resize", pci_devices, pci, bar->number);
		return finding.set(
			State::warn, fmt::format("{}, of {} that it could show", what, size_text(largest)),
			{fmt::format("{}; or, with no driver bound, echo {} >{}", firmware, order_of(largest), file),
			 fmt::format("{}; or echo {} >{}", back, order_of(bar->len), file), switch_on});
	}
	if (!largest && bar->len <= small_window && line_of(host.sys, pci_devices + pci + "/class").starts_with("0x03"))
		return finding.set(State::warn,
				   what + ": a window of a GPU's memory, which cannot be resized from here",
				   {firmware, back, switch_on});
	finding.found = what + (largest ? ", resized to all that it can show" : ", not resizable");
	return finding;
}

Finding check_memtype(const Host &host, const std::string &pci)
{
	Finding finding{.id = "memtype",
			.about = pci,
			.why = "what is published is mapped uncached, and the kernel has one type for all mappings of "
			       "a page"};
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	const auto bars = bars_of(host.sys, pci);
	const Bar *bar = widest(bars);
	std::vector<std::string> types;
	int error = 0;
	if (!bar)
		return finding.set(State::unknown, "there is no 64-bit prefetchable BAR to look at", firmware, back);
	if (!types_of(host, bar->start, bar->start + bar->len, types, error))
		return finding.set(
			State::unknown, fmt::format("{} cannot be read ({})", memtype_list, errno_name(-error)),
			error == -EACCES || error == -EPERM ?
				"run this as root" :
				"mount -t debugfs debugfs /sys/kernel/debug, and ask again as root; only "
				"kernels for x86 have it",
			error == -EACCES || error == -EPERM ? "it changes nothing" : "umount /sys/kernel/debug");
	const std::string what = fmt::format("BAR {}: {}", bar->number, types.empty() ? "not mapped" : joined(types));
	if (std::all_of(types.begin(), types.end(), [](const auto &type) { return type.starts_with("uncached"); })) {
		finding.found = what;
		return finding;
	}
	const std::string driver = link_name(host.sys, pci_devices + pci + "/driver");
	if (driver == "nvidia") {
		return finding.set(State::warn, what + ": " + in_words(PEERDMA_REASON_VENDOR_WC), nvidia_option(host));
	}
	// Who gives its memory away as dma-bufs has to stay.
	if (!vendor_driver(host, pci).empty())
		return finding.set(State::warn,
				   what + ", by " + driver + ": " + in_words(PEERDMA_REASON_VENDOR_WC) +
					   ", for its dma-bufs",
				   other_device, "it changes nothing");
	if (!driver.empty())
		return finding.set(
			State::warn, what + ", by " + driver,
			{fmt::format("echo {} >/sys/bus/pci/drivers/{}/unbind; programs of {} lose the device", pci,
				     driver, driver),
			 fmt::format("echo {} >/sys/bus/pci/drivers_probe", pci), "unbind it, see --verbose"});
	return finding.set(State::warn, what + ", by no driver of the device: a console's framebuffer does that",
			   kernel_parameter(host, "initcall_blacklist=sysfb_init"));
}

Finding check_driver(const Host &host, const std::string &pci)
{
	Finding finding{
		.id = "driver", .about = pci, .why = "PeerDMA publishes the memory of a device that it drives itself"};
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	if (host.sys.access(pci_devices + pci + "/class", F_OK) < 0)
		return finding.set(State::bad, "there is no such function", "lspci -D lists them",
				   "it changes nothing");
	const std::string driver = link_name(host.sys, pci_devices + pci + "/driver");
	if (driver.empty() || driver == "peerdma") {
		finding.found = driver.empty() ? "none is bound" : "peerdma";
		return finding;
	}
	if (!vendor_driver(host, pci).empty())
		return check_vendor(host, pci, driver);
	return finding.set(
		State::warn, driver + " has it, and does not share it",
		{fmt::format("peerdma publish {} --force takes it; programs of {} lose the device", pci, driver),
		 fmt::format("peerdma unpublish {0}; echo {0} >/sys/bus/pci/drivers_probe", pci),
		 fmt::format("peerdma publish {} --force", pci)});
}

} // namespace cli
