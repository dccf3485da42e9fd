/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A gate counts who is inside something that can go away, and lets its owner wait until nobody is.
 * Once closed it never opens again. Waiting does not spin: inside.c. A thread that has many steps
 * to do inside checks between two of them whether the gate is closed; one step can take as long as
 * the storage, a frozen filesystem, or another writer of the file makes it take.
 */
#ifndef PEERDMA_GATE_H
#define PEERDMA_GATE_H

#include <linux/completion.h>

#include "ref.h"

/**
 * struct peerdma_gate - such a gate
 * @inside: who is inside; one is the owner's, until the gate is closed
 * @closed: set once, by the first that closes it
 * @empty: completed when it is closed and nobody is inside
 */
struct peerdma_gate {
	struct peerdma_ref inside;
	bool closed;
	struct completion empty;
};

static inline void peerdma_gate_emptied(struct percpu_ref *count)
{
	complete_all(&container_of(count, struct peerdma_gate, inside.count)->empty);
}

/* @gate is zeroed. 0 or -ENOMEM. */
static inline int peerdma_gate_init(struct peerdma_gate *gate)
{
	init_completion(&gate->empty);
	return peerdma_ref_init(&gate->inside, peerdma_gate_emptied);
}

/* As peerdma_ref_exit(). Nothing happens to a gate whose init failed. */
static inline void peerdma_gate_free(struct peerdma_gate *gate)
{
	peerdma_ref_exit(&gate->inside);
}

/* False once the gate is closed: the caller must stay out. */
static inline bool peerdma_gate_enter(struct peerdma_gate *gate)
{
	return peerdma_ref_tryget(&gate->inside);
}

static inline void peerdma_gate_exit(struct peerdma_gate *gate)
{
	peerdma_ref_put(&gate->inside);
}

/* For a thread inside that has more to do. */
static inline bool peerdma_gate_closed(const struct peerdma_gate *gate)
{
	return READ_ONCE(gate->closed);
}

/* Newcomers stay out from now on. Any number of callers; waits for nobody. */
static inline void peerdma_gate_close(struct peerdma_gate *gate)
{
	if (!xchg(&gate->closed, true))
		percpu_ref_kill(&gate->inside.count);
}

/*
 * How many are inside a closed gate that is not empty. While the CPUs' counts are being added up,
 * which takes a grace period, it is known only that somebody is.
 */
static inline unsigned int peerdma_gate_inside(const struct peerdma_gate *gate)
{
	long n = atomic_long_read(&gate->inside.count.data->count);

	return n > 0 ? n : 1;
}

#endif /* PEERDMA_GATE_H */
