// SPDX-License-Identifier: GPL-2.0
/*
 * Providers, by id.
 */
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/counters.h"
#include "base/handlers.h"
#include "base/ids.h"
#include "base/pair.h"
#include "base/usage.h"
#include "memory/charge.h"
#include "memory/ctx.h"
#include "memory/provider.h"

/* By id, which is also a minor number. Under its lock a lookup takes a reference. */
static DEFINE_XARRAY_ALLOC1(providers);
static u32 next_id;

/**
 * peerdma_provider_create - create a provider without an id
 * @pdev: its device lock is held, and a driver is bound
 * @bar: of @pdev
 * @bar_offset: bytes, where the range begins
 * @len: of the range, in bytes
 * Return: a provider with one reference, or ERR_PTR.
 */
struct peerdma_provider *peerdma_provider_create(struct pci_dev *pdev, int bar, u64 bar_offset,
						 u64 len)
{
	struct peerdma_provider *provider = kzalloc(sizeof(*provider), GFP_KERNEL);
	int err;

	if (!provider)
		return ERR_PTR(-ENOMEM);
	err = peerdma_stats_init(&provider->stats, GFP_KERNEL);
	if (err)
		goto err_provider;
	err = peerdma_usage_init(&provider->usage);
	if (err)
		goto err_stats;
	refcount_set(&provider->refs, 1);
	provider->pdev = pci_dev_get(pdev);
	provider->bar = bar;
	provider->bar_offset = bar_offset;
	provider->len = len;
	provider->prefetchable = pci_resource_flags(pdev, bar) & IORESOURCE_PREFETCH;
	mutex_init(&provider->lock);
	INIT_LIST_HEAD(&provider->buffers);
	peerdma_ids_init(&provider->routes);
	xa_init(&provider->pairs);
	err = peerdma_charge_region_create(provider);
	if (!err)
		return provider;
	peerdma_provider_put(provider);
	return ERR_PTR(err);

err_stats:
	peerdma_stats_free(&provider->stats);
err_provider:
	kfree(provider);
	return ERR_PTR(err);
}

/*
 * Allocates an id that lookups do not find yet. Cyclic, so that an id that a process still uses
 * does not soon name another device. Returns 0 or -errno.
 */
int peerdma_provider_number(struct peerdma_provider *provider)
{
	const struct xa_limit limit = XA_LIMIT(1, MINORMASK);

	return min(xa_alloc_cyclic(&providers, &provider->id, NULL, limit, &next_id, GFP_KERNEL),
		   0);
}

/* From now on lookups find it. Allocates nothing. */
void peerdma_provider_show(struct peerdma_provider *provider)
{
	xa_store(&providers, provider->id, provider, GFP_KERNEL);
}

/* From now on lookups do not find it, and its id is free. */
void peerdma_provider_hide(struct peerdma_provider *provider)
{
	xa_erase(&providers, provider->id);
}

/**
 * peerdma_provider_next - the provider with the smallest id that is not below @id
 * @ctx: only those that this open file can reach; NULL: all
 * @id: where to begin
 * Return: a provider with a reference, or NULL.
 */
struct peerdma_provider *peerdma_provider_next(const struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_provider *provider;
	unsigned long index = id;

	/* A provider is erased before its last put: each one in the xarray has a reference. */
	xa_lock(&providers);
	provider = xa_find(&providers, &index, U32_MAX, XA_PRESENT);
	while (provider && !peerdma_provider_is_reachable(ctx, provider))
		provider = xa_find_after(&providers, &index, U32_MAX, XA_PRESENT);
	if (provider)
		refcount_inc(&provider->refs);
	xa_unlock(&providers);
	return provider;
}

/* The provider with this id, referenced. NULL: none, or @ctx cannot reach it. */
struct peerdma_provider *peerdma_provider_get(const struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_provider *provider = peerdma_provider_next(ctx, id);

	if (provider && provider->id != id) {
		peerdma_provider_put(provider);
		return NULL;
	}
	return provider;
}

void peerdma_provider_put(struct peerdma_provider *provider)
{
	if (!refcount_dec_and_test(&provider->refs))
		return;
	peerdma_ids_destroy(&provider->routes);
	peerdma_pairs_free(&provider->pairs);
	peerdma_stats_free(&provider->stats);
	peerdma_usage_exit(&provider->usage);
	pci_dev_put(provider->pdev);
	kfree(provider);
}

/**
 * peerdma_provider_pause - sleep between two attempts to take another device's lock
 * @provider: the caller holds a usage reference of it or of a buffer
 *
 * An unbind waits for usage references with the provider's device lock held, and perhaps the lock
 * of all PCI hotplug. The owner of the other device's lock may wait for one of those, in SR-IOV or
 * error recovery. So with a usage reference such locks are only tried, and the attempts end when
 * the provider is being removed.
 *
 * Return: 0 to try again, -ENODEV, or -EINTR.
 */
int peerdma_provider_pause(struct peerdma_provider *provider)
{
	if (peerdma_usage_killed(&provider->usage) || READ_ONCE(provider->halted))
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	schedule_timeout_killable(1);
	return 0;
}

int peerdma_provider_query_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_provider_query *query = &arg->provider_query;
	struct peerdma_provider *provider = peerdma_provider_next(ctx, query->provider_id);

	*query = (struct peerdma_provider_query){
		.size = query->size,
		.provider_id = query->provider_id,
	};
	if (!provider)
		return -ENOENT;
	query->out_provider_id = provider->id;
	query->out_pci_domain = pci_domain_nr(provider->pdev->bus);
	query->out_pci_bdf = pci_dev_id(provider->pdev);
	query->out_pci_vendor = provider->pdev->vendor;
	query->out_pci_device = provider->pdev->device;
	query->out_bar = provider->bar;
	query->out_numa_node = dev_to_node(&provider->pdev->dev);
	query->out_bar_offset = provider->bar_offset;
	query->out_len = provider->len;
	query->out_available = provider->len - atomic64_read(&provider->used);
	peerdma_provider_put(provider);
	return 0;
}
