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
 * A command that is sent holds a usage reference of the buffer, and the file. The reference is put
 * as soon as the device is done: the task that would be told of it may be the one that waits for
 * it, in destroy or unbind. A piece that was put off waits without one and gets it by the buffer's
 * id: if the buffer is destroyed meanwhile, the piece ends as an ioctl that comes then. io_uring
 * holds /dev/peerdma itself open as long as a command is under way.
 *
 * Polling (IORING_SETUP_IOPOLL): the ring's task asks the file's own ->iopoll for each piece. Both
 * that and the end of a request, which is told in the task, happen under the ring's lock: a request
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
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/uring.h"
#include "trace.h"
#include "base/checks.h"
#include "base/counters.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/charge.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "routing/file.h"
#include "routing/route.h"
#include "routing/target.h"
#include "io/account.h"
#include "io/io.h"
#include "io/submitted.h"
#include "io/uring.h"

#define CMD_FLAGS GENMASK(23, 0) /* of an SQE's uring_cmd_flags; the others are the kernel's own */
#define PUT_OFF_MAX 256 /* commands that wait in a worker at a time: each is a kernel thread */
#define PIECES_MAX 256 /* of one command; what needs more goes to io_uring's worker */
#define CACHE_MAX 64 /* requests that a CPU keeps for an open file */
#define NOWAIT_ACCOUNT (GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT)

static struct kmem_cache *request_cache; /* of requests of one piece */
static struct workqueue_struct *put_off_wq;

/**
 * struct uring_piece - a part of a command that is one kiocb
 * @kiocb: what the file's methods know it by
 * @segment: of the command, which one it is a part of; 0: the only one
 * @bvec: the part of the buffer
 * @request: what it belongs to
 * @file_off: bytes
 * @buf_off: bytes
 * @len: bytes
 * @res: bytes or -errno, once it is done; -EAGAIN: it was put off
 * @number: for who listens, else 0
 * @done: no longer to be polled: the kiocb may name a bio that is gone; looked at under RCU, which
 *	keeps the bio
 */
struct uring_piece {
	struct kiocb kiocb;
	struct bio_vec bvec;
	struct uring_request *request;
	u64 file_off;
	u64 buf_off;
	u32 len;
	u32 segment;
	int res;
	u32 number;
	bool done;
};

/**
 * struct uring_request - a command that is being carried out
 * @cmd: what io_uring knows it by
 * @file: referenced, by way of @pfile or itself
 * @pfile: the registered file, or NULL
 * @buffer: a usage reference is held until the last piece that was sent is done; not to be used
 *	after that
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
 * @next: in a cache
 * @pieces: segments as they were read, once, from the process; if one is more than the drive takes
 *	at once, cut
 */
struct uring_request {
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
	struct uring_request *next;
	struct uring_piece pieces[] __counted_by(nr);
};

/**
 * struct peerdma_uring_cache - requests of one piece that a CPU keeps, so that a command allocates
 *	nothing
 * @first: linked by @next
 * @nr: how many
 *
 * An open file has one for each CPU, used by tasks that are on it, with preemption off.
 */
struct peerdma_uring_cache {
	struct uring_request *first;
	unsigned int nr;
};

static struct uring_request **cmd_uring_request(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct uring_request *);
}

static struct uring_request *cache_take(struct peerdma_ctx *ctx)
{
	struct peerdma_uring_cache *cache = get_cpu_ptr(ctx->uring_cache);
	struct uring_request *request = cache->first;

	if (request) {
		cache->first = request->next;
		cache->nr--;
	}
	put_cpu_ptr(ctx->uring_cache);
	return request;
}

/* False: there are enough. */
static bool cache_keep(struct peerdma_ctx *ctx, struct uring_request *request)
{
	struct peerdma_uring_cache *cache = get_cpu_ptr(ctx->uring_cache);
	const bool room = cache->nr < CACHE_MAX;

	if (room) {
		request->next = cache->first;
		cache->first = request;
		cache->nr++;
	}
	put_cpu_ptr(ctx->uring_cache);
	return room;
}

