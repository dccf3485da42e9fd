// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of a filesystem's read and write methods, and how an unbind cancels those that sleep.
 *
 * Such a call may sleep for as long as another process likes: for an inode lock whose holder writes
 * from memory of its own FUSE filesystem, or for a filesystem to be thawed. The method has an
 * iterator over memory that an unbind must get back, and no kernel interface ends the sleep.
 *
 * So the iterator is replaced while the caller sleeps, by an empty one. When the caller gets the
 * lock, generic_write_checks() and iomap_dio_rw() find that there is nothing to do, and the method
 * returns without having done anything. The request does not have the memory any more, and its
 * usage reference is put for it.
 *
 * This needs three facts:
 *
 * - The caller does not run meanwhile: fs_call_is_asleep().
 * - Nobody uses pages of the iterator: fs_call_took_nothing().
 * - The method does not mind: fs_call_may_lose().
 */
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>

#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/fs_call.h"
#include "memory/mem.h"

/*
 * Not user space's, and odd: direct I/O finds it misaligned before it sizes anything by it. It
 * stays so if xfs sets back the length that it saved, or if the iterator is reverted.
 */
#define FS_CALL_NOWHERE ((void __user *)(-(3UL * MAX_RW_COUNT) + 1))

/* A sleep that is to be cancelled lasts at least so long: no short one for memory. */
#define FS_CALL_ASLEEP (HZ / 5)

DEFINE_PER_CPU_ALIGNED(struct hlist_bl_head, peerdma_fs_calls);

/*
 * With the task's pi_lock, which try_to_wake_up() takes: a task that sleeps now does until the lock
 * is released. The same checks, in the same order, as the kernel's task_call_func(). TASK_WAKING: a
 * waker has released the lock, and the task may run at any time.
 */
static bool fs_call_is_asleep(struct task_struct *task)
{
	const unsigned int state = READ_ONCE(task->__state);

	lockdep_assert_held(&task->pi_lock);
	if (state == TASK_RUNNING || state == TASK_WAKING)
		return false;
	smp_rmb(); /* the state before on_rq: else a task that went on could be taken for asleep */
	if (READ_ONCE(task->on_rq))
		return false;
#ifdef CONFIG_SMP
	smp_rmb(); /* on_rq before on_cpu */
	if (smp_load_acquire(&task->on_cpu)) /* pairs with finish_task() of the scheduler */
		return false;
#endif
	return true;
}

/*
 * ext4, xfs and NFS, the only filesystems that a request is sent to, use the caller's iterator and
 * no copy of it, and advance it when they take pages or bytes.
 */
static bool fs_call_took_nothing(const struct peerdma_fs_call *call)
{
	return call->iter->bvec == call->bvec && call->iter->iov_offset == call->offset;
}

/* The inode lock is held for writing by the caller. A realtime kernel's lock does not tell. */
static bool fs_call_owns_inode(const struct peerdma_fs_call *call)
{
#ifdef CONFIG_PREEMPT_RT
	return true;
#else
	return atomic_long_read(&call->inode->i_rwsem.owner) == (long)call->task;
#endif
}

/*
 * A caller that has the inode lock for writing is past the checks of its length, and sleeps for the
 * storage: ext4 would keep blocks that it has allocated behind the file's end. One that is about to
 * take pages may sleep for memory: that is short, or PF_MEMALLOC is set.
 */
static bool fs_call_may_lose(struct peerdma_fs_call *call)
{
	const unsigned long switches = call->task->nvcsw + call->task->nivcsw + 1;

	if (call->switches != switches) {
		call->switches = switches;
		call->asleep_since = jiffies;
		return false;
	}
	return time_after(jiffies, call->asleep_since + FS_CALL_ASLEEP) &&
	       !(call->task->flags & PF_MEMALLOC) && !fs_call_owns_inode(call);
}

static void fs_call_replace_iter(struct iov_iter *iter)
{
	const unsigned int direction = iter->data_source ? ITER_SOURCE : ITER_DEST;

	static_assert(BITS_PER_LONG == 64); /* FS_CALL_NOWHERE */
	iov_iter_ubuf(iter, direction, FS_CALL_NOWHERE, 0);
	iter->iov_offset = MAX_RW_COUNT;
}

/* With the list's lock. */
static bool fs_call_cancel(struct peerdma_fs_call *call)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&call->task->pi_lock, flags);
	if (fs_call_is_asleep(call->task) && fs_call_took_nothing(call) && fs_call_may_lose(call)) {
		fs_call_replace_iter(call->iter);
		call->cancelled = true;
	}
	raw_spin_unlock_irqrestore(&call->task->pi_lock, flags);
	return call->cancelled;
}

/* Puts what a cancelled call had. The caller may have returned meanwhile. */
static void fs_call_put(struct peerdma_buffer *buffer, struct peerdma_mem *bounce)
{
	if (bounce)
		peerdma_mem_release(bounce, buffer);
	peerdma_usage_put(&buffer->usage);
	peerdma_buffer_put(buffer);
}

/* Cancels one call. False: there is none that can be. */
static bool fs_calls_cancel_one(struct hlist_bl_head *calls, struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer = NULL;
	struct peerdma_mem *bounce = NULL;
	struct peerdma_fs_call *call;
	struct hlist_bl_node *node;

	hlist_bl_lock(calls);
	hlist_bl_for_each_entry(call, node, calls, link) {
		if (call->buffer->provider != provider ||
		    !peerdma_usage_killed(&call->buffer->usage) || !fs_call_cancel(call))
			continue;
		__hlist_bl_del(&call->link);
		buffer = call->buffer;
		bounce = call->bounce;
		refcount_add(2, &buffer->refs); /* the caller's and ours */
		break;
	}
	hlist_bl_unlock(calls);
	if (buffer)
		fs_call_put(buffer, bounce);
	return buffer;
}

/**
 * peerdma_fs_calls_cancel - cancel the calls that sleep with a provider's memory
 * @provider: of the memory; calls with a buffer whose usage reference is not killed go on
 * Return: how many were cancelled. Others may begin to sleep later: call again.
 */
unsigned int peerdma_fs_calls_cancel(struct peerdma_provider *provider)
{
	unsigned int cancelled = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		while (fs_calls_cancel_one(per_cpu_ptr(&peerdma_fs_calls, cpu), provider))
			cancelled++;
	}
	return cancelled;
}
