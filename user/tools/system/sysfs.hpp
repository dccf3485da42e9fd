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

// The part after the last slash.
std::string base(const std::string &path);

// The last component of a symbolic link's target; empty if there is no link.
std::string link_name(peerdma_impl::Syscalls &sys, const std::string &path);

// The PCI addresses in a path of sysfs, root first.
std::vector<std::string> addresses_in(const std::string &path);

// PCI functions from the root down to this one, inclusive; empty if sysfs does not have it.
std::vector<std::string> pci_path(peerdma_impl::Syscalls &sys, const std::string &pci);

// A memory BAR of a function.
struct Bar {
	int number;
	uint64_t start, len, flags; // flags of struct resource
	// 64-bit and prefetchable, as the memory BARs of GPUs.
	bool wide() const;
};

std::vector<Bar> bars_of(peerdma_impl::Syscalls &sys, const std::string &pci);

} // namespace cli
