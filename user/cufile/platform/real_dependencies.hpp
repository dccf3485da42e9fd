// SPDX-License-Identifier: MIT
#pragma once

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

System &real_system();
Cuda &real_cuda();
PeerdmaClient &real_peerdma();

// System::make_ring() with io_uring.
int kernel_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out);

} // namespace cufile
