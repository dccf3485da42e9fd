// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a provider. It comes into being in two steps: reserve (can fail, can be undone) and
 * announce (cannot fail), because the pages that are made in between can only be unmade by an
 * unbind. It ends when its function is unbound. In between its memory may be lost for a while, by a
 * reset or a suspend.
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

/* May take as long as the storage. Nothing of a driver's is held. */
static void provider_halted(struct work_struct *work)
{
	struct peerdma_provider *provider = container_of(work, struct peerdma_provider, halt);

	peerdma_buffers_revoke(provider);
	peerdma_provider_put(provider);
}

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
 * peerdma_provider_halt - the memory is about to be lost, or just was
 * @provider: under its device's lock
 *
 * Waits for nobody: new requests and allocations fail, those that are under way end with an error,
 * and the buffers are revoked by a work item. What others hold of the memory stays theirs: busy.c.
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
 * peerdma_provider_wait_unused - wait until nobody has any of the memory, but not for long
 * @provider: halted
 * @seconds: at most
 * Return: false: requests are still under way, or others hold pages.
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

/* There is memory again, with other bytes in it. Under the device's lock. */
void peerdma_provider_restart(struct peerdma_provider *provider)
{
	device_lock_assert(&provider->pdev->dev);
	WRITE_ONCE(provider->halted, false);
}

/* Once: nobody finds it, nobody uses it, no buffer has memory of it. */
static void provider_end(struct peerdma_consumer *consumer)
{
	struct peerdma_provider *provider =
		container_of(consumer, struct peerdma_provider, consumer);

	provider_events->withdrawn(provider);
	peerdma_provider_hide(provider);
	/* Whoever uses it may be slow, and may be making a buffer: so twice. */
	peerdma_usage_kill(&provider->usage);
	peerdma_buffers_kill(provider);
	peerdma_drain_wait(provider, NULL);
	peerdma_buffers_kill(provider);
	peerdma_drains_log(provider);
	peerdma_buffers_revoke(provider);
	/* Whoever could make another one had a usage reference. */
	provider_events->ended(provider);
	peerdma_busy_log(provider);
	peerdma_charge_region_put(provider);
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
 * peerdma_lifecycle_init - before there is any provider
 * @events: whom its life concerns, of those that are not called by name
 * Return: 0 or -errno.
 */
int peerdma_lifecycle_init(const struct peerdma_provider_events *events)
{
	provider_events = events;
	return peerdma_consumers_init();
}

/* There is none any more. */
void peerdma_lifecycle_exit(void)
{
	peerdma_consumers_exit();
}
