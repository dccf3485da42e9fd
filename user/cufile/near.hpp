// SPDX-License-Identifier: MIT
//
// What is next to a device by NUMA: CPUs and memory. Where the system does not say, or the process may use none of it, or
// has said itself where it wants to be, all stays as it is.
#pragma once

#include <map>
#include <mutex>

#include "seams.hpp"

namespace cufile
{

// The folder of a device in sysfs, or "".
std::string pci_folder(Cuda &cuda, int device);

class Near
{
public:
	Near(System &system, Cuda &cuda) : system_(system), cuda_(cuda) {}
	Near(const Near &) = delete;
	Near &operator=(const Near &) = delete;

	// The calling thread, which is one of ours, runs next to the device from now on.
	void settle(int device);

	// While it lives, new memory of the calling thread's lies next to the device of its context.
	class Memory
	{
	public:
		explicit Memory(Near &near);
		~Memory();
		Memory(const Memory &) = delete;
		Memory &operator=(const Memory &) = delete;

	private:
		System &system_;
		bool preferred_ = false;
	};

private:
	struct Surroundings {
		Cpus cpus;
		int node = -1;
	};
	const Surroundings &around(int device);

	System &system_;
	Cuda &cuda_;
	std::mutex lock_;                   // protects known_
	std::map<int, Surroundings> known_; // by device; immutable once in here
};

} // namespace cufile
