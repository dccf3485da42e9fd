// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes as io_uring commands on /dev/peerdma: one piece of a file, or up to
 * PEERDMA_URING_SEGS of them in one command, all between the same file and the same buffer.
 *
 * A piece that is whole blocks inside the file is sent without waiting, as kiocbs with IOCB_NOWAIT,
 * none larger than what the drive takes at once. What has to wait (a partial block, a lock, a
 * mapping that must be read first) answers -EAGAIN, and io_uring comes again from a worker thread,
 * where the command is run as the ioctl would run it. If that is found out only when other kiocbs
 * are under way, or by the device, the piece is put off. When no kiocb of the command is under way
 * any more, one work item runs all pieces that were put off, in order, as the ioctl would. It may
 * wait for as long as anybody wants, so it has a queue to itself: what gives memory back goes by
 * another one.
 *
 * The first try is made under the ring's lock: it does not sleep, and allocates without waiting.
 *
 * What has been sent to a device cannot be called back: there is no cancelling.
 *
 * A command that flies holds the buffer's gate and the file. The gate is left as soon as the device
 * is done: the task that would be told of it may be the one that waits for the gate, in destroy or
 * unbind. A piece that was put off waits outside of the gate and enters it by the buffer's id: if
 * the buffer is destroyed meanwhile, the piece ends as an ioctl that comes then. io_uring holds
 * /dev/peerdma itself open as long as a command is under way.
 *
 * Polling (IORING_SETUP_IOPOLL): the ring's task asks the file's own ->iopoll for each piece. Both
 * that and the end of a flight, which is told in the task, happen under the ring's lock: a flight
 * cannot go while it is polled.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/ioprio.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "peerdma.h"
#include "compat/uring.h"
#include "trace.h"

#define CMD_FLAGS GENMASK(23, 0) /* of an SQE's uring_cmd_flags; the others are the kernel's own */
#define AGAIN_MAX 256 /* commands that wait in a worker at a time: each is a kernel thread */
#define PIECES_MAX 256 /* of one command; what needs more goes to io_uring's worker */
#define STASH_MAX 64 /* flights that a CPU keeps for an open file */
#define NOWAIT_ACCOUNT (GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT)

static struct kmem_cache *flight_cache; /* of flights of one piece */
static struct workqueue_struct *again_wq;

/**
 * struct piece - a part of a command that is one kiocb
 * @kiocb: what the file's methods know it by
 * @segment: of the command, which one it is a part of; 0: the only one
 * @bvec: the part of the buffer
 * @flight: what it belongs to
 * @file_off: bytes
 * @buf_off: bytes
 * @len: bytes
 * @res: bytes or -errno, once it is done; -EAGAIN: it was put off
 * @number: for who listens, else 0
 * @done: no longer to be polled: the kiocb may name a bio that is gone; looked at under RCU, which
 *	keeps the bio
 */
struct piece {
	struct kiocb kiocb;
	struct bio_vec bvec;
	struct flight *flight;
	u64 file_off;
	u64 buf_off;
	u32 len;
	u32 segment;
	int res;
	u32 number;
	bool done;
};

/**
 * struct flight - a command that is being carried out
 * @cmd: what io_uring knows it by
 * @file: referenced, by way of @pfile or itself
 * @pfile: the registered file, or NULL
 * @buffer: its gate is held until the last piece that was sent is done; not to be used after that
 * @route: held as long; NULL: there is none yet
 * @bdev: where the file's bytes are
 * @pid: the process that asked
 * @user: of a command of many pieces, where they came from and where their results go; else NULL
 * @left: pieces that are under way, and one of who sends them
 * @again: runs the pieces that were put off where they may wait
 * @nr: number of @pieces
 * @buf_id: of @buffer
 * @flags: PEERDMA_IO_*
 * @write: direction
 * @cut: some segments are more than one piece
 * @put_off: some pieces were put off; written before @left is decremented
 * @next: in a stash
 * @pieces: segments as they were read, once, from the process; if one is more than the drive takes
 *	at once, cut
 */
struct flight {
	struct io_uring_cmd *cmd;
	struct file *file;
	struct peerdma_file *pfile;
	struct peerdma_buffer *buffer;
	struct peerdma_route *route;
	struct block_device *bdev;
	pid_t pid;
	struct peerdma_uring_seg __user *user;
	atomic_t left;
	unsigned int nr;
	u32 buf_id;
	u32 flags;
	bool write;
	bool cut;
	bool put_off;
	struct work_struct again;
	struct flight *next;
	struct piece pieces[] __counted_by(nr);
};

