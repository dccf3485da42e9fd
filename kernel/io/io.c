// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes of any offset and length. A request is split into up to three parts: whole
 * blocks go directly between the storage and the buffer, and the partial block at either end is
 * bounced. Bounced bytes are counted, and reported with a reason.
 *
 * A partial block of a read: the device reads the whole block into a bounce page of the same
 * provider, and the CPU copies the wanted bytes into the buffer. If the pool has no page left, or
 * the payer of the buffer is at its limit, host memory takes the place of that page.
 *
 * A partial block of a write goes through the page cache, whose locks keep neighboring bytes
 * intact, and is written back before the request ends. A write to a file that is open with O_APPEND
 * does the same, because only the filesystem knows the offset.
 *
 * If the device cannot address the place in the buffer, the whole request goes through host memory.
 *
 * A request on a regular file may wait for as long as another process holds the file's lock. An
 * unbind need not wait for it: fs_call.c.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/sched/xacct.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "trace.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "base/block_split.h"
#include "base/counters.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "routing/file.h"
#include "routing/route.h"
#include "routing/target.h"
#include "io/account.h"
#include "io/bounce.h"
#include "io/io.h"
#include "io/request.h"
#include "io/step.h"

static void io_account_task(const struct peerdma_io *req, bool write)
{
	if (write) {
		add_wchar(current, req->out_done);
		inc_syscw(current);
	} else {
		add_rchar(current, req->out_done);
		inc_syscr(current);
	}
}

/* Runs one part of a split, unless an earlier part was short. */
static int io_run_part(struct peerdma_request *io, u64 begin, u64 len,
		       int (*move)(struct peerdma_request *io, u64 len))
{
	/* An earlier part was short: the file now ends there. */
	if (!len || io->req->out_done != begin)
		return 0;
	return move(io, len);
}

static int io_direct_blocks(struct peerdma_request *io, u64 len)
{
	return peerdma_steps(io, len, true);
}

/* By the page cache, which other writes of the same block go by as well. */
static int io_bounce_write(struct peerdma_request *io, u64 len)
{
	return peerdma_steps(io, len, false);
}

static int io_bounce_partial_block(struct peerdma_request *io, u64 len)
{
	return io->write ? io_bounce_write(io, len) : peerdma_bounce_read_block(io, len);
}

/* For a place in the buffer that no device can address. */
static int io_bounce_misaligned(struct peerdma_request *io, u64 len)
{
	return io->write ? io_bounce_write(io, len) : peerdma_bounce_read_host(io, len);
}

/* The reason why some bytes are bounced, or none. */
static u32 io_blocks_reason(const struct peerdma_block_split *split)
{
	if (split->host_len)
		return PEERDMA_REASON_BUF_ALIGN;
	return split->head_len || split->tail_len ? PEERDMA_REASON_FILE_ALIGN : PEERDMA_REASON_NONE;
}

/* Moves the parts in file order, so that what was done is always the beginning of the range. */
static int io_run_blocks(struct peerdma_request *io, u64 len)
{
	struct peerdma_io *req = io->req;
	struct peerdma_block_split split;
	int err;

	split = peerdma_block_split(req->file_off, req->buf_off, len, io->target.mem_align,
				    io->target.offset_align);
	req->out_reason = io_blocks_reason(&split);
	if (split.host_len)
		return io_bounce_misaligned(io, split.host_len);
	err = io_run_part(io, 0, split.head_len, io_bounce_partial_block);
	if (!err)
		err = io_run_part(io, split.head_len, split.direct_len, io_direct_blocks);
	if (!err)
		err = io_run_part(io, split.head_len + split.direct_len, split.tail_len,
				  io_bounce_partial_block);
	return err;
}

/* Gets the file's size from the server: other clients change it. */
static noinline int io_ask_size(struct peerdma_request *io)
{
	struct kstat stat;

	return vfs_getattr(&io->file->f_path, &stat, STATX_SIZE, AT_STATX_FORCE_SYNC);
}

/*
 * A share may return a short count without an error: another client truncated the file, or the
 * server failed halfway and reports that to the next request only.
 */
static noinline void io_note_share_eof(struct peerdma_request *io)
{
	struct peerdma_io *req = io->req;

	if (req->out_done < req->len && !io_ask_size(io) &&
	    req->file_off + req->out_done >= i_size_read(io->file->f_mapping->host))
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
}

static u64 io_len_to_eof(const struct peerdma_request *io)
{
	return peerdma_block_split_clip(io->req->file_off, io->req->len,
					i_size_read(io->file->f_mapping->host));
}

