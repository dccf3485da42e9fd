/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A usage reference: who uses something that can go away holds one, and its owner waits until
 * nobody does. Once killed, none is given any more. Waiting does not spin: memory/drain.c. A thread
 * that has many steps to do checks between two of them whether it is killed; one step can take as
 * long as the storage, a frozen filesystem, or another writer of the file makes it take.
 */
#ifndef PEERDMA_USAGE_H
#define PEERDMA_USAGE_H

#include <linux/completion.h>

#include "base/ref.h"

/**
 * struct peerdma_usage - counts such references
 * @refs: those that are held; one is the owner's, until it is killed
 * @killed: set once, by the first that kills it
 * @drained: completed when it is killed and nobody holds any
 */
struct peerdma_usage {
	struct peerdma_ref refs;
	bool killed;
	struct completion drained;
};

static inline void peerdma_usage_drained(struct percpu_ref *count)
{
	complete_all(&container_of(count, struct peerdma_usage, refs.count)->drained);
}

/* @usage is zeroed. 0 or -ENOMEM. */
static inline int peerdma_usage_init(struct peerdma_usage *usage)
{
	init_completion(&usage->drained);
	return peerdma_ref_init(&usage->refs, peerdma_usage_drained);
}

/* As peerdma_ref_exit(). Nothing happens to one whose init failed. */
static inline void peerdma_usage_exit(struct peerdma_usage *usage)
{
	peerdma_ref_exit(&usage->refs);
}

/* False once it is killed. */
static inline bool peerdma_usage_tryget(struct peerdma_usage *usage)
{
	return peerdma_ref_tryget(&usage->refs);
}

static inline void peerdma_usage_put(struct peerdma_usage *usage)
{
	peerdma_ref_put(&usage->refs);
}

/* For a thread that holds one and has more to do. */
static inline bool peerdma_usage_killed(const struct peerdma_usage *usage)
{
	return READ_ONCE(usage->killed);
}

/* None is given from now on. Any number of callers; waits for nobody. */
static inline void peerdma_usage_kill(struct peerdma_usage *usage)
{
	if (!xchg(&usage->killed, true))
		percpu_ref_kill(&usage->refs.count);
}

/*
 * How many are held of one that is killed and not drained. While the CPUs' counts are being added
 * up, which takes a grace period, it is known only that there is one.
 */
static inline unsigned int peerdma_usage_count(const struct peerdma_usage *usage)
{
	long n = atomic_long_read(&usage->refs.count.data->count);

	return n > 0 ? n : 1;
}

#endif /* PEERDMA_USAGE_H */