/**
 * struct peerdma_stash - flights of one piece that a CPU keeps, so that a command allocates nothing
 * @first: linked by @next
 * @nr: how many
 *
 * An open file has one for each CPU, used by tasks that are on it, with preemption off.
 */
struct peerdma_stash {
	struct flight *first;
	unsigned int nr;
};

static struct flight **cmd_flight(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct flight *);
}

static struct flight *stash_take(struct peerdma_ctx *ctx)
{
	struct peerdma_stash *stash = get_cpu_ptr(ctx->stash);
	struct flight *flight = stash->first;

	if (flight) {
		stash->first = flight->next;
		stash->nr--;
	}
	put_cpu_ptr(ctx->stash);
	return flight;
}

/* False: there are enough. */
static bool stash_keep(struct peerdma_ctx *ctx, struct flight *flight)
{
	struct peerdma_stash *stash = get_cpu_ptr(ctx->stash);
	const bool room = stash->nr < STASH_MAX;

	if (room) {
		flight->next = stash->first;
		stash->first = flight;
		stash->nr++;
	}
	put_cpu_ptr(ctx->stash);
	return room;
}

/* In a task. */
static void flight_free(struct peerdma_ctx *ctx, struct flight *flight)
{
	if (flight->user || flight->nr > 1)
		kvfree(flight);
	else if (!stash_keep(ctx, flight))
		kmem_cache_free(flight_cache, flight);
}

/**
 * struct result - of a segment, while its pieces are looked at in order
 * @len: bytes that were asked for
 * @res: bytes from its beginning on that were moved; -errno of the first piece that failed, as if
 *	the segment were one: what is short without an error is the end of the file
 * @cut: a piece before this one came short
 */
struct result {
	u64 len;
	int res;
	bool cut;
};

/* Of the segment that begins with pieces[*i], which is then the next one's. */
static struct result segment_result(const struct flight *flight, unsigned int *i)
{
	const u32 segment = flight->pieces[*i].segment;
	struct result result = {};
	const struct piece *piece;

	for (; *i < flight->nr && flight->pieces[*i].segment == segment; (*i)++) {
		piece = &flight->pieces[*i];
		result.len += piece->len;
		if (piece->res < 0 && result.res >= 0)
			result.res = piece->res;
		else if (!result.cut && result.res >= 0)
			result.res += piece->res;
		result.cut = result.cut || piece->res != piece->len;
	}
	return result;
}

/* In the ring's task, or where the ring is torn down, by a worker that has no process's memory. */
static int flight_report(const struct flight *flight)
{
	struct peerdma_uring_seg __user *user = flight->user;
	unsigned int i = 0;

	if (!current->mm || current->flags & PF_KTHREAD)
		return -EFAULT;
	while (i < flight->nr) {
		if (put_user(segment_result(flight, &i).res, &user->out_res))
			return -EFAULT;
		user++;
	}
	return 0;
}

/* What the command results in, when all its pieces are done. */
static int flight_result(const struct flight *flight)
{
	int segments, whole = 0;
	struct result result;
	unsigned int i = 0;

	if (likely(flight->nr == 1 && !flight->user))
		return flight->pieces[0].res;
	if (!flight->user)
		return segment_result(flight, &i).res;
	if (likely(!flight->cut)) {
		for (segments = 0; segments < flight->nr; segments++)
			whole += flight->pieces[segments].res == flight->pieces[segments].len;
	} else {
		for (segments = 0; i < flight->nr; segments++) {
			result = segment_result(flight, &i);
			whole += result.res == result.len;
		}
	}
	if (likely(whole == segments))
		return whole;
	return flight_report(flight) ?: whole;
}

/* Of what was queued the kernel leaves this to its caller. */
static void flight_notify(const struct flight *flight)
{
	const struct piece *piece = flight->pieces;

	while (piece < flight->pieces + flight->nr && piece->res <= 0)
		piece++;
	if (unlikely(piece == flight->pieces + flight->nr))
		return;
	if (flight->write)
		fsnotify_modify(flight->file);
	else
		fsnotify_access(flight->file);
}

