// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes as io_uring commands on /dev/peerdma. A command is one piece of a file, or up to
 * PEERDMA_URING_SEGS segments of it, between one file and one buffer.
 *
 * First attempt. io_uring issues a command under the ring's lock, so this attempt does not sleep
 * and allocates with GFP_NOWAIT. A segment of whole blocks inside the file is submitted as kiocbs
 * with IOCB_NOWAIT, none larger than one command of the drive. If the command must wait (for a
 * partial block, a lock, or a mapping that is not in memory) it returns -EAGAIN, and io_uring
 * issues it again from a worker thread, where each piece is run as the ioctl would run it.
 *
 * Deferred pieces. If a piece turns out to need waiting only when other kiocbs are under way, or
 * the device reports so, it is deferred. When the last kiocb is done, one work item runs the
 * deferred pieces in order, as the ioctl would. It may wait without limit, so it has a work queue
 * of its own: work that frees memory uses another one.
 *
 * Cancelling is not supported: a submitted kiocb cannot be recalled.
 *
 * References. A submitted command holds the file and a usage reference of the buffer. The
 * completion puts the usage reference without waiting for the submitter's task, because that task
 * may be waiting for it in destroy or unbind. A deferred piece waits without a usage reference and
 * gets one by the buffer's id. If the buffer was destroyed meanwhile, the piece fails as a later
 * ioctl would. io_uring keeps /dev/peerdma open while a command is under way.
 *
 * Polling (IORING_SETUP_IOPOLL). The ring's task calls the file's ->iopoll for each piece. The
 * ring's lock serializes this with command_done(), so a command cannot end while it is polled.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/uring.h"
#include "base/checks.h"
#include "base/block_split.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "routing/file.h"
#include "routing/route.h"
#include "routing/target.h"
#include "io/command.h"
#include "io/io.h"
#include "io/piece.h"
#include "io/uring.h"
#include "io/worker.h"

#define CMD_FLAGS GENMASK(23, 0) /* of an SQE's uring_cmd_flags; the others are the kernel's */

static u32 uring_piece_reason(const struct peerdma_command *command,
			      const struct peerdma_piece *piece,
			      const struct peerdma_target *target)
{
	u32 reason = peerdma_check_io_range(piece->file_off, piece->buf_off, piece->len,
					    command->buffer->mem->len);

	if (!reason && command->flags & PEERDMA_IO_NO_BOUNCE)
		reason = peerdma_check_align(piece->file_off, piece->buf_off, piece->len,
					     target->mem_align, target->offset_align);
	return reason;
}

/* All checks of a command before anything is submitted. Gets the route. */
static int uring_check(struct peerdma_command *command, bool nowait, struct peerdma_target *target)
{
	struct peerdma_piece *piece = command->pieces;
	struct peerdma_io io = peerdma_piece_io(piece);
	struct peerdma_route *route;
	u32 reason;
	int err;

	command->route = NULL;
	err = peerdma_io_check(command->file, command->pfile, command->buffer, &io, command->write,
			       nowait, target, &route);
	if (err == -EAGAIN && nowait)
		return err;
	command->bdev = target->bdev;
	if (err) {
		peerdma_command_account_refused(command, piece, &io, err);
		return err;
	}
	command->route = route;
	while (++piece < command->pieces + command->nr) {
		reason = uring_piece_reason(command, piece, target);
		if (likely(!reason))
			continue;
		io = peerdma_piece_io(piece);
		io.out_reason = reason;
		err = peerdma_reason_errno(reason);
		peerdma_command_account_refused(command, piece, &io, err);
		return err;
	}
	return 0;
}

/* True if all of it can be submitted without waiting. */
static bool uring_is_nowait(const struct peerdma_command *command,
			    const struct peerdma_target *target)
{
	struct file *file = command->file;
	u64 end = i_size_read(file->f_mapping->host);
	u64 limit = S_ISREG(file_inode(file)->i_mode) ? rlimit(RLIMIT_FSIZE) : RLIM_INFINITY;
	const struct peerdma_piece *piece;

	if (!(file->f_mode & FMODE_NOWAIT))
		return false;
	for (piece = command->pieces; piece < command->pieces + command->nr; piece++) {
		if (!peerdma_target_is_aligned(target, piece->file_off, piece->buf_off, piece->len))
			return false;
		/*
		 * Beyond the end of the file a write waits for the filesystem, and a read must be
		 * clipped.
		 */
		if (peerdma_block_split_clip(piece->file_off, piece->len, end) < piece->len)
			return false;
		/* The filesystem would cut the write there, perhaps inside a block. */
		if (command->write && piece->file_off + piece->len > limit)
			return false;
	}
	if (!command->write)
		return true;
	/* If the filesystem is frozen after this check, the submitter waits as in write(2). */
	return !(file->f_flags & O_APPEND) && !peerdma_io_is_frozen(file);
}