static int io_read(struct peerdma_request *io)
{
	struct peerdma_io *req = io->req;
	u64 len;
	int err;

	err = unlikely(!io->target.bdev) ? io_ask_size(io) : 0;
	if (err)
		return err;
	len = io_len_to_eof(io);
	err = io_run_blocks(io, len);
	/* Short because of the file's size, not because the storage stopped halfway. */
	if (req->out_done == len && len < req->len)
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
	else if (unlikely(!io->target.bdev && !err))
		io_note_share_eof(io);
	return err;
}

static int io_write(struct peerdma_request *io)
{
	struct peerdma_io *req = io->req;
	u64 len = req->len;

	if (io->file->f_flags & O_APPEND) {
		req->out_reason = PEERDMA_REASON_APPEND;
		return io_bounce_write(io, len);
	}
	/* The filesystem would cut a write at this limit, perhaps inside a block. */
	if (S_ISREG(file_inode(io->file)->i_mode))
		len = peerdma_block_split_clip(req->file_off, len, rlimit(RLIMIT_FSIZE)) ?: len;
	return io_run_blocks(io, len);
}

/* The common case: whole blocks inside the file, addressable by the device, in one kiocb. */
static bool io_is_one_step(const struct peerdma_request *io)
{
	const struct peerdma_io *req = io->req;

	if (!peerdma_target_is_aligned(&io->target, req->file_off, req->buf_off, req->len) ||
	    req->len > MAX_RW_COUNT)
		return false;
	if (io->write)
		return !(io->file->f_flags & O_APPEND) &&
		       (req->file_off + req->len <= rlimit(RLIMIT_FSIZE) ||
			!S_ISREG(file_inode(io->file)->i_mode));
	return req->file_off + req->len <= i_size_read(io->file->f_mapping->host);
}

static int io_move(struct peerdma_request *io)
{
	if (io_is_one_step(io)) {
		ssize_t ret = peerdma_step(io, io->req->len, true);

		if (unlikely(!io->target.bdev) && !io->write && ret >= 0)
			io_note_share_eof(io);
		return min_t(ssize_t, ret, 0);
	}
	return io->write ? io_write(io) : io_read(io);
}

static struct peerdma_io_end io_end(struct peerdma_request *io)
{
	return (struct peerdma_io_end){
		.buffer = io->buffer,
		.file = io->file,
		.bdev = io->target.bdev,
		.pair = IS_ERR_OR_NULL(io->route) ? NULL : io->route->pair,
		.req = io->req,
		.pid = io->submitter ? task_tgid_nr(io->submitter) : 0,
		.write = io->write,
	};
}

static noinline void io_trace_submit(struct peerdma_request *io)
{
	struct peerdma_io_end seen = io_end(io);

	trace_peerdma_submit(&seen);
}

/* For a request that failed, or is traced. */
static noinline void io_account(struct peerdma_request *io, int err)
{
	struct peerdma_io_end seen = io_end(io);

	peerdma_account(&seen, err);
}

static noinline void io_account_moved(struct peerdma_request *io, int err)
{
	u32 *reason = &io->req->out_reason;

	/* These reasons tell how bytes were moved. They are not why none was. */
	if (err && (*reason == PEERDMA_REASON_FILE_ALIGN || *reason == PEERDMA_REASON_BUF_ALIGN ||
		    *reason == PEERDMA_REASON_APPEND))
		*reason = PEERDMA_REASON_NONE;
	io_account(io, err);
}

/* peerdma_account() for a request that succeeded and is not traced; hot path. */
static void io_count(struct peerdma_request *io, int err)
{
	if (unlikely(err || peerdma_trace_is_on()))
		return io_account_moved(io, err);
	peerdma_count(&io->buffer->opener->stats, io->req, io->write, false);
	peerdma_count(&io->route->pair->stats, io->req, io->write, false);
}

/*
 * NFS ends a request that "umount -f" aborts with -ERESTARTSYS. The kernel replaces that errno only
 * where a signal is pending.
 */
static int io_errno(int err)
{
	return err == -ERESTARTSYS ? -EIO : err;
}

/* The device was reset or removed while it moved bytes: which bytes arrived is not known. */
static noinline int io_fail_lost(struct peerdma_request *io)
{
	struct peerdma_io *req = io->req;

	req->out_done = 0;
	req->out_direct = 0;
	req->out_near = 0;
	req->out_host = 0;
	return peerdma_request_set_reason(io, PEERDMA_REASON_REVOKED);
}

/*
 * The caller holds a usage reference of the buffer. On return it holds a reference of the struct
 * instead if io->outside.
 */
