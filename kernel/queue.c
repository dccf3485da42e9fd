// SPDX-License-Identifier: GPL-2.0
/*
 * A leaf's queue, kept from merging while a route goes through it.
 *
 * Since v6.17 the first segment of a request chooses how all of it is mapped for DMA. The block
 * layer joins adjacent bios into one request and asks nobody whether one of them has peer pages: so
 * nothing at all may be joined on such a queue. QUEUE_FLAG_NOMERGES says so, and each way to merge
 * (plug, software queue, scheduler, zone) looks at it.
 *
 * Looks, and then merges: who has looked before the flag was set may still find a request of ours
 * in a queue and join it. Everybody who looks is inside the queue's usage counter. So after the
 * flag was set, and before the first request of ours is sent, the queue is frozen and thawed once.
 * Freezing waits for the storage; like all that waits for another device it is only tried
 * (Documentation/locking.md, "Locks of other devices"), and the others have the queue to themselves
 * between two tries.
 *
 * The flag is also a file of sysfs, nomerges, and whoever writes there clears it. No value that can
 * be written sets both it and NOXMERGES, which says less than it and costs nothing beside it. So
 * both together (they read as 3) are ours, and if one is missing somebody has written, and has
 * said what they want when we are done. It is looked for before each request, as the rest of the
 * stack is: peerdma_stack_is_current(). Then the route is taken anew, which begins here. That the
 * flags are there is not enough: somebody else may have just set them again, and still be draining.
 * So a route also remembers the how-manieth time of setting them it has drained.
 */
#include <linux/blk-mq.h>
#include <linux/percpu-refcount.h>
#include <linux/slab.h>

#include "peerdma.h"

#define TRY HZ /* others wait so long at most, and then have as long for themselves */

static DEFINE_MUTEX(lock);
static LIST_HEAD(guards);

static struct peerdma_guard *find(struct request_queue *queue)
{
	struct peerdma_guard *kept;

	lockdep_assert_held(&lock);
	list_for_each_entry(kept, &guards, link) {
		if (kept->queue == queue)
			return kept;
	}
	return NULL;
}

/* Set both flags. One that is missing was never set, or somebody has written since. */
static void set_flags(struct peerdma_guard *kept)
{
	unsigned long flags = set_mask_bits(&kept->queue->queue_flags, 0UL, PEERDMA_QUEUE_GUARD);

	lockdep_assert_held(&lock);
	flags &= PEERDMA_QUEUE_GUARD;
	if (flags != PEERDMA_QUEUE_GUARD) {
		kept->before = flags;
		WRITE_ONCE(kept->set, kept->set + 1);
	}
}

/* Put back what was there, unless somebody has written since: then that stays. */
static void restore_flags(struct peerdma_guard *kept)
{
	unsigned long old = READ_ONCE(kept->queue->queue_flags);

	lockdep_assert_held(&lock);
	while ((old & PEERDMA_QUEUE_GUARD) == PEERDMA_QUEUE_GUARD &&
	       !try_cmpxchg(&kept->queue->queue_flags, &old,
			    (old & ~PEERDMA_QUEUE_GUARD) | kept->before))
		;
}

/* True if everybody has left who was inside when this began. */
static bool try_to_drain(struct request_queue *queue)
{
	bool empty;

	/* Inside while it is being frozen: who removes the disk waits, so its driver stays. */
	if (!percpu_ref_tryget_live(&queue->q_usage_counter))
		return false;
	blk_freeze_queue_start(queue);
	percpu_ref_put(&queue->q_usage_counter);
	empty = blk_mq_freeze_queue_wait_timeout(queue, TRY);
	peerdma_queue_unfreeze(queue);
	return empty;
}

/*
 * One at a time freezes a queue, and nobody for as long as the last one did. *set: how often the
 * flags had been set by now, which is what will have been drained.
 */
static bool drain_begin(struct peerdma_guard *kept, unsigned int *set)
{
	bool mine;

	mutex_lock(&lock);
	mine = !kept->draining && time_after_eq(jiffies, kept->next_drain);
	if (mine)
		kept->draining = true;
	*set = kept->set;
	mutex_unlock(&lock);
	return mine;
}

static void drain_end(struct peerdma_guard *kept, unsigned long began, unsigned int drained)
{
	mutex_lock(&lock);
	kept->draining = false;
	kept->next_drain = jiffies + (jiffies - began);
	/* Whoever reads it sends something: pairs with drain(). */
	smp_store_release(&kept->drained, drained);
	mutex_unlock(&lock);
}

/* Returns when the queue was empty once since its flags were set for the set-th time. */
static int drain(struct peerdma_provider *provider, struct peerdma_guard *kept, unsigned int set)
{
	unsigned long began;
	unsigned int now;
	bool empty;
	int err;

	/* One that is dying takes nobody in any more. Pairs with drain_end(). */
	while (smp_load_acquire(&kept->drained) < set && !blk_queue_dying(kept->queue)) {
		if (drain_begin(kept, &now)) {
			began = jiffies;
			empty = try_to_drain(kept->queue);
			drain_end(kept, began, empty ? now : kept->drained);
			if (empty)
				break;
		}
		err = peerdma_provider_pause(provider);
		if (err)
			return err;
	}
	return 0;
}

/**
 * peerdma_queue_guard - from now on nothing is merged on a queue
 * @provider: its range must stay while this runs: be inside its gate or a buffer's
 * @queue: of a leaf; referenced until it is unguarded
 * @set: filled, for peerdma_queue_guarded()
 * Return: the guard, or ERR_PTR of -ENODEV, -EINTR, -ENOMEM.
 */
struct peerdma_guard *peerdma_queue_guard(struct peerdma_provider *provider,
					  struct request_queue *queue, unsigned int *set)
{
	struct peerdma_guard *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL), *kept;
	int err;

	if (!fresh)
		return ERR_PTR(-ENOMEM);
	mutex_lock(&lock);
	kept = find(queue);
	if (!kept) {
		kept = fresh;
		fresh = NULL;
		kept->queue = queue;
		kept->next_drain = jiffies;
		list_add(&kept->link, &guards);
	}
	kept->users++;
	set_flags(kept);
	*set = kept->set;
	mutex_unlock(&lock);
	kfree(fresh);
	err = drain(provider, kept, *set);
	if (!err)
		return kept;
	peerdma_queue_unguard(kept);
	return ERR_PTR(err);
}

/**
 * peerdma_queue_unguard - a route that went through a queue has ended
 * @kept: from peerdma_queue_guard(); nothing of the route's is under way on the queue
 */
void peerdma_queue_unguard(struct peerdma_guard *kept)
{
	mutex_lock(&lock);
	if (--kept->users == 0) {
		restore_flags(kept);
		list_del(&kept->link);
		kfree(kept);
	}
	mutex_unlock(&lock);
}
