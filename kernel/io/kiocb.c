// SPDX-License-Identifier: GPL-2.0
/*
 * Submits one kiocb and waits for it. The kernel's own helpers call the file's methods: they do the
 * mode, security and notification checks.
 */
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/ioprio.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/uio.h>

#include "compat/compat.h"
#include "memory/buffer.h"
#include "memory/fs_call.h"
#include "memory/provider.h"
#include "io/kiocb.h"
#include "io/request.h"
#include "io/submitted.h"

/*
 * The second guard against merging, after that of queue.c. The block layer merges only bios of
 * equal priority, hint included, and no other code uses this hint. A user can forge it: see
 * Documentation/design.md, "Merging".
 */
#define KIOCB_HINT 512 /* plus the provider's id: providers may be mapped by different rules */

u16 peerdma_kiocb_ioprio(struct peerdma_provider *provider, u16 ioprio)
{
	u16 hint = KIOCB_HINT | (provider->id % KIOCB_HINT);

	/* submit_bio() overwrites a priority of class NONE, with its hint. */
	if (IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_NONE)
		return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, IOPRIO_BE_NORM, hint);
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio), hint);
}

/* Bytes in the page cache must be on the storage before the request returns. */
static ssize_t kiocb_write_back(struct peerdma_request *io, loff_t pos, ssize_t len)
{
	int err;

	/* A server that has accepted a write need not have stored it. */
	if (unlikely(!io->target.bdev))
		err = vfs_fsync_range(io->file, pos, pos + len - 1, 1);
	else
		err = filemap_write_and_wait_range(io->file->f_mapping, pos, pos + len - 1);

	return err ?: len;
}

/* A kiocb and the task that waits for it. */
struct kiocb_wait {
	struct kiocb kiocb;
	struct task_struct *sleeper; /* NULL: it is done */
	ssize_t res;
};

static void kiocb_wait_complete(struct kiocb *kiocb, long res)
{
	struct kiocb_wait *wait = container_of(kiocb, struct kiocb_wait, kiocb);
	struct task_struct *sleeper = wait->sleeper;

	wait->res = res;
	/* From here on the sleeper may return and exit. RCU keeps its task_struct. */
	rcu_read_lock();
	smp_store_release(&wait->sleeper, NULL); /* pairs with kiocb_wait_done() */
	wake_up_process(sleeper);
	rcu_read_unlock();
}

static void kiocb_wait_complete_write(struct kiocb *kiocb, long res)
{
	peerdma_iocb_end_write(kiocb);
	kiocb_wait_complete(kiocb, res);
}

/*
 * Direct reads are submitted asynchronously and waited for here. A filesystem that waits itself
 * arms a timer for each read, which costs more than this module's whole part. Writes stay
 * synchronous: an asynchronous write may be completed by a worker thread instead of the interrupt.
 *
 * But not to NFS: a killed task stops waiting inside NFS, which goes on using the pages. The wait
 * here cannot be interrupted, so the pages stay until the last byte.
 */
static __always_inline void kiocb_wait_init(const struct peerdma_request *io,
					    struct kiocb_wait *wait)
{
	wait->sleeper = current;
	if (!io->write)
		wait->kiocb.ki_complete = kiocb_wait_complete;
	else if (unlikely(!io->target.bdev) && wait->kiocb.ki_flags & IOCB_DIRECT)
		wait->kiocb.ki_complete = kiocb_wait_complete_write;
}

static __always_inline ssize_t kiocb_wait_done(struct kiocb_wait *wait)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (!smp_load_acquire(&wait->sleeper)) /* pairs with kiocb_wait_complete() */
			break;
		io_schedule();
	}
	__set_current_state(TASK_RUNNING);
	return wait->res;
}

static __always_inline ssize_t kiocb_call_method(struct peerdma_request *io, struct kiocb *kiocb,
						 struct iov_iter *iter)
{
	const size_t len = iov_iter_count(iter);
	struct peerdma_submitted before;
	ssize_t ret;

	if (io->write)
		return peerdma_iocb_iter_write(io->file, kiocb, iter);
	before = peerdma_submitted();
	ret = vfs_iocb_iter_read(io->file, kiocb, iter);
	io->cpu_stored = !peerdma_submitted_all(&before, io->file, len);
	return ret;
}

/*
 * Calls the file's method. An unbind that waits for the memory may cancel the call while it sleeps
 * for a regular file. A block device takes no lock that a user could hold.
 */
static __always_inline ssize_t kiocb_call(struct peerdma_request *io, struct kiocb *kiocb,
					  struct iov_iter *iter, bool *canceled)
{
	struct peerdma_fs_call call;
	ssize_t ret;

	if (!S_ISREG(file_inode(io->file)->i_mode) || io->outside)
		return kiocb_call_method(io, kiocb, iter);
	call.buffer = io->buffer;
	call.bounce = io->bounce;
	call.kiocb = kiocb;
	call.iter = iter;
	peerdma_fs_call_begin(&call);
	ret = kiocb_call_method(io, kiocb, iter);
	*canceled = !peerdma_fs_call_end(&call);
	return ret;
}

/* @ret: the method's. A write may have written a part before it was canceled. */
static noinline ssize_t kiocb_end_canceled(struct peerdma_request *io, ssize_t ret)
{
	const int err = peerdma_request_set_reason(io, PEERDMA_REASON_REVOKED);

	io->outside = true;
	return io->write && ret > 0 ? ret : err;
}

/*
 * Submits one kiocb. *direct: asks for direct I/O (every read does), and returns whether it was
 * direct: a filesystem that falls back to the page cache clears IOCB_DIRECT.
 */
ssize_t peerdma_kiocb_submit(struct peerdma_request *io, struct iov_iter *iter, u64 file_off,
			     bool *direct)
{
	struct kiocb *kiocb;
	struct kiocb_wait wait;
	bool canceled = false;
	ssize_t ret;

	kiocb = &wait.kiocb;
	init_sync_kiocb(kiocb, io->file);
	if (*direct)
		kiocb->ki_flags |= IOCB_DIRECT;
	else
		kiocb->ki_flags &= ~IOCB_DIRECT;
	kiocb->ki_ioprio = peerdma_kiocb_ioprio(io->buffer->provider, kiocb->ki_ioprio);
	kiocb->ki_pos = file_off;
	kiocb_wait_init(io, &wait);
	ret = kiocb_call(io, kiocb, iter, &canceled);
	if (ret == -EIOCBQUEUED) {
		ret = kiocb_wait_done(&wait);
		/* The VFS leaves the notification of a queued kiocb to its submitter. */
		if (ret > 0 && io->write)
			fsnotify_modify(io->file);
		else if (ret > 0)
			fsnotify_access(io->file);
	} else if (io->write && ret > 0 && !*direct) {
		/* The offset of an appending write is known only now. */
		ret = kiocb_write_back(io, kiocb->ki_pos - ret, ret);
	}
	*direct = kiocb->ki_flags & IOCB_DIRECT;
	if (unlikely(canceled))
		return kiocb_end_canceled(io, ret);
	return ret;
}
