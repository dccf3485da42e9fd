// SPDX-License-Identifier: GPL-2.0
/*
 * Providers by number. A provider comes into being in two steps: reserve (can fail, can be undone)
 * and announce (cannot fail), because the pages that are made in between can only be unmade by an
 * unbind.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "peerdma.h"

/* By id, which is also a minor number. Its own lock makes "find and take a reference" one step. */
static DEFINE_XARRAY_ALLOC1(providers);
static u32 next_id;

static void halt_buffers(struct work_struct *work);
static void provider_end(struct peerdma_consumer *consumer);

/**
 * peerdma_provider_reserve - a provider that nobody finds yet
 * @pdev: its device lock is held, and a driver is bound
 * @bar: of @pdev
 * @bar_offset: bytes, where the range begins
 * @len: of the range, in bytes
 * @ended: called when nobody uses the memory any more, before the function's driver goes, with no
 *	lock of the function's held; may wait; or NULL
 * Return: a provider, to be announced or removed; or ERR_PTR.
 */
struct peerdma_provider *peerdma_provider_reserve(struct pci_dev *pdev, int bar, u64 bar_offset,
						  u64 len,
						  void (*ended)(struct peerdma_provider *provider))
{
	const struct xa_limit limit = XA_LIMIT(1, MINORMASK);
	struct peerdma_provider *provider = kzalloc(sizeof(*provider), GFP_KERNEL);
	int err;

	if (!provider)
		return ERR_PTR(-ENOMEM);
	err = peerdma_stats_init(&provider->stats, GFP_KERNEL);
	if (err) {
		kfree(provider);
		return ERR_PTR(err);
	}
	err = peerdma_gate_init(&provider->gate);
	if (err) {
		peerdma_stats_free(&provider->stats);
		kfree(provider);
		return ERR_PTR(err);
	}
	refcount_set(&provider->refs, 1);
	provider->pdev = pci_dev_get(pdev);
	provider->bar = bar;
	provider->bar_offset = bar_offset;
	provider->len = len;
	provider->prefetchable = pci_resource_flags(pdev, bar) & IORESOURCE_PREFETCH;
	provider->ended = ended;
	mutex_init(&provider->lock);
	INIT_LIST_HEAD(&provider->buffers);
	peerdma_routes_init(provider);
	xa_init(&provider->pairs);
	INIT_WORK(&provider->halt, halt_buffers);

	err = peerdma_region_create(provider);
	if (err) {
		peerdma_provider_put(provider);
		return ERR_PTR(err);
	}
	/* Cyclic, so that an id a process still remembers does not soon mean another device. */
	err = xa_alloc_cyclic(&providers, &provider->id, NULL, limit, &next_id, GFP_KERNEL);
	if (err < 0)
		goto err_region;
	provider->consumer.end = provider_end;
	err = peerdma_consumer_add(&provider->consumer, &pdev->dev, PEERDMA_CONSUMER_PROVIDER,
				   provider->id);
	if (err)
		goto err_id;
	return provider;

err_id:
	xa_erase(&providers, provider->id);
err_region:
	peerdma_region_put(provider);
	peerdma_provider_put(provider);
	return ERR_PTR(err);
}

void peerdma_provider_announce(struct peerdma_provider *provider)
{
	/* The slot exists since xa_alloc_cyclic(): nothing is allocated, nothing fails. */
	xa_store(&providers, provider->id, provider, GFP_KERNEL);
	peerdma_node_add(provider);
}

/* One whose gate is closed, with a reference, or NULL. */
static struct peerdma_buffer *first_closed(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer, *found = NULL;

	mutex_lock(&provider->lock);
	list_for_each_entry(buffer, &provider->buffers, link) {
		if (!peerdma_gate_closed(&buffer->gate))
			continue;
		refcount_inc(&buffer->refs);
		found = buffer;
		break;
	}
	mutex_unlock(&provider->lock);
	return found;
}

/* So that no request begins in one buffer while those in another are waited for. */
static void close_buffers(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&provider->lock);
	list_for_each_entry(buffer, &provider->buffers, link)
		peerdma_gate_close(&buffer->gate);
	mutex_unlock(&provider->lock);
}

