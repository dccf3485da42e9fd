// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// Of the devices with a driver that a file may be on, the one that is below a switch with this PCI function, else the one with
// the fewest links between them, as libpeerdma names it: an NVMe drive if there is any, else another. False: there is none in
// its PCI domain. gpu "": for whichever of those with memory has one nearest.
bool nearest_drive(System &system, const std::string &gpu, uint32_t &domain, uint32_t &bdf);

// JSON of the machine's PCI tree: what cuFileExportPCIeTopology() writes.
std::string describe_topology(System &system);

} // namespace cufile
