// SPDX-License-Identifier: MIT
//
// A file of its own, because host tests put theirs in its place.

#include "env.hpp"

namespace peerdma_impl
{

Env &system_env() { return kernel_env(); }

} // namespace peerdma_impl
