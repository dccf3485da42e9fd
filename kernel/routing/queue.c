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
 * between two tries. A worker of high priority freezes and thaws: if the caller did, a caller that
 * gets no CPU would keep the queue frozen for all others.
 *
 * The flag is also a file of sysfs, nomerges, and whoever writes there clears it. No value that can
 * be written sets both it and NOXMERGES, which says less than it and costs nothing beside it. So
 * both together (they read as 3) are ours, and if one is missing somebody has written, and has
 * said what they want when we are done. It is looked for before each request, as the rest of the
 * stack is: peerdma_stack_is_unchanged(). Then the route is taken anew, which begins here. That the
 * flags are there is not enough: somebody else may have just set them again, and still be draining.
 * So a route also remembers the how-manieth time of setting them it has drained.
 *
 * Where the kernel sets REQ_NOMERGE for bios with peer pages, none of this is needed. Up to v7.2 it
 * does so for pages of user memory only, not for those of a bvec iterator, by which ours go:
 * Documentation/upstream/bio-iov-bvec-nomerge. md clears the flag again (md-nomerge, beside it).
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "memory/provider.h"
#include "routing/queue.h"

#define TRY HZ /* others wait so long at most, and then have as long for themselves */

static DEFINE_MUTEX(guards_mutex);
static LIST_HEAD(guards);
static struct workqueue_struct *freeze_wq;

/* What keeps bios with peer pages from being merged; found out once. */
static enum { UNKNOWN, KERNEL, GUARD } keeper = UNKNOWN;

static struct peerdma_guard *guard_find(struct request_queue *queue)
{
	struct peerdma_guard *kept;

	lockdep_assert_held(&guards_mutex);
	list_for_each_entry(kept, &guards, link) {
		if (kept->queue == queue)
			return kept;
	}
	return NULL;
}

/* Set both flags. One that is missing was never set, or somebody has written since. */
static void guard_set_flags(struct peerdma_guard *kept)
{
	unsigned long flags = set_mask_bits(&kept->queue->queue_flags, 0UL, PEERDMA_QUEUE_GUARD);

	lockdep_assert_held(&guards_mutex);
	flags &= PEERDMA_QUEUE_GUARD;
	if (flags != PEERDMA_QUEUE_GUARD) {
		kept->before = flags;
		WRITE_ONCE(kept->set, kept->set + 1);
	}
}

/* Put back what was there, unless somebody has written since: then that stays. */
static void guard_restore_flags(struct peerdma_guard *kept)
{
	unsigned long old = READ_ONCE(kept->queue->queue_flags);

	lockdep_assert_held(&guards_mutex);
	while ((old & PEERDMA_QUEUE_GUARD) == PEERDMA_QUEUE_GUARD &&
	       !try_cmpxchg(&kept->queue->queue_flags, &old,
			    (old & ~PEERDMA_QUEUE_GUARD) | kept->before))
		;
}

/* The work of freezing may still run when the last route has gone, and the other way around. */
static void guard_free_if_unused(struct peerdma_guard *kept)
{
	lockdep_assert_held(&guards_mutex);
	if (!kept->users && !kept->freezing)
		kfree(kept);
}

/* True if every task has left that was inside the queue when this began. */
static bool queue_try_drain(struct request_queue *queue)
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

/* What is set when this begins has been drained when the queue was empty. */
static void guard_freeze(struct work_struct *work)
{
	struct peerdma_guard *kept = container_of(work, struct peerdma_guard, freeze);
	struct request_queue *queue = kept->queue;
	unsigned long began = jiffies;
	unsigned int set;
	bool empty;

	mutex_lock(&guards_mutex);
	set = kept->set;
	mutex_unlock(&guards_mutex);
	empty = queue_try_drain(queue);
	mutex_lock(&guards_mutex);
	kept->next_freeze = jiffies + (jiffies - began);
	if (empty) {
		/* A caller that reads it sends something: pairs with guard_drain(). */
		smp_store_release(&kept->drained, set);
	}
	kept->freezing = false;
	guard_free_if_unused(kept);
	mutex_unlock(&guards_mutex);
	blk_put_queue(queue);
}

/* Freezes a queue once at a time, and not for as long after a try as the try took. */
static void guard_start_freeze(struct peerdma_guard *kept)
{
	mutex_lock(&guards_mutex);
	if (!kept->freezing && time_after_eq(jiffies, kept->next_freeze) &&
	    blk_get_queue(kept->queue)) {
		kept->freezing = true;
		queue_work(freeze_wq, &kept->freeze);
	}
	mutex_unlock(&guards_mutex);
}

