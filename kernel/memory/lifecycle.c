// SPDX-License-Identifier: GPL-2.0
/*
 * Creates and ends providers. Creation has two steps, reserve (may fail, can be undone) and
 * announce (cannot fail), because the pages that are created between them can only be removed by an
 * unbind. A provider ends when its function is unbound. Before that its memory may be lost for a
 * while, by a reset or a suspend.
 */
#include <linux/device.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "base/usage.h"
#include "base/work.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/charge.h"
#include "memory/consumer.h"
#include "memory/drain.h"
#include "memory/provider.h"

static const struct peerdma_provider_events *provider_events;

static void provider_end(struct peerdma_consumer *consumer);

/* Waits for the storage. No lock of a driver is held. */
static void provider_halted(struct work_struct *work)
{
	struct peerdma_provider *provider = container_of(work, struct peerdma_provider, halt);

	peerdma_buffers_revoke(provider);
	peerdma_provider_put(provider);
}

/**
 * peerdma_provider_reserve - create a provider that lookups do not find yet
 * @pdev: its device lock is held, and a driver is bound
 * @bar: of @pdev
 * @bar_offset: bytes, where the range begins
 * @len: of the range, in bytes
 * @ended: called when the memory is not used any more, before the function's driver is unbound and
 *	without the function's locks; may wait; or NULL
 * Return: a provider, to be announced or removed; or ERR_PTR.
 */
struct peerdma_provider *peerdma_provider_reserve(struct pci_dev *pdev, int bar, u64 bar_offset,
						  u64 len,
						  void (*ended)(struct peerdma_provider *provider))
{
	struct peerdma_provider *provider = peerdma_provider_create(pdev, bar, bar_offset, len);
	int err;

	if (IS_ERR(provider))
		return provider;
	provider->ended = ended;
	INIT_WORK(&provider->halt, provider_halted);
	provider_events->reserved(provider);
	err = peerdma_provider_number(provider);
	if (err)
		goto err_provider;
	provider->consumer.end = provider_end;
	err = peerdma_consumer_add(&provider->consumer, &pdev->dev, PEERDMA_CONSUMER_PROVIDER,
				   provider->id);
	if (!err)
		return provider;
	peerdma_provider_hide(provider);
err_provider:
	peerdma_charge_region_put(provider);
	peerdma_provider_put(provider);
	return ERR_PTR(err);
}

void peerdma_provider_announce(struct peerdma_provider *provider)
{
	peerdma_provider_show(provider);
	provider_events->announced(provider);
}

/**
 * peerdma_provider_halt - the memory is about to be lost, or was just lost
 * @provider: its device lock is held
 *
 * Does not wait. New requests and allocations fail, running requests end with an error, and a work
 * item revokes the buffers. Pages that others hold stay referenced: busy.c.
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
		peerdma_usage_kill(&buffer->usage);
	}
	mutex_unlock(&provider->lock);
	refcount_inc(&provider->refs);
	if (!queue_work(peerdma_revoke_wq, &provider->halt))
		peerdma_provider_put(provider);
}

/**
 * peerdma_provider_wait_unused - wait for a limited time until the memory is not used
 * @provider: halted
 * @seconds: at most
 * Return: false: requests are still running, or others hold pages.
 */
bool peerdma_provider_wait_unused(struct peerdma_provider *provider, unsigned int seconds)
{
	const unsigned long end = jiffies + seconds * HZ;

	while (atomic64_read(&provider->used)) {
		if (time_after(jiffies, end))
			return false;
		schedule_timeout_uninterruptible(1);
	}
	return true;
}

/* The memory is back, with other contents. The caller holds the device lock. */
void peerdma_provider_restart(struct peerdma_provider *provider)
{
	device_lock_assert(&provider->pdev->dev);
	WRITE_ONCE(provider->halted, false);
}

/*
 * Called once. When it returns, lookups do not find the provider, and no buffer has memory of it.
 */
static void provider_end(struct peerdma_consumer *consumer)
{
	struct peerdma_provider *provider =
		container_of(consumer, struct peerdma_provider, consumer);

	provider_events->withdrawn(provider);
	peerdma_provider_hide(provider);
	/* A thread with a usage reference may be creating a buffer: so buffers are killed twice. */
	peerdma_usage_kill(&provider->usage);
	peerdma_buffers_kill(provider);
	peerdma_drain_wait(provider, NULL);
	peerdma_buffers_kill(provider);
	peerdma_drains_log(provider);
	peerdma_buffers_revoke(provider);
	/* No route can be created any more: that needs a usage reference. */
	provider_events->ended(provider);
	peerdma_busy_log(provider);
	peerdma_charge_region_put(provider);
	if (provider->ended)
		provider->ended(provider);
}

/*
 * Returns when the provider has ended. Puts the reference that peerdma_provider_reserve() returned.
 */
void peerdma_provider_remove(struct peerdma_provider *provider)
{
	peerdma_consumer_remove(&provider->consumer);
	peerdma_provider_put(provider);
}

/**
 * peerdma_lifecycle_init - before the first provider
 * @events: called as a provider's life begins and ends
 * Return: 0 or -errno.
 */
int peerdma_lifecycle_init(const struct peerdma_provider_events *events)
{
	provider_events = events;
	return peerdma_consumers_init();
}

/* No provider is left. */
void peerdma_lifecycle_exit(void)
{
	peerdma_consumers_exit();
}
