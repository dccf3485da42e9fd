// SPDX-License-Identifier: MIT
//
// Reads elements of a view into the memory of a CUDA device.
#pragma once

#include <cstdint>

#include "lib/view/cuda.hpp"
#include "lib/view/form.hpp"
#include "lib/view/view.hpp"

namespace peerdma_impl
{

// The elements are there, and the destination is in the memory of this context. `result` is filled in. Returns 0 or -errno.
int read_to_gpu(struct peerdma_view &view, const CudaDriver &driver, const CudaContext &context,
		const struct peerdma_view_read_args &args, const Form &form, struct peerdma_view_result &result);

} // namespace peerdma_impl
