// SPDX-License-Identifier: MIT
//
// CPUs and memory of the NUMA node of a device. Nothing changes if the node is unknown, if the process may not use it,
// or if the process has set its own affinity.
#pragma once

#include <map>
#include <mutex>

#include <sched.h>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// The kernel's format of CPU sets.
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

class NumaAffinity
{
public:
	NumaAffinity(System &system, Cuda &cuda) : system_(system), cuda_(cuda) {}
	NumaAffinity(const NumaAffinity &) = delete;
	NumaAffinity &operator=(const NumaAffinity &) = delete;

	// Binds the calling thread, a worker, to the CPUs next to the device; -1 undoes it.
	void bind_thread(int device);
	// CPUs of the calling thread before it was bound, so that new threads do not inherit the binding. nullptr: it
	// is not bound.
	static const Cpus *original_cpus();

	// While it lives, new memory of the calling thread is next to its context's device.
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
	std::map<int, Locality> known_; // by device; entries are immutable
};

} // namespace cufile