static int io_run(struct peerdma_request *io)
{
	int err = peerdma_request_check(io);

	if (err) {
		io_account(io, err);
		return err;
	}
	if (trace_peerdma_submit_enabled())
		io_trace_submit(io);
	err = io_move(io);
	/* A partial success returns the bytes. A lasting error is returned by the next request. */
	err = io->req->out_done ? 0 : io_errno(err);
	if (unlikely(READ_ONCE(io->buffer->lost)))
		err = io_fail_lost(io);
	io_count(io, err);
	peerdma_route_put(io->route);
	return err;
}

/*
 * The checks of io_run(), for a caller that submits by itself. After a success the caller puts the
 * route when the device is done. @nowait: -EAGAIN if looking for a route would sleep.
 */
int peerdma_io_check(struct file *file, struct peerdma_file *pfile, struct peerdma_buffer *buffer,
		     struct peerdma_io *req, bool write, bool nowait, struct peerdma_target *target,
		     struct peerdma_route **route)
{
	struct peerdma_request io = {
		.file = file,
		.pfile = pfile,
		.buffer = buffer,
		.req = req,
		.write = write,
		.nowait = nowait,
	};
	int err = peerdma_request_check(&io);

	*target = io.target;
	*route = io.route;
	return err;
}

/*
 * The file of a request, by descriptor or by id. *pfile holds the reference if it is not NULL. Put
 * by peerdma_io_file_put().
 */
struct file *peerdma_io_file(struct peerdma_ctx *ctx, struct peerdma_io *req,
			     struct peerdma_file **pfile)
{
	struct file *file;

	*pfile = NULL;
	if (!(req->flags & PEERDMA_IO_FILE_ID)) {
		file = fget(req->fd);
		return file ?: ERR_PTR(-EBADF);
	}
	*pfile = peerdma_file_get(ctx, req->fd);
	return *pfile ? (*pfile)->file : ERR_PTR(-ENOENT);
}

void peerdma_io_file_put(struct file *file, struct peerdma_file *pfile)
{
	if (pfile)
		peerdma_file_put(pfile);
	else
		fput(file);
}

/**
 * peerdma_io_enter - get the buffer of a request
 * @ctx: owner of the buffer
 * @file: of the request
 * @req: names the buffer. If that was revoked, the request is counted and its out_reason written
 * @write: direction
 * Return: the buffer with a usage reference, or ERR_PTR.
 */
struct peerdma_buffer *peerdma_io_enter(struct peerdma_ctx *ctx, struct file *file,
					struct peerdma_io *req, bool write)
{
	struct peerdma_io_end seen = { .file = file, .req = req, .write = write };
	struct peerdma_buffer *buffer = peerdma_buffer_enter(ctx, req->buf_id);

	if (buffer == ERR_PTR(-ENODEV)) {
		req->out_reason = PEERDMA_REASON_REVOKED;
		peerdma_account_revoked(ctx, &seen);
	}
	return buffer;
}

/**
 * peerdma_io_run - run a request as the ioctl does; may sleep
 * @ctx: owner of the buffer
 * @file: referenced
 * @pfile: the registered file, or NULL
 * @req: its out_* members are filled
 * @write: direction
 * @submitter: the task that a worker acts for; NULL: the current task
 * Return: 0 or -errno.
 */
int peerdma_io_run(struct peerdma_ctx *ctx, struct file *file, struct peerdma_file *pfile,
		   struct peerdma_io *req, bool write, struct task_struct *submitter)
{
	struct peerdma_request io = {
		.file = file,
		.pfile = pfile,
		.req = req,
		.submitter = submitter,
		.write = write,
	};
	int err;

	io.buffer = peerdma_io_enter(ctx, file, req, write);
	if (IS_ERR(io.buffer))
		return PTR_ERR(io.buffer);
	err = io_run(&io);
	if (unlikely(io.outside))
		peerdma_buffer_put(io.buffer);
	else
		peerdma_usage_put(&io.buffer->usage);
	return err;
}

int peerdma_io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write)
{
	struct peerdma_file *pfile;
	struct file *file;
	int err;

	req->out_done = 0;
	req->out_direct = 0;
	req->out_near = 0;
	req->out_host = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	file = peerdma_io_file(ctx, req, &pfile);
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = peerdma_io_run(ctx, file, pfile, req, write, NULL);
	peerdma_io_file_put(file, pfile);
	io_account_task(req, write);
	return err;
}

int peerdma_read_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return peerdma_io_execute(ctx, &arg->io, false);
}

int peerdma_write_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return peerdma_io_execute(ctx, &arg->io, true);
}
