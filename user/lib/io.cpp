// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string>

#include <fcntl.h>

#include "common/short_count.hpp"
#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/policy.hpp"

namespace peerdma_impl
{
namespace
{

constexpr size_t result_min = offsetof(struct peerdma_io_result, error) + sizeof(peerdma_io_result::error);

uint32_t route_of(const struct peerdma_io_result &r)
{
	if (r.route == PEERDMA_ROUTE_POSIX || !r.done)
		return r.route;
	if (r.direct)
		return r.near || r.host ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_DIRECT;
	return r.host ? PEERDMA_ROUTE_HOST : PEERDMA_ROUTE_NEAR;
}

// A descriptor for the page cache. Direct I/O on a proxy address would bypass the module's checks, and the descriptor
// may be shared with others, so its flags stay. Opens the file again through /proc/self/fd, with its other flags.
// O_NOFOLLOW is dropped because that path is a symbolic link, O_TMPFILE because the file exists.
int without_direct(struct peerdma_file &file, Descriptor &out)
{
	Syscalls &sys = file.device->sys();
	const int flags = sys.open_flags(file.own.fd);
	if (flags < 0 || !(flags & O_DIRECT)) {
		out = file.own;
		return std::min(flags, 0);
	}
	std::lock_guard guard(file.lock);
	if (!file.cached) {
		const std::string self = "/proc/self/fd/" + std::to_string(file.own.fd);
		const int same = flags & ~(O_DIRECT | O_NOFOLLOW | O_TMPFILE);
		Descriptor again;
		again.fd = sys.open(self.c_str(), same | O_CLOEXEC | O_NOCTTY);
		// Without /proc, or without permission to open the file again, there is no other way to fall back.
		if (again.fd == -ENOMEM || again.fd == -EMFILE || again.fd == -ENFILE)
			return again.fd;
		if (again.fd < 0)
			return file.own.is_there(sys) ? -EXDEV : -EBADF;
		if (const int rc = again.identify_or_close(sys, true); rc < 0)
			return rc;
		if (again.device != file.own.device || again.inode != file.own.inode) {
			again.close(sys);
			return -EBADF;
		}
		file.cached = again;
	}
	out = file.cached;
	return 0;
}

// Fallback without a direct route, for result.reason: read(2) or write(2) through the page cache; the kernel copies
// between it and the device's memory. If the provider goes away meanwhile, the kernel returns -EFAULT. A copy by this
// library would raise SIGBUS.
int64_t fall_back(bool write, struct peerdma_file &file, struct peerdma_buf &buf, uint64_t buf_off, uint64_t len,
		  uint64_t file_off, struct peerdma_io_result &result)
{
	auto fail = [&](int64_t rc, uint32_t reason) {
		result.reason = reason;
		return rc;
	};
	if (!len || buf_off > buf.len || len > buf.len - buf_off)
		return fail(-EINVAL, len ? PEERDMA_REASON_BUF_RANGE : PEERDMA_REASON_LEN_ZERO);
	if (file_off > INT64_MAX - len)
		return fail(-EINVAL, PEERDMA_REASON_OVERFLOW);
	void *addr = nullptr;
	int rc = map_buffer(buf, addr);
	if (rc < 0)
		return fail(rc, rc == -ENODEV ? PEERDMA_REASON_REVOKED : PEERDMA_REASON_NONE);
	Descriptor through;
	rc = without_direct(file, through);
	if (rc < 0)
		return fail(rc, rc == -EXDEV ? result.reason : static_cast<uint32_t>(PEERDMA_REASON_NONE));
	Syscalls &sys = file.device->sys();
	result.route = PEERDMA_ROUTE_POSIX;
	while (result.done < len) {
		char *at = static_cast<char *>(addr) + buf_off + result.done;
		int64_t n = !through.is_there(sys) ? -EBADF :
			    write ? sys.pwrite(through.fd, at, len - result.done, file_off + result.done) :
				    sys.pread(through.fd, at, len - result.done, file_off + result.done);
		if (n == -EINTR)
			continue;
		if (n == -EFAULT)
			return fail(-ENODEV, PEERDMA_REASON_REVOKED);
		if (n < 0 || (!n && write))
			return fail(n ? n : -EIO, PEERDMA_REASON_NONE);
		if (!n)
			break;
		result.done += static_cast<uint64_t>(n);
		result.host += static_cast<uint64_t>(n);
		if (!may_go_on(write, file_off + result.done))
			break;
	}
	return 0;
}

int64_t transfer(unsigned long request, struct peerdma_file &file, struct peerdma_buf &buf, uint64_t buf_off,
		 uint64_t len, uint64_t file_off, struct peerdma_io_result &result)
{
	auto fail = [&](int rc, uint32_t reason) {
		result.reason = reason;
		result.error = static_cast<uint32_t>(-rc);
		return rc;
	};
	// Counts are returned in 63 bits. The kernel checks all other limits and names the one exceeded.
	if (len > INT64_MAX)
		return fail(-EINVAL, PEERDMA_REASON_OVERFLOW);
	// A buffer's id is valid on its own open file only; on another it could name another buffer.
	if (file.device != buf.device)
		return fail(-ENOENT, PEERDMA_REASON_NONE);
	// Fallback would put the bytes there in spite of the rule.
	if (const int rc = permit(file, buf.provider_id); rc < 0)
		return fail(rc, rc == -EACCES ? PEERDMA_REASON_RULE : PEERDMA_REASON_NONE);

	if (!file.id)
		return fail(file.refused, file.reason);

	const bool write = request == PEERDMA_WRITE;
	do {
		struct peerdma_io io = {};
		io.flags = PEERDMA_IO_FILE_ID;
		io.fd = static_cast<int>(file.id);
		io.buf_id = buf.id;
		io.file_off = file_off + result.done;
		io.buf_off = buf_off + result.done;
		io.len = len - result.done;
		int rc = file.device->ioctl(request, io);
		// The route can be lost between two steps. The rest then falls back.
		if (rc == -EXDEV && !file.device->direct_only()) {
			result.reason = io.out_reason;
			const int64_t err = fall_back(write, file, buf, buf_off, len, file_off, result);
			result.error = static_cast<uint32_t>(-err);
			return err ? result_after_error(write, result.done, err) : static_cast<int64_t>(result.done);
		}
		if (rc < 0)
			return result_after_error(write, result.done, fail(rc, io.out_reason));
		if (io.out_done > io.len || (write && !io.out_done))
			return fail(-EIO, PEERDMA_REASON_NONE);
		result.done += io.out_done;
		result.direct += io.out_direct;
		result.near += io.out_near;
		result.host += io.out_host;
		// Of several ioctls the first that bounced gives the reason. The end of the file gives it if nothing
		// bounced or if the result is short.
		if (!result.reason || result.reason == PEERDMA_REASON_END_OF_FILE ||
		    io.out_reason == PEERDMA_REASON_END_OF_FILE)
			result.reason = io.out_reason;
		// After an error some bytes may have moved: the next request reports it. The end of the file is
		// reported here.
		if (!io.out_done || io.out_reason == PEERDMA_REASON_END_OF_FILE)
			break;
	} while (result.done < len && may_go_on(write, file_off + result.done));
	return static_cast<int64_t>(result.done);
}

int64_t run(unsigned long request, struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
	    uint64_t file_off, struct peerdma_io_result *result)
{
	return boundary([&]() -> int64_t {
		int bad = check_handle(file);
		if (!bad)
			bad = check_handle(buf);
		if (bad)
			return bad;
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

int run_many(unsigned long request, struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs,
	     uint32_t n)
{
	if (!file || !buf || !segs || !n || n > INT32_MAX)
		return -EINVAL;
	if (file->device->is_inherited() || buf->device->is_inherited())
		return -ECHILD;
	int whole = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct peerdma_seg &seg = segs[i];
		seg.result = run(request, file, buf, seg.buf_off, seg.len, seg.file_off, nullptr);
		whole += seg.result == static_cast<int64_t>(seg.len);
	}
	return whole;
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

int peerdma_readv(struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs, uint32_t n)
{
	return run_many(PEERDMA_READ, file, buf, segs, n);
}

int peerdma_writev(struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs, uint32_t n)
{
	return run_many(PEERDMA_WRITE, file, buf, segs, n);
}