static void flight_done(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct flight *flight = *cmd_flight(cmd);
	int res = flight_result(flight);

	flight_notify(flight);
	peerdma_io_file_put(flight->file, flight->pfile);
	flight_free(cmd->file->private_data, flight);
	peerdma_uring_done(cmd, res, issue_flags);
}

PEERDMA_URING_TASK_CB(flight_task, flight_done)

/* A piece as the request that it would be by itself. */
static struct peerdma_io piece_io(const struct piece *piece)
{
	return (struct peerdma_io){
		.flags = piece->flight->flags,
		.buf_id = piece->flight->buf_id,
		.file_off = piece->file_off,
		.buf_off = piece->buf_off,
		.len = piece->len,
	};
}

/* Not the first piece of its segment, which counts as the request. */
static bool is_part(const struct piece *piece)
{
	return unlikely(piece->flight->cut) && piece > piece->flight->pieces &&
	       piece[-1].segment == piece->segment;
}

/* And as observers see it. */
static struct peerdma_seen piece_seen(const struct piece *piece, const struct peerdma_io *io)
{
	const struct flight *flight = piece->flight;

	return (struct peerdma_seen){
		.buffer = flight->buffer,
		.file = flight->file,
		.bdev = flight->bdev,
		.pair = flight->route ? flight->route->pair : NULL,
		.req = io,
		.pid = flight->pid,
		.number = piece->number,
		.write = flight->write,
		.async = true,
		.part = is_part(piece),
	};
}

/* A piece that failed, became a copy, or that somebody is watching. */
static noinline void piece_account_any(const struct piece *piece, ssize_t res)
{
	struct peerdma_io io = piece_io(piece);
	struct peerdma_seen seen = piece_seen(piece, &io);

	if (res > 0) {
		io.out_done = res;
		if (!(piece->kiocb.ki_flags & IOCB_DIRECT)) {
			io.out_host = res;
		} else if (piece->flight->route->software) {
			io.out_host = res;
			io.out_reason = PEERDMA_REASON_RDMA_SOFTWARE;
		} else {
			io.out_direct = res;
		}
	}
	peerdma_account(&seen, min_t(ssize_t, res, 0));
}

/* The end of a piece that was sent without waiting: bytes or -errno. */
static void piece_account(const struct piece *piece, ssize_t res)
{
	const struct flight *flight = piece->flight;

	if (unlikely(res <= 0 || !(piece->kiocb.ki_flags & IOCB_DIRECT) ||
		     flight->route->software || peerdma_is_traced()))
		return piece_account_any(piece, res);
	peerdma_count_direct(&flight->buffer->opener->stats, res, flight->write, is_part(piece));
	peerdma_count_direct(&flight->route->pair->stats, res, flight->write, is_part(piece));
}

/* As the ioctl would do it; may sleep. @submitter: NULL: the current task. */
static int piece_walk(struct flight *flight, struct piece *piece, struct task_struct *submitter)
{
	struct peerdma_io io = piece_io(piece);
	int err = peerdma_io_run(flight->cmd->file->private_data, flight->file, flight->pfile, &io,
				 flight->write, submitter);

	return err ?: (int)io.out_done;
}

/* Whose rights a command has: those of its personality, its polling thread or its task. */
static const struct cred *submitter_creds(struct io_uring_cmd *cmd)
{
	const struct io_kiocb *req = cmd_to_io_kiocb(cmd);

	if (req->flags & REQ_F_CREDS)
		return get_cred(req->creds);
	if (req->ctx->sq_creds)
		return get_cred(req->ctx->sq_creds);
	return get_task_cred(io_uring_cmd_get_task(cmd));
}

/*
 * The priority that the command's first kiocb had is the worker's while it acts for the command.
 * Before the submitter's rights are taken, which need not suffice for that. Without memory for it
 * the worker keeps its own.
 */
static void priority_enter(const struct flight *flight)
{
	const u16 ioprio = flight->pieces[0].kiocb.ki_ioprio;

	set_task_ioprio(current,
			IOPRIO_PRIO_VALUE(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio)));
}

static void priority_exit(void)
{
	set_task_ioprio(current, IOPRIO_DEFAULT);
}

/* Outside of the gate: each piece enters it by itself, and waits for nobody's lock before. */
static void flight_walk_put_off(struct flight *flight, struct task_struct *submitter)
{
	struct piece *piece;

	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++) {
		if (piece->res != -EAGAIN)
			continue;
		piece->res = -EINTR;
		if (!peerdma_is_dying(submitter))
			piece->res = piece_walk(flight, piece, submitter);
	}
}

