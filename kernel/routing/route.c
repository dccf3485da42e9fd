// SPDX-License-Identifier: GPL-2.0
/*
 * A route says that all leaves of a stack can reach a provider. A provider keeps its routes in a
 * table, because probing is slow. Refusals are not kept. The id of a route is the diskseq of the
 * top disk, which no other disk ever gets. The id of a route to a share of NFS is made from the
 * superblock's device number. Another superblock may get that later, so the server's address is
 * compared too.
 *
 * A request references its route while it runs. Before each use the route's stack is compared with
 * the current one: stack.c. The PCI function of a drive in this machine is not compared, nor its
 * place in the PCI tree. Neither changes while the disk exists.
 */
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/ids.h"
#include "base/pair.h"
#include "base/work.h"
#include "memory/provider.h"
#include "routing/queue.h"
#include "routing/route.h"
#include "routing/share.h"
#include "routing/stack.h"

#define ROUTE_IDLE (5 * HZ) /* after this time without use a route leaves the table */
#define ROUTE_STAMP HZ /* granularity of that time: all CPUs share the cache line */
#define ROUTE_UNSTEADY (2 * HZ) /* after this time a network stack that keeps changing is refused */

static void route_unguard_leaves(struct peerdma_stack *stack, unsigned int nr)
{
	while (nr--) {
		if (stack->disks[nr].guard)
			peerdma_queue_unguard(stack->disks[nr].guard);
	}
}

/* md clears REQ_NOMERGE of each bio that it forwards. */
static bool route_has_md(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk;

	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (disk->kind == PEERDMA_DISK_MD)
			return true;
	}
	return false;
}

/*
 * Disables merging on the leaves' queues. One after another: two queues that are frozen at once
 * could wait for each other.
 */
static int route_guard_leaves(struct peerdma_provider *provider, struct peerdma_stack *stack,
			      struct page *page)
{
	bool md = route_has_md(stack);
	struct peerdma_guard *kept;
	struct peerdma_disk *disk;
	unsigned int i;

	for (i = 0; i < stack->nr; i++) {
		disk = &stack->disks[i];
		if (!peerdma_disk_is_leaf(disk) || disk->kind == PEERDMA_DISK_SHARE)
			continue;
		/* peerdma_queue_is_nomerge() may read the page, which is not safe for registers. */
		if (!md && provider->prefetchable && peerdma_queue_is_nomerge(disk->queue, page))
			continue;
		kept = peerdma_queue_guard(provider, disk->queue, &disk->guard_set);
		if (IS_ERR(kept)) {
			route_unguard_leaves(stack, i);
			return PTR_ERR(kept);
		}
		disk->guard = kept;
	}
	return 0;
}

/*
 * Frees a route that no request uses any more. Until then the leaves' queues do not merge. A work
 * item, because it may sleep.
 */
static void route_free_work(struct work_struct *work)
{
	struct peerdma_route *route = container_of(to_rcu_work(work), struct peerdma_route, free);

	route_unguard_leaves(route->stack, route->stack->nr);
	peerdma_stack_free(route->stack);
	percpu_ref_exit(&route->refs);
	kfree(route);
}

/* Called by the last put, in any context. A lookup under RCU may still read the route. */
static void route_release(struct percpu_ref *refs)
{
	struct peerdma_route *route = container_of(refs, struct peerdma_route, refs);

	queue_rcu_work(peerdma_wq, &route->free);
}

static char *route_leaf_names(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk;
	size_t len = 0, size = stack->nr * (DISK_NAME_LEN + 1);
	char *names = kzalloc(size, GFP_KERNEL);

	if (!names)
		return NULL;
	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (peerdma_disk_is_leaf(disk))
			len += scnprintf(names + len, size - len, "%s%s", len ? "," : "",
					 disk->name);
	}
	return names;
}

/* Names the leaves beside the pair's counters. Without memory the old names stay. */
static void route_name_leaves(struct peerdma_provider *provider, struct peerdma_pair *pair,
			      const struct peerdma_stack *stack)
{
	char *names = route_leaf_names(stack);

	if (names)
		peerdma_pair_rename(&provider->pairs, pair, stack->disks[0].name, names);
}

/*
 * Creates a route, which owns the stack after a success. Its only reference is the table's. May
 * sleep.
 */
static struct peerdma_route *route_create(struct peerdma_provider *provider,
					  struct peerdma_stack *stack, struct page *page)
{
	struct peerdma_route *route = kzalloc(sizeof(*route), GFP_KERNEL);
	int err;

