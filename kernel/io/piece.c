// SPDX-License-Identifier: GPL-2.0
/*
 * Pieces of a command: submitting, completing and counting them.
 */
#include <linux/fs.h>
#include <linux/uio.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/uring.h"
#include "trace.h"
#include "base/counters.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/mem.h"
#include "routing/route.h"
#include "io/account.h"
#include "io/command.h"
#include "io/kiocb.h"
#include "io/piece.h"
#include "io/submitted.h"
#include "io/worker.h"

/* True for all but the first piece of a segment: that one counts as the request. */
static bool piece_is_part(const struct peerdma_piece *piece)
{
	return unlikely(piece->command->cut) && piece > piece->command->pieces &&
	       piece[-1].segment == piece->segment;
}

static struct peerdma_io_end piece_seen(const struct peerdma_piece *piece,
					const struct peerdma_io *io)
{
	const struct peerdma_command *command = piece->command;

	return (struct peerdma_io_end){
		.buffer = command->buffer,
		.file = command->file,
		.bdev = command->bdev,
		.pair = command->route ? command->route->pair : NULL,
		.req = io,
		.pid = command->pid,
		.number = piece->number,
		.write = command->write,
		.async = true,
		.part = piece_is_part(piece),
	};
}

/* For a piece that failed, went through the page cache, or is traced. */
static noinline void piece_account_any(const struct peerdma_piece *piece, ssize_t res)
{
	struct peerdma_io io = peerdma_piece_io(piece);
	struct peerdma_io_end seen = piece_seen(piece, &io);

	if (res > 0) {
		io.out_done = res;
		if (!(piece->kiocb.ki_flags & IOCB_DIRECT)) {
			io.out_host = res;
		} else if (piece->command->route->software) {
			io.out_host = res;
			io.out_reason = PEERDMA_REASON_RDMA_SOFTWARE;
		} else {
			io.out_direct = res;
		}
	}
	peerdma_account(&seen, min_t(ssize_t, res, 0));
}

/* Counts a piece that was submitted without waiting. @res: bytes or -errno. */
static void piece_account(const struct peerdma_piece *piece, ssize_t res)
{
	const struct peerdma_command *command = piece->command;

	if (unlikely(res <= 0 || !(piece->kiocb.ki_flags & IOCB_DIRECT) ||
		     command->route->software || peerdma_trace_is_on()))
		return piece_account_any(piece, res);
	peerdma_count_direct(&command->buffer->opener->stats, res, command->write,
			     piece_is_part(piece));
	peerdma_count_direct(&command->route->pair->stats, res, command->write,
			     piece_is_part(piece));
}

/* Accounts a command that is refused because of one piece, and puts its route. */
void peerdma_command_account_refused(struct peerdma_command *command, struct peerdma_piece *piece,
				     struct peerdma_io *io, int err)
{
	struct peerdma_io_end seen;

	piece->number = 0;
	seen = piece_seen(piece, io);
	peerdma_account(&seen, err);
	if (command->route)
		peerdma_route_put(command->route);
}

/*
 * The last submitted piece is done: from here on a worker or the submitter's task owns the command.
 */
static void piece_release_command(struct peerdma_command *command)
{
	peerdma_route_put(command->route);
	peerdma_usage_put(&command->buffer->usage);
	if (likely(!command->put_off)) {
		peerdma_command_end(command);
		return;
	}
	peerdma_worker_queue(command);
}

/* True if this was the last piece under way. */
static bool piece_done(struct peerdma_piece *piece, ssize_t res)
{
	struct peerdma_command *command = piece->command;

	piece->res = res;
	if (unlikely(res == -EAGAIN))
		WRITE_ONCE(command->put_off, true);
	return atomic_dec_and_test(&command->left);
}

/*
 * Some filesystems return -EOPNOTSUPP where only waiting is needed. Bytes that were moved while the
 * memory was lost are an error.
 */
static ssize_t piece_nowait_result(const struct peerdma_command *command, ssize_t res)
{
	if (unlikely(READ_ONCE(command->buffer->lost)) && res > 0)
		return -ENODEV;
	return res == -EOPNOTSUPP ? -EAGAIN : res;
}

