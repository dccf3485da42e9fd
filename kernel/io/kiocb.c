// SPDX-License-Identifier: GPL-2.0
/*
 * One kiocb: handed to the file's own methods by the helpers that do the mode, security and
 * notification checks, and waited for.
 */
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/ioprio.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/uio.h>

#include "compat/compat.h"
#include "memory/buffer.h"
#include "memory/provider.h"
#include "io/kiocb.h"
#include "io/request.h"
#include "io/submitted.h"

/*
 * The second guard against merging, behind queue.c's: bios merge only where their priority is
 * equal, hint included, and nothing in the kernel uses this hint. It can be forged; what it is for
 * is in Documentation/design.md, "Merging".
 */
#define KIOCB_HINT 512 /* plus the provider, modulo 512: two of them may map by different rules */

u16 peerdma_kiocb_ioprio(struct peerdma_provider *provider, u16 ioprio)
{
	u16 hint = KIOCB_HINT | (provider->id % KIOCB_HINT);

	/* submit_bio() replaces class NONE, hint and all. */
	if (IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_NONE)
		return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, IOPRIO_BE_NORM, hint);
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio), hint);
}

/* What went into the page cache is to be on the storage when the caller hears of it. */
ssize_t peerdma_kiocb_write_back(struct peerdma_request *io, loff_t pos, ssize_t len)
{
	int err;

	/* A server has not stored it when it has taken it. */
	if (unlikely(!io->target.bdev))
		err = vfs_fsync_range(io->file, pos, pos + len - 1, 1);
	else
		err = filemap_write_and_wait_range(io->file->f_mapping, pos, pos + len - 1);

	return err ?: len;
}

/* A kiocb, and who sleeps until it is done. */
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
	/* From here on the sleeper may leave, and end: RCU keeps its struct. */
	rcu_read_lock();
	smp_store_release(&wait->sleeper, NULL); /* pairs with kiocb_wait_done() */
	wake_up_process(sleeper);
	rcu_read_unlock();
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

/*
 * Direct reads are sent as if nobody waited, and waited for here: a filesystem that waits itself
 * arms a timer each time, to wake up now and then, which costs more than our whole own part. A
 * write that nobody waits for might be completed by a worker thread instead of the interrupt.
 */
static ssize_t kiocb_read(struct peerdma_request *io, struct kiocb_wait *wait,
			  struct iov_iter *iter)
{
	const size_t len = iov_iter_count(iter);
	struct peerdma_submitted before;
	ssize_t ret;

	wait->sleeper = current;
	wait->kiocb.ki_complete = kiocb_wait_complete;
	before = peerdma_submitted();
	ret = vfs_iocb_iter_read(io->file, &wait->kiocb, iter);
	io->stored = !peerdma_submitted_all(&before, io->file, len);
	if (ret != -EIOCBQUEUED)
		return ret;
	ret = kiocb_wait_done(wait);
	/* Of what was queued the kernel leaves this to its caller. */
	if (ret > 0)
		fsnotify_access(io->file);
	return ret;
}

static void kiocb_wait_complete_write(struct kiocb *kiocb, long res)
{
	peerdma_iocb_end_write(kiocb);
	kiocb_wait_complete(kiocb, res);
}

/*
 * NFS lets go of who waits for it when he is killed, and goes on with the pages. Waited for here,
 * nobody leaves before the last byte.
 */
static noinline ssize_t kiocb_write_share(struct peerdma_request *io, struct kiocb_wait *wait,
					  struct iov_iter *iter)
{
	ssize_t ret;

	wait->sleeper = current;
	wait->kiocb.ki_complete = kiocb_wait_complete_write;
	ret = peerdma_iocb_iter_write(io->file, &wait->kiocb, iter);
	if (ret != -EIOCBQUEUED)
		return ret;
	ret = kiocb_wait_done(wait);
	if (ret > 0)
		fsnotify_modify(io->file);
	return ret;
}

static ssize_t kiocb_write(struct peerdma_request *io, struct kiocb *kiocb, struct iov_iter *iter,
			   bool direct)
{
	ssize_t ret = peerdma_iocb_iter_write(io->file, kiocb, iter);

	/* Where an appending write went is known only now. */
	if (ret > 0 && !direct)
		ret = peerdma_kiocb_write_back(io, kiocb->ki_pos - ret, ret);
	return ret;
}

/*
 * One kiocb. *direct: asked for, as it is of every read, and whether it was so: a filesystem that
 * changes its mind clears IOCB_DIRECT and copies through the page cache.
 */
ssize_t peerdma_kiocb_submit(struct peerdma_request *io, struct iov_iter *iter, u64 file_off,
			     bool *direct)
{
	struct kiocb *kiocb;
	struct kiocb_wait wait;
	ssize_t ret;

	kiocb = &wait.kiocb;
	init_sync_kiocb(kiocb, io->file);
	if (*direct)
		kiocb->ki_flags |= IOCB_DIRECT;
	else
		kiocb->ki_flags &= ~IOCB_DIRECT;
	if (unlikely(io->wait_outside && !io->outside))
		kiocb->ki_flags |= IOCB_NOWAIT;
	kiocb->ki_ioprio = peerdma_kiocb_ioprio(io->buffer->provider, kiocb->ki_ioprio);
	kiocb->ki_pos = file_off;
	if (io->write && unlikely(!io->target.bdev) && *direct)
		ret = kiocb_write_share(io, &wait, iter);
	else if (io->write)
		ret = kiocb_write(io, kiocb, iter, *direct);
	else
		ret = kiocb_read(io, &wait, iter);
	*direct = kiocb->ki_flags & IOCB_DIRECT;
	return ret;
}
