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
 * stack is: peerdma_stack_is_current(). Then the route is taken anew, which begins here.
 */
#include <linux/blk-mq.h>
#include <linux/percpu-refcount.h>
#include <linux/slab.h>

#include "peerdma.h"

#define TRY HZ /* others wait so long at most, and then have as long for themselves */

/**
 * struct guarded - a queue with a route
 * @link: in guarded_queues
 * @queue: each of @users has a reference
 * @users: routes that go through it
 * @before: its merge flags, to be put back
 * @set: how often the flags had to be set
 * @drained: what @set was when the queue was frozen last
 */
struct guarded {
	struct list_head link; /* protected by lock */
	struct request_queue *queue; /* immutable */
	unsigned int users; /* protected by lock */
	unsigned long before; /* protected by lock */
	unsigned int set; /* protected by lock */
	unsigned int drained;
};

static DEFINE_MUTEX(lock);
static LIST_HEAD(guarded_queues);

static struct guarded *find(struct request_queue *queue)
{
	struct guarded *guarded;

	lockdep_assert_held(&lock);
	list_for_each_entry(guarded, &guarded_queues, link) {
		if (guarded->queue == queue)
			return guarded;
	}
	return NULL;
}

static struct guarded *add(struct request_queue *queue)
{
	struct guarded *guarded = kzalloc(sizeof(*guarded), GFP_KERNEL);

	lockdep_assert_held(&lock);
	if (guarded) {
		guarded->queue = queue;
		list_add(&guarded->link, &guarded_queues);
	}
	return guarded;
}

/* Set both flags. One that is missing was never set, or somebody has written since. */
static void set_flags(struct guarded *guarded)
{
	unsigned long flags = set_mask_bits(&guarded->queue->queue_flags, 0UL, PEERDMA_QUEUE_GUARD);

	lockdep_assert_held(&lock);
	flags &= PEERDMA_QUEUE_GUARD;
	if (flags != PEERDMA_QUEUE_GUARD) {
		guarded->before = flags;
		guarded->set++;
	}
}

/* Put back what was there, unless somebody has written since: then that stays. */
static void restore_flags(struct guarded *guarded)
{
	unsigned long old = READ_ONCE(guarded->queue->queue_flags);

	lockdep_assert_held(&lock);
	while ((old & PEERDMA_QUEUE_GUARD) == PEERDMA_QUEUE_GUARD &&
	       !try_cmpxchg(&guarded->queue->queue_flags, &old,
			    (old & ~PEERDMA_QUEUE_GUARD) | guarded->before))
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

/* Returns when the queue was empty once since its flags were set for the set-th time. */
static int drain(struct peerdma_provider *provider, struct guarded *guarded, unsigned int set)
{
	unsigned long begin, rest;
	int err;

	/* One that is dying takes nobody in any more. */
	while (smp_load_acquire(&guarded->drained) < set && !blk_queue_dying(guarded->queue)) {
		begin = jiffies;
		if (try_to_drain(guarded->queue)) {
			/* Whoever reads it sends something: pairs with the acquire above. */
			smp_store_release(&guarded->drained, set);
			break;
		}
		rest = jiffies + (jiffies - begin);
		do {
			err = peerdma_provider_pause(provider);
			if (err)
				return err;
		} while (time_before(jiffies, rest));
	}
	return 0;
}

/**
 * peerdma_queue_guard - from now on nothing is merged on a queue
 * @provider: its range must stay while this runs: be inside its gate or a buffer's
 * @queue: of a leaf; referenced until it is unguarded
 * Return: 0, or -ENODEV, -EINTR, -ENOMEM.
 */
int peerdma_queue_guard(struct peerdma_provider *provider, struct request_queue *queue)
{
	struct guarded *guarded;
	unsigned int set = 0;
	int err;

	mutex_lock(&lock);
	guarded = find(queue) ?: add(queue);
	if (guarded) {
		guarded->users++;
		set_flags(guarded);
		set = guarded->set;
	}
	mutex_unlock(&lock);
	if (!guarded)
		return -ENOMEM;
	err = drain(provider, guarded, set);
	if (err)
		peerdma_queue_unguard(queue);
	return err;
}

/**
 * peerdma_queue_unguard - a route that went through a queue has ended
 * @queue: as it was guarded; nothing of the route's is under way on it
 */
void peerdma_queue_unguard(struct request_queue *queue)
{
	struct guarded *guarded;

	mutex_lock(&lock);
	guarded = find(queue);
	if (--guarded->users == 0) {
		restore_flags(guarded);
		list_del(&guarded->link);
		kfree(guarded);
	}
	mutex_unlock(&lock);
}
