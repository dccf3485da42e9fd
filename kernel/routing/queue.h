/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues without request merging.
 */
#ifndef PEERDMA_QUEUE_H
#define PEERDMA_QUEUE_H

#include <linux/blkdev.h>
#include <linux/workqueue.h>

struct page;
struct peerdma_provider;
struct seq_file;

/**
 * struct peerdma_guard - a queue without request merging: queue.c; exists while it has users or is
 *	being frozen
 * @link: in the list of guards
 * @queue: each of @users has a reference, and so has @freeze
 * @users: number of routes through it
 * @before: its merge flags, to be restored
 * @freeze: tries to freeze the queue, and thaws it
 * @freezing: @freeze is queued or runs
 * @next_freeze: jiffies before which it must not be frozen again
 * @set: generation of the flags: how often they were set
 * @drained: the generation at the last successful freeze
 *
 * All but @queue is protected by queue.c's lock; @set and @drained are also read without it.
 */
struct peerdma_guard {
	struct list_head link;
	struct request_queue *queue; /* immutable */
	unsigned int users;
	unsigned long before;
	struct work_struct freeze;
	bool freezing;
	unsigned long next_freeze;
	unsigned int set;
	unsigned int drained;
};

#define PEERDMA_QUEUE_GUARD (BIT(QUEUE_FLAG_NOMERGES) | BIT(QUEUE_FLAG_NOXMERGES))
struct peerdma_guard *peerdma_queue_guard(struct peerdma_provider *provider,
					  struct request_queue *queue, unsigned int *set);
void peerdma_queue_unguard(struct peerdma_guard *guard);
bool peerdma_queue_is_nomerge(struct request_queue *queue, struct page *page);
void peerdma_nomerge_show(struct seq_file *seq);
int peerdma_queues_init(void);
void peerdma_queues_exit(void);

/* False: the flags must be set again, or the drive is gone. */
static inline bool peerdma_queue_guarded(const struct peerdma_guard *guard, unsigned int set)
{
	return (READ_ONCE(guard->queue->queue_flags) &
		(PEERDMA_QUEUE_GUARD | BIT(QUEUE_FLAG_DYING))) == PEERDMA_QUEUE_GUARD &&
	       READ_ONCE(guard->set) == set;
}

#endif /* PEERDMA_QUEUE_H */