/* Called by the device's interrupt, in general. */
static void piece_complete(struct kiocb *kiocb, long res)
{
	struct peerdma_piece *piece = container_of(kiocb, struct peerdma_piece, kiocb);

	WRITE_ONCE(piece->done, true);
	if (piece->command->write)
		kiocb_end_write(kiocb);
	else if (unlikely(piece->command->route->software))
		peerdma_mem_read_back(piece->command->buffer->mem, piece->buf_off);
	res = piece_nowait_result(piece->command, res);
	piece_account(piece, res);
	if (piece_done(piece, res))
		piece_release_command(piece->command);
}

static noinline void piece_trace_submit(struct peerdma_piece *piece)
{
	struct peerdma_io io = peerdma_piece_io(piece);
	struct peerdma_io_end seen;

	piece->number = peerdma_account_number();
	seen = piece_seen(piece, &io);
	trace_peerdma_submit(&seen);
}

/* Sets *cpu_stored if the CPU may have stored some of the bytes that are read. */
static ssize_t piece_read(struct peerdma_piece *piece, struct iov_iter *iter, bool *cpu_stored)
{
	struct file *file = piece->command->file;
	const struct peerdma_submitted before = peerdma_submitted();
	ssize_t res = vfs_iocb_iter_read(file, &piece->kiocb, iter);

	if (unlikely(!peerdma_submitted_all(&before, file, piece->len) ||
		     !(piece->kiocb.ki_flags & IOCB_DIRECT)))
		*cpu_stored = true;
	return res;
}

static ssize_t piece_send(struct peerdma_piece *piece, const struct kiocb *kiocb, bool *cpu_stored)
{
	struct peerdma_command *command = piece->command;
	struct iov_iter iter;

	piece->number = 0;
	piece->done = false;
	if (trace_peerdma_submit_enabled())
		piece_trace_submit(piece);
	piece->kiocb = *kiocb;
	piece->kiocb.ki_pos = piece->file_off;
	peerdma_mem_iter(command->buffer->mem, &iter, &piece->bvec,
			 command->write ? ITER_SOURCE : ITER_DEST, piece->buf_off, piece->len);
	if (command->write)
		return vfs_iocb_iter_write(command->file, &piece->kiocb, &iter);
	return piece_read(piece, &iter, cpu_stored);
}

/* 0: all pieces are done. -EIOCBQUEUED: the completion owns the command. */
int peerdma_piece_send_all(struct peerdma_command *command, bool polled)
{
	struct peerdma_piece *piece;
	bool cpu_stored = false;
	struct kiocb kiocb;
	ssize_t res;

	init_sync_kiocb(&kiocb, command->file);
	kiocb.ki_flags |= IOCB_DIRECT | IOCB_NOWAIT | IOCB_ALLOC_CACHE;
	if (polled)
		kiocb.ki_flags |= IOCB_HIPRI;
	kiocb.private = NULL;
	kiocb.ki_complete = piece_complete;
	kiocb.ki_ioprio = peerdma_kiocb_ioprio(command->buffer->provider, kiocb.ki_ioprio);
	atomic_set(&command->left, command->nr + 1);
	for (piece = command->pieces; piece < command->pieces + command->nr; piece++) {
		res = piece_nowait_result(command, piece_send(piece, &kiocb, &cpu_stored));
		if (res == -EIOCBQUEUED)
			continue;
		WRITE_ONCE(piece->done, true);
		piece_account(piece, res);
		/* No kiocb is under way: io_uring's worker runs the whole command. */
		if (res == -EAGAIN && piece == command->pieces)
			return -EAGAIN;
		piece_done(piece, res);
	}
	/*
	 * All pieces are of one buffer, and the command cannot end before @left is decremented
	 * below.
	 */
	if (unlikely(cpu_stored))
		peerdma_mem_read_back(command->buffer->mem, command->pieces[0].buf_off);
	if (!atomic_dec_and_test(&command->left))
		return -EIOCBQUEUED;
	if (likely(!command->put_off))
		return 0;
	piece_release_command(command);
	return -EIOCBQUEUED;
}