/*
 * A worker acts for the submitter, by its rights, its cgroups and its priority. io_uring keeps the
 * task.
 */
static void flight_again(struct work_struct *work)
{
	struct flight *flight = container_of(work, struct flight, again);
	struct task_struct *submitter = io_uring_cmd_get_task(flight->cmd);
	const struct cred *creds = submitter_creds(flight->cmd);
	struct peerdma_payers payers;
	const struct cred *own;

	priority_enter(flight);
	own = override_creds(creds);
	peerdma_payers_enter(&payers, submitter);
	flight_walk_put_off(flight, submitter);
	peerdma_payers_exit(&payers);
	revert_creds(own);
	priority_exit();
	put_cred(creds);
	io_uring_cmd_do_in_task_lazy(flight->cmd, flight_task);
}

/* The last piece that was sent is done: the flight now belongs to a worker, or to its task. */
static void flight_release(struct flight *flight)
{
	peerdma_route_put(flight->route);
	peerdma_gate_exit(&flight->buffer->gate);
	if (likely(!flight->put_off)) {
		io_uring_cmd_do_in_task_lazy(flight->cmd, flight_task);
		return;
	}
	INIT_WORK(&flight->again, flight_again);
	queue_work(again_wq, &flight->again);
}

/* True: that was the last one. */
static bool piece_done(struct piece *piece, ssize_t res)
{
	struct flight *flight = piece->flight;

	piece->res = res;
	if (unlikely(res == -EAGAIN))
		WRITE_ONCE(flight->put_off, true);
	return atomic_dec_and_test(&flight->left);
}

/*
 * Some filesystems say that they cannot, where they cannot without waiting. What was moved while
 * the memory went is an error.
 */
static ssize_t nowait_result(const struct flight *flight, ssize_t res)
{
	if (unlikely(READ_ONCE(flight->buffer->lost)) && res > 0)
		return -ENODEV;
	return res == -EOPNOTSUPP ? -EAGAIN : res;
}

/* From the device's interrupt, as a rule. */
static void piece_complete(struct kiocb *kiocb, long res)
{
	struct piece *piece = container_of(kiocb, struct piece, kiocb);

	WRITE_ONCE(piece->done, true);
	if (piece->flight->write)
		kiocb_end_write(kiocb);
	else if (unlikely(piece->flight->route->software))
		peerdma_mem_read_back(piece->flight->buffer->mem, piece->buf_off);
	res = nowait_result(piece->flight, res);
	piece_account(piece, res);
	if (piece_done(piece, res))
		flight_release(piece->flight);
}

static u32 piece_reason(const struct flight *flight, const struct piece *piece,
			const struct peerdma_target *target)
{
	u32 reason = peerdma_check_io(piece->file_off, piece->buf_off, piece->len,
				      flight->buffer->mem->len);

	if (!reason && flight->flags & PEERDMA_IO_NO_BOUNCE)
		reason = peerdma_check_align(piece->file_off, piece->buf_off, piece->len,
					     target->mem_align, target->offset_align);
	return reason;
}

/* A command is refused for one of its pieces. */
static void flight_refuse(struct flight *flight, struct piece *piece, struct peerdma_io *io,
			  int err)
{
	struct peerdma_seen seen;

	piece->number = 0;
	seen = piece_seen(piece, io);
	peerdma_account(&seen, err);
	if (flight->route)
		peerdma_route_put(flight->route);
}

/* All that can be said against a command before any of it is sent. Takes the route. */
static int flight_check(struct flight *flight, bool nowait, struct peerdma_target *target)
{
	struct piece *piece = flight->pieces;
	struct peerdma_io io = piece_io(piece);
	struct peerdma_route *route;
	u32 reason;
	int err;

	flight->route = NULL;
	err = peerdma_io_check(flight->file, flight->pfile, flight->buffer, &io, flight->write,
			       nowait, target, &route);
	if (err == -EAGAIN && nowait)
		return err;
	flight->bdev = target->bdev;
	if (err) {
		flight_refuse(flight, piece, &io, err);
		return err;
	}
	flight->route = route;
	while (++piece < flight->pieces + flight->nr) {
		reason = piece_reason(flight, piece, target);
		if (likely(!reason))
			continue;
		io = piece_io(piece);
		io.out_reason = reason;
		err = peerdma_reason_errno(reason);
		flight_refuse(flight, piece, &io, err);
		return err;
	}
	return 0;
}

