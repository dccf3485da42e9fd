// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes. One request is a kiocb over the buffer's bio_vec table, handed to the file's
 * own methods by the helpers that do the mode, security and notification checks. Nothing here is
 * per page.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "peerdma.h"
#include "trace.h"

/*
 * A bio of ours must not be merged with one whose pages are host memory: v7.2 looks at the first
 * segment of a request to choose how all of it is mapped. bios merge only where their priority is
 * equal, hint included, and nothing in the kernel uses this hint. A user who sets the same hint on
 * I/O of their own, or a cgroup policy that overwrites priorities, undoes it:
 * Documentation/design.md, "Merging".
 */
#define IO_HINT 512 /* plus the provider, modulo 512: two of them may map by different rules */

/* One request in the making. */
struct io {
	struct peerdma_ctx *ctx;
	struct file *file;
	struct peerdma_buffer *buffer;
	struct peerdma_target target;
	struct peerdma_io *req;
	bool write;
};

/* As observers see it. */
static struct peerdma_seen io_seen(struct io *io)
{
	return (struct peerdma_seen){
		.ctx = io->ctx,
		.provider = io->buffer->provider,
		.file = io->file,
		.dev = io->target.bdev ? io->target.bdev->bd_dev : 0,
		.req = io->req,
		.write = io->write,
	};
}

static u16 io_ioprio(struct io *io, u16 ioprio)
{
	u16 hint = IO_HINT | (io->buffer->provider->id % IO_HINT);

	/* submit_bio() replaces class NONE, hint and all. */
	if (IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_NONE)
		return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, IOPRIO_BE_NORM, hint);
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio), hint);
}

/*
 * One kiocb. *direct says whether the device moved the bytes itself: a filesystem that changes its
 * mind clears IOCB_DIRECT and copies through the page cache.
 */
static ssize_t io_submit(struct io *io, struct iov_iter *iter, u64 file_off, bool *direct)
{
	struct kiocb kiocb;
	ssize_t ret;

	init_sync_kiocb(&kiocb, io->file);
	kiocb.ki_flags |= IOCB_DIRECT;
	kiocb.ki_ioprio = io_ioprio(io, kiocb.ki_ioprio);
	kiocb.ki_pos = file_off;
	if (io->write)
		ret = peerdma_iocb_iter_write(io->file, &kiocb, iter);
	else
		ret = vfs_iocb_iter_read(io->file, &kiocb, iter);
	*direct = kiocb.ki_flags & IOCB_DIRECT;
	return ret;
}

