// SPDX-License-Identifier: MIT
#pragma once

#include "lib/descriptor.hpp"

namespace cufile
{

using peerdma_impl::Descriptor;

} // namespace cufile
