// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of a request: all of them before anything is submitted, and those between two steps.
 */
#include <linux/fs.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/mem.h"
#include "memory/provider.h"
#include "routing/file.h"
#include "routing/route.h"
#include "routing/stack.h"
#include "routing/target.h"
#include "io/io.h"
#include "io/request.h"

static __always_inline struct peerdma_route *request_find_route(struct peerdma_request *io,
								struct peerdma_route_result *result)
{
	struct peerdma_mem *mem = io->buffer->mem;

	if (unlikely(!io->target.bdev))
		return peerdma_route_get_share(mem->provider, io->file, mem->page, result);
	return peerdma_route_get(mem->provider, io->target.bdev, mem->page, result);
}

/* The network is software, and the caller allows no copies. */
static bool request_is_software_refused(const struct peerdma_request *io,
					const struct peerdma_route *route)
{
	return unlikely(route->software) && io->req->flags & PEERDMA_IO_NO_BOUNCE;
}

/* A route may have changed since the step before. */
static int request_refresh_route(struct peerdma_request *io)
{
	struct peerdma_route_result result;
	struct peerdma_route *route;

	if (likely(io->target.bdev && peerdma_stack_is_unchanged(io->route->stack)))
		return 0;
	route = request_find_route(io, &result);
	if (IS_ERR(route)) {
		io->req->out_reason = result.reason;
		return PTR_ERR(route);
	}
	if (request_is_software_refused(io, route)) {
		peerdma_route_put(route);
		return peerdma_request_set_reason(io, PEERDMA_REASON_RDMA_SOFTWARE);
	}
	peerdma_route_put(io->route);
	io->route = route;
	return 0;
}

/*
 * Called between two steps, so that unbind, destroy, kill and a change of the block devices wait
 * for one step and not for the whole request.
 */
int peerdma_request_interrupted(struct peerdma_request *io)
{
	if (fatal_signal_pending(current) ||
	    unlikely(io->submitter && peerdma_io_task_is_dying(io->submitter)))
		return -EINTR;
	if (peerdma_usage_killed(&io->buffer->usage) ||
	    peerdma_usage_killed(&io->buffer->provider->usage))
		return peerdma_request_set_reason(io, PEERDMA_REASON_REVOKED);
	cond_resched();
	return request_refresh_route(io);
}

/*
 * Puts the buffer's usage reference while the request waits for a file with host memory only. A
 * reference of the struct keeps the buffer, its provider and the counters meanwhile. The memory may
 * be freed.
 */
void peerdma_request_put_usage(struct peerdma_request *io)
{
	refcount_inc(&io->buffer->refs);
	io->outside = true;
	peerdma_usage_put(&io->buffer->usage);
}

/* Undoes peerdma_request_put_usage(). On an error the request never gets the memory back. */
int peerdma_request_get_usage(struct peerdma_request *io)
{
	if (!peerdma_usage_tryget(&io->buffer->usage))
		return peerdma_request_set_reason(io, PEERDMA_REASON_REVOKED);
	io->outside = false;
	peerdma_buffer_put(io->buffer);
	return 0;
}

static int request_find_target(struct peerdma_request *io)
{
	if (io->pfile && peerdma_target_is_cached(io->file, &io->pfile->attrs)) {
		io->target = io->pfile->attrs.target;
		return 0;
	}
	if (io->nowait && !peerdma_target_is_immediate(io->file))
		return -EAGAIN;
	return peerdma_target_resolve(io->file, &io->target, &io->req->out_reason);
}

static int request_check_file(struct peerdma_request *io)
{
	int err = request_find_target(io);
	u32 reason;

	if (err)
		return err;
	/* The block layer of older kernels needs whole blocks in each bio_vec. */
	if (unlikely(io->buffer->mem->chunk_bvecs))
		io->target.mem_align = max(io->target.mem_align, io->target.offset_align);
	if (!(io->file->f_mode & (io->write ? FMODE_WRITE : FMODE_READ)))
		return peerdma_request_set_reason(io, PEERDMA_REASON_FD_MODE);
	if (!io->write)
		return 0;
	reason = peerdma_target_writable(io->file, io->pfile ? &io->pfile->attrs : NULL);
	return peerdma_request_set_reason(io, reason);
}

static u32 request_check_numbers(const struct peerdma_request *io)
{
	const struct peerdma_io *req = io->req;
	u64 buf_len = io->buffer->mem->len;
	u32 reason;

	reason = peerdma_check_io_range(req->file_off, req->buf_off, req->len, buf_len);
	if (reason || !(req->flags & PEERDMA_IO_NO_BOUNCE))
		return reason;
	if (io->write && (io->file->f_flags & O_APPEND))
		return PEERDMA_REASON_APPEND;
	return peerdma_check_align(req->file_off, req->buf_off, req->len, io->target.mem_align,
				   io->target.offset_align);
}

/* All checks before anything is submitted. Gets the route. */
int peerdma_request_check(struct peerdma_request *io)
{
	struct peerdma_route_result result;
	u32 reason;
	int err;

	if (unlikely(READ_ONCE(io->buffer->lost)))
		return peerdma_request_set_reason(io, PEERDMA_REASON_REVOKED);
	err = request_check_file(io);
	if (err)
		return err;
	reason = request_check_numbers(io);
	if (reason)
		return peerdma_request_set_reason(io, reason);
	if (io->nowait) {
		if (unlikely(!io->target.bdev))
			return -EAGAIN;
		io->route = peerdma_route_lookup(io->buffer->provider, io->target.bdev);
		if (!io->route)
			return -EAGAIN;
	} else {
		io->route = request_find_route(io, &result);
		io->req->out_reason = result.reason;
		if (IS_ERR(io->route))
			return PTR_ERR(io->route);
	}
	if (!request_is_software_refused(io, io->route))
		return 0;
	peerdma_route_put(io->route);
	io->route = NULL;
	return peerdma_request_set_reason(io, PEERDMA_REASON_RDMA_SOFTWARE);
}