/* In a task. */
static void request_free(struct peerdma_ctx *ctx, struct uring_request *request)
{
	if (request->user || request->nr > 1)
		kvfree(request);
	else if (!cache_keep(ctx, request))
		kmem_cache_free(request_cache, request);
}

/**
 * struct segment_result - of a segment, while its pieces are looked at in order
 * @len: bytes that were asked for
 * @res: bytes from its beginning on that were moved; -errno of the first piece that failed, as if
 *	the segment were one: what is short without an error is the end of the file
 * @cut: a piece before this one came short
 */
struct segment_result {
	u64 len;
	int res;
	bool cut;
};

/* Of the segment that begins with pieces[*i], which is then the next one's. */
static struct segment_result segment_result(const struct uring_request *request, unsigned int *i)
{
	const u32 segment = request->pieces[*i].segment;
	struct segment_result result = {};
	const struct uring_piece *piece;

	for (; *i < request->nr && request->pieces[*i].segment == segment; (*i)++) {
		piece = &request->pieces[*i];
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
static int request_report(const struct uring_request *request)
{
	struct peerdma_uring_seg __user *user = request->user;
	unsigned int i = 0;

	if (!current->mm || current->flags & PF_KTHREAD)
		return -EFAULT;
	while (i < request->nr) {
		if (put_user(segment_result(request, &i).res, &user->out_res))
			return -EFAULT;
		user++;
	}
	return 0;
}

/* What the command results in, when all its pieces are done. */
static int request_result(const struct uring_request *request)
{
	int segments, whole = 0;
	struct segment_result result;
	unsigned int i = 0;

	if (likely(request->nr == 1 && !request->user))
		return request->pieces[0].res;
	if (!request->user)
		return segment_result(request, &i).res;
	if (likely(!request->cut)) {
		for (segments = 0; segments < request->nr; segments++)
			whole += request->pieces[segments].res == request->pieces[segments].len;
	} else {
		for (segments = 0; i < request->nr; segments++) {
			result = segment_result(request, &i);
			whole += result.res == result.len;
		}
	}
	if (likely(whole == segments))
		return whole;
	return request_report(request) ?: whole;
}

/* Of what was queued the kernel leaves this to its caller. */
static void request_notify(const struct uring_request *request)
{
	const struct uring_piece *piece = request->pieces;

	while (piece < request->pieces + request->nr && piece->res <= 0)
		piece++;
	if (unlikely(piece == request->pieces + request->nr))
		return;
	if (request->write)
		fsnotify_modify(request->file);
	else
		fsnotify_access(request->file);
}

static void request_done(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct uring_request *request = *cmd_uring_request(cmd);
	int res = request_result(request);

	request_notify(request);
	peerdma_io_file_put(request->file, request->pfile);
	request_free(cmd->file->private_data, request);
	peerdma_uring_done(cmd, res, issue_flags);
}

PEERDMA_URING_TASK_CB(request_task, request_done)

/* A piece as the request that it would be by itself. */
static struct peerdma_io piece_io(const struct uring_piece *piece)
{
	return (struct peerdma_io){
		.flags = piece->request->flags,
		.buf_id = piece->request->buf_id,
		.file_off = piece->file_off,
		.buf_off = piece->buf_off,
		.len = piece->len,
	};
}

/* Not the first piece of its segment, which counts as the request. */
static bool piece_is_part(const struct uring_piece *piece)
{
	return unlikely(piece->request->cut) && piece > piece->request->pieces &&
	       piece[-1].segment == piece->segment;
}

/* And as observers see it. */
static struct peerdma_io_end piece_seen(const struct uring_piece *piece,
					const struct peerdma_io *io)
{
	const struct uring_request *request = piece->request;

	return (struct peerdma_io_end){
		.buffer = request->buffer,
		.file = request->file,
		.bdev = request->bdev,
		.pair = request->route ? request->route->pair : NULL,
		.req = io,
		.pid = request->pid,
		.number = piece->number,
		.write = request->write,
		.async = true,
		.part = piece_is_part(piece),
	};
}

/* A piece that failed, became a copy, or that somebody is watching. */
static noinline void piece_account_any(const struct uring_piece *piece, ssize_t res)
{
	struct peerdma_io io = piece_io(piece);
	struct peerdma_io_end seen = piece_seen(piece, &io);

	if (res > 0) {
		io.out_done = res;
		if (!(piece->kiocb.ki_flags & IOCB_DIRECT)) {
			io.out_host = res;
		} else if (piece->request->route->software) {
			io.out_host = res;
			io.out_reason = PEERDMA_REASON_RDMA_SOFTWARE;
		} else {
			io.out_direct = res;
		}
	}
	peerdma_account(&seen, min_t(ssize_t, res, 0));
}

/* The end of a piece that was sent without waiting: bytes or -errno. */
static void piece_account(const struct uring_piece *piece, ssize_t res)
{
	const struct uring_request *request = piece->request;

	if (unlikely(res <= 0 || !(piece->kiocb.ki_flags & IOCB_DIRECT) ||
		     request->route->software || peerdma_trace_is_on()))
		return piece_account_any(piece, res);
	peerdma_count_direct(&request->buffer->opener->stats, res, request->write,
			     piece_is_part(piece));
	peerdma_count_direct(&request->route->pair->stats, res, request->write,
			     piece_is_part(piece));
}

/* As the ioctl would do it; may sleep. @submitter: NULL: the current task. */
static int piece_run(struct uring_request *request, struct uring_piece *piece,
		     struct task_struct *submitter)
{
	struct peerdma_io io = piece_io(piece);
	int err = peerdma_io_run(request->cmd->file->private_data, request->file, request->pfile,
				 &io, request->write, submitter);

	return err ?: (int)io.out_done;
}

/* Whose rights a command has: those of its personality, its polling thread or its task. */
static const struct cred *request_creds(struct io_uring_cmd *cmd)
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
static void priority_enter(const struct uring_request *request)
{
	const u16 ioprio = request->pieces[0].kiocb.ki_ioprio;

	set_task_ioprio(current,
			IOPRIO_PRIO_VALUE(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio)));
}

static void priority_exit(void)
{
	set_task_ioprio(current, IOPRIO_DEFAULT);
}

/* Without a usage reference: each piece gets its own, and waits for nobody's lock before. */
static void request_run_put_off(struct uring_request *request, struct task_struct *submitter)
{
	struct uring_piece *piece;

	for (piece = request->pieces; piece < request->pieces + request->nr; piece++) {
		if (piece->res != -EAGAIN)
			continue;
		piece->res = -EINTR;
		if (!peerdma_task_is_dying(submitter))
			piece->res = piece_run(request, piece, submitter);
	}
}

/*
 * A worker acts for the submitter, by its rights, its cgroups and its priority. io_uring keeps the
 * task.
 */
static void request_run_put_off_work(struct work_struct *work)
{
	struct uring_request *request = container_of(work, struct uring_request, again);
	struct task_struct *submitter = io_uring_cmd_get_task(request->cmd);
	const struct cred *creds = request_creds(request->cmd);
	struct peerdma_payers payers;
	const struct cred *own;

	priority_enter(request);
	own = override_creds(creds);
	peerdma_payers_enter(&payers, submitter);
	request_run_put_off(request, submitter);
	peerdma_payers_exit(&payers);
	revert_creds(own);
	priority_exit();
	put_cred(creds);
	io_uring_cmd_do_in_task_lazy(request->cmd, request_task);
}

/* The last piece that was sent is done: the request now belongs to a worker, or to its task. */
static void request_release(struct uring_request *request)
{
	peerdma_route_put(request->route);
	peerdma_usage_put(&request->buffer->usage);
	if (likely(!request->put_off)) {
		io_uring_cmd_do_in_task_lazy(request->cmd, request_task);
		return;
	}
	INIT_WORK(&request->again, request_run_put_off_work);
	queue_work(put_off_wq, &request->again);
}

/* True: that was the last one. */
static bool piece_done(struct uring_piece *piece, ssize_t res)
{
	struct uring_request *request = piece->request;

	piece->res = res;
	if (unlikely(res == -EAGAIN))
		WRITE_ONCE(request->put_off, true);
	return atomic_dec_and_test(&request->left);
}

/*
 * Some filesystems say that they cannot, where they cannot without waiting. What was moved while
 * the memory went is an error.
 */
static ssize_t nowait_result(const struct uring_request *request, ssize_t res)
{
	if (unlikely(READ_ONCE(request->buffer->lost)) && res > 0)
		return -ENODEV;
	return res == -EOPNOTSUPP ? -EAGAIN : res;
}

/* From the device's interrupt, as a rule. */
static void piece_complete(struct kiocb *kiocb, long res)
{
	struct uring_piece *piece = container_of(kiocb, struct uring_piece, kiocb);

	WRITE_ONCE(piece->done, true);
	if (piece->request->write)
		kiocb_end_write(kiocb);
	else if (unlikely(piece->request->route->software))
		peerdma_mem_read_back(piece->request->buffer->mem, piece->buf_off);
	res = nowait_result(piece->request, res);
	piece_account(piece, res);
	if (piece_done(piece, res))
		request_release(piece->request);
}

static u32 piece_reason(const struct uring_request *request, const struct uring_piece *piece,
			const struct peerdma_target *target)
{
	u32 reason = peerdma_check_io(piece->file_off, piece->buf_off, piece->len,
				      request->buffer->mem->len);

	if (!reason && request->flags & PEERDMA_IO_NO_BOUNCE)
		reason = peerdma_check_align(piece->file_off, piece->buf_off, piece->len,
					     target->mem_align, target->offset_align);
	return reason;
}

/* A command is refused for one of its pieces. */
static void request_refuse(struct uring_request *request, struct uring_piece *piece,
			   struct peerdma_io *io, int err)
{
	struct peerdma_io_end seen;

