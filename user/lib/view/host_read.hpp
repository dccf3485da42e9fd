// SPDX-License-Identifier: MIT
//
// Reads elements of a view into host memory, and into buffers.
#pragma once

#include <cstdint>

#include "lib/view/form.hpp"
#include "lib/view/view.hpp"

namespace peerdma_impl
{

// The elements are there. `result` is filled in. Both return 0 or -errno.
int read_to_host(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
		 struct peerdma_view_result &result);
// The buffer is of the view's device.
int read_to_buffer(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
		   struct peerdma_view_result &result);

} // namespace peerdma_impl