/* All that close_buffers() has closed, and none that was made since. */
static void revoke_buffers(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	while ((buffer = first_closed(provider))) {
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}

/* May take as long as the storage. Nothing of a driver's is held. */
static void halt_buffers(struct work_struct *work)
{
	struct peerdma_provider *provider = container_of(work, struct peerdma_provider, halt);

	revoke_buffers(provider);
	peerdma_provider_put(provider);
}

/**
 * peerdma_provider_halt - the memory is about to be lost, or just was
 * @provider: under its device's lock
 *
 * Waits for nobody: new requests and allocations fail, those that are under way end with an error,
 * and the buffers are revoked by a work item. What others hold of the memory stays theirs: held.c.
 */
void peerdma_provider_halt(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	device_lock_assert(&provider->pdev->dev);
	mutex_lock(&provider->lock);
	WRITE_ONCE(provider->halted, true);
	smp_wmb(); /* pairs with peerdma_mem_alloc() */
	WRITE_ONCE(provider->halts, provider->halts + 1);
	list_for_each_entry(buffer, &provider->buffers, link) {
		WRITE_ONCE(buffer->lost, true);
		peerdma_gate_close(&buffer->gate);
	}
	mutex_unlock(&provider->lock);
	refcount_inc(&provider->refs);
	if (!queue_work(peerdma_revoke_wq, &provider->halt))
		peerdma_provider_put(provider);
}

/**
 * peerdma_provider_settle - wait until nobody has any of the memory, but not for long
 * @provider: halted
 * @seconds: at most
 * Return: false: requests are still under way, or others hold pages.
 */
bool peerdma_provider_settle(struct peerdma_provider *provider, unsigned int seconds)
{
	const unsigned long end = jiffies + seconds * HZ;

	while (atomic64_read(&provider->used)) {
		if (time_after(jiffies, end))
			return false;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

/* There is memory again, with other bytes in it. Under the device's lock. */
void peerdma_provider_restart(struct peerdma_provider *provider)
{
	device_lock_assert(&provider->pdev->dev);
	WRITE_ONCE(provider->halted, false);
}

/* Once: nobody finds it, nobody is inside, no buffer has memory of it. */
static void provider_end(struct peerdma_consumer *consumer)
{
	struct peerdma_provider *provider =
		container_of(consumer, struct peerdma_provider, consumer);

	peerdma_node_remove(provider);
	xa_erase(&providers, provider->id);
	/* Whoever is inside may be slow, and may be making a buffer: so twice. */
	peerdma_gate_close(&provider->gate);
	close_buffers(provider);
	peerdma_inside_wait(provider, NULL);
	close_buffers(provider);
	peerdma_inside_name(provider);
	revoke_buffers(provider);
	/* Whoever could make another one was inside a gate. */
	peerdma_routes_drop(provider);
	peerdma_held_name(provider);
	peerdma_region_put(provider);
	if (provider->ended)
		provider->ended(provider);
}

/* It has ended when this returns. Takes the reference of who reserved it. */
void peerdma_provider_remove(struct peerdma_provider *provider)
{
	peerdma_consumer_remove(&provider->consumer);
	peerdma_provider_put(provider);
}

/**
 * peerdma_provider_next - the provider with the smallest id that is not below @id
 * @ctx: of those that this open file reaches; NULL: of all
 * @id: where to begin
 * Return: a provider with a reference, or NULL.
 */
struct peerdma_provider *peerdma_provider_next(const struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_provider *provider;
	unsigned long index = id;

	/* Erasing comes before the last put: what the lock lets us see has a reference to give. */
	xa_lock(&providers);
	provider = xa_find(&providers, &index, U32_MAX, XA_PRESENT);
	while (provider && !peerdma_reaches(ctx, provider))
		provider = xa_find_after(&providers, &index, U32_MAX, XA_PRESENT);
	if (provider)
		refcount_inc(&provider->refs);
	xa_unlock(&providers);
	return provider;
}

/* The provider with this id, with a reference; NULL: there is none, or @ctx does not reach it. */
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
	peerdma_pairs_free(provider);
	peerdma_stats_free(&provider->stats);
	peerdma_gate_free(&provider->gate);
	pci_dev_put(provider->pdev);
	kfree(provider);
}

/**
 * peerdma_provider_pause - between two tries of another device's lock
 * @provider: the caller is inside its gate or a buffer's
 *
 * Another device's locks are waited for inside a gate, and unbinding waits for the gate, holding
 * the provider's device lock and perhaps the lock of all PCI hotplug. Who holds the other device's
 * lock may want one of those: SR-IOV, error recovery. So nobody blocks on them here: try, and
 * between two tries leave if the provider is going away.
 *
 * Return: 0 to try again, -ENODEV, or -EINTR.
 */
int peerdma_provider_pause(struct peerdma_provider *provider)
{
	if (peerdma_gate_closed(&provider->gate) || READ_ONCE(provider->halted))
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