/* Returns when the queue was empty once since its flags were set for the set-th time. */
static int guard_drain(struct peerdma_provider *provider, struct peerdma_guard *kept,
		       unsigned int set)
{
	int err;

	/* A queue that is dying lets nothing in any more. Pairs with guard_freeze(). */
	while (smp_load_acquire(&kept->drained) < set && !blk_queue_dying(kept->queue)) {
		guard_start_freeze(kept);
		err = peerdma_provider_pause(provider);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Returns 1 if a bio that takes its page from a bvec iterator gets REQ_NOMERGE, 0 if not, or
 * -errno. bio_iov_bvec_set() is not exported, bio_iov_iter_get_pages() not on all kernels. So a
 * passthrough request is made, and never sent.
 */
static int queue_probe_nomerge(struct request_queue *queue, struct page *page)
{
	struct request *rq = blk_mq_alloc_request(queue, REQ_OP_DRV_OUT, BLK_MQ_REQ_NOWAIT);
	struct bio_vec bvec;
	struct iov_iter iter;
	int ret;

	if (IS_ERR(rq))
		return PTR_ERR(rq);
	bvec_set_page(&bvec, page, PAGE_SIZE, 0);
	iov_iter_bvec(&iter, ITER_SOURCE, &bvec, 1, PAGE_SIZE);
	ret = blk_rq_map_user_iov(queue, rq, NULL, &iter, GFP_KERNEL);
	if (!ret) {
		ret = !!(rq->bio->bi_opf & REQ_NOMERGE);
		blk_rq_unmap_user(rq->bio);
	}
	blk_mq_free_request(rq);
	return ret;
}

/* Asks again next time if there was no request to be had. */
static void queue_find_keeper(struct request_queue *queue, struct page *page)
{
	int peer, host;

	if (!queue_is_mq(queue))
		return;
	peer = queue_probe_nomerge(queue, page);
	/* If every such bio gets it, that says nothing about those of files. */
	host = queue_probe_nomerge(queue, ZERO_PAGE(0));
	if (peer >= 0 && host >= 0)
		WRITE_ONCE(keeper, peer && !host ? KERNEL : GUARD);
}

/**
 * peerdma_queue_is_nomerge - does the kernel itself never merge a bio that has peer pages
 * @queue: of a leaf
 * @page: of a provider
 * Return: true if such a bio, as a filesystem or a block device makes it, is not merged.
 */
bool peerdma_queue_is_nomerge(struct request_queue *queue, struct page *page)
{
	if (READ_ONCE(keeper) == UNKNOWN)
		queue_find_keeper(queue, page);
	return READ_ONCE(keeper) == KERNEL;
}

/* In debugfs. */
void peerdma_nomerge_show(struct seq_file *seq)
{
	static const char *const names[] = {
		[UNKNOWN] = "unknown",
		[KERNEL] = "kernel",
		[GUARD] = "peerdma",
	};

	seq_printf(seq, "%s\n", names[READ_ONCE(keeper)]);
}

/**
 * peerdma_queue_guard - from now on nothing is merged on a queue
 * @provider: its range must stay while this runs: hold a usage reference of it or of a buffer
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
	mutex_lock(&guards_mutex);
	kept = guard_find(queue);
	if (!kept) {
		kept = fresh;
		fresh = NULL;
		kept->queue = queue;
		kept->next_freeze = jiffies;
		INIT_WORK(&kept->freeze, guard_freeze);
		list_add(&kept->link, &guards);
	}
	kept->users++;
	guard_set_flags(kept);
	*set = kept->set;
	mutex_unlock(&guards_mutex);
	kfree(fresh);
	err = guard_drain(provider, kept, *set);
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
	mutex_lock(&guards_mutex);
	if (--kept->users == 0) {
		guard_restore_flags(kept);
		list_del(&kept->link);
		guard_free_if_unused(kept);
	}
	mutex_unlock(&guards_mutex);
}

int peerdma_queues_init(void)
{
	freeze_wq = alloc_workqueue("peerdma_freeze", WQ_UNBOUND | WQ_HIGHPRI, 0);
	return freeze_wq ? 0 : -ENOMEM;
}

/* When all routes have gone. Waits for a try that is under way. */
void peerdma_queues_exit(void)
{
	destroy_workqueue(freeze_wq);
}
