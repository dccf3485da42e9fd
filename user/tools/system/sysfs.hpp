// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/syscalls.hpp"

namespace cli
{

inline const std::string pci_devices = "/sys/bus/pci/devices/", block_devices = "/sys/class/block/";

std::string first_line(const std::string &text);

// The first line of a file; empty if it cannot be read.
std::string line_of(peerdma_impl::Syscalls &sys, const std::string &path);

// What is behind the last slash.
std::string base(const std::string &path);

// The name of what a link leads to; empty if there is none.
std::string link_name(peerdma_impl::Syscalls &sys, const std::string &path);

// The PCI addresses in a path of sysfs, from the root on.
std::vector<std::string> addresses_in(const std::string &path);

// PCI functions from the root down to this one, which is the last; empty if sysfs does not have it.
std::vector<std::string> pci_path(peerdma_impl::Syscalls &sys, const std::string &pci);

// One of a function's BARs that decodes memory.
struct Bar {
	int number;
	uint64_t start, len, flags; // flags of the kernel's resources
	// Of the kind that GPUs put their memory in: 64-bit and prefetchable.
	bool wide() const;
};

std::vector<Bar> bars_of(peerdma_impl::Syscalls &sys, const std::string &pci);

} // namespace cli
