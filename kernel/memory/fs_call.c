// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of a filesystem's read and write methods, and how an unbind cancels those that sleep.
 *
 * Such a call may sleep for as long as another process likes: for an inode lock whose holder writes
 * from memory of its own FUSE filesystem, or for a filesystem to be thawed. The method has an
 * iterator over memory that an unbind must get back, and no kernel interface ends the sleep.
 *
 * So the iterator is replaced while the caller sleeps: fs_call_replace_iter(). When the caller
 * wakes up, the method returns without having done anything. The request does not have the memory
 * any more, and its usage reference is put for it.
 *
 * This needs three facts:
 *
 * - The caller does not run meanwhile: fs_call_is_asleep().
 * - Nobody uses pages of the iterator: fs_call_uses_nothing().
 * - The method does not mind: fs_call_may_lose().
 *
 * ext4, xfs and NFS are the only filesystems that a request is sent to.
 */
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/magic.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>

#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/fs_call.h"
#include "memory/mem.h"
#include "memory/provider.h"

/*
 * Not user space's, and odd: direct I/O finds it misaligned before it sizes anything by it. It
 * stays so with a length, and if the iterator is reverted.
 */
#define FS_CALL_NOWHERE ((void __user *)(-(3UL * MAX_RW_COUNT) + 1))

/* A sleep that is to be canceled lasts at least so long: no short one for memory. */
#define FS_CALL_ASLEEP (HZ / 5)

DEFINE_PER_CPU_ALIGNED(struct hlist_bl_head, peerdma_fs_calls);

/*
 * With the task's pi_lock, which try_to_wake_up() takes: a task that sleeps now does until the lock
 * is released. The same checks, in the same order, as the kernel's task_call_func(). TASK_WAKING: a
 * waker has released the lock, and the task may run at any time. TASK_RTLOCK_WAIT: a realtime
 * kernel's spinlock, which may be anywhere.
 */