static bool uring_is_to_be_cut(const struct peerdma_command *command, u32 most)
{
	const struct peerdma_piece *piece;

	for (piece = command->pieces; piece < command->pieces + command->nr; piece++) {
		if (unlikely(piece->len > most))
			return true;
	}
	return false;
}

static int uring_send(struct peerdma_command *command, bool polled)
{
	struct blk_plug plug;
	int res;

	if (command->nr == 1)
		return peerdma_piece_send_all(command, polled);
	blk_start_plug(&plug);
	plug.nr_ios = min(command->nr, 32U); /* requests that are allocated at once */
	res = peerdma_piece_send_all(command, polled);
	blk_finish_plug(&plug);
	return res;
}

/*
 * The caller holds a usage reference of the buffer and the ring's lock. If the command is cut,
 * *command is replaced.
 */
static int uring_run_nowait(struct peerdma_command **command, struct peerdma_ctx *ctx, bool polled)
{
	struct peerdma_target target;
	struct peerdma_command *cut = *command;
	u32 most;
	int res;

	res = uring_check(*command, true, &target);
	if (res)
		return res;
	most = peerdma_target_max_len(&target);
	if (!uring_is_nowait(*command, &target) || unlikely(!most))
		cut = ERR_PTR(-EAGAIN);
	else if (uring_is_to_be_cut(*command, most))
		cut = peerdma_command_cut(*command, most);
	if (IS_ERR(cut)) {
		peerdma_route_put((*command)->route);
		return PTR_ERR(cut);
	}
	if (cut != *command) {
		peerdma_command_free(ctx, *command);
		*peerdma_command_at(cut->cmd) = cut;
		*command = cut;
	}
	/* A queue that cannot poll would refuse a polled bio. It completes by interrupt. */
	polled = polled && peerdma_queue_polls(bdev_get_queue(target.bdev));
	res = uring_send(cut, polled);
	if (res != -EIOCBQUEUED)
		peerdma_route_put(cut->route);
	return res;
}

/* Gets a usage reference of the buffer. */
static int uring_enter(struct peerdma_command *command, struct peerdma_ctx *ctx,
		       struct peerdma_io *io)
{
	command->buffer = peerdma_io_enter(ctx, command->file, io, command->write);
	return PTR_ERR_OR_ZERO(command->buffer);
}

/* Returns and replaces *@at as uring_start() does. */
static int uring_begin(struct peerdma_command **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
		       bool polled)
{
	int res = uring_enter(*at, ctx, io);

	if (res)
		return res;
	res = uring_run_nowait(at, ctx, polled);
	if (res == -EIOCBQUEUED)
		return res;
	/* The device may have completed the command already. */
	if (!res)
		peerdma_command_notify(*at);
	peerdma_usage_put(&(*at)->buffer->usage);
	return res;
}

/* A command of segments is refused as a whole. */
static int uring_check_segments(struct peerdma_command *command, struct peerdma_ctx *ctx,
				struct peerdma_io *io)
{
	struct peerdma_target target;
	int err = uring_enter(command, ctx, io);

	if (err)
		return err;
	err = uring_check(command, false, &target);
	if (!err)
		peerdma_route_put(command->route);
	peerdma_usage_put(&command->buffer->usage);
	return err;
}

/* Runs a command where it may sleep, one piece after another, each with its own usage reference. */
static int uring_run(struct peerdma_command *command, struct peerdma_ctx *ctx,
		     struct peerdma_io *io)
{
	struct peerdma_piece *piece;
	int err;

	err = command->user ? uring_check_segments(command, ctx, io) : 0;
	if (err)
		return err;
	for (piece = command->pieces; piece < command->pieces + command->nr; piece++)
		piece->res = peerdma_worker_run(command, piece, NULL);
	return 0;
}

