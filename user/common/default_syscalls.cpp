// SPDX-License-Identifier: MIT
//
// A file of its own, because host tests put theirs in its place.

#include "common/syscalls.hpp"

namespace peerdma_impl
{

Syscalls &system_calls() { return kernel_syscalls(); }

} // namespace peerdma_impl
