// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "common/syscalls.hpp"

namespace cli
{

// The device node that peerdma_open() opens, for messages about later failures: the node in PEERDMA_DEVICE, else
// /dev/peerdma, or a provider's node if only that opens. If none opens, the first node, whose error peerdma_open()
// returns.
std::string device_node(peerdma_impl::Syscalls &sys);

} // namespace cli
