// SPDX-License-Identifier: MIT
//
// In a file of its own so that host tests can link another definition.

#include "common/syscalls.hpp"

namespace peerdma_impl
{

Syscalls &system_calls() { return kernel_syscalls(); }

} // namespace peerdma_impl
