// SPDX-License-Identifier: MIT
//
// What is next to a device by NUMA: CPUs and memory. Where the system does not say, or the process may use none of it, or
// has said itself where it wants to be, all stays as it is.
#pragma once

#include <map>
#include <mutex>

#include <sched.h>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// As the kernel has sets of CPUs.
class CpuMask
{
public:
	CpuMask() = default;
	explicit CpuMask(const Cpus &cpus)
	{
		for (size_t cpu = 0; cpu < cpus.size(); cpu++)
			words_[cpu / bits] |= static_cast<unsigned long>(cpus[cpu]) << cpu % bits;
	}
	Cpus cpus() const
	{
		Cpus all;
		for (size_t cpu = 0; cpu < all.size(); cpu++)
			all[cpu] = words_[cpu / bits] >> cpu % bits & 1;
		return all;
	}
	cpu_set_t *get() { return reinterpret_cast<cpu_set_t *>(words_); }
	const cpu_set_t *get() const { return reinterpret_cast<const cpu_set_t *>(words_); }
	static constexpr size_t bytes = Cpus().size() / 8;

private:
	static constexpr size_t bits = sizeof(unsigned long) * 8;
	unsigned long words_[Cpus().size() / bits]{};
};

// The folder of a device in sysfs, or "".
std::string pci_folder(Cuda &cuda, int device);

// Of a device, as sysfs has it; -1: none, or it does not say.
int numa_node(System &system, Cuda &cuda, int device);

class NumaAffinity
{
public:
	NumaAffinity(System &system, Cuda &cuda) : system_(system), cuda_(cuda) {}
	NumaAffinity(const NumaAffinity &) = delete;
	NumaAffinity &operator=(const NumaAffinity &) = delete;

	// The calling thread, which is one of ours, runs next to the device from now on; -1: where it did before.
	void bind_thread(int device);
	// Where the calling thread did before, if it has settled: a thread that it makes is not to inherit less.
	static const Cpus *original_cpus();

	// While it lives, new memory of the calling thread's lies next to the device of its context.
	class ScopedNodePreference
	{
	public:
		explicit ScopedNodePreference(NumaAffinity &numa);
		~ScopedNodePreference();
		ScopedNodePreference(const ScopedNodePreference &) = delete;
		ScopedNodePreference &operator=(const ScopedNodePreference &) = delete;

	private:
		System &system_;
		bool preferred_ = false;
	};

private:
	struct Locality {
		Cpus cpus;
		int node = -1;
	};
	Locality locality_of(int device);

	System &system_;
	Cuda &cuda_;
	std::mutex lock_;               // protects known_
	std::map<int, Locality> known_; // by device; immutable once in here
};

} // namespace cufile
