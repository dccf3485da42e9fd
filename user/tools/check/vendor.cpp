// SPDX-License-Identifier: MIT
//
// GPUs that their vendor's driver is using. PeerDMA does not drive those: their memory is registered, or imported as a
// dma-buf, if that driver has published it.

#include "tools/check/check.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

const std::string parameters = "/parameters/";

bool loaded(const Host &host, const std::string &module) { return host.sys.access("/sys/module/" + module, F_OK) == 0; }

// ", NAME=VALUE"; empty if it cannot be read.
std::string parameter(const Host &host, const std::string &module, const std::string &name)
{
	const std::string value = line_of(host.sys, "/sys/module/" + module + parameters + name);
	return value.empty() ? "" : fmt::format(", {}={}", name, value);
}

// How much of it is published by the driver that has it, in bytes; empty if nothing is.
std::string published(const Host &host, const std::string &pci)
{
	return line_of(host.sys, pci_devices + pci + "/p2pmem/size");
}

// All that is missing, each with how to mend it and how to take that back. In brief: the first.
struct Missing {
	std::vector<std::string> what = {}, change = {}, undo = {};
	std::string gist = {}, brief = {};

	void add(std::string missing, const char *in_brief, const Advice &advice)
	{
		if (what.empty()) {
			gist = in_brief;
			brief = advice.brief.empty() ? advice.change : advice.brief;
		}
		what.push_back(std::move(missing));
		change.push_back(advice.change);
		undo.push_back(advice.undo);
	}
};

Missing missing_of_nvidia(const Host &host, const std::string &pci)
{
	Missing missing;
	std::string params;
	host.sys.read_file("/proc/driver/nvidia/params", params);
	const bool fixed = params.find("RMForceStaticBar1=1") != params.npos &&
			   params.find("RmForceDisableIomapWC=1") != params.npos;
	// What is published was fixed and uncombined, whoever said so.
	if (published(host, pci).empty()) {
		const Advice option = nvidia_option(host);
		if (!fixed)
			missing.add("BAR 1 is not fixed and uncombined", "BAR 1 is not static", option);
		if (!loaded(host, "nvidia_uvm"))
			missing.add("nvidia-uvm is not loaded", "nvidia-uvm is not loaded",
				    {"modprobe nvidia-uvm, of CUDA 12.8 (570) or later", "rmmod nvidia_uvm",
				     "modprobe nvidia-uvm"});
		else if (fixed)
			missing.add("nvidia-uvm has not published BAR 1", "BAR 1 is not published",
				    {"install a driver for CUDA 12.8 (570) or later, and reboot",
				     "install the old driver, and reboot", "install driver 570 or later"});
	}
	if (!loaded(host, "peerdma_nvidia"))
		missing.add("peerdma_nvidia is not loaded", "peerdma_nvidia is not loaded",
			    how_to_load(host, "peerdma_nvidia"));
	else if (parameter(host, "peerdma_nvidia", "persistent") == ", persistent=N" &&
		 parameter(host, "peerdma_nvidia", "callback") == ", callback=N")
		missing.add("peerdma_nvidia may register nothing, with neither persistent nor callback",
			    "peerdma_nvidia may register nothing",
			    {"echo Y >/sys/module/peerdma_nvidia/parameters/persistent",
			     "echo N >/sys/module/peerdma_nvidia/parameters/persistent"});
	return missing;
}

Finding check_nvidia(const Host &host, const std::string &pci, Finding finding)
{
	const std::string version = line_of(host.sys, "/proc/driver/nvidia/version");
	if (version.empty())
		return finding.set(State::unknown, "nvidia, whose /proc/driver/nvidia/version cannot be read",
				   "modinfo -F license nvidia says \"Dual MIT/GPL\" of the open module",
				   "it changes nothing");
	if (version.find("Open Kernel Module") == version.npos) {
		finding.gist = "nvidia, the proprietary module";
		return finding.set(State::bad,
				   "nvidia, the proprietary module (" + in_words(PEERDMA_REASON_VENDOR_DRIVER) + ")",
				   open_nvidia(host));
	}
	finding.found = "nvidia, the open module";
	if (const std::string bytes = published(host, pci); !bytes.empty())
		finding.found += fmt::format("; {} of its BAR are published", bytes);
	if (loaded(host, "peerdma_nvidia"))
		finding.found += "; peerdma_nvidia" + parameter(host, "peerdma_nvidia", "persistent") +
				 parameter(host, "peerdma_nvidia", "callback");
	const Missing missing = missing_of_nvidia(host, pci);
	if (!missing.what.empty()) {
		const size_t more = missing.what.size() - 1;
		finding.gist = missing.gist + (more ? fmt::format(" and {} more", more) : "");
		return finding.set(State::warn, fmt::format("{}; {}", finding.found, fmt::join(missing.what, ", ")),
				   {fmt::format("{}", fmt::join(missing.change, "; ")),
				    fmt::format("{}", fmt::join(missing.undo, "; ")), missing.brief});
	}
	finding.found += ": its memory can be registered, which was never tried on a GPU";
	return finding;
}