	if (!route)
		return ERR_PTR(-ENOMEM);
	err = percpu_ref_init(&route->refs, route_release, 0, GFP_KERNEL);
	if (err)
		goto err_route;
	route->pair =
		peerdma_pair_get(&provider->pairs, stack->disks[0].devt, stack->disks[0].name);
	err = route->pair ? route_guard_leaves(provider, stack, page) : -ENOMEM;
	if (err)
		goto err_refs;
	route_name_leaves(provider, route->pair, stack);
	INIT_RCU_WORK(&route->free, route_free_work);
	route->used = jiffies;
	route->stack = stack;
	route->result = peerdma_route_worst(stack)->result;
	route->software = route->result.map == PEERDMA_MAP_SOFTWARE;
	return route;

err_refs:
	percpu_ref_exit(&route->refs);
err_route:
	kfree(route);
	return ERR_PTR(err);
}

/* NULL for NULL: the entry is the first member. */
static struct peerdma_route *route_of(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_route, entry));
	return container_of(entry, struct peerdma_route, entry);
}

/* Takes a route off the table. Requests that hold it go on. Any number of callers. */
static void route_forget(struct peerdma_provider *provider, struct peerdma_route *route)
{
	if (peerdma_ids_remove(&provider->routes, &route->entry))
		percpu_ref_kill(&route->refs);
}

/*
 * Inserts a new route in the table, and takes a reference for the caller. If another thread has
 * inserted one with this id, or there is no memory, this route stays out of the table: it ends when
 * the caller puts it.
 */
static void route_insert(struct peerdma_provider *provider, u64 id, struct peerdma_route *route)
{
	percpu_ref_get(&route->refs);
	route->entry.id = id;
	if (peerdma_ids_insert(&provider->routes, &route->entry))
		percpu_ref_kill(&route->refs);
	else
		queue_delayed_work(peerdma_wq, &provider->prune, ROUTE_IDLE);
}

/* The route with this id, referenced, if it is in the table and its stack is unchanged; or NULL. */
static __always_inline struct peerdma_route *route_find(struct peerdma_provider *provider, u64 id)
{
	struct peerdma_route *route;

	rcu_read_lock();
	route = route_of(peerdma_ids_find(&provider->routes, id));
	if (route && !percpu_ref_tryget_live_rcu(&route->refs))
		route = NULL;
	rcu_read_unlock();
	if (!route)
		return NULL;
	if (likely(peerdma_stack_is_unchanged(route->stack))) {
		if (unlikely(time_after(jiffies, READ_ONCE(route->used) + ROUTE_STAMP)))
			WRITE_ONCE(route->used, jiffies);
		return route;
	}
	route_forget(provider, route);
	peerdma_route_put(route);
	return NULL;
}

/**
 * peerdma_route_lookup - the route from a block device to a provider, if it is in the table
 * @provider: its range must stay during this call: hold a usage reference of it or of a buffer
 * @bdev: of an open file
 * Return: a route with a reference; NULL without one whose stack is unchanged. Does not sleep.
 */
struct peerdma_route *peerdma_route_lookup(struct peerdma_provider *provider,
					   struct block_device *bdev)
{
	return route_find(provider, bdev->bd_disk->diskseq);
}

/* Fails without a result: no memory, the provider goes away, or the task is being killed. */
static struct peerdma_route *route_error(struct peerdma_route_result *result, int err)
{
	result->reason = err == -ENOMEM ? PEERDMA_REASON_NONE : PEERDMA_REASON_REVOKED;
	return ERR_PTR(err);
}

/*
 * The reason to refuse a stack that changes during each probe: a network stack may do so for ever.
 * PEERDMA_REASON_NONE: any other stack, which is probed again.
 */
static u32 route_unsteady_reason(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk;

	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (disk->kind == PEERDMA_DISK_FABRIC || disk->kind == PEERDMA_DISK_SHARE)
			return PEERDMA_REASON_RDMA_ROUTE;
	}
	return PEERDMA_REASON_NONE;
}

/*
 * Walks and checks the stack, and creates a route if all of it allows. ERR_PTR(-EAGAIN): the stack
 * has changed meanwhile. Other errors are those of peerdma_route_get().
 */
static struct peerdma_route *route_probe(struct peerdma_provider *provider, struct file *file,
					 struct block_device *bdev, struct page *page,
					 struct peerdma_route_result *result)
{
	struct peerdma_stack *stack = peerdma_route_check(provider, file, bdev, page);
	struct peerdma_route *route;
	int err;

	if (IS_ERR(stack))
		return route_error(result, PTR_ERR(stack));
	*result = peerdma_route_worst(stack)->result;
	err = peerdma_reason_errno(result->reason);
	route = err ? ERR_PTR(err) : route_create(provider, stack, page);
	if (IS_ERR(route)) {
		peerdma_stack_free(stack);
		return err ? route : route_error(result, PTR_ERR(route));
	}
	if (peerdma_stack_is_unchanged(route->stack))
		return route;
	result->reason = route_unsteady_reason(route->stack);
	percpu_ref_kill(&route->refs);
	return ERR_PTR(-EAGAIN);
}

