/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Routes from a disk, or a share of NFS, to a provider: route.c.
 */
#ifndef PEERDMA_ROUTE_H
#define PEERDMA_ROUTE_H

#include <linux/percpu-refcount.h>
#include <linux/workqueue.h>

#include "base/ids.h"
#include "base/pair.h"
#include "routing/stack.h"

struct file;
struct page;
struct peerdma_provider;

/**
 * struct peerdma_route - says that all leaves of a stack can reach a provider
 * @entry: in the provider's table of routes, by the id that route.c defines
 * @refs: one of each request, and one of the table, which is put by a kill
 * @stack: checked; immutable
 * @result: of the leaf that is farthest away; immutable
 * @pair: counts the requests; immutable
 * @software: the CPU copies the bytes at a leaf, and they count as copied; immutable
 * @used: jiffies of the last use, to within ROUTE_STAMP
 * @free: queued by the last put
 */
struct peerdma_route {
	struct peerdma_entry entry;
	struct percpu_ref refs;
	struct peerdma_stack *stack;
	struct peerdma_route_result result;
	struct peerdma_pair *pair;
	bool software;
	unsigned long used;
	struct rcu_work free;
};

struct peerdma_stack *peerdma_route_check(struct peerdma_provider *provider, struct file *file,
					  struct block_device *bdev, struct page *page);
const struct peerdma_disk *peerdma_route_worst(const struct peerdma_stack *stack);
struct peerdma_route *peerdma_route_get(struct peerdma_provider *provider,
					struct block_device *bdev, struct page *page,
					struct peerdma_route_result *result);
struct peerdma_route *peerdma_route_get_share(struct peerdma_provider *provider, struct file *file,
					      struct page *page,
					      struct peerdma_route_result *result);
struct peerdma_route *peerdma_route_lookup(struct peerdma_provider *provider,
					   struct block_device *bdev);

/* Any context. */
static inline void peerdma_route_put(struct peerdma_route *route)
{
	percpu_ref_put(&route->refs);
}

void peerdma_routes_init(struct peerdma_provider *provider);
void peerdma_routes_release(struct peerdma_provider *provider);

#endif /* PEERDMA_ROUTE_H */