/*
 * SQE: addr is the buffer's id, with PEERDMA_IO_FILE_ID in the upper half; len is the bytes or the
 * number of segments; file_index is the file's id; cmd[] is struct peerdma_uring_io or struct
 * peerdma_uring_vec.
 *
 * A descriptor is refused: it would get around a ring's restrictions, which name the files that the
 * ring may use. The process can write to the ring's memory at any time, so each member is read
 * once.
 */
static int uring_parse(const struct io_uring_sqe *sqe, unsigned int issue_flags,
		       struct peerdma_io *io)
{
	const size_t used = sizeof(struct peerdma_uring_io);
	u64 addr = READ_ONCE(sqe->addr);

	static_assert(sizeof(struct peerdma_uring_io) == sizeof(struct peerdma_uring_vec));
	if (addr >> 32 & ~(u64)PEERDMA_IO_FLAGS)
		return -EOPNOTSUPP;
	if (!(addr >> 32 & PEERDMA_IO_FILE_ID) || READ_ONCE(sqe->buf_index))
		return -EINVAL;
	if (issue_flags & IO_URING_F_SQE128 &&
	    memchr_inv(sqe->cmd + used, 0, 2 * sizeof(*sqe) - offsetof(typeof(*sqe), cmd) - used))
		return -EINVAL;
	*io = (struct peerdma_io){
		.flags = addr >> 32,
		.buf_id = addr,
		.fd = READ_ONCE(sqe->splice_fd_in),
		.len = READ_ONCE(sqe->len),
	};
	return 0;
}

static struct peerdma_command *uring_alloc(struct peerdma_ctx *ctx, bool nowait)
{
	struct peerdma_command *command = peerdma_command_take(ctx);

	if (likely(command))
		return command;
	command = kmem_cache_alloc(peerdma_command_slab,
				   nowait ? PEERDMA_COMMAND_NOWAIT : GFP_KERNEL_ACCOUNT);
	return command ?: ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
}

static struct peerdma_command *uring_parse_one(struct peerdma_ctx *ctx,
					       const struct io_uring_sqe *sqe, u32 len, bool nowait)
{
	const struct peerdma_uring_io *cmd = (const void *)sqe->cmd;
	struct peerdma_command *command;

	/* A result has 31 bits. */
	if (len > MAX_RW_COUNT)
		return ERR_PTR(-EINVAL);
	command = uring_alloc(ctx, nowait);
	if (IS_ERR(command))
		return command;
	command->nr = 1;
	command->user = NULL;
	command->pieces[0].command = command;
	command->pieces[0].segment = 0;
	command->pieces[0].file_off = READ_ONCE(cmd->file_off);
	command->pieces[0].buf_off = READ_ONCE(cmd->buf_off);
	command->pieces[0].len = len;
	return command;
}

/* Reads the segments once, into the tail of the command's allocation. */
static struct peerdma_command *uring_parse_many(const struct io_uring_sqe *sqe, u32 nr, bool nowait)
{
	const struct peerdma_uring_vec *cmd = (const void *)sqe->cmd;
	struct peerdma_uring_seg __user *user = u64_to_user_ptr(READ_ONCE(cmd->segs));
	struct peerdma_uring_seg *segs;
	struct peerdma_command *command;
	unsigned int i;
	size_t size;

	if (!nr || nr > PEERDMA_URING_SEGS || !user || READ_ONCE(cmd->__reserved))
		return ERR_PTR(-EINVAL);
	size = struct_size(command, pieces, nr) + nr * sizeof(*segs);
	command = nowait ? kmalloc(size, PEERDMA_COMMAND_NOWAIT) :
			   kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!command)
		return ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
	command->nr = nr;
	command->user = user;
	segs = (void *)&command->pieces[nr];
	if (copy_from_user(segs, user, nr * sizeof(*segs)))
		goto err_fault;
	for (i = 0; i < nr; i++) {
		if (segs[i].len > MAX_RW_COUNT)
			goto err_invalid;
		command->pieces[i].command = command;
		command->pieces[i].segment = i;
		command->pieces[i].file_off = segs[i].file_off;
		command->pieces[i].buf_off = segs[i].buf_off;
		command->pieces[i].len = segs[i].len;
	}
	return command;

err_fault:
	kvfree(command);
	return ERR_PTR(-EFAULT);
