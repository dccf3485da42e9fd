// SPDX-License-Identifier: MIT
#include "cufile/platform/numa_affinity.hpp"

#include <charconv>
#include <new>
#include <optional>

#include "cufile/platform/pci_topology.hpp"

namespace cufile
{
namespace
{

// "0-3,8", as in sysfs.
Cpus parse_cpus(const std::string &text)
{
	Cpus cpus;
	const char *at = text.data(), *const end = at + text.size();
	while (at < end) {
		size_t first = 0;
		auto [stop, error] = std::from_chars(at, end, first);
		if (error != std::errc())
			break;
		size_t last = first;
		if (stop < end && *stop == '-')
			stop = std::from_chars(stop + 1, end, last).ptr;
		for (size_t cpu = first; cpu <= last && cpu < cpus.size(); cpu++)
			cpus.set(cpu);
		at = stop + 1;
	}
	return cpus;
}

// Of a library thread: its CPUs at creation, and the CPUs it is bound to.
struct ThreadBinding {
	std::optional<Cpus> allowed, now;
	int device = -1;
};
thread_local ThreadBinding binding;

} // namespace

NumaAffinity::Locality NumaAffinity::locality_of(int device)
{
	const std::lock_guard guard(lock_);
	const auto found = known_.find(device);
	if (found != known_.end())
		return found->second;
	Locality fresh;
	const std::string folder = pci_folder(cuda_, device);
	std::string cpus;
	if (!folder.empty())
		system_.read_file(folder + "/local_cpulist", cpus);
	fresh.cpus = parse_cpus(cpus);
	fresh.node = numa_node(system_, cuda_, device);
	// sysfs may know it later.
	if (fresh.cpus.any() || fresh.node >= 0)
		known_.emplace(device, fresh);
	return fresh;
}

void NumaAffinity::bind_thread(int device)
{
	if (device == binding.device)
		return;
	binding.device = device;
	try {
		if (!binding.allowed) {
			Cpus now;
			if (system_.cpus(now) < 0)
				return;
			binding.allowed = binding.now = now;
		}
		Cpus next;
		if (device >= 0)
			next = *binding.allowed & locality_of(device).cpus;
		if (next.none())
			next = *binding.allowed;
		if (next != binding.now && system_.set_affinity(next) >= 0)
			binding.now = next;
	} catch (const std::bad_alloc &) {
		// The thread stays where it is.
	}
}

const Cpus *NumaAffinity::original_cpus() { return binding.allowed ? &*binding.allowed : nullptr; }

NumaAffinity::ScopedNodePreference::ScopedNodePreference(NumaAffinity &numa) : system_(numa.system_)
{
	int device = -1;
	if (numa.cuda_.current_device(device))
		return;
	try {
		const int node = numa.locality_of(device).node;
		preferred_ = node >= 0 && system_.prefer_node(node) >= 0;
	} catch (const std::bad_alloc &) {
		// The kernel chooses the node.
	}
}

NumaAffinity::ScopedNodePreference::~ScopedNodePreference()
{
	if (preferred_)
		system_.prefer_node(-1);
}

} // namespace cufile
