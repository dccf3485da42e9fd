// SPDX-License-Identifier: MIT
#pragma once

#include "common/condition.hpp"

namespace cufile
{

using peerdma_impl::Condition;

} // namespace cufile