err_invalid:
	kvfree(command);
	return ERR_PTR(-EINVAL);
}

/* -EIOCBQUEUED: the completion owns the command. A command that is cut is replaced in *@at. */
static int uring_start(struct peerdma_command **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
		       unsigned int issue_flags)
{
	struct peerdma_command *command = *at;
	int res;

	command->file = peerdma_io_file(ctx, io, &command->pfile);
	if (IS_ERR(command->file))
		return PTR_ERR(command->file);
	if (issue_flags & IO_URING_F_NONBLOCK)
		res = uring_begin(at, ctx, io, issue_flags & IO_URING_F_IOPOLL);
	else
		res = uring_run(command, ctx, io);
	if (res == -EIOCBQUEUED)
		return res;
	command = *at;
	peerdma_io_file_put(command->file, command->pfile);
	/* The usage reference is put: a page fault in the process's memory may take long. */
	return res ?: peerdma_command_result(command);
}

static int uring_io(struct io_uring_cmd *cmd, unsigned int issue_flags, bool many, bool write)
{
	struct peerdma_ctx *ctx = cmd->file->private_data;
	const bool nowait = issue_flags & IO_URING_F_NONBLOCK;
	struct peerdma_command *command;
	struct peerdma_io io;
	int res;

	if (!(cmd->file->f_mode & (write ? FMODE_READ : FMODE_WRITE)))
		return -EBADF;
	if (cmd->flags & CMD_FLAGS)
		return -EOPNOTSUPP;
	res = uring_parse(cmd->sqe, issue_flags, &io);
	if (res)
		return res;
	command = many ? uring_parse_many(cmd->sqe, io.len, nowait) :
			 uring_parse_one(ctx, cmd->sqe, io.len, nowait);
	if (command == ERR_PTR(-EAGAIN))
		peerdma_uring_keep_sqe(cmd);
	if (IS_ERR(command))
		return PTR_ERR(command);
	command->cmd = cmd;
	command->buf_id = io.buf_id;
	command->flags = io.flags;
	command->cut = false;
	command->put_off = false;
	command->pid = task_tgid_nr(current);
	command->write = write;
	*peerdma_command_at(cmd) = command;
	res = uring_start(&command, ctx, &io, issue_flags);
	if (res != -EIOCBQUEUED)
		peerdma_command_free(ctx, command);
	if (res == -EAGAIN)
		peerdma_uring_keep_sqe(cmd);
	return res;
}

int peerdma_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	switch (cmd->cmd_op) {
	case PEERDMA_URING_READ:
		return uring_io(cmd, issue_flags, false, false);
	case PEERDMA_URING_WRITE:
		return uring_io(cmd, issue_flags, false, true);
	case PEERDMA_URING_READV:
		return uring_io(cmd, issue_flags, true, false);
	case PEERDMA_URING_WRITEV:
		return uring_io(cmd, issue_flags, true, true);
	default:
		return -ENOTTY;
	}
}

/* Called under the ring's lock, as command_done() is: the command stays meanwhile. */
int peerdma_uring_iopoll(struct io_uring_cmd *cmd, struct io_comp_batch *iob,
			 unsigned int poll_flags)
{
	struct peerdma_command *command = *peerdma_command_at(cmd);
	struct peerdma_piece *piece;
	int res = 0;

	if (!command->file->f_op->iopoll)
		return 0;
	for (piece = command->pieces; !res && piece < command->pieces + command->nr; piece++) {
		rcu_read_lock();
		if (!READ_ONCE(piece->done))
			res = command->file->f_op->iopoll(&piece->kiocb, iob, poll_flags);
		rcu_read_unlock();
	}
	return res;
}

int peerdma_uring_open(struct peerdma_ctx *ctx)
{
	ctx->command_cache = alloc_percpu_gfp(struct peerdma_command_cache, GFP_KERNEL_ACCOUNT);
	return ctx->command_cache ? 0 : -ENOMEM;
}

void peerdma_uring_release(struct peerdma_ctx *ctx)
{
	peerdma_command_cache_free(ctx);
}

int peerdma_uring_init(void)
{
	int err = peerdma_worker_init();

	if (err)
		return err;
	err = peerdma_commands_init();
	if (err)
		peerdma_worker_exit();
	return err;
}

void peerdma_uring_exit(void)
{
	peerdma_worker_exit();
	peerdma_commands_exit();
}
