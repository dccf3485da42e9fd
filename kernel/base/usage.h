/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Usage references. Users of something that can be removed hold one, and the owner waits until none
 * is held. After a kill no new one is given. The wait sleeps: memory/drain.c. A thread with many
 * steps checks between two of them for a kill. One step may take as long as the storage. One that
 * waits for a file can be canceled: memory/fs_call.c.
 */
#ifndef PEERDMA_USAGE_H
#define PEERDMA_USAGE_H

#include <linux/completion.h>

#include "base/ref.h"

/**
 * struct peerdma_usage - counts usage references
 * @refs: those that are held; one is the owner's, until a kill
 * @killed: set once, by the first kill
 * @drained: completed after a kill, when none is held
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

/* @usage is zeroed. Returns 0 or -ENOMEM. */
static inline int peerdma_usage_init(struct peerdma_usage *usage)
{
	init_completion(&usage->drained);
	return peerdma_ref_init(&usage->refs, peerdma_usage_drained);
}

/* See peerdma_ref_exit(). Also allowed after a failed init. */
static inline void peerdma_usage_exit(struct peerdma_usage *usage)
{
	peerdma_ref_exit(&usage->refs);
}

/* False after a kill. */
static inline bool peerdma_usage_tryget(struct peerdma_usage *usage)
{
	return peerdma_ref_tryget(&usage->refs);
}

static inline void peerdma_usage_put(struct peerdma_usage *usage)
{
	peerdma_ref_put(&usage->refs);
}

/* For a thread that holds one and has more steps to do. */
static inline bool peerdma_usage_killed(const struct peerdma_usage *usage)
{
	return READ_ONCE(usage->killed);
}

/* From now on none is given. Any number of callers; does not wait. */
static inline void peerdma_usage_kill(struct peerdma_usage *usage)
{
	if (!xchg(&usage->killed, true))
		percpu_ref_kill(&usage->refs.count);
}

/*
 * How many are held, after a kill and before the drain. While the CPUs' counts are being summed up,
 * which takes a grace period, the result is 1.
 */
static inline unsigned int peerdma_usage_count(const struct peerdma_usage *usage)
{
	long n = atomic_long_read(&usage->refs.count.data->count);

	return n > 0 ? n : 1;
}

#endif /* PEERDMA_USAGE_H */
