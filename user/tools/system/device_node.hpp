// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "common/syscalls.hpp"

namespace cli
{

// The device node that peerdma_open() opens, for a message about a failure behind that: the one that PEERDMA_DEVICE names, else
// /dev/peerdma, or a provider's where only that opens. If none opens it is the first, whose error peerdma_open() returns.
std::string device_node(peerdma_impl::Syscalls &sys);

} // namespace cli
