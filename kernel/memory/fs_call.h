/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls of a filesystem's read and write methods with a provider's memory: fs_call.c.
 */
#ifndef PEERDMA_FS_CALL_H
#define PEERDMA_FS_CALL_H

#include <linux/fs.h>
#include <linux/list_bl.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/uio.h>

struct peerdma_buffer;
struct peerdma_mem;
struct peerdma_provider;

/**
 * struct peerdma_fs_call - a call of a filesystem's method; on the caller's stack
 * @buffer: of the request, with a usage reference unless @canceled
 * @bounce: a mem of the same provider that @iter is over; NULL: it is over the buffer's mem
 * @kiocb: passed to the method
 * @iter: likewise, of kind ITER_BVEC
 * @link: in @calls, unless @canceled
 * @calls: the list of the CPU that the call began on
 * @task: the caller
 * @pos: of @kiocb when the call began
 * @bvec: where @iter stood then
 * @offset: bytes into @bvec, likewise
 * @switches: how often the caller had slept when it was last seen asleep, plus 1; protected, as the
 *	next two, by the list's lock
 * @asleep_since: jiffies when it was first seen in that sleep
 * @canceled: the caller does not have the memory any more
 *
 * The caller fills the first four.
 */
struct peerdma_fs_call {
	struct peerdma_buffer *buffer;
	struct peerdma_mem *bounce;
	struct kiocb *kiocb;
	struct iov_iter *iter;

	struct hlist_bl_node link;
	struct hlist_bl_head *calls;
	struct task_struct *task;
	loff_t pos;
	const struct bio_vec *bvec;
	size_t offset;
	unsigned long switches;
	unsigned long asleep_since;
	bool canceled;
};

/*
 * The calls that began on each CPU. The lock in the list's head protects the list, and each call in
 * it from its end. It is taken outside of a task's pi_lock, and never by an interrupt.
 */
DECLARE_PER_CPU_ALIGNED(struct hlist_bl_head, peerdma_fs_calls);

/* Called right before the method; hot path. */
static __always_inline void peerdma_fs_call_begin(struct peerdma_fs_call *call)
{
	struct hlist_bl_head *calls = raw_cpu_ptr(&peerdma_fs_calls);

	call->calls = calls;
	call->task = current;
	call->pos = call->kiocb->ki_pos;
	call->bvec = call->iter->bvec;
	call->offset = call->iter->iov_offset;
	call->switches = 0;
	call->canceled = false;
	hlist_bl_lock(calls);
	hlist_bl_add_head(&call->link, calls);
	hlist_bl_unlock(calls);
}

/*
 * Called right after the method. False: the call was canceled. Then the caller has a reference of
 * the buffer's struct instead of the usage reference, and the memory may be gone.
 */
static __always_inline bool peerdma_fs_call_end(struct peerdma_fs_call *call)
{
	struct hlist_bl_head *calls = call->calls;

	hlist_bl_lock(calls);
	if (likely(!call->canceled))
		__hlist_bl_del(&call->link);
	hlist_bl_unlock(calls);
	return likely(!call->canceled);
}

unsigned int peerdma_fs_calls_cancel(struct peerdma_provider *provider);

#endif /* PEERDMA_FS_CALL_H */
