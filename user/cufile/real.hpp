// SPDX-License-Identifier: MIT
#pragma once

#include "seams.hpp"

namespace cufile
{

System &real_system();
Cuda &real_cuda();
Peer &real_peer();

// System::make_ring() by io_uring.
int kernel_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out);

} // namespace cufile