/* Can all of it be sent without waiting? */
static bool may_fly(const struct flight *flight, const struct peerdma_target *target)
{
	struct file *file = flight->file;
	u64 end = i_size_read(file->f_mapping->host);
	u64 limit = S_ISREG(file_inode(file)->i_mode) ? rlimit(RLIMIT_FSIZE) : RLIM_INFINITY;
	const struct piece *piece;

	if (!(file->f_mode & FMODE_NOWAIT))
		return false;
	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++) {
		if (!peerdma_target_takes(target, piece->file_off, piece->buf_off, piece->len))
			return false;
		/* Behind the end a write has to wait for the filesystem, and a read to be cut. */
		if (peerdma_clip(piece->file_off, piece->len, end) < piece->len)
			return false;
		/* A filesystem cuts a write there, perhaps in the middle of a block. */
		if (flight->write && piece->file_off + piece->len > limit)
			return false;
	}
	if (!flight->write)
		return true;
	if (file->f_flags & O_APPEND || !file_start_write_trylock(file))
		return false;
	/* Not frozen now: if it will be, the submitter waits for it as in write(2). */
	file_end_write(file);
	return true;
}

static u64 count_cut(const struct flight *flight, u32 most)
{
	const struct piece *piece;
	u64 nr = 0;

	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++)
		nr += DIV_ROUND_UP(piece->len, most);
	return nr;
}

/* The next piece, of what begins @skip bytes after where @whole does. */
static void cut_piece(struct piece *piece, struct flight *flight, const struct piece *whole,
		      u32 skip, u32 most)
{
	piece->flight = flight;
	piece->segment = whole->segment;
	piece->file_off = whole->file_off + skip;
	piece->buf_off = whole->buf_off + skip;
	piece->len = min(whole->len - skip, most);
}

/* One in its place whose pieces the drive takes at once each, or ERR_PTR(-EAGAIN). */
static noinline struct flight *flight_cut(struct flight *flight, u32 most)
{
	const u64 nr = count_cut(flight, most);
	const struct piece *whole;
	struct piece *piece;
	struct flight *cut;
	u32 skip;

	if (nr > PIECES_MAX)
		return ERR_PTR(-EAGAIN);
	cut = kmalloc(struct_size(cut, pieces, nr), NOWAIT_ACCOUNT);
	if (!cut)
		return ERR_PTR(-EAGAIN);
	*cut = *flight;
	cut->nr = nr;
	cut->cut = true;
	piece = cut->pieces;
	for (whole = flight->pieces; whole < flight->pieces + flight->nr; whole++) {
		for (skip = 0; skip < whole->len; skip += piece++->len)
			cut_piece(piece, cut, whole, skip, most);
	}
	return cut;
}

static bool is_to_be_cut(const struct flight *flight, u32 most)
{
	const struct piece *piece;

	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++) {
		if (unlikely(piece->len > most))
			return true;
	}
	return false;
}

static noinline void piece_trace_submit(struct piece *piece)
{
	struct peerdma_io io = piece_io(piece);
	struct peerdma_seen seen;

	piece->number = peerdma_request_number();
	seen = piece_seen(piece, &io);
	trace_peerdma_submit(&seen);
}

/* What the CPU stored is read back before the sender's own count of @left lets the flight end. */
static ssize_t piece_read(struct piece *piece, struct iov_iter *iter)
{
	struct flight *flight = piece->flight;
	const struct peerdma_sent before = peerdma_sent();
	ssize_t res = vfs_iocb_iter_read(flight->file, &piece->kiocb, iter);
	const bool all_sent = peerdma_sent_all(&before, flight->file, piece->len);

	if ((res > 0 || res == -EIOCBQUEUED) &&
	    unlikely(!all_sent || !(piece->kiocb.ki_flags & IOCB_DIRECT)))
		peerdma_mem_read_back(flight->buffer->mem, piece->buf_off);
	return res;
}