/*
 * Probes until the stack does not change during a probe. Each change of the machine's IP routes is
 * a change of a network stack, and they may change all the time. Destroying the buffer waits for
 * this loop, so it gives up after ROUTE_UNSTEADY.
 */
static struct peerdma_route *route_probe_until_steady(struct peerdma_provider *provider,
						      struct file *file, struct block_device *bdev,
						      struct page *page,
						      struct peerdma_route_result *result)
{
	unsigned long begun = 0;
	unsigned int changes = 0;
	struct peerdma_route *route;
	int err;

	while ((route = route_probe(provider, file, bdev, page, result)) == ERR_PTR(-EAGAIN)) {
		/* The first probe is not timed: it may wait for a queue to drain. */
		if (!changes++)
			begun = jiffies;
		err = peerdma_provider_pause(provider);
		if (err) {
			result->reason = PEERDMA_REASON_REVOKED;
			return ERR_PTR(err);
		}
		if (result->reason && changes > 2 && time_after(jiffies, begun + ROUTE_UNSTEADY))
			return ERR_PTR(peerdma_reason_errno(result->reason));
	}
	return route;
}

/**
 * peerdma_route_get - the route from a block device to a provider
 * @provider: its range must stay during this call: hold a usage reference of it or of a buffer
 * @bdev: of an open file
 * @page: any page of the provider
 * @result: of the check; filled, whatever is returned
 * Return: a route with a reference; or ERR_PTR: the errno for @result's reason, -EINTR or -ENOMEM.
 */
struct peerdma_route *peerdma_route_get(struct peerdma_provider *provider,
					struct block_device *bdev, struct page *page,
					struct peerdma_route_result *result)
{
	struct peerdma_route *route = peerdma_route_lookup(provider, bdev);

	*result = (struct peerdma_route_result){ .distance = -1 };
	if (likely(route)) {
		*result = route->result;
		return route;
	}
	route = route_probe_until_steady(provider, NULL, bdev, page, result);
	if (!IS_ERR(route))
		route_insert(provider, bdev->bd_disk->diskseq, route);
	return route;
}

#define ROUTE_SHARE BIT_ULL(62) /* set in the ids of shares; no diskseq is that large */

/**
 * peerdma_route_get_share - the route from a share of NFS to a provider
 * @provider: its range must stay during this call: hold a usage reference of it or of a buffer
 * @file: of the share
 * @page: any page of the provider
 * @result: of the check; filled, whatever is returned
 * Return: as peerdma_route_get().
 *
 * How the bytes of this file would go now is asked each time: peerdma_share_probe(). The route only
 * records the device that leads to the server's address.
 */
struct peerdma_route *peerdma_route_get_share(struct peerdma_provider *provider, struct file *file,
					      struct page *page,
					      struct peerdma_route_result *result)
{
	u64 id = ROUTE_SHARE | file_inode(file)->i_sb->s_dev;
	struct peerdma_share_server server = {};
	struct peerdma_route *route;

	*result = (struct peerdma_route_result){ .distance = -1 };
	result->reason = peerdma_share_probe(file_inode(file), &server);
	if (result->reason)
		return ERR_PTR(peerdma_reason_errno(result->reason));
	route = route_find(provider, id);
	if (route && !memcmp(route->stack->disks[0].server, &server, sizeof(server))) {
		*result = route->result;
		return route;
	}
	if (route) {
		route_forget(provider, route);
		peerdma_route_put(route);
	}
	route = route_probe_until_steady(provider, file, NULL, page, result);
	if (!IS_ERR(route))
		route_insert(provider, id, route);
	return route;
}

/* Takes routes off the table that are not used any more, or whose stack has changed. */
static void routes_prune(struct work_struct *work)
{
	struct peerdma_provider *provider =
		container_of(to_delayed_work(work), struct peerdma_provider, prune);
	struct peerdma_entry *entry;
	struct peerdma_route *route;
	unsigned long id;

	rcu_read_lock();
	xa_for_each(&provider->routes.all, id, entry) {
		route = route_of(entry);
		if (!peerdma_stack_is_unchanged(route->stack) ||
		    time_after_eq(jiffies, READ_ONCE(route->used) + ROUTE_IDLE))
			route_forget(provider, route);
	}
	rcu_read_unlock();
	if (!xa_empty(&provider->routes.all))
		queue_delayed_work(peerdma_wq, &provider->prune, ROUTE_IDLE);
}

void peerdma_routes_init(struct peerdma_provider *provider)
{
	INIT_DELAYED_WORK(&provider->prune, routes_prune);
}

/* Takes all routes off the table. No other can be created any more. */
void peerdma_routes_release(struct peerdma_provider *provider)
{
	struct peerdma_entry *entry;

	cancel_delayed_work_sync(&provider->prune);
	while ((entry = peerdma_ids_take_any(&provider->routes)))
		percpu_ref_kill(&route_of(entry)->refs);
}
