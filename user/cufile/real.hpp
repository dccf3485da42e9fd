// SPDX-License-Identifier: MIT
#pragma once

#include "seams.hpp"

namespace cufile
{

System &real_system();
Cuda &real_cuda();
Peer &real_peer();

} // namespace cufile