static ssize_t piece_send(struct piece *piece, const struct kiocb *kiocb)
{
	struct flight *flight = piece->flight;
	struct iov_iter iter;

	piece->number = 0;
	piece->done = false;
	if (trace_peerdma_submit_enabled())
		piece_trace_submit(piece);
	piece->kiocb = *kiocb;
	piece->kiocb.ki_pos = piece->file_off;
	peerdma_mem_iter(flight->buffer->mem, &iter, &piece->bvec,
			 flight->write ? ITER_SOURCE : ITER_DEST, piece->buf_off, piece->len);
	if (flight->write)
		return vfs_iocb_iter_write(flight->file, &piece->kiocb, &iter);
	return piece_read(piece, &iter);
}

/* 0: all is done. -EIOCBQUEUED: all of the flight now belongs to its completion. */
static int flight_send(struct flight *flight, bool polled)
{
	struct piece *piece;
	struct kiocb kiocb;
	ssize_t res;

	init_sync_kiocb(&kiocb, flight->file);
	kiocb.ki_flags |= IOCB_DIRECT | IOCB_NOWAIT | IOCB_ALLOC_CACHE;
	if (polled)
		kiocb.ki_flags |= IOCB_HIPRI;
	kiocb.private = NULL;
	kiocb.ki_complete = piece_complete;
	kiocb.ki_ioprio = peerdma_ioprio(flight->buffer->provider, kiocb.ki_ioprio);
	atomic_set(&flight->left, flight->nr + 1);
	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++) {
		res = nowait_result(flight, piece_send(piece, &kiocb));
		if (res == -EIOCBQUEUED)
			continue;
		WRITE_ONCE(piece->done, true);
		piece_account(piece, res);
		/* Nothing is under way: io_uring's worker does it all. */
		if (res == -EAGAIN && piece == flight->pieces)
			return -EAGAIN;
		piece_done(piece, res);
	}
	if (!atomic_dec_and_test(&flight->left))
		return -EIOCBQUEUED;
	if (likely(!flight->put_off))
		return 0;
	flight_release(flight);
	return -EIOCBQUEUED;
}

static int flight_send_all(struct flight *flight, bool polled)
{
	struct blk_plug plug;
	int res;

	if (flight->nr == 1)
		return flight_send(flight, polled);
	blk_start_plug(&plug);
	plug.nr_ios = min(flight->nr, 32U); /* requests that are allocated at once */
	res = flight_send(flight, polled);
	blk_finish_plug(&plug);
	return res;
}

/* Inside the buffer's gate, under the ring's lock. @flight: as parsed; as sent, if it was cut. */
static int flight_fly(struct flight **flight, struct peerdma_ctx *ctx, bool polled)
{
	struct peerdma_target target;
	struct flight *cut = *flight;
	u32 most;
	int res;

	res = flight_check(*flight, true, &target);
	if (res)
		return res;
	most = peerdma_target_most(&target);
	if (!may_fly(*flight, &target) || unlikely(!most))
		cut = ERR_PTR(-EAGAIN);
	else if (is_to_be_cut(*flight, most))
		cut = flight_cut(*flight, most);
	if (IS_ERR(cut)) {
		peerdma_route_put((*flight)->route);
		return PTR_ERR(cut);
	}
	if (cut != *flight) {
		flight_free(ctx, *flight);
		*cmd_flight(cut->cmd) = cut;
		*flight = cut;
	}
	/* To be polled on a queue that cannot is refused below; its interrupt will do. */
	polled = polled && peerdma_queue_polls(bdev_get_queue(target.bdev));
	res = flight_send_all(cut, polled);
	if (res != -EIOCBQUEUED)
		peerdma_route_put(cut->route);
	return res;
}

/* Inside the buffer's gate after a success. */
static int flight_enter(struct flight *flight, struct peerdma_ctx *ctx, struct peerdma_io *io)
{
	struct peerdma_seen seen = { .file = flight->file, .req = io, .write = flight->write };

	flight->buffer = peerdma_buffer_enter(ctx, io->buf_id);
	if (!IS_ERR(flight->buffer))
		return 0;
	if (PTR_ERR(flight->buffer) == -ENODEV) {
		io->out_reason = PEERDMA_REASON_REVOKED;
		peerdma_account_revoked(ctx, &seen);
	}
	return PTR_ERR(flight->buffer);
}

/* @at, -EIOCBQUEUED: as flight_run(). */
static int flight_begin(struct flight **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
			bool polled)
{
	int res = flight_enter(*at, ctx, io);

	if (res)
		return res;
	res = flight_fly(at, ctx, polled);
	if (res == -EIOCBQUEUED)
		return res;
	/* The device may be faster than its submitter. */
	if (!res)
		flight_notify(*at);
	peerdma_gate_exit(&(*at)->buffer->gate);
	return res;
}