	piece->number = 0;
	seen = piece_seen(piece, io);
	peerdma_account(&seen, err);
	if (request->route)
		peerdma_route_put(request->route);
}

/* All that can be said against a command before any of it is sent. Takes the route. */
static int request_check(struct uring_request *request, bool nowait, struct peerdma_target *target)
{
	struct uring_piece *piece = request->pieces;
	struct peerdma_io io = piece_io(piece);
	struct peerdma_route *route;
	u32 reason;
	int err;

	request->route = NULL;
	err = peerdma_io_check(request->file, request->pfile, request->buffer, &io, request->write,
			       nowait, target, &route);
	if (err == -EAGAIN && nowait)
		return err;
	request->bdev = target->bdev;
	if (err) {
		request_refuse(request, piece, &io, err);
		return err;
	}
	request->route = route;
	while (++piece < request->pieces + request->nr) {
		reason = piece_reason(request, piece, target);
		if (likely(!reason))
			continue;
		io = piece_io(piece);
		io.out_reason = reason;
		err = peerdma_reason_errno(reason);
		request_refuse(request, piece, &io, err);
		return err;
	}
	return 0;
}

/* Can all of it be sent without waiting? */
static bool request_is_nowait(const struct uring_request *request,
			      const struct peerdma_target *target)
{
	struct file *file = request->file;
	u64 end = i_size_read(file->f_mapping->host);
	u64 limit = S_ISREG(file_inode(file)->i_mode) ? rlimit(RLIMIT_FSIZE) : RLIM_INFINITY;
	const struct uring_piece *piece;

	if (!(file->f_mode & FMODE_NOWAIT))
		return false;
	for (piece = request->pieces; piece < request->pieces + request->nr; piece++) {
		if (!peerdma_target_is_aligned(target, piece->file_off, piece->buf_off, piece->len))
			return false;
		/* Behind the end a write has to wait for the filesystem, and a read to be cut. */
		if (peerdma_io_clip(piece->file_off, piece->len, end) < piece->len)
			return false;
		/* A filesystem cuts a write there, perhaps in the middle of a block. */
		if (request->write && piece->file_off + piece->len > limit)
			return false;
	}
	if (!request->write)
		return true;
	/* Not frozen now: if it will be, the submitter waits for it as in write(2). */
	return !(file->f_flags & O_APPEND) && !peerdma_io_is_frozen(file);
}

static u64 request_count_pieces(const struct uring_request *request, u32 most)
{
	const struct uring_piece *piece;
	u64 nr = 0;

	for (piece = request->pieces; piece < request->pieces + request->nr; piece++)
		nr += DIV_ROUND_UP(piece->len, most);
	return nr;
}

/* The next piece, of what begins @skip bytes after where @whole does. */
static void piece_cut(struct uring_piece *piece, struct uring_request *request,
		      const struct uring_piece *whole, u32 skip, u32 most)
{
	piece->request = request;
	piece->segment = whole->segment;
	piece->file_off = whole->file_off + skip;
	piece->buf_off = whole->buf_off + skip;
	piece->len = min(whole->len - skip, most);
}

/* One in its place whose pieces the drive takes at once each, or ERR_PTR(-EAGAIN). */
static noinline struct uring_request *request_cut(struct uring_request *request, u32 most)
{
	const u64 nr = request_count_pieces(request, most);
	const struct uring_piece *whole;
	struct uring_piece *piece;
	struct uring_request *cut;
	u32 skip;

	if (nr > PIECES_MAX)
		return ERR_PTR(-EAGAIN);
	cut = kmalloc(struct_size(cut, pieces, nr), NOWAIT_ACCOUNT);
	if (!cut)
		return ERR_PTR(-EAGAIN);
	*cut = *request;
	cut->nr = nr;
	cut->cut = true;
	piece = cut->pieces;
	for (whole = request->pieces; whole < request->pieces + request->nr; whole++) {
		for (skip = 0; skip < whole->len; skip += piece++->len)
			piece_cut(piece, cut, whole, skip, most);
	}
	return cut;
}

static bool request_is_to_be_cut(const struct uring_request *request, u32 most)
{
	const struct uring_piece *piece;

	for (piece = request->pieces; piece < request->pieces + request->nr; piece++) {
		if (unlikely(piece->len > most))
			return true;
	}
	return false;
}

static noinline void piece_trace_submit(struct uring_piece *piece)
{
	struct peerdma_io io = piece_io(piece);
	struct peerdma_io_end seen;

	piece->number = peerdma_request_number();
	seen = piece_seen(piece, &io);
	trace_peerdma_submit(&seen);
}

/* *stored is set if the CPU may have stored some of what is read. */
static ssize_t piece_read(struct uring_piece *piece, struct iov_iter *iter, bool *stored)
{
	struct file *file = piece->request->file;
	const struct peerdma_submitted before = peerdma_submitted();
	ssize_t res = vfs_iocb_iter_read(file, &piece->kiocb, iter);

	if (unlikely(!peerdma_submitted_all(&before, file, piece->len) ||
		     !(piece->kiocb.ki_flags & IOCB_DIRECT)))
		*stored = true;
	return res;
}

static ssize_t piece_send(struct uring_piece *piece, const struct kiocb *kiocb, bool *stored)
{
	struct uring_request *request = piece->request;
	struct iov_iter iter;

	piece->number = 0;
	piece->done = false;
	if (trace_peerdma_submit_enabled())
		piece_trace_submit(piece);
	piece->kiocb = *kiocb;
	piece->kiocb.ki_pos = piece->file_off;
	peerdma_mem_iter(request->buffer->mem, &iter, &piece->bvec,
			 request->write ? ITER_SOURCE : ITER_DEST, piece->buf_off, piece->len);
	if (request->write)
		return vfs_iocb_iter_write(request->file, &piece->kiocb, &iter);
	return piece_read(piece, &iter, stored);
}

/* 0: all is done. -EIOCBQUEUED: all of the request now belongs to its completion. */
static int request_send_pieces(struct uring_request *request, bool polled)
{
	struct uring_piece *piece;
	bool stored = false;
	struct kiocb kiocb;
	ssize_t res;

	init_sync_kiocb(&kiocb, request->file);
	kiocb.ki_flags |= IOCB_DIRECT | IOCB_NOWAIT | IOCB_ALLOC_CACHE;
	if (polled)
		kiocb.ki_flags |= IOCB_HIPRI;
	kiocb.private = NULL;
	kiocb.ki_complete = piece_complete;
	kiocb.ki_ioprio = peerdma_ioprio(request->buffer->provider, kiocb.ki_ioprio);
	atomic_set(&request->left, request->nr + 1);
	for (piece = request->pieces; piece < request->pieces + request->nr; piece++) {
		res = nowait_result(request, piece_send(piece, &kiocb, &stored));
		if (res == -EIOCBQUEUED)
			continue;
		WRITE_ONCE(piece->done, true);
		piece_account(piece, res);
		/* Nothing is under way: io_uring's worker does it all. */
		if (res == -EAGAIN && piece == request->pieces)
			return -EAGAIN;
		piece_done(piece, res);
	}
	/* All pieces are of one buffer, and the request cannot end before this. */
	if (unlikely(stored))
		peerdma_mem_read_back(request->buffer->mem, request->pieces[0].buf_off);
	if (!atomic_dec_and_test(&request->left))
		return -EIOCBQUEUED;
	if (likely(!request->put_off))
		return 0;
	request_release(request);
	return -EIOCBQUEUED;
}

static int request_send(struct uring_request *request, bool polled)
{
	struct blk_plug plug;
	int res;

	if (request->nr == 1)
		return request_send_pieces(request, polled);
	blk_start_plug(&plug);
	plug.nr_ios = min(request->nr, 32U); /* requests that are allocated at once */
	res = request_send_pieces(request, polled);
	blk_finish_plug(&plug);
	return res;
}

/*
 * With a usage reference of the buffer, under the ring's lock. @request: as parsed; as sent, if it
 * was cut.
 */
static int request_run_nowait(struct uring_request **request, struct peerdma_ctx *ctx, bool polled)
{
	struct peerdma_target target;
	struct uring_request *cut = *request;
	u32 most;
	int res;

	res = request_check(*request, true, &target);
	if (res)
		return res;
	most = peerdma_target_max_len(&target);
	if (!request_is_nowait(*request, &target) || unlikely(!most))
		cut = ERR_PTR(-EAGAIN);
	else if (request_is_to_be_cut(*request, most))
		cut = request_cut(*request, most);
	if (IS_ERR(cut)) {
		peerdma_route_put((*request)->route);
		return PTR_ERR(cut);
	}
	if (cut != *request) {
		request_free(ctx, *request);
		*cmd_uring_request(cut->cmd) = cut;
		*request = cut;
	}
	/* To be polled on a queue that cannot is refused below; its interrupt will do. */
	polled = polled && peerdma_queue_polls(bdev_get_queue(target.bdev));
	res = request_send(cut, polled);
	if (res != -EIOCBQUEUED)
		peerdma_route_put(cut->route);
	return res;
}

/* With a usage reference of the buffer after a success. */
static int request_enter(struct uring_request *request, struct peerdma_ctx *ctx,
			 struct peerdma_io *io)
{
	request->buffer = peerdma_io_enter(ctx, request->file, io, request->write);
	return PTR_ERR_OR_ZERO(request->buffer);
}

/* @at, -EIOCBQUEUED: as request_start(). */
static int request_begin(struct uring_request **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
			 bool polled)
{
	int res = request_enter(*at, ctx, io);

	if (res)
		return res;
	res = request_run_nowait(at, ctx, polled);
	if (res == -EIOCBQUEUED)
		return res;
	/* The device may be faster than its submitter. */
	if (!res)
		request_notify(*at);
	peerdma_usage_put(&(*at)->buffer->usage);
	return res;
}

/* A command of segments is refused as a whole. */
static int request_check_segments(struct uring_request *request, struct peerdma_ctx *ctx,
				  struct peerdma_io *io)
{
	struct peerdma_target target;
	int err = request_enter(request, ctx, io);