static bool fs_call_is_asleep(struct task_struct *task)
{
	const unsigned int state = READ_ONCE(task->__state);

	lockdep_assert_held(&task->pi_lock);
	if (state == TASK_RUNNING || state == TASK_WAKING || state & TASK_RTLOCK_WAIT)
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

static bool fs_call_is_on(const struct peerdma_fs_call *call, unsigned long magic)
{
	return file_inode(call->kiocb->ki_filp)->i_sb->s_magic == magic;
}

static bool fs_call_is_write(const struct peerdma_fs_call *call)
{
	return iov_iter_rw(call->iter) == WRITE;
}

/*
 * ext4 writes directly what it can of a file without extents, and sends the rest by the page cache.
 * In between it gets the inode lock anew. The kiocb's position has moved then, which it does not
 * while pages are in use: direct I/O sets it when it is done. An appending write's position moves
 * before.
 */
static bool fs_call_wrote_a_part(const struct peerdma_fs_call *call)
{
	return fs_call_is_on(call, EXT4_SUPER_MAGIC) && fs_call_is_write(call) &&
	       iov_iter_count(call->iter) && !(call->kiocb->ki_flags & IOCB_APPEND) &&
	       call->kiocb->ki_pos != call->pos;
}

/*
 * Direct I/O of NFS finds the first page before it allocates memory for a list of them, and sets
 * the iterator back when it has sent its calls. It does not sleep killably in between (the list is
 * not charged to a cgroup), but does for the inode lock.
 */
static bool fs_call_nfs_uses_pages(const struct peerdma_fs_call *call)
{
	return fs_call_is_on(call, NFS_SUPER_MAGIC) && call->kiocb->ki_flags & IOCB_DIRECT &&
	       !(READ_ONCE(call->task->__state) & TASK_WAKEKILL);
}

/* Each filesystem advances the caller's iterator when it takes pages or bytes. */
static bool fs_call_uses_nothing(const struct peerdma_fs_call *call)
{
	if (call->iter->bvec != call->bvec || call->iter->iov_offset != call->offset)
		return fs_call_wrote_a_part(call);
	return !fs_call_nfs_uses_pages(call);
}

/* The inode lock is held for writing by the caller. */
static bool fs_call_owns_inode(const struct peerdma_fs_call *call)
{
	const struct rw_semaphore *lock = &file_inode(call->kiocb->ki_filp)->i_rwsem;
	const unsigned long task = (unsigned long)call->task;

#ifdef CONFIG_PREEMPT_RT
	/* A writer that waits for readers owns the rtmutex, too. Bit 0: others wait for it. */
	return atomic_read(&lock->rwbase.readers) == WRITER_BIAS &&
	       ((unsigned long)READ_ONCE(lock->rwbase.rtmutex.owner) & ~1UL) == task;
#else
	return (unsigned long)atomic_long_read(&lock->owner) == task;
#endif
}

/*
 * A caller that has the inode lock for writing is past the checks of its length, and sleeps for the
 * storage: ext4 would keep blocks that it has allocated behind the file's end. One that is about to
 * take pages may sleep for memory: that is short, or in_iowait or PF_MEMALLOC is set.
 */
static bool fs_call_may_lose(struct peerdma_fs_call *call)
{
	const unsigned long switches = call->task->nvcsw + call->task->nivcsw + 1;

	if (call->switches != switches) {
		call->switches = switches;
		call->asleep_since = jiffies;
		return false;
	}
	return time_after(jiffies, call->asleep_since + FS_CALL_ASLEEP) && !call->task->in_iowait &&
	       !(call->task->flags & PF_MEMALLOC) && !fs_call_owns_inode(call);
}

/*
 * By an empty one: ext4, NFS and all reads find that there is nothing to do. A write of xfs keeps
 * its length, because xfs would reserve blocks for one of none, and is told not to wait, so that it
 * does not zero blocks behind the file's end. Then it finds a bad address, as any program may pass.
 */
static void fs_call_replace_iter(struct peerdma_fs_call *call)
{
	const bool write = fs_call_is_write(call);
	size_t len = 0;

	static_assert(BITS_PER_LONG == 64); /* FS_CALL_NOWHERE */
	if (write && fs_call_is_on(call, XFS_SUPER_MAGIC)) {
		len = iov_iter_count(call->iter);
		call->kiocb->ki_flags |= IOCB_NOWAIT;
	}
	iov_iter_ubuf(call->iter, write ? ITER_SOURCE : ITER_DEST, FS_CALL_NOWHERE, len);
	call->iter->iov_offset = MAX_RW_COUNT;
}

/* With the list's lock. */
static bool fs_call_cancel(struct peerdma_fs_call *call)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&call->task->pi_lock, flags);
	if (fs_call_is_asleep(call->task) && fs_call_uses_nothing(call) && fs_call_may_lose(call)) {
		fs_call_replace_iter(call);
		call->canceled = true;
	}
	raw_spin_unlock_irqrestore(&call->task->pi_lock, flags);
	return call->canceled;
}

/* Puts what a canceled call had. The caller may have returned meanwhile. */
static void fs_call_put(struct peerdma_buffer *buffer, struct peerdma_mem *bounce)
{
	if (bounce)
		peerdma_mem_release(bounce, buffer);
	peerdma_usage_put(&buffer->usage);
	peerdma_buffer_put(buffer);
}

/*
 * A buffer that is only destroyed waits for its calls, so that what was begun is whole. Memory that
 * its owner wants back, or that is lost, does not wait for what another process may hold up.
 */
static bool fs_call_must_end(const struct peerdma_fs_call *call, struct peerdma_provider *provider)
{
	const struct peerdma_buffer *buffer = call->buffer;

	return buffer->provider == provider && peerdma_usage_killed(&buffer->usage) &&
	       (READ_ONCE(buffer->lost) || READ_ONCE(buffer->recalled) ||
		peerdma_usage_killed(&provider->usage));
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
		if (!fs_call_must_end(call, provider) || !fs_call_cancel(call))
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
 * @provider: of the memory; if it is not being unbound, only calls with memory that is lost or
 *	recalled are canceled
 * Return: how many were canceled. Others may begin to sleep later: call again.
 */
unsigned int peerdma_fs_calls_cancel(struct peerdma_provider *provider)
{
	unsigned int canceled = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		while (fs_calls_cancel_one(per_cpu_ptr(&peerdma_fs_calls, cpu), provider))
			canceled++;
	}
	return canceled;
}