/* A command of segments is refused as a whole. */
static int flight_check_segments(struct flight *flight, struct peerdma_ctx *ctx,
				 struct peerdma_io *io)
{
	struct peerdma_target target;
	int err = flight_enter(flight, ctx, io);

	if (err)
		return err;
	err = flight_check(flight, false, &target);
	if (!err)
		peerdma_route_put(flight->route);
	peerdma_gate_exit(&flight->buffer->gate);
	return err;
}

/* The same where it may sleep: a piece after the other, each inside the gate for itself. */
static int flight_walk(struct flight *flight, struct peerdma_ctx *ctx, struct peerdma_io *io)
{
	struct piece *piece;
	int err;

	err = flight->user ? flight_check_segments(flight, ctx, io) : 0;
	if (err)
		return err;
	for (piece = flight->pieces; piece < flight->pieces + flight->nr; piece++)
		piece->res = piece_walk(flight, piece, NULL);
	return 0;
}

/*
 * SQE: addr is the buffer's id, len the bytes or the number of segments, file_index the file's
 * id, with PEERDMA_IO_FILE_ID in the upper half of addr; cmd[] is struct peerdma_uring_io or struct
 * peerdma_uring_vec. A descriptor is refused: a ring whose restrictions name the files that it may
 * use would reach any other one by it. The ring's memory is the process's: each member is read
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

static struct flight *flight_alloc(struct peerdma_ctx *ctx, bool nowait)
{
	struct flight *flight = stash_take(ctx);

	if (likely(flight))
		return flight;
	flight = kmem_cache_alloc(flight_cache, nowait ? NOWAIT_ACCOUNT : GFP_KERNEL_ACCOUNT);
	return flight ?: ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
}

static struct flight *flight_one(struct peerdma_ctx *ctx, const struct io_uring_sqe *sqe, u32 len,
				 bool nowait)
{
	const struct peerdma_uring_io *cmd = (const void *)sqe->cmd;
	struct flight *flight;

	/* A result has 31 bits. */
	if (len > MAX_RW_COUNT)
		return ERR_PTR(-EINVAL);
	flight = flight_alloc(ctx, nowait);
	if (IS_ERR(flight))
		return flight;
	flight->nr = 1;
	flight->user = NULL;
	flight->pieces[0].flight = flight;
	flight->pieces[0].segment = 0;
	flight->pieces[0].file_off = READ_ONCE(cmd->file_off);
	flight->pieces[0].buf_off = READ_ONCE(cmd->buf_off);
	flight->pieces[0].len = len;
	return flight;
}

/* The segments are read once, into the flight's own tail. */
static struct flight *flight_many(const struct io_uring_sqe *sqe, u32 nr, bool nowait)
{
	const struct peerdma_uring_vec *cmd = (const void *)sqe->cmd;
	struct peerdma_uring_seg __user *user = u64_to_user_ptr(READ_ONCE(cmd->segs));
	struct peerdma_uring_seg *segs;
	struct flight *flight;
	unsigned int i;
	size_t size;

	if (!nr || nr > PEERDMA_URING_SEGS || !user || READ_ONCE(cmd->__reserved))
		return ERR_PTR(-EINVAL);
	size = struct_size(flight, pieces, nr) + nr * sizeof(*segs);
	flight = nowait ? kmalloc(size, NOWAIT_ACCOUNT) : kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!flight)
		return ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
	flight->nr = nr;
	flight->user = user;
	segs = (void *)&flight->pieces[nr];
	if (copy_from_user(segs, user, nr * sizeof(*segs)))
		goto err_fault;
	for (i = 0; i < nr; i++) {
		if (segs[i].len > MAX_RW_COUNT)
			goto err_invalid;
		flight->pieces[i].flight = flight;
		flight->pieces[i].segment = i;
		flight->pieces[i].file_off = segs[i].file_off;
		flight->pieces[i].buf_off = segs[i].buf_off;
		flight->pieces[i].len = segs[i].len;
	}
	return flight;

err_fault:
	kvfree(flight);
	return ERR_PTR(-EFAULT);
err_invalid:
	kvfree(flight);
	return ERR_PTR(-EINVAL);
}

