// SPDX-License-Identifier: MIT
//
// Checks the arguments of a read, and decides where its destination is.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>

#include "lib/boundary.hpp"
#include "lib/view/cuda.hpp"
#include "lib/view/form.hpp"
#include "lib/view/gpu_read.hpp"
#include "lib/view/host_read.hpp"
#include "lib/view/view.hpp"
#include "view/layout.hpp"

namespace peerdma_impl
{
namespace
{

int check_range(const struct peerdma_view &view, struct peerdma_view_read_args &args, const Form &form)
{
	if (!args.count || args.first > view.elements || args.reserved)
		return -EINVAL;
	args.count = std::min(args.count, view.elements - args.first);
	const uint64_t bits_in_group = args.first % view::group_elements * form.bits;
	if (args.as == PEERDMA_VIEW_AS_PACKED && bits_in_group % 8)
		return -EINVAL;
	return 0;
}

int check_destination(const struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form)
{
	if (!args.to == !args.buf)
		return -EINVAL;
	if (args.buf) {
		if (const int rc = check_handle(args.buf))
			return rc;
		if (args.buf->device != view.device)
			return -ENOENT;
		return !form.as_is && args.buf_off % form.width ? -EINVAL : 0;
	}
	// What is delivered as it is needs no alignment.
	if (args.buf_off || (!form.as_is && reinterpret_cast<uintptr_t>(args.to) % form.width))
		return -EINVAL;
	// The bytes of elements as they are cannot overflow: the file has as many.
	const uint64_t len = form.bytes(args.count);
	const bool overflows = !form.as_is && len / form.width != args.count;
	return overflows || len > UINTPTR_MAX - reinterpret_cast<uintptr_t>(args.to) ? -EINVAL : 0;
}

int read(struct peerdma_view &view, struct peerdma_view_read_args &args, struct peerdma_view_result &result)
{
	const std::optional<Form> form = form_of(view.codec, args.as);
	if (args.flags & ~PEERDMA_VIEW_READ_IN_PLACE)
		return -EOPNOTSUPP;
	if (!form)
		return -EINVAL;
	int rc = check_range(view, args, *form);
	if (!rc)
		rc = check_destination(view, args, *form);
	if (rc || !args.count)
		return rc;
	const bool for_gpu = args.stream || args.flags & PEERDMA_VIEW_READ_IN_PLACE;
	if (args.buf)
		return for_gpu ? -EOPNOTSUPP : read_to_buffer(view, args, *form, result);
	const uint64_t len = form->bytes(args.count);
	const CudaDriver *const driver = CudaDriver::find(view.sys);
	CudaContext context;
	if (driver && driver->look_up(reinterpret_cast<uintptr_t>(args.to), len, context, rc))
		return read_to_gpu(view, *driver, context, args, *form, result);
	if (rc < 0)
		return rc;
	return for_gpu ? -EOPNOTSUPP : read_to_host(view, args, *form, result);
}

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

int64_t peerdma_view_read(struct peerdma_view *view, const struct peerdma_view_read_args *args,
			  struct peerdma_view_result *result)
{
	return boundary([&]() -> int64_t {
		if (!view)
			return -EINVAL;
		if (view->is_inherited())
			return -ECHILD;
		// The first form of the struct had no out_why.
		if (result && check_size(result, offsetof(struct peerdma_view_result, out_why)))
			return -EINVAL;
		struct peerdma_view_read_args full_args;
		struct peerdma_view_result full = {};
		int rc = copy_in(full_args, args, sizeof(full_args));
		try {
			if (!rc)
				rc = peerdma_impl::read(*view, full_args, full);
		} catch (const std::bad_alloc &) {
			rc = -ENOMEM; // the result is still filled in
		}
		full.error = static_cast<uint32_t>(-rc);
		if (result)
			copy_out(result, full);
		return rc < 0 ? rc : static_cast<int64_t>(full.done);
	});
}
