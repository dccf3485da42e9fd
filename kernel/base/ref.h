/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A reference count that becomes per-CPU when it is used often.
 *
 * A per-CPU count (percpu_ref) shares no cache line between CPUs, but its end takes an RCU grace
 * period. Most registered buffers and files see few requests and are released one by one. So a
 * count starts as one atomic, which ends at once, and becomes per-CPU after PEERDMA_REF_SPREAD
 * uses.
 */
#ifndef PEERDMA_REF_H
#define PEERDMA_REF_H

#include <linux/percpu-refcount.h>

#define PEERDMA_REF_SPREAD 256 /* uses, each of which may have cost a cache miss */

/**
 * struct peerdma_ref - such a count
 * @count: one is the owner's, until a kill
 * @uses: roughly the number of uses, up to PEERDMA_REF_SPREAD; written by any CPU until then
 * @spread: it may be per-CPU; set before it is, and never cleared
 */
struct peerdma_ref {
	struct percpu_ref count;
	unsigned int uses;
	bool spread;
};

void peerdma_ref_spread(struct peerdma_ref *ref);

/**
 * peerdma_ref_init - initialize a count to one
 * @ref: zeroed
 * @release: called once, by the last put, in any context but NMI
 * Return: 0 or -ENOMEM.
 */
static inline int peerdma_ref_init(struct peerdma_ref *ref, percpu_ref_func_t *release)
{
	return percpu_ref_init(&ref->count, release, PERCPU_REF_INIT_ATOMIC, GFP_KERNEL_ACCOUNT);
}

/* Called a grace period after the last peerdma_ref_tryget() may have begun. Any context but NMI. */
static inline void peerdma_ref_exit(struct peerdma_ref *ref)
{
	percpu_ref_exit(&ref->count);
}

/* False after a kill. */
static inline bool peerdma_ref_tryget(struct peerdma_ref *ref)
{
	return percpu_ref_tryget_live(&ref->count);
}

static inline void peerdma_ref_put(struct peerdma_ref *ref)
{
	percpu_ref_put(&ref->count);
}

/* Called by each request, with a reference, in process context. */
static inline void peerdma_ref_used(struct peerdma_ref *ref)
{
	if (unlikely(READ_ONCE(ref->uses) < PEERDMA_REF_SPREAD))
		peerdma_ref_spread(ref);
}

#endif /* PEERDMA_REF_H */
