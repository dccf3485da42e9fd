// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/syscalls.hpp"
#include "tools/check/host_files.hpp"
#include "tools/cli/cli.hpp"

namespace cli
{

// What only sysfs tells, where a container has none, and the way back.
inline const std::string with_sysfs = "start the container with --volume /sys:/sys:ro, and ask again",
			 without_sysfs = "start it without";
// Where nothing that is changed here would help: another device has to be named.
inline const std::string other_device = "peerdma check FILE ADDRESS, with another device of those that lspci -D lists";

// Something to do, and how it is undone.
struct Advice {
	std::string change, undo;
	std::string brief = {}; // the change in a few words; empty: the change is short
};

// One thing a host needs. The change is exact: something a person can type or write.
struct Finding {
	std::string id = {};    // stable, for programs
	std::string about = {}; // the disk or PCI function that it is of; empty: the host
	State state = State::good;
	std::string found = {};  // what is the case
	std::string why = {};    // why it matters
	std::string change = {}; // how to mend it; empty when good
	std::string undo = {};   // how to take the change back; empty when good
	std::string gist = {};   // what is the case, in a few words, for the summary; empty: all of it
	std::string brief = {};  // the change in a few words, likewise

	Finding &set(State to, std::string what, std::string how, std::string back);
	Finding &set(State to, std::string what, const Advice &advice);
};

// What the look at the machine goes through; tests put a made-up machine there.
struct Host {
	peerdma_impl::Syscalls &sys;
	std::string release;           // of the running kernel, as uname -r
	bool sysfs = true;             // a container may have none
	bool recorded = false;         // files of another machine: nothing but they can be asked
	std::optional<int> uring = {}; // -errno of setting up an io_uring, 0 if it would work
};

// What is looked at: what was named, or all that the host has.
struct Subject {
	std::string path = {};                     // the file, disk or mount point that was named, empty if none
	std::string filesystem = {}, options = {}; // of it; "block" for a disk
	std::vector<std::string> disks = {};       // by name: nvme0n1, md0
	std::vector<std::string> devices = {};     // PCI addresses of functions that have published memory, or may
	bool named_device = false, directory = false;
};

// The module, if it can be asked.
struct Module {
	int open_error = 0; // -errno of peerdma_open()
	Device device;
	std::vector<struct peerdma_provider_info> providers;
};

// What the module says of a disk, or the file that was named, and the best provider for it.
struct RouteResult {
	std::string disk = {}; // empty: there is no module to ask
	int error = 0;         // -errno: it could not be asked
	struct peerdma_provider_info provider = {};
	struct peerdma_explanation why = {};
};

// "NAME: what it means": a reason that the module would give, in the library's words. Its advice is the library's as well.
std::string in_words(uint32_t reason);

// A GPU that its vendor's driver is using.
struct VendorGpu {
	std::string pci, driver;
};

// A disk's PCI function and another one.
struct PciPair {
	std::string disk, from, to;
};

// How two PCI functions are connected, as far as their bridges tell.
struct PciPath {
	bool known = false;
	std::string common;                   // the nearest bridge above both; empty: only the host bridge is
	std::vector<std::string> redirecting; // functions on it whose ACS sends what should turn at the bridge upwards
	std::vector<std::string> hidden;      // whose ACS cannot be read
	bool inside() const { return known && !common.empty() && redirecting.empty(); }
};

// Distributions whose advice is the same.
enum class Family { unknown, debian, ubuntu, redhat, fedora, suse, arch };

// What the host's os-release says.
struct Distribution {
	Family family = Family::unknown;
	bool itself = false; // the family's own, or a rebuild of it; not one that is like it
	std::string id = {}, name = {}, version = {};
};

// --- The distribution
Distribution distribution_of(const Host &host);
Advice get_kernel(const Host &host); // one that the module was run on
Advice get_headers(const Host &host);
Advice kernel_parameter(const Host &host, const std::string &parameter);
// An option of another's module, which may load before the root filesystem is there.
Advice module_option(const Host &host, const std::string &module, const std::string &option);
Advice open_nvidia(const Host &host);                    // NVIDIA's open kernel modules
std::optional<Advice> amdgpu_packages(const Host &host); // AMD's own driver, where AMD has packages of it
Advice install_packages(const Host &host);               // module, library and command of one release
Advice sign_module(const Host &host);
Advice enroll_key(const Host &host); // with which DKMS signs

// --- The kernel
Finding check_kernel(const Host &host);
Finding check_config(const Host &host);
Finding check_headers(const Host &host, int open_error);
Finding check_module(const Host &host, int open_error);
Finding check_signing(const Host &host);
// How one of our modules is loaded: by its name, if it was installed for this kernel or DKMS has its source.
Advice how_to_load(const Host &host, const std::string &name);

// --- PCI
PciPath path_between(const Host &host, const std::string &from, const std::string &to);
std::vector<std::string> candidates(const Host &host); // functions whose memory may be worth publishing
Finding check_iommu(const Host &host, const std::vector<std::string> &functions);
Finding check_acs(const Host &host, const std::vector<PciPair> &pairs);
Finding check_bridge(const Host &host, const std::vector<PciPair> &pairs, const std::vector<RouteResult> &results,
		     const Advice &step);
Finding check_bar(const Host &host, const std::string &pci);
Finding check_memtype(const Host &host, const std::string &pci);
Finding check_driver(const Host &host, const std::string &pci);

// --- GPUs that their vendor's driver is using
Advice nvidia_option(const Host &host);                              // what its driver has to be told
std::string vendor_driver(const Host &host, const std::string &pci); // its name; empty if it is no such driver
Finding check_vendor(const Host &host, const std::string &pci, const std::string &driver);
// One of them, if all devices are such: nobody should be told to publish those.
std::optional<VendorGpu> only_vendors(const Host &host, const std::vector<std::string> &devices);
// What makes a provider of one of the devices.
Advice provide(const Host &host, const std::vector<std::string> &devices);

// --- Storage
// NVMe disks by name, of PCI and over RDMA: what can reach peer memory today.
std::vector<std::string> nvme_disks(const Host &host);
// The disks that a disk is made of in the end, down to the paths of NVMe multipath; in between those that are neither.
struct BlockStack {
	std::vector<std::string> backing, layers;
};
BlockStack block_stack(const Host &host, const std::string &disk);
std::string function_of(const Host &host, const std::string &device);  // its PCI address; empty if it has none
std::string transport_of(const Host &host, const std::string &device); // "pcie", "rdma" ...; empty if it is not NVMe
Finding check_disks(const Host &host, const Subject &subject);
Finding check_multipath(const Host &host, const Subject &subject);
Finding check_stack(const Host &host, const Subject &subject);
Finding check_filesystem(const Host &host, const Subject &subject);
Finding check_rdma(const Host &host, const Subject &subject);
// What a path is on: the filesystem, and the disk below it.
Subject subject_of(const Host &host, const std::string &path);

// --- Who asks
Finding check_node(const Host &host, int open_error);
Finding check_container(const Host &host);
Finding check_uring(const Host &host);
Finding check_memlock(const Host &host);
Finding check_nofile(const Host &host);
Finding check_quota(const Host &host);

// What was there and could not be read.
Finding check_files(const Host &host, const HostFiles &files);

// --- What the module says
std::vector<RouteResult> route_results_of(const Module &module, const Subject &subject);
Finding check_providers(const Host &host, const Module &module, const Subject &subject);
Finding check_route(const RouteResult &result, const Advice &step);

// --- What is printed
// What the headline depends on beside the findings.
struct Situation {
	bool no_device = false;   // the host has no device whose memory could be published
	bool bounces = false;     // without a direct route, bytes of a GPU or provider still go through host memory
	std::string blocked = {}; // the GPU that keeps memory from being registered, if all devices are GPUs that do
};
// The first line: whether direct I/O works on this host, and if not, whether bytes can be bounced, and why.
std::string headline_of(const std::vector<Finding> &findings, const Situation &situation);
// At most one screen: the headline and what is bad, each in a line with its remedy.
std::string summary_of(const std::vector<Finding> &findings, const Situation &situation);
Report report_of(const std::vector<Finding> &findings, const Situation &situation, bool verbose);

} // namespace cli
