/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A reference count that stops being a shared cache line when it is used often.
 *
 * A count that each CPU has for itself (percpu_ref) costs no CPU another one's cache line, but its
 * end takes an RCU grace period. Most registered buffers and files see few requests and are
 * released one by one, so a count starts as one atomic, whose end is immediate, and is spread over
 * the CPUs after PEERDMA_REF_SPREAD uses.
 */
#ifndef PEERDMA_REF_H
#define PEERDMA_REF_H

#include <linux/percpu-refcount.h>

#define PEERDMA_REF_SPREAD 256 /* uses, of which each may have cost a cache miss */

/**
 * struct peerdma_ref - such a count
 * @count: one is the owner's, until peerdma_ref_kill()
 * @uses: roughly how often it was used, up to PEERDMA_REF_SPREAD; written by any CPU until then
 * @spread: it may be spread over the CPUs; set before it is, and never cleared
 */
struct peerdma_ref {
	struct percpu_ref count;
	unsigned int uses;
	bool spread;
};

void peerdma_ref_spread(struct peerdma_ref *ref);

/**
 * peerdma_ref_init - a count of one
 * @ref: zeroed
 * @release: called once, by the last put, in any context but NMI
 * Return: 0 or -ENOMEM.
 */
static inline int peerdma_ref_init(struct peerdma_ref *ref, percpu_ref_func_t *release)
{
	return percpu_ref_init(&ref->count, release, PERCPU_REF_INIT_ATOMIC, GFP_KERNEL_ACCOUNT);
}

/* A grace period after the last peerdma_ref_tryget() can have begun. Any context but NMI. */
static inline void peerdma_ref_exit(struct peerdma_ref *ref)
{
	percpu_ref_exit(&ref->count);
}

/* False once it was killed. */
static inline bool peerdma_ref_tryget(struct peerdma_ref *ref)
{
	return percpu_ref_tryget_live(&ref->count);
}

static inline void peerdma_ref_put(struct peerdma_ref *ref)
{
	percpu_ref_put(&ref->count);
}

/* Each request calls this, with a reference, in process context. */
static inline void peerdma_ref_used(struct peerdma_ref *ref)
{
	if (unlikely(READ_ONCE(ref->uses) < PEERDMA_REF_SPREAD))
		peerdma_ref_spread(ref);
}

#endif /* PEERDMA_REF_H */