	if (err)
		return err;
	err = request_check(request, false, &target);
	if (!err)
		peerdma_route_put(request->route);
	peerdma_usage_put(&request->buffer->usage);
	return err;
}

/* The same where it may sleep: a piece after the other, each with a usage reference of its own. */
static int request_run(struct uring_request *request, struct peerdma_ctx *ctx,
		       struct peerdma_io *io)
{
	struct uring_piece *piece;
	int err;

	err = request->user ? request_check_segments(request, ctx, io) : 0;
	if (err)
		return err;
	for (piece = request->pieces; piece < request->pieces + request->nr; piece++)
		piece->res = piece_run(request, piece, NULL);
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

static struct uring_request *request_alloc(struct peerdma_ctx *ctx, bool nowait)
{
	struct uring_request *request = cache_take(ctx);

	if (likely(request))
		return request;
	request = kmem_cache_alloc(request_cache, nowait ? NOWAIT_ACCOUNT : GFP_KERNEL_ACCOUNT);
	return request ?: ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
}

static struct uring_request *request_parse_one(struct peerdma_ctx *ctx,
					       const struct io_uring_sqe *sqe, u32 len, bool nowait)
{
	const struct peerdma_uring_io *cmd = (const void *)sqe->cmd;
	struct uring_request *request;

	/* A result has 31 bits. */
	if (len > MAX_RW_COUNT)
		return ERR_PTR(-EINVAL);
	request = request_alloc(ctx, nowait);
	if (IS_ERR(request))
		return request;
	request->nr = 1;
	request->user = NULL;
	request->pieces[0].request = request;
	request->pieces[0].segment = 0;
	request->pieces[0].file_off = READ_ONCE(cmd->file_off);
	request->pieces[0].buf_off = READ_ONCE(cmd->buf_off);
	request->pieces[0].len = len;
	return request;
}

/* The segments are read once, into the request's own tail. */
static struct uring_request *request_parse_many(const struct io_uring_sqe *sqe, u32 nr, bool nowait)
{
	const struct peerdma_uring_vec *cmd = (const void *)sqe->cmd;
	struct peerdma_uring_seg __user *user = u64_to_user_ptr(READ_ONCE(cmd->segs));
	struct peerdma_uring_seg *segs;
	struct uring_request *request;
	unsigned int i;
	size_t size;