static int io_refuse(struct io *io, u32 reason)
{
	io->req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

/* Whole blocks, in steps that a kiocb can carry. Stops where one comes back short. */
static int io_blocks(struct io *io, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 done = 0, step;
	struct iov_iter iter;
	ssize_t ret;
	bool direct;

	while (done < len) {
		if (fatal_signal_pending(current))
			return -EINTR;
		/* Whoever unbinds or destroys waits for one step, not for all of them. */
		if (peerdma_gate_closed(&io->buffer->gate) ||
		    peerdma_gate_closed(&io->buffer->provider->gate))
			return io_refuse(io, PEERDMA_REASON_REVOKED);
		step = min_t(u64, len - done, rounddown(MAX_RW_COUNT, io->target.offset_align));
		peerdma_mem_iter(io->buffer->mem, &iter, io->write ? ITER_SOURCE : ITER_DEST,
				 req->buf_off + done, step);
		ret = io_submit(io, &iter, req->file_off + done, &direct);
		if (ret <= 0)
			return ret;
		done += ret;
		req->out_done += ret;
		if (direct)
			req->out_direct += ret;
		else
			req->out_host += ret;
		if (ret < step)
			break;
		cond_resched();
	}
	return 0;
}

/* What of a block that was read in full belongs to the file. */
static u64 tail_of(ssize_t got, u64 len)
{
	return got < 0 ? 0 : min_t(u64, got, len);
}

/* The partial block by way of a page of the same provider: no byte of it is in host memory. */
static ssize_t io_tail_near(struct io *io, struct peerdma_mem *mem, u64 len)
{
	struct peerdma_io *req = io->req;
	struct iov_iter iter;
	ssize_t ret;
	bool direct;

	peerdma_mem_iter(mem, &iter, ITER_DEST, 0, io->target.offset_align);
	ret = io_submit(io, &iter, req->file_off + req->out_done, &direct);
	len = tail_of(ret, len);
	if (!len)
		return ret;
	peerdma_mem_copy(io->buffer->mem, req->buf_off + req->out_done, mem, len);
	req->out_done += len;
	if (direct)
		req->out_near += len;
	else
		req->out_host += len;
	return ret;
}

/* The same by way of host memory, where the provider has no page left. */
static ssize_t io_tail_host(struct io *io, u64 len)
{
	u64 block = io->target.offset_align;
	struct peerdma_io *req = io->req;
	struct iov_iter iter;
	struct bio_vec bvec;
	ssize_t ret;
	bool direct;
	void *copy;

	copy = kmalloc(block, GFP_KERNEL_ACCOUNT); /* a power of two: aligned to itself */
	if (!copy)
		return -ENOMEM;
	bvec_set_page(&bvec, virt_to_page(copy), block, offset_in_page(copy));
	iov_iter_bvec(&iter, ITER_DEST, &bvec, 1, block);
	ret = io_submit(io, &iter, req->file_off + req->out_done, &direct);
	len = tail_of(ret, len);
	if (len) {
		peerdma_mem_write(io->buffer->mem, req->buf_off + req->out_done, copy, len);
		req->out_done += len;
		req->out_host += len;
	}
	kfree(copy);
	return ret;
}

/*
 * The partial block at the end of the file. The device writes it whole, so it goes somewhere else,
 * and the CPU moves just the file's bytes from there to the buffer.
 */
static int io_tail(struct io *io, u64 len)
{
	struct peerdma_mem *mem;
	ssize_t ret;

	/* Nobody sees more of this page than the device has just written. */
	mem = peerdma_mem_alloc(io->buffer->provider, PAGE_ALIGN(io->target.offset_align), false);
	if (IS_ERR(mem)) {
		ret = io_tail_host(io, len);
	} else {
		ret = io_tail_near(io, mem, len);
		peerdma_mem_release(mem);
	}
	return ret < 0 ? ret : 0;
}

static int io_read(struct io *io)
{
	struct peerdma_io *req = io->req;
	struct peerdma_plan plan;
	u64 planned;
	int err;

	plan = peerdma_plan_read(req->file_off, req->len, i_size_read(io->file->f_mapping->host),
				 io->target.offset_align);
	err = io_blocks(io, plan.direct_len);
	/* A file that shrank meanwhile ends before the tail that was planned. */
	if (!err && plan.tail_len && req->out_done == plan.direct_len)
		err = io_tail(io, plan.tail_len);
	/* Short because the file is, not because the storage stopped half way. */
	planned = plan.direct_len + plan.tail_len;
	if (req->out_done == planned && planned < req->len)
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
	return err;
}

/* All that can be said against it before anything is submitted. */
static int io_check(struct io *io)
{
	struct peerdma_mem *mem = io->buffer->mem;
	struct peerdma_io *req = io->req;
	struct peerdma_verdict verdict;
	int err;

	err = peerdma_target_resolve(io->file, &io->target, &req->out_reason);
	if (err)
		return err;
	if (!(io->file->f_mode & (io->write ? FMODE_WRITE : FMODE_READ)))
		return io_refuse(io, PEERDMA_REASON_FD_MODE);
	if (io->write) {
		err = io_refuse(io, peerdma_target_writable(io->file));
		if (err)
			return err;
	}
	err = io_refuse(io, peerdma_check_io(req->file_off, req->buf_off, req->len, mem->len));
	if (err)
		return err;
	err = io_refuse(io, peerdma_check_align(req->file_off, req->buf_off, req->len,
						io->target.mem_align, io->target.offset_align));
	if (err)
		return err;
	err = peerdma_verdict(mem->provider, io->target.bdev, peerdma_mem_page(mem), &verdict);
	req->out_reason = verdict.reason;
	return err;
}

/* Inside the buffer's gate: its memory stays. */
static int io_run(struct io *io)
{
	struct peerdma_seen seen;
	int err = io_check(io);

	if (err)
		return err;
	seen = io_seen(io);
	trace_peerdma_submit(&seen);
	err = io->write ? io_blocks(io, io->req->len) : io_read(io);
	/* What was moved was moved: the error, if it lasts, is the next request's. */
	return io->req->out_done ? 0 : err;
}

static int io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write)
{
	struct io io = { .ctx = ctx, .req = req, .write = write };
	struct peerdma_seen seen;
	int err;

	req->out_done = 0;
	req->out_direct = 0;
	req->out_near = 0;
	req->out_host = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	io.file = fget(req->fd);
	if (!io.file)
		return -EBADF;
	io.buffer = peerdma_buffer_get(ctx, req->buf_id);
	if (!io.buffer) {
		err = -ENOENT;
		goto out_file;
	}
	if (!peerdma_gate_enter(&io.buffer->gate)) {
		err = io_refuse(&io, PEERDMA_REASON_REVOKED);
		goto out_buffer;
	}
	err = io_run(&io);
	peerdma_gate_exit(&io.buffer->gate);
out_buffer:
	seen = io_seen(&io);
	peerdma_account(&seen, err);
	peerdma_buffer_put(io.buffer);
out_file:
	fput(io.file);
	return err;
}

int peerdma_read_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return io_execute(ctx, &arg->io, false);
}

int peerdma_write_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return io_execute(ctx, &arg->io, true);
}
