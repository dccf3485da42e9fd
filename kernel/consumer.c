// SPDX-License-Identifier: GPL-2.0
/*
 * A device for each provider, linked as a consumer to the function that the provider is of. The
 * driver core unbinds consumers before it unbinds their supplier, and lets go of the supplier's
 * device lock meanwhile. That is where requests are waited for: whoever needs the function's lock
 * so that they can end gets it (error recovery of a bus that the drive is on too).
 *
 * Two may unbind a function at once. The second one finds no consumer that is bound, and goes on
 * with the function's lock held: it waits in peerdma_consumer_wait() or peerdma_consumer_remove().
 *
 * It is a platform device because the driver core may still hold one, and use its bus, after this
 * module has gone.
 */
#include <linux/platform_device.h>

#include "compat/compat.h"
#include "peerdma.h"

static void (*consumer_unbound)(struct peerdma_provider *provider);

/* Only when it is made: once it has been unbound there is no provider to end. */
static int consumer_probe(struct platform_device *consumer)
{
	return platform_get_drvdata(consumer) ? 0 : -ENODEV;
}

static void consumer_unbind(struct platform_device *consumer)
{
	consumer_unbound(platform_get_drvdata(consumer));
}

static struct platform_driver consumer_driver = {
	.probe = consumer_probe,
	.platform_remove_void = consumer_unbind,
	.driver = {
		.name = "peerdma_provider",
		.suppress_bind_attrs = true,
		.probe_type = PROBE_FORCE_SYNCHRONOUS,
	},
};

/**
 * peerdma_consumer_add - from now on unbinding the function ends the provider first
 * @provider: has a number; its function's device lock is held, and a driver is bound
 * Return: 0, -ENODEV: the function is being unbound, or another errno.
 */
int peerdma_consumer_add(struct peerdma_provider *provider)
{
	struct device *supplier = &provider->pdev->dev;
	struct platform_device *consumer;
	int err;

	device_lock_assert(supplier);
	consumer = platform_device_alloc(consumer_driver.driver.name, provider->id);
	if (!consumer)
		return -ENOMEM;
	platform_set_drvdata(consumer, provider);
	/* As platform_device_add() does again: the link is named by them. */
	consumer->dev.bus = &platform_bus_type;
	err = dev_set_name(&consumer->dev, "%s.%u", consumer->name, provider->id);
	if (err)
		goto err_put;
	err = -ENOMEM;
	if (!device_link_add(&consumer->dev, supplier, DL_FLAG_AUTOREMOVE_CONSUMER))
		goto err_put;
	err = platform_device_add(consumer);
	if (err)
		goto err_link;
	/* Not bound: the function is being unbound, or there is no memory. */
	if (!consumer->dev.driver) {
		platform_device_unregister(consumer);
		return supplier->links.status == DL_DEV_UNBINDING ? -ENODEV : -ENOMEM;
	}
	provider->consumer = consumer;
	return 0;

err_link:
	device_link_remove(&consumer->dev, supplier);
err_put:
	platform_device_put(consumer);
	return err;
}

/* Ends the provider, if nobody has, or waits for who does. */
void peerdma_consumer_remove(struct peerdma_provider *provider)
{
	platform_device_unregister(provider->consumer);
}

/* The provider is being ended, or has been: it has ended when this returns. */
void peerdma_consumer_wait(struct platform_device *consumer)
{
	device_lock(&consumer->dev);
	device_unlock(&consumer->dev);
}

/* @unbound: ends the provider. 0 or -errno. */
int peerdma_consumers_init(void (*unbound)(struct peerdma_provider *provider))
{
	consumer_unbound = unbound;
	return platform_driver_register(&consumer_driver);
}

/* There is no provider. */
void peerdma_consumers_exit(void)
{
	platform_driver_unregister(&consumer_driver);
}
