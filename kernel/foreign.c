// SPDX-License-Identifier: GPL-2.0
/*
 * Providers whose pages are another driver's. Such a provider is the part of a BAR that was
 * published as one, as long as any pin is of it. Nothing is allocated of it: it is there for
 * routes, and to be asked about.
 *
 * A GPU that is unbound loses its page map, for which the kernel waits for every reference, and its
 * driver's remove() may count on having back what we keep of its memory, but for what others hold.
 * So the provider ends before, which revokes the buffers: consumer.c. Providers are made under the
 * function's device lock, and none while the function is being unbound. A second one who unbinds
 * waits in a bus notifier for the first to have ended the providers.
 */
#include <linux/device/bus.h>
#include <linux/memremap.h>
#include <linux/platform_device.h>
#include <linux/range.h>
#include <linux/slab.h>

#include "peerdma.h"

static LIST_HEAD(foreigns);
static DEFINE_MUTEX(foreigns_lock); /* protects foreigns, and each one's link and pins */

/* Before remove() of the GPU's driver. Ends of other GPUs' memory are not waited for. */
static void foreign_ended(struct peerdma_provider *provider)
{
	struct foreign *foreign = provider->foreign;

	peerdma_held_look(provider);
	wait_var_event(&foreign->ending, !atomic_read(&foreign->ending));
}

static struct foreign *foreign_create(struct pci_dev *pdev, int bar,
				      const struct dev_pagemap *pgmap)
{
	const u64 off = pgmap->range.start - pci_resource_start(pdev, bar);
	struct foreign *foreign = kzalloc(sizeof(*foreign), GFP_KERNEL);
	struct peerdma_provider *provider;

	if (!foreign)
		return ERR_PTR(-ENOMEM);
	provider =
		peerdma_provider_reserve(pdev, bar, off, range_len(&pgmap->range), foreign_ended);
	if (IS_ERR(provider)) {
		kfree(foreign);
		return ERR_CAST(provider);
	}
	provider->foreign = foreign;
	atomic64_set(&provider->used, provider->len);
	foreign->provider = provider;
	foreign->pgmap = pgmap;
	list_add_tail(&foreign->link, &foreigns);
	peerdma_provider_announce(provider);
	return foreign;
}

/*
 * The provider of these pages, for one pin more; or ERR_PTR. A provider's node cannot begin
 * another: -ENOENT.
 */
struct foreign *peerdma_foreign_get(const struct peerdma_ctx *ctx, struct pci_dev *pdev, int bar,
				    const struct dev_pagemap *pgmap)
{
	struct foreign *foreign;

	mutex_lock(&foreigns_lock);
	list_for_each_entry(foreign, &foreigns, link) {
		if (foreign->pgmap == pgmap)
			goto found;
	}
	foreign = ctx->only ? ERR_PTR(-ENOENT) : foreign_create(pdev, bar, pgmap);
	if (IS_ERR(foreign))
		goto out;
found:
	if (!peerdma_reaches(ctx, foreign->provider))
		foreign = ERR_PTR(-ENOENT);
	else if (peerdma_gate_closed(&foreign->provider->gate))
		foreign = ERR_PTR(-ENODEV); /* who unbinds waits until it has no pins */
	else
		foreign->pins++;
out:
	mutex_unlock(&foreigns_lock);
	return foreign;
}

/* With the last pin the provider goes, unless it has ended with the GPU. */
void peerdma_foreign_put(struct foreign *foreign)
{
	bool last;

	mutex_lock(&foreigns_lock);
	last = !--foreign->pins;
	if (last)
		list_del(&foreign->link);
	mutex_unlock(&foreigns_lock);
	if (!last)
		return;
	peerdma_provider_remove(foreign->provider);
	kfree(foreign);
}

/* The consumer, referenced, of this function's provider with the next id after *id; or NULL. */
static struct platform_device *next_consumer(const struct pci_dev *pdev, u32 *id)
{
	struct peerdma_provider *provider, *found = NULL;
	struct platform_device *consumer = NULL;
	struct foreign *foreign;

	mutex_lock(&foreigns_lock);
	list_for_each_entry(foreign, &foreigns, link) {
		provider = foreign->provider;
		if (provider->pdev == pdev && provider->id > *id &&
		    (!found || provider->id < found->id))
			found = provider;
	}
	if (found) {
		*id = found->id;
		consumer = found->consumer.dev;
		get_device(&consumer->dev);
	}
	mutex_unlock(&foreigns_lock);
	return consumer;
}

/* Before remove() of the GPU's driver. */
static int function_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct platform_device *consumer;
	u32 id = 0;

	if (event != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((consumer = next_consumer(to_pci_dev(data), &id))) {
		peerdma_consumer_wait(consumer);
		platform_device_put(consumer);
	}
	return NOTIFY_DONE;
}

static struct notifier_block functions = {
	.notifier_call = function_event,
};

int peerdma_foreigns_init(void)
{
	return bus_register_notifier(&pci_bus_type, &functions);
}

void peerdma_foreigns_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &functions);
}
