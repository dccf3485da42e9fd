/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One read or write while it runs: its file and buffer, the checks that it passed, and what it has
 * moved.
 */
#ifndef PEERDMA_REQUEST_H
#define PEERDMA_REQUEST_H

#include <linux/types.h>
#include <uapi/peerdma.h>

#include "base/checks.h"
#include "routing/route.h"
#include "routing/target.h"

struct file;
struct peerdma_buffer;
struct peerdma_file;
struct peerdma_mem;
struct task_struct;

/**
 * struct peerdma_request - one read or write while it runs
 * @file: referenced
 * @pfile: the registered file; NULL if the caller named a descriptor
 * @buffer: with a usage reference; @outside: with a reference of the struct, its memory may be gone
 * @target: of @file
 * @route: referenced while any byte is under way
 * @req: the caller's request; its out_* members are filled
 * @submitter: the task that a worker acts for; NULL: the current task
 * @write: direction
 * @nowait: return -EAGAIN instead of sleeping for a route
 * @cpu_stored: the CPU may have stored some of the bytes that the last kiocb read
 * @bounce: a page of the provider that the running kiocb reads into, not the buffer; or NULL
 * @outside: the usage reference was put, or an unbind canceled the request
 */
struct peerdma_request {
	struct file *file;
	struct peerdma_file *pfile;
	struct peerdma_buffer *buffer;
	struct peerdma_target target;
	struct peerdma_route *route;
	struct peerdma_io *req;
	struct task_struct *submitter;
	struct peerdma_mem *bounce;
	bool write;
	bool nowait;
	bool cpu_stored;
	bool outside;
};

int peerdma_request_check(struct peerdma_request *io);
int peerdma_request_interrupted(struct peerdma_request *io);
void peerdma_request_put_usage(struct peerdma_request *io);
int peerdma_request_get_usage(struct peerdma_request *io);

static inline int peerdma_request_set_reason(struct peerdma_request *io, u32 reason)
{
	io->req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

/*
 * Adds @len bytes to what was moved: to @moved if a device moved them, else to out_host. On a
 * network in software the CPU copies the bytes of a direct kiocb.
 */
static __always_inline void peerdma_request_add(struct peerdma_request *io, u64 len, bool direct,
						__u64 *moved)
{
	struct peerdma_io *req = io->req;

	req->out_done += len;
	if (likely(direct && !io->route->software)) {
		*moved += len;
		return;
	}
	req->out_host += len;
	if (direct)
		req->out_reason = PEERDMA_REASON_RDMA_SOFTWARE;
}

#endif /* PEERDMA_REQUEST_H */