	if (!nr || nr > PEERDMA_URING_SEGS || !user || READ_ONCE(cmd->__reserved))
		return ERR_PTR(-EINVAL);
	size = struct_size(request, pieces, nr) + nr * sizeof(*segs);
	request = nowait ? kmalloc(size, NOWAIT_ACCOUNT) : kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!request)
		return ERR_PTR(nowait ? -EAGAIN : -ENOMEM);
	request->nr = nr;
	request->user = user;
	segs = (void *)&request->pieces[nr];
	if (copy_from_user(segs, user, nr * sizeof(*segs)))
		goto err_fault;
	for (i = 0; i < nr; i++) {
		if (segs[i].len > MAX_RW_COUNT)
			goto err_invalid;
		request->pieces[i].request = request;
		request->pieces[i].segment = i;
		request->pieces[i].file_off = segs[i].file_off;
		request->pieces[i].buf_off = segs[i].buf_off;
		request->pieces[i].len = segs[i].len;
	}
	return request;

err_fault:
	kvfree(request);
	return ERR_PTR(-EFAULT);
err_invalid:
	kvfree(request);
	return ERR_PTR(-EINVAL);
}

/* -EIOCBQUEUED: the request now belongs to its completion. @at: another one may take its place. */
static int request_start(struct uring_request **at, struct peerdma_ctx *ctx, struct peerdma_io *io,
			 unsigned int issue_flags)
{
	struct uring_request *request = *at;
	int res;

	request->file = peerdma_io_file(ctx, io, &request->pfile);
	if (IS_ERR(request->file))
		return PTR_ERR(request->file);
	if (issue_flags & IO_URING_F_NONBLOCK)
		res = request_begin(at, ctx, io, issue_flags & IO_URING_F_IOPOLL);
	else
		res = request_run(request, ctx, io);
	if (res == -EIOCBQUEUED)
		return res;
	request = *at;
	peerdma_io_file_put(request->file, request->pfile);
	/* Without the usage reference: the process's memory may be slow. */
	return res ?: request_result(request);
}

static int uring_io(struct io_uring_cmd *cmd, unsigned int issue_flags, bool many, bool write)
{
	struct peerdma_ctx *ctx = cmd->file->private_data;
	const bool nowait = issue_flags & IO_URING_F_NONBLOCK;
	struct uring_request *request;
	struct peerdma_io io;
	int res;

	if (!(cmd->file->f_mode & (write ? FMODE_READ : FMODE_WRITE)))
		return -EBADF;
	if (cmd->flags & CMD_FLAGS)
		return -EOPNOTSUPP;
	res = uring_parse(cmd->sqe, issue_flags, &io);
	if (res)
		return res;
	request = many ? request_parse_many(cmd->sqe, io.len, nowait) :
			 request_parse_one(ctx, cmd->sqe, io.len, nowait);
	if (request == ERR_PTR(-EAGAIN))
		peerdma_uring_keep_sqe(cmd);
	if (IS_ERR(request))
		return PTR_ERR(request);
	request->cmd = cmd;
	request->buf_id = io.buf_id;
	request->flags = io.flags;
	request->cut = false;
	request->put_off = false;
	request->pid = task_tgid_nr(current);
	request->write = write;
	*cmd_uring_request(cmd) = request;
	res = request_start(&request, ctx, &io, issue_flags);
	if (res != -EIOCBQUEUED)
		request_free(ctx, request);
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

/*
 * Of a ring that polls, under its lock: the request is there until request_done(), which wants it.
 */
int peerdma_uring_iopoll(struct io_uring_cmd *cmd, struct io_comp_batch *iob,
			 unsigned int poll_flags)
{
	struct uring_request *request = *cmd_uring_request(cmd);
	struct uring_piece *piece;
	int res = 0;

	if (!request->file->f_op->iopoll)
		return 0;
	for (piece = request->pieces; !res && piece < request->pieces + request->nr; piece++) {
		rcu_read_lock();
		if (!READ_ONCE(piece->done))
			res = request->file->f_op->iopoll(&piece->kiocb, iob, poll_flags);
		rcu_read_unlock();
	}
	return res;
}

/* An open file of /dev/peerdma comes into being: 0 or -ENOMEM. */
int peerdma_uring_open(struct peerdma_ctx *ctx)
{
	ctx->uring_cache = alloc_percpu_gfp(struct peerdma_uring_cache, GFP_KERNEL_ACCOUNT);
	return ctx->uring_cache ? 0 : -ENOMEM;
}

/* Each command holds the file: nothing of it is under way. */
void peerdma_uring_release(struct peerdma_ctx *ctx)
{
	struct uring_request *request, *next;
	int cpu;

	for_each_possible_cpu(cpu) {
		for (request = per_cpu_ptr(ctx->uring_cache, cpu)->first; request; request = next) {
			next = request->next;
			kmem_cache_free(request_cache, request);
		}
	}
	free_percpu(ctx->uring_cache);
}

int peerdma_uring_init(void)
{
	put_off_wq = alloc_workqueue("peerdma_again", WQ_UNBOUND, PUT_OFF_MAX);
	if (!put_off_wq)
		return -ENOMEM;
	request_cache = kmem_cache_create("peerdma_uring_request",
					  struct_size_t(struct uring_request, pieces, 1), 0,
					  SLAB_HWCACHE_ALIGN, NULL);
	if (request_cache)
		return 0;
	destroy_workqueue(put_off_wq);
	return -ENOMEM;
}

/* No file of ours is open: each piece is done, but its worker may be on its last lines. */
void peerdma_uring_exit(void)
{
	destroy_workqueue(put_off_wq);
	kmem_cache_destroy(request_cache);
}
