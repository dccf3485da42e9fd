// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes as io_uring commands on /dev/peerdma.
 *
 * A request that is whole blocks inside the file is sent without waiting, as a kiocb of its own
 * with IOCB_NOWAIT; what has to wait (a partial block, a lock, a mapping that must be read first,
 * more than one command's worth of bytes) answers -EAGAIN, and io_uring comes again from a worker
 * thread, where the request is run as the ioctl would run it. A device that finds out only later
 * that it would have to wait says so through ->ki_complete; then a work item runs it.
 *
 * What has been sent to a device cannot be called back: there is no cancelling.
 *
 * An asynchronous request holds the buffer's gate and the file. The gate is left as soon as the
 * device is done: the task that would be told of it may be the one that waits for the gate, in
 * destroy or unbind. io_uring holds /dev/peerdma itself open as long as a command is under way.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "peerdma.h"
#include "compat/uring.h"
#include "trace.h"

static struct kmem_cache *async_cache;

/**
 * struct async - a request that a device is working on
 * @kiocb: what the file's methods know it by
 * @cmd: what io_uring knows it by
 * @file: referenced, by way of @pfile or itself
 * @pfile: the registered file, or NULL
 * @buffer: its gate is held until the device is done
 * @io: as it came, for those who must start again
 * @small: for peerdma_mem_iter()
 * @route: held until the device is done
 * @bdev: where the file's bytes are
 * @pid: the process that asked
 * @number: for who listens
 * @res: bytes or -errno
 * @write: direction
 * @again: runs the request where it may wait
 */
struct async {
	struct kiocb kiocb;
	struct io_uring_cmd *cmd;
	struct file *file;
	struct peerdma_file *pfile;
	struct peerdma_buffer *buffer;
	struct peerdma_io io;
	struct bio_vec small;
	struct peerdma_route *route;
	struct block_device *bdev;
	pid_t pid;
	u32 number;
	ssize_t res;
	bool write;
	struct work_struct again;
};

static struct async **cmd_async(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct async *);
}

static void async_done(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct async *async = *cmd_async(cmd);
	ssize_t res = async->res;

	if (res > 0 && async->write)
		fsnotify_modify(async->file);
	else if (res > 0)
		fsnotify_access(async->file);
	peerdma_io_file_put(async->file, async->pfile);
	kmem_cache_free(async_cache, async);
	peerdma_uring_done(cmd, res, issue_flags);
}

PEERDMA_URING_TASK_CB(async_task, async_done)

static void async_again(struct work_struct *work)
{
	struct async *async = container_of(work, struct async, again);

	async->res =
		peerdma_io_inside(async->file, async->pfile, async->buffer, &async->io, async->write) ?:
			(ssize_t)async->io.out_done;
	peerdma_gate_exit(&async->buffer->gate);
	io_uring_cmd_complete_in_task(async->cmd, async_task);
}

static struct peerdma_seen async_seen(struct async *async)
{
	return (struct peerdma_seen){
		.buffer = async->buffer,
		.file = async->file,
		.bdev = async->bdev,
		.pair = async->route->pair,
		.req = &async->io,
		.pid = async->pid,
		.number = async->number,
		.write = async->write,
		.async = true,
	};
}

/* The end of what was sent without waiting: bytes or -errno. */
static void async_account(struct async *async, ssize_t res)
{
	struct peerdma_seen seen = async_seen(async);

	if (res > 0) {
		async->io.out_done = res;
		if (async->kiocb.ki_flags & IOCB_DIRECT)
			async->io.out_direct = res;
		else
			async->io.out_host = res;
	}
	peerdma_account(&seen, min_t(ssize_t, res, 0));
}

/* From the device's interrupt, as a rule. */
static void async_complete(struct kiocb *kiocb, long res)
{
	struct async *async = container_of(kiocb, struct async, kiocb);

	if (async->write)
		kiocb_end_write(kiocb);
	async_account(async, res);
	peerdma_route_put(async->route);
	if (unlikely(res == -EAGAIN)) {
		INIT_WORK(&async->again, async_again);
		queue_work(peerdma_wq, &async->again);
		return;
	}
	async->res = res;
	peerdma_gate_exit(&async->buffer->gate);
	io_uring_cmd_do_in_task_lazy(async->cmd, async_task);
}

/* Can this request be sent without waiting, whole, by one kiocb? */
static bool may_fly(struct file *file, const struct peerdma_target *target,
		    const struct peerdma_io *io, bool write)
{
	u64 end = i_size_read(file->f_mapping->host);

	if (!(file->f_mode & FMODE_NOWAIT))
		return false;
	if (peerdma_check_align(io->file_off, io->buf_off, io->len, target->mem_align,
				target->offset_align))
		return false;
	/* Behind the end a write has to wait for the filesystem, and a read to be cut. */
	if (peerdma_clip(io->file_off, io->len, end) < io->len)
		return false;
	/* What has to be split answers -EAGAIN, sometimes half way. */
	if (io->len > (u64)queue_max_hw_sectors(bdev_get_queue(target->bdev)) << SECTOR_SHIFT)
		return false;
	if (!write)
		return true;
	if (file->f_flags & O_APPEND || !file_start_write_trylock(file))
		return false;
	/* Not frozen now: if it will be, the submitter waits for it as in write(2). */
	file_end_write(file);
	return true;
}

