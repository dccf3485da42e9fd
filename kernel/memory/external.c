// SPDX-License-Identifier: GPL-2.0
/*
 * Externals: providers whose pages belong to another driver. Such a provider is a range of a BAR
 * that the driver has published, and exists as long as it has pins. Nothing is allocated from it.
 * It serves routes and queries.
 *
 * When a GPU is unbound, its page map is removed, for which the kernel waits for every reference.
 * Its driver's remove() may rely on having all its memory back. So a consumer device ends the
 * provider first, which revokes its buffers: consumer.c. Providers are created under the function's
 * device lock, and none while the function is being unbound. If two threads unbind the function at
 * once, the second one waits in a bus notifier until the first one has ended the providers.
 */
#include <linux/device/bus.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/range.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "compat/compat.h"
#include "base/usage.h"
#include "memory/busy.h"
#include "memory/consumer.h"
#include "memory/ctx.h"
#include "memory/pin.h"
#include "memory/provider.h"

static LIST_HEAD(externals);
static DEFINE_MUTEX(externals_mutex); /* protects externals, and link and pins of each */
/*
 * Serializes creation. Held while a consumer is added, which calls notifiers of the platform bus.
 * No notifier takes it. Taken before externals_mutex.
 */
static DEFINE_MUTEX(external_create_mutex);
static atomic_t externals_removed = ATOMIC_INIT(0); /* counted for those who wait for a removal */

/*
 * The provider's ended(): called before remove() of the GPU's driver, when all buffers are revoked.
 * Returns when each pin of this provider that is quiet has ended. Does not wait for pages that
 * others hold: the kernel does, later.
 */
static void external_wait_for_ending_pins(struct peerdma_provider *provider)
{
	struct peerdma_external *external = provider->external;

	peerdma_busy_poll_now(provider);
	wait_var_event(&external->ending, !atomic_read(&external->ending));
}

static struct peerdma_external *external_create(struct pci_dev *pdev, int bar,
						const struct dev_pagemap *pgmap)
{
	const u64 off = pgmap->range.start - pci_resource_start(pdev, bar);
	struct peerdma_external *external = kzalloc(sizeof(*external), GFP_KERNEL);
	struct peerdma_provider *provider;

	if (!external)
		return ERR_PTR(-ENOMEM);
	provider = peerdma_provider_reserve(pdev, bar, off, range_len(&pgmap->range),
					    external_wait_for_ending_pins);
	if (IS_ERR(provider)) {
		kfree(external);
		return ERR_CAST(provider);
	}
	provider->external = external;
	atomic64_set(&provider->used, provider->len);
	external->provider = provider;
	external->pgmap = pgmap;
	mutex_lock(&externals_mutex);
	list_add_tail(&external->link, &externals);
	mutex_unlock(&externals_mutex);
	peerdma_provider_announce(provider);
	return external;
}

/* The external of this page map, or NULL. */
static struct peerdma_external *external_find(const struct dev_pagemap *pgmap)
{
	struct peerdma_external *external;

	lockdep_assert_held(&externals_mutex);
	list_for_each_entry(external, &externals, link) {
		if (external->pgmap == pgmap)
			return external;
	}
	return NULL;
}

/*
 * Locks both mutexes when no external of this page map is being removed: a new one has a dmem
 * region of the same name. 0, or -EINTR without the mutexes.
 */
static int external_create_lock(const struct dev_pagemap *pgmap)
{
	const struct peerdma_external *external;
	int removed;

	for (;;) {
		removed = atomic_read(&externals_removed);
		mutex_lock(&external_create_mutex);
		mutex_lock(&externals_mutex);
		external = external_find(pgmap);
		if (!external || !external->removing)
			return 0;
		mutex_unlock(&externals_mutex);
		mutex_unlock(&external_create_mutex);
		if (wait_var_event_killable(&externals_removed,
					    atomic_read(&externals_removed) != removed))
			return -EINTR;
	}
}

/*
 * The external of this page map, with one more pin, created if there is none; or ERR_PTR. -ENOENT:
 * the context is an open node of another provider.
 */
struct peerdma_external *peerdma_external_get(const struct peerdma_ctx *ctx, struct pci_dev *pdev,
					      int bar, const struct dev_pagemap *pgmap)
{
	struct peerdma_external *external;
	int err = external_create_lock(pgmap);

	if (err)
		return ERR_PTR(err);
	external = external_find(pgmap);
	if (!external) {
		mutex_unlock(&externals_mutex);
		external = ctx->only ? ERR_PTR(-ENOENT) : external_create(pdev, bar, pgmap);
		mutex_lock(&externals_mutex);
	}
	if (IS_ERR(external))
		goto out;
	if (!peerdma_provider_is_reachable(ctx, external->provider))
		external = ERR_PTR(-ENOENT);
	else if (peerdma_usage_killed(&external->provider->usage))
		external = ERR_PTR(-ENODEV); /* an unbind waits until it has no pins */
	else
		external->pins++;
out:
	mutex_unlock(&externals_mutex);
	mutex_unlock(&external_create_mutex);
	return external;
}

/*
 * Takes a pin off. The last one removes the provider, which has ended before if the GPU was
 * unbound, and frees the external.
 */
void peerdma_external_put(struct peerdma_external *external)
{
	bool last;

	mutex_lock(&externals_mutex);
	last = !--external->pins;
	external->removing = last;
	mutex_unlock(&externals_mutex);
	if (!last)
		return;
	peerdma_provider_remove(external->provider);
	mutex_lock(&externals_mutex);
	list_del(&external->link);
	mutex_unlock(&externals_mutex);
	kfree(external);
	atomic_inc(&externals_removed);
	wake_up_var(&externals_removed);
}

/*
 * The consumer of the function's external with the smallest id above *id, referenced; or NULL. An
 * external that is being removed has no memory left, and may have no consumer any more.
 */
static struct platform_device *external_next_consumer(const struct pci_dev *pdev, u32 *id)
{
	struct peerdma_provider *provider, *found = NULL;
	struct platform_device *consumer = NULL;
	struct peerdma_external *external;

	mutex_lock(&externals_mutex);
	list_for_each_entry(external, &externals, link) {
		provider = external->provider;
		if (!external->removing && provider->pdev == pdev && provider->id > *id &&
		    (!found || provider->id < found->id))
			found = provider;
	}
	if (found) {
		*id = found->id;
		consumer = found->consumer.dev;
		get_device(&consumer->dev);
	}
	mutex_unlock(&externals_mutex);
	return consumer;
}

/*
 * Called before remove() of the GPU's driver. Waits until all externals of the GPU have ended that
 * still have pins.
 */
static int external_function_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct platform_device *consumer;
	u32 id = 0;

	if (event != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((consumer = external_next_consumer(to_pci_dev(data), &id))) {
		peerdma_consumer_wait(consumer);
		platform_device_put(consumer);
	}
	return NOTIFY_DONE;
}

static struct notifier_block functions = {
	.notifier_call = external_function_event,
};

int peerdma_externals_init(void)
{
	return bus_register_notifier(&pci_bus_type, &functions);
}

void peerdma_externals_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &functions);
}