Finding check_exporter(const Host &host, const std::string &pci, const std::string &driver, Finding finding)
{
	finding.found = driver + parameter(host, driver, driver == "amdgpu" ? "pcie_p2p" : "vram_bar_size");
	if (finding.found == "amdgpu, pcie_p2p=N")
		return finding.set(State::bad, finding.found + ": the driver keeps its memory from other devices",
				   module_option(host, "amdgpu", "pcie_p2p=1"));
	const std::string bytes = published(host, pci);
	const auto packages = driver == "amdgpu" ? amdgpu_packages(host) : std::nullopt;
	finding.gist = bytes.empty() ? driver + " does not publish its BAR" : "";
	if (bytes.empty() && packages)
		return finding.set(State::warn,
				   finding.found + " does not publish its BAR (of its dma-bufs " +
					   in_words(PEERDMA_REASON_VENDOR_UNPUBLISHED) + ")",
				   *packages);
	if (bytes.empty())
		return finding.set(
			State::warn,
			finding.found + " does not publish its BAR (of its dma-bufs " +
				in_words(PEERDMA_REASON_VENDOR_UNPUBLISHED) + ")",
			{other_device + ": no driver for this one is known that does, on " + distribution_of(host).name,
			 "it changes nothing", "another device"});
	finding.found +=
		fmt::format("; {} of its BAR are published: a dma-buf of its memory can be imported, which was "
			    "never tried on a GPU{}",
			    bytes, parameter(host, "peerdma", "revocable_imports"));
	return finding;
}

} // namespace

Advice nvidia_option(const Host &host)
{
	return module_option(host, "nvidia", "NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\"");
}

std::string vendor_driver(const Host &host, const std::string &pci)
{
	const std::string driver = link_name(host.sys, pci_devices + pci + "/driver");
	return driver == "nvidia" || driver == "amdgpu" || driver == "xe" || driver == "i915" ? driver : "";
}

Finding check_vendor(const Host &host, const std::string &pci, const std::string &driver)
{
	Finding finding{
		.id = "driver",
		.about = pci,
		.why = "a vendor's driver keeps its GPU; what it publishes of it PeerDMA registers, or imports"};
	return driver == "nvidia" ? check_nvidia(host, pci, finding) : check_exporter(host, pci, driver, finding);
}

std::optional<VendorGpu> only_vendors(const Host &host, const std::vector<std::string> &devices)
{
	std::optional<VendorGpu> best;
	for (const std::string &pci : devices) {
		const std::string driver = vendor_driver(host, pci);
		if (driver.empty())
			return {};
		if (!best || driver == "nvidia")
			best = {pci, driver};
	}
	return best;
}

std::string how_to_register(const VendorGpu &gpu)
{
	return gpu.driver == "nvidia" ?
		       fmt::format("run a program that registers memory of {} (peerdma-cufile PROGRAM, or "
				   "peerdma_buf_from_gpu())",
				   gpu.pci) :
		       fmt::format("run a program that imports a dma-buf of {} (peerdma_buf_from_dmabuf())", gpu.pci);
}

Advice provide(const Host &host, const std::vector<std::string> &devices)
{
	if (const auto gpu = only_vendors(host, devices))
		return {how_to_register(*gpu), "end the program", fmt::format("register memory of {}", gpu->pci)};
	return {"peerdma publish ADDRESS, the device's as lspci -D prints it", "peerdma unpublish ADDRESS",
		"peerdma publish ADDRESS"};
}

std::string advice_without_provider()
{
	const Host host{peerdma_impl::system_calls(), ""};
	if (const auto gpu = only_vendors(host, candidates(host)))
		return fmt::format(
			"{} is {}'s, which would lose it by peerdma publish. It is a provider while a program "
			"has memory of it, where its driver can do that: {}. This command allocates none there; "
			"peerdma check {} says what is missing. Another device's memory is published with "
			"peerdma publish ADDRESS.",
			gpu->pci, gpu->driver, how_to_register(*gpu), gpu->pci);
	return "Publish a device's memory with peerdma publish, and see it with peerdma providers.";
}

} // namespace cli
