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
#include <linux/uio.h>

#include "peerdma.h"

/*
 * A bio of ours must not be merged with one whose pages are host memory: v7.2 looks at the first
 * segment of a request to choose how all of it is mapped. bios merge only where their priority is
 * equal, hint included, and nothing in the kernel uses this hint. A user who sets the same hint on
 * I/O of their own, or a cgroup policy that overwrites priorities, undoes it:
 * Documentation/design.md, "Merging".
 */
#define PEERDMA_IOPRIO_HINT 512

/* One request in the making. */
struct io {
	struct file *file;
	struct peerdma_buffer *buffer;
	struct peerdma_target target;
	struct peerdma_io *req;
	bool write;
};

static u16 io_ioprio(u16 ioprio)
{
	/* submit_bio() replaces class NONE, hint and all. */
	if (IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_NONE)
		return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, IOPRIO_BE_NORM, PEERDMA_IOPRIO_HINT);
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio),
				      PEERDMA_IOPRIO_HINT);
}

/*
 * One kiocb. *direct says whether the device moved the bytes itself: a filesystem that changes its
 * mind clears IOCB_DIRECT and copies through the page cache.
 */
static ssize_t io_submit(struct io *io, struct peerdma_mem *mem, u64 mem_off, u64 file_off, u64 len,
			 bool *direct)
{
	struct iov_iter iter;
	struct kiocb kiocb;
	ssize_t ret;

	init_sync_kiocb(&kiocb, io->file);
	kiocb.ki_flags |= IOCB_DIRECT;
	kiocb.ki_ioprio = io_ioprio(kiocb.ki_ioprio);
	kiocb.ki_pos = file_off;
	peerdma_mem_iter(mem, &iter, io->write ? ITER_SOURCE : ITER_DEST, mem_off, len);
	if (io->write)
		ret = peerdma_iocb_iter_write(io->file, &kiocb, &iter);
	else
		ret = vfs_iocb_iter_read(io->file, &kiocb, &iter);
	*direct = kiocb.ki_flags & IOCB_DIRECT;
	return ret;
}

/* Whole blocks, in steps that a kiocb can carry. Stops where one comes back short. */
static int io_blocks(struct io *io, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 done = 0, step;
	ssize_t ret;
	bool direct;

	while (done < len) {
		if (fatal_signal_pending(current))
			return -EINTR;
		step = min_t(u64, len - done, rounddown(MAX_RW_COUNT, io->target.offset_align));
		ret = io_submit(io, io->buffer->mem, req->buf_off + done, req->file_off + done,
				step, &direct);
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

/*
 * The partial block at the end of the file. The device writes it whole, so it goes to a page of its
 * own beside the buffer, and the CPU moves just the file's bytes from there: not through host
 * memory.
 */
static int io_tail(struct io *io, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 block = io->target.offset_align;
	struct peerdma_mem *mem;
	ssize_t ret;
	bool direct;

	mem = peerdma_mem_alloc(io->buffer->mem->provider, PAGE_ALIGN(block));
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	ret = io_submit(io, mem, 0, req->file_off + req->out_done, block, &direct);
	if (ret > 0) {
		len = min_t(u64, len, ret);
		peerdma_mem_copy(io->buffer->mem, req->buf_off + req->out_done, mem, len);
		req->out_done += len;
		if (direct)
			req->out_near += len;
		else
			req->out_host += len;
	}
	peerdma_mem_release(mem);
	return ret < 0 ? ret : 0;
}

static int io_read(struct io *io)
{
	struct peerdma_io *req = io->req;
	struct peerdma_plan plan;
	int err;

	plan = peerdma_plan_read(req->file_off, req->len, i_size_read(io->file->f_mapping->host),
				 io->target.offset_align);
	err = io_blocks(io, plan.direct_len);
	/* A file that shrank meanwhile ends before the tail that was planned. */
	if (!err && plan.tail_len && req->out_done == plan.direct_len)
		err = io_tail(io, plan.tail_len);
	if (!err && req->out_done < req->len)
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
	return err;
}

static int io_refuse(struct io *io, u32 reason)
{
	io->req->out_reason = reason;
	return peerdma_reason_errno(reason);
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
	int err = io_check(io);

	if (err)
		return err;
	err = io->write ? io_blocks(io, io->req->len) : io_read(io);
	/* What was moved was moved: the error, if it lasts, is the next request's. */
	return io->req->out_done ? 0 : err;
}

static int io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write)
{
	struct io io = { .req = req, .write = write };
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