/* -EIOCBQUEUED: the flight now belongs to its completion. @at: another one may take its place. */
static int flight_run(struct flight **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
		      unsigned int issue_flags)
{
	struct flight *flight = *at;
	int res;

	flight->file = peerdma_io_file(ctx, io, &flight->pfile);
	if (IS_ERR(flight->file))
		return PTR_ERR(flight->file);
	if (issue_flags & IO_URING_F_NONBLOCK)
		res = flight_begin(at, ctx, io, issue_flags & IO_URING_F_IOPOLL);
	else
		res = flight_walk(flight, ctx, io);
	if (res == -EIOCBQUEUED)
		return res;
	flight = *at;
	peerdma_io_file_put(flight->file, flight->pfile);
	/* Outside of the gate: the process's memory may be slow. */
	return res ?: flight_result(flight);
}

static int uring_io(struct io_uring_cmd *cmd, unsigned int issue_flags, bool many, bool write)
{
	struct peerdma_ctx *ctx = cmd->file->private_data;
	const bool nowait = issue_flags & IO_URING_F_NONBLOCK;
	struct flight *flight;
	struct peerdma_io io;
	int res;

	if (!(cmd->file->f_mode & (write ? FMODE_READ : FMODE_WRITE)))
		return -EBADF;
	if (cmd->flags & CMD_FLAGS)
		return -EOPNOTSUPP;
	res = uring_parse(cmd->sqe, issue_flags, &io);
	if (res)
		return res;
	flight = many ? flight_many(cmd->sqe, io.len, nowait) :
			flight_one(ctx, cmd->sqe, io.len, nowait);
	if (flight == ERR_PTR(-EAGAIN))
		peerdma_uring_keep_sqe(cmd);
	if (IS_ERR(flight))
		return PTR_ERR(flight);
	flight->cmd = cmd;
	flight->buf_id = io.buf_id;
	flight->flags = io.flags;
	flight->cut = false;
	flight->put_off = false;
	flight->pid = task_tgid_nr(current);
	flight->write = write;
	*cmd_flight(cmd) = flight;
	res = flight_run(&flight, ctx, &io, issue_flags);
	if (res != -EIOCBQUEUED)
		flight_free(ctx, flight);
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

/* Of a ring that polls, under its lock: the flight is there until flight_done(), which wants it. */
int peerdma_uring_iopoll(struct io_uring_cmd *cmd, struct io_comp_batch *iob,
			 unsigned int poll_flags)
{
	struct flight *flight = *cmd_flight(cmd);
	struct piece *piece;
	int res = 0;

	if (!flight->file->f_op->iopoll)
		return 0;
	for (piece = flight->pieces; !res && piece < flight->pieces + flight->nr; piece++) {
		rcu_read_lock();
		if (!READ_ONCE(piece->done))
			res = flight->file->f_op->iopoll(&piece->kiocb, iob, poll_flags);
		rcu_read_unlock();
	}
	return res;
}

/* An open file of /dev/peerdma comes into being: 0 or -ENOMEM. */
int peerdma_uring_open(struct peerdma_ctx *ctx)
{
	ctx->stash = alloc_percpu_gfp(struct peerdma_stash, GFP_KERNEL_ACCOUNT);
	return ctx->stash ? 0 : -ENOMEM;
}

/* Each command holds the file: nothing of it is under way. */
void peerdma_uring_release(struct peerdma_ctx *ctx)
{
	struct flight *flight, *next;
	int cpu;

	for_each_possible_cpu(cpu) {
		for (flight = per_cpu_ptr(ctx->stash, cpu)->first; flight; flight = next) {
			next = flight->next;
			kmem_cache_free(flight_cache, flight);
		}
	}
	free_percpu(ctx->stash);
}

int peerdma_uring_init(void)
{
	again_wq = alloc_workqueue("peerdma_again", WQ_UNBOUND, AGAIN_MAX);
	if (!again_wq)
		return -ENOMEM;
	flight_cache = kmem_cache_create("peerdma_flight", struct_size_t(struct flight, pieces, 1),
					 0, SLAB_HWCACHE_ALIGN, NULL);
	if (flight_cache)
		return 0;
	destroy_workqueue(again_wq);
	return -ENOMEM;
}

/* No file of ours is open: each piece is done, but its worker may be on its last lines. */
void peerdma_uring_exit(void)
{
	destroy_workqueue(again_wq);
	kmem_cache_destroy(flight_cache);
}
