// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// The nearest device with a driver that may hold files: one below a switch with this PCI function, otherwise one with
// the fewest links. An NVMe drive is preferred. The address is in libpeerdma's form. gpu "": nearest to any function
// with memory. False: none in its PCI domain.
bool nearest_drive(System &system, const std::string &gpu, uint32_t &domain, uint32_t &bdf);

// sysfs directory of a CUDA device, or "".
std::string pci_folder(Cuda &cuda, int device);
// Of a CUDA device; -1: unknown or none.
int numa_node(System &system, Cuda &cuda, int device);
// Text of cuFileExportPCIeTopology(): the machine's PCI tree as JSON.
std::string describe_topology(System &system);

} // namespace cufile
