// SPDX-License-Identifier: MIT
#include "boundary.hpp"
#include "device.hpp"

namespace peerdma_impl
{
namespace
{

constexpr size_t result_min = offsetof(struct peerdma_io_result, error) + sizeof(peerdma_io_result::error);

// No disk has smaller blocks. A short count that ends inside a block did so at the end of the file and
// nowhere else: the kernel need not be asked whether there is more.
constexpr uint64_t smallest_block = 512;

uint32_t route_of(const struct peerdma_io_result &r)
{
	if (!r.done)
		return PEERDMA_ROUTE_NONE;
	if (r.direct)
		return r.near || r.host ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_DIRECT;
	return r.host ? PEERDMA_ROUTE_HOST : PEERDMA_ROUTE_NEAR;
}

int64_t transfer(unsigned long request, const struct peerdma_file &file, const struct peerdma_buf &buf,
		 uint64_t buf_off, uint64_t len, uint64_t file_off, struct peerdma_io_result &result)
{
	auto fail = [&](int rc, uint32_t reason) {
		result.reason = reason;
		result.error = static_cast<uint32_t>(-rc);
		return rc;
	};
	// Counts are returned in 63 bits; the kernel checks the rest, and says which.
	if (len > INT64_MAX)
		return fail(-EINVAL, PEERDMA_REASON_OVERFLOW);
	// A buffer's id means nothing on another open file: there it could name somebody else's.
	if (file.device != buf.device)
		return fail(-ENOENT, PEERDMA_REASON_NONE);

	do {
		struct peerdma_io io = {};
		io.fd = file.fd;
		io.buf_id = buf.id;
		io.file_off = file_off + result.done;
		io.buf_off = buf_off + result.done;
		io.len = len - result.done;
		int rc = file.device->ioctl(request, io);
		if (rc < 0) {
			fail(rc, io.out_reason);
			// What was moved is said now; whoever goes on from there meets the error again.
			return result.done ? static_cast<int64_t>(result.done) : rc;
		}
		if (io.out_done > io.len)
			return fail(-EIO, PEERDMA_REASON_NONE);
		result.done += io.out_done;
		result.direct += io.out_direct;
		result.near += io.out_near;
		result.host += io.out_host;
		if (!io.out_done) {
			if (!result.done)
				result.reason = io.out_reason;
			break;
		}
		if ((io.file_off + io.out_done) % smallest_block)
			break;
	} while (result.done < len);
	return static_cast<int64_t>(result.done);
}

int64_t run(unsigned long request, struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
	    uint64_t file_off, struct peerdma_io_result *result)
{
	return boundary([&]() -> int64_t {
		if (!file || !buf)
			return -EINVAL;
		if (result && check_size(result, result_min))
			return -EINVAL;
		struct peerdma_io_result full = {};
		int64_t rc = transfer(request, *file, *buf, buf_off, len, file_off, full);
		full.route = route_of(full);
		if (result)
			copy_out(result, full);
		return rc;
	});
}

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

int64_t peerdma_read(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
		     uint64_t file_off)
{
	return run(PEERDMA_READ, file, buf, buf_off, len, file_off, nullptr);
}

int64_t peerdma_write(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
		      uint64_t file_off)
{
	return run(PEERDMA_WRITE, file, buf, buf_off, len, file_off, nullptr);
}

int64_t peerdma_read_result(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
			    uint64_t file_off, struct peerdma_io_result *result)
{
	return result ? run(PEERDMA_READ, file, buf, buf_off, len, file_off, result) : -EINVAL;
}

int64_t peerdma_write_result(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
			     uint64_t file_off, struct peerdma_io_result *result)
{
	return result ? run(PEERDMA_WRITE, file, buf, buf_off, len, file_off, result) : -EINVAL;
}
