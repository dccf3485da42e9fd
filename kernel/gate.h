/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A gate counts who is inside something that can go away, and lets its owner wait until nobody is.
 * Entering costs one atomic. Once closed it never opens again. Waiting does not spin: inside.c.
 * Whoever has many steps to do inside looks between two of them whether it is closed; one step can
 * take as long as the storage, a frozen filesystem, or who else writes to the file makes it take.
 */
#ifndef PEERDMA_GATE_H
#define PEERDMA_GATE_H

#include <linux/completion.h>
#include <linux/refcount.h>

struct peerdma_gate {
	refcount_t inside; /* one is the owner's own, until the gate is closed */
	bool closed; /* set once: newcomers leave, or a stream of them could hold the owner up */
	struct completion empty;
};

static inline void peerdma_gate_init(struct peerdma_gate *gate)
{
	refcount_set(&gate->inside, 1);
	gate->closed = false;
	init_completion(&gate->empty);
}

static inline void peerdma_gate_exit(struct peerdma_gate *gate)
{
	if (refcount_dec_and_test(&gate->inside))
		complete_all(&gate->empty);
}

/* For who is inside and has more to do: true once the owner waits. */
static inline bool peerdma_gate_closed(struct peerdma_gate *gate)
{
	return READ_ONCE(gate->closed);
}

/* False once the gate is closed: the caller must stay out. */
static inline bool peerdma_gate_enter(struct peerdma_gate *gate)
{
	if (!refcount_inc_not_zero(&gate->inside))
		return false;
	if (likely(!peerdma_gate_closed(gate)))
		return true;
	peerdma_gate_exit(gate);
	return false;
}

/* Newcomers stay out from now on; nobody waits. */
static inline void peerdma_gate_shut(struct peerdma_gate *gate)
{
	WRITE_ONCE(gate->closed, true);
}

/* Call once. From now on @empty is completed when nobody is inside. */
static inline void peerdma_gate_close(struct peerdma_gate *gate)
{
	peerdma_gate_shut(gate);
	peerdma_gate_exit(gate);
}

/* Of one that is closed: how many are inside, and perhaps a newcomer that is about to leave. */
static inline unsigned int peerdma_gate_inside(const struct peerdma_gate *gate)
{
	return refcount_read(&gate->inside);
}

#endif /* PEERDMA_GATE_H */
