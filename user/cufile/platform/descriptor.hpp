// SPDX-License-Identifier: MIT
#pragma once

#include "common/descriptor.hpp"

namespace cufile
{

using peerdma_impl::Descriptor;

} // namespace cufile
