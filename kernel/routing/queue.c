// SPDX-License-Identifier: GPL-2.0
/*
 * Disables request merging on a leaf's queue while a route goes through it.
 *
 * Since v6.17 the first segment of a request decides how all of it is mapped for DMA. The block
 * layer merges adjacent bios into one request without checking for peer pages. So no bio may be
 * merged on such a queue. All merge paths (plug, software queue, scheduler, zone) check
 * QUEUE_FLAG_NOMERGES.
 *
 * Draining. A task may check the flag before it is set, and then merge its bio into a queued
 * request of a route. Such tasks are inside the queue's usage counter. So after the flag is set,
 * and before the first request of the route, the queue is frozen and thawed once. Freezing waits
 * for the storage. Like all that waits for another device it is only tried
 * (Documentation/locking.md, "Locks of other devices"), and between two tries other tasks have the
 * queue. A high-priority worker freezes and thaws: a caller that gets no CPU would keep the queue
 * frozen for all others.
 *
 * Writes to sysfs. The flag is the attribute nomerges, and a write there clears it. No value that
 * can be written sets both it and NOXMERGES, which is weaker and costs nothing beside it. So this
 * module sets both (they read as 3). If one is missing, a user has written, and that value is
 * restored at the end. The flags are checked before each request, with the rest of the stack:
 * peerdma_stack_is_unchanged(). If they are missing, the route is created again, which sets them.
 * Their presence does not suffice: another route may have just set them and still be draining. So
 * each route records the generation of the flags that it has drained.
 *
 * Where the kernel sets REQ_NOMERGE for bios with peer pages, none of this is needed. Up to v7.2 it
 * does so for user memory only, not for bvec iterators, which this module uses:
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

#define TRY HZ /* the longest try; other tasks then have the queue for as long */

static DEFINE_MUTEX(guards_mutex);
static LIST_HEAD(guards);
static struct workqueue_struct *freeze_wq;

/* What keeps bios with peer pages from being merged. Determined once. */
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

/* Sets both flags. A missing flag was never set, or a user has written the attribute since. */
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

/* Restores the earlier flags, unless a user has written the attribute since. */
static void guard_restore_flags(struct peerdma_guard *kept)
{
	unsigned long old = READ_ONCE(kept->queue->queue_flags);

	lockdep_assert_held(&guards_mutex);
	while ((old & PEERDMA_QUEUE_GUARD) == PEERDMA_QUEUE_GUARD &&
	       !try_cmpxchg(&kept->queue->queue_flags, &old,
			    (old & ~PEERDMA_QUEUE_GUARD) | kept->before))
		;
}

/* The freezing work may still run when the last route has ended, and the other way round. */
static void guard_free_if_unused(struct peerdma_guard *kept)
{
	lockdep_assert_held(&guards_mutex);
	if (!kept->users && !kept->freezing)
		kfree(kept);
}

/* True if all tasks have left that were inside the queue when this began. */
static bool queue_try_drain(struct request_queue *queue)
{
	bool empty;

	/* With this reference, removing the disk waits, so its driver stays during the freeze. */
	if (!percpu_ref_tryget_live(&queue->q_usage_counter))
		return false;
	blk_freeze_queue_start(queue);
	percpu_ref_put(&queue->q_usage_counter);
	empty = blk_mq_freeze_queue_wait_timeout(queue, TRY);
	peerdma_queue_unfreeze(queue);
	return empty;
}

/* The flags that were set before this began are drained once the queue was empty. */
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
		/* The reader submits requests: pairs with guard_drain(). */
		smp_store_release(&kept->drained, set);
	}
	kept->freezing = false;
	guard_free_if_unused(kept);
	mutex_unlock(&guards_mutex);
	blk_put_queue(queue);
}

/* Freezes a queue once at a time, with a pause after each try as long as the try. */
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

/* Returns when the queue has been empty after its flags were set for the @set-th time. */
static int guard_drain(struct peerdma_provider *provider, struct peerdma_guard *kept,
		       unsigned int set)
{
	int err;

	/* A dying queue admits no task. Pairs with guard_freeze(). */
	while (smp_load_acquire(&kept->drained) < set && !blk_queue_dying(kept->queue)) {
		guard_start_freeze(kept);
		err = peerdma_provider_pause(provider);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Returns 1 if a bio that takes its pages from a bvec iterator gets REQ_NOMERGE, 0 if not, or
 * -errno. bio_iov_bvec_set() is not exported, and bio_iov_iter_get_pages() not on all kernels. So a
 * passthrough request is built, and never sent.
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

/* Tries again next time if no request could be allocated. */
static void queue_find_keeper(struct request_queue *queue, struct page *page)
{
	int peer, host;

	if (!queue_is_mq(queue))
		return;
	peer = queue_probe_nomerge(queue, page);
	/* If host memory gets it too, passthrough tells nothing about bios of files. */
	host = queue_probe_nomerge(queue, ZERO_PAGE(0));
	if (peer >= 0 && host >= 0)
		WRITE_ONCE(keeper, peer && !host ? KERNEL : GUARD);
}

/**
 * peerdma_queue_is_nomerge - does the kernel itself never merge bios with peer pages?
 * @queue: of a leaf
 * @page: of a provider
 * Return: true if such a bio of a filesystem or a block device is not merged.
 */
bool peerdma_queue_is_nomerge(struct request_queue *queue, struct page *page)
{
	if (READ_ONCE(keeper) == UNKNOWN)
		queue_find_keeper(queue, page);
	return READ_ONCE(keeper) == KERNEL;
}

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
 * peerdma_queue_guard - disable merging on a queue
 * @provider: its range must stay during this call: hold a usage reference of it or of a buffer
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
 * peerdma_queue_unguard - a route through a queue has ended
 * @kept: from peerdma_queue_guard(); no request of the route is on the queue
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

/* Called when all routes have ended. Waits for a freeze that is running. */
void peerdma_queues_exit(void)
{
	destroy_workqueue(freeze_wq);
}