static ssize_t async_fly(struct async *async)
{
	struct peerdma_io *io = &async->io;
	struct kiocb *kiocb = &async->kiocb;
	struct iov_iter iter;

	init_sync_kiocb(kiocb, async->file);
	kiocb->ki_flags |= IOCB_DIRECT | IOCB_NOWAIT | IOCB_ALLOC_CACHE;
	kiocb->ki_complete = async_complete;
	kiocb->ki_pos = io->file_off;
	kiocb->ki_ioprio = peerdma_ioprio(async->buffer->provider, kiocb->ki_ioprio);
	peerdma_mem_iter(async->buffer->mem, &iter, &async->small,
			 async->write ? ITER_SOURCE : ITER_DEST, io->buf_off, io->len);
	if (async->write)
		return vfs_iocb_iter_write(async->file, kiocb, &iter);
	return vfs_iocb_iter_read(async->file, kiocb, &iter);
}

/* Inside the buffer's gate. -EIOCBQUEUED: it, and the file, now belong to the completion. */
static int uring_fly(struct io_uring_cmd *cmd, struct file *file, struct peerdma_file *pfile,
		     struct peerdma_buffer *buffer, struct peerdma_io *io, bool write)
{
	struct peerdma_target target;
	struct peerdma_route *route;
	struct peerdma_seen seen;
	struct async *async;
	ssize_t res;
	int err;

	err = peerdma_io_check(file, pfile, buffer, io, write, &target, &route);
	seen = (struct peerdma_seen){
		.buffer = buffer,
		.file = file,
		.bdev = target.bdev,
		.pair = err ? NULL : route->pair,
		.req = io,
		.write = write,
	};
	if (err) {
		peerdma_account(&seen, err);
		return err;
	}
	res = -EAGAIN;
	if (!may_fly(file, &target, io, write))
		goto out_route;
	res = -ENOMEM;
	async = kmem_cache_alloc(async_cache, GFP_KERNEL_ACCOUNT);
	if (!async) {
		peerdma_account(&seen, res);
		goto out_route;
	}
	async->route = route;
	async->bdev = target.bdev;
	async->pid = task_tgid_nr(current);
	async->number = 0;
	async->cmd = cmd;
	async->file = file;
	async->pfile = pfile;
	async->buffer = buffer;
	async->io = *io;
	async->write = write;
	*cmd_async(cmd) = async;
	if (trace_peerdma_submit_enabled()) {
		async->number = peerdma_request_number();
		seen = async_seen(async);
		trace_peerdma_submit(&seen);
	}
	res = async_fly(async);
	if (res == -EIOCBQUEUED)
		return res;
	async_account(async, res);
	kmem_cache_free(async_cache, async);
out_route:
	peerdma_route_put(route);
	return res;
}

/*
 * SQE: addr is the buffer's id, len the bytes, file_index the file's descriptor or, with
 * PEERDMA_IO_FILE_ID in the upper half of addr, its id; cmd[] is struct peerdma_uring_io. The
 * ring's memory is the process's: each member is read once.
 */
static int uring_parse(const struct io_uring_sqe *sqe, struct peerdma_io *io)
{
	const struct peerdma_uring_io *cmd = (const void *)sqe->cmd;
	u64 addr = READ_ONCE(sqe->addr);

	if (addr >> 32 & ~(u64)PEERDMA_IO_FLAGS)
		return -EOPNOTSUPP;
	*io = (struct peerdma_io){
		.flags = addr >> 32,
		.buf_id = addr,
		.fd = READ_ONCE(sqe->splice_fd_in),
		.len = READ_ONCE(sqe->len),
		.file_off = READ_ONCE(cmd->file_off),
		.buf_off = READ_ONCE(cmd->buf_off),
	};
	/* A result has 31 bits. */
	return io->len > MAX_RW_COUNT ? -EINVAL : 0;
}

static int uring_io(struct io_uring_cmd *cmd, struct peerdma_ctx *ctx, unsigned int issue_flags,
		    bool write)
{
	struct peerdma_file *pfile = NULL;
	struct peerdma_buffer *buffer;
	struct peerdma_io io;
	struct file *file;
	int err;

	err = uring_parse(cmd->sqe, &io);
	if (err)
		return err;
	if (!(issue_flags & IO_URING_F_NONBLOCK))
		return peerdma_io_execute(ctx, &io, write) ?: (int)io.out_done;

	file = peerdma_io_file(ctx, &io, &pfile);
	if (IS_ERR(file))
		return PTR_ERR(file);
	buffer = peerdma_buffer_enter(ctx, io.buf_id);
	if (IS_ERR(buffer)) {
		err = PTR_ERR(buffer);
		if (err == -ENODEV) {
			struct peerdma_seen seen = { .file = file, .req = &io, .write = write };

			io.out_reason = PEERDMA_REASON_REVOKED;
			peerdma_account_revoked(ctx, &seen);
		}
	} else {
		err = uring_fly(cmd, file, pfile, buffer, &io, write);
		if (err == -EIOCBQUEUED)
			return err;
		peerdma_gate_exit(&buffer->gate);
	}
	peerdma_io_file_put(file, pfile);
	return err;
}

int peerdma_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct peerdma_ctx *ctx = cmd->file->private_data;

	/* Older kernels poll every command of such a ring, and would wait for ever. */
	if (issue_flags & IO_URING_F_IOPOLL)
		return -EOPNOTSUPP;
	switch (cmd->cmd_op) {
	case PEERDMA_URING_READ:
		return uring_io(cmd, ctx, issue_flags, false);
	case PEERDMA_URING_WRITE:
		return uring_io(cmd, ctx, issue_flags, true);
	default:
		return -ENOTTY;
	}
}

int peerdma_uring_init(void)
{
	async_cache = KMEM_CACHE(async, SLAB_HWCACHE_ALIGN);
	return async_cache ? 0 : -ENOMEM;
}

void peerdma_uring_exit(void)
{
	kmem_cache_destroy(async_cache);
}
