// SPDX-License-Identifier: GPL-2.0
/*
 * A device for each provider, linked as a consumer to the function that the provider is of. The
 * driver core unbinds consumers before it unbinds their supplier, and lets go of the supplier's
 * device lock meanwhile. That is where requests are waited for: whoever needs the function's lock
 * so that they can end gets it (error recovery of a bus that the drive is on too), and no bus
 * notifier waits for storage.
 *
 * The driver below has nothing to do when it is bound. It is unbound once, by the driver core or by
 * peerdma_consumer_remove(), whoever comes first; the other waits.
 */
#include <linux/device.h>
#include <linux/device/bus.h>
#include <linux/slab.h>

#include "peerdma.h"

static struct device *consumers; /* the parent of all: a function may go before its consumer */

static void consumer_unbind(struct device *dev)
{
	peerdma_provider_end(dev_get_drvdata(dev));
}

static struct bus_type consumer_bus = {
	.name = "peerdma",
	.remove = consumer_unbind,
};

static struct device_driver consumer_driver = {
	.name = "peerdma_provider",
	.bus = &consumer_bus,
	.owner = THIS_MODULE,
	.suppress_bind_attrs = true,
	.probe_type = PROBE_FORCE_SYNCHRONOUS,
};

static void consumer_free(struct device *dev)
{
	kfree(dev);
}

/**
 * peerdma_consumer_add - from now on unbinding the function ends the provider first
 * @provider: has a number; its function's device lock is held, and a driver is bound
 * Return: 0, -ENODEV: the function is being unbound, or another errno.
 */
int peerdma_consumer_add(struct peerdma_provider *provider)
{
	struct device *supplier = &provider->pdev->dev;
	struct device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int err;

	device_lock_assert(supplier);
	if (!dev)
		return -ENOMEM;
	device_initialize(dev);
	dev->parent = consumers;
	dev->bus = &consumer_bus;
	dev->release = consumer_free;
	dev_set_drvdata(dev, provider);
	err = dev_set_name(dev, "provider%u", provider->id);
	if (err)
		goto err_put;
	if (!device_link_add(dev, supplier, DL_FLAG_AUTOREMOVE_CONSUMER)) {
		err = -ENOMEM;
		goto err_put;
	}
	err = device_add(dev);
	if (err)
		goto err_link;
	/* The driver core binds no consumer of what it is unbinding. */
	if (!dev->driver) {
		device_unregister(dev);
		return -ENODEV;
	}
	provider->consumer = dev;
	return 0;

err_link:
	device_link_remove(dev, supplier);
err_put:
	put_device(dev);
	return err;
}

/* Ends the provider, if nobody has, or waits for who does. */
void peerdma_consumer_remove(struct peerdma_provider *provider)
{
	device_unregister(provider->consumer);
}

int peerdma_consumers_init(void)
{
	int err;

	consumers = root_device_register("peerdma");
	if (IS_ERR(consumers))
		return PTR_ERR(consumers);
	err = bus_register(&consumer_bus);
	if (err)
		goto err_root;
	err = driver_register(&consumer_driver);
	if (err)
		goto err_bus;
	return 0;

err_bus:
	bus_unregister(&consumer_bus);
err_root:
	root_device_unregister(consumers);
	return err;
}

/* There is no provider. */
void peerdma_consumers_exit(void)
{
	driver_unregister(&consumer_driver);
	bus_unregister(&consumer_bus);
	root_device_unregister(consumers);
}
