// SPDX-License-Identifier: GPL-2.0
/*
 * A device for each provider, and for each function that imports are attached with, linked as a
 * consumer to that function. The driver core unbinds consumers before their supplier, and drops the
 * supplier's device lock meanwhile. Requests are drained there: they may need that lock to end, for
 * example for error recovery of a bus that also has the drive.
 *
 * Two threads may unbind a function at once. The second one finds no bound consumer and goes on
 * with the function's device lock held: it waits in peerdma_consumer_wait() or
 * peerdma_consumer_remove(). Nothing waits so for a function that imports are attached with:
 * import_client.c.
 *
 * It is a platform device because the driver core may still hold a reference, and use the device's
 * bus, after this module has been unloaded.
 */
#include <linux/device.h>
#include <linux/mod_devicetable.h>
#include <linux/platform_device.h>

#include "compat/compat.h"
#include "memory/consumer.h"

/* Binds only while it is being added: a consumer that was unbound has nothing to end. */
static int consumer_probe(struct platform_device *dev)
{
	return platform_get_drvdata(dev) ? 0 : -ENODEV;
}

static void consumer_unbind(struct platform_device *dev)
{
	struct peerdma_consumer *consumer = platform_get_drvdata(dev);

	consumer->end(consumer);
}

static const struct platform_device_id consumer_ids[] = { { PEERDMA_CONSUMER_PROVIDER },
							  { PEERDMA_CONSUMER_IMPORTER },
							  {} };

static struct platform_driver consumer_driver = {
	.probe = consumer_probe,
	.platform_remove_void = consumer_unbind,
	.id_table = consumer_ids,
	.driver = {
		.name = "peerdma",
		.suppress_bind_attrs = true,
		.probe_type = PROBE_FORCE_SYNCHRONOUS,
	},
};

/**
 * peerdma_consumer_add - have the end called before the function is unbound
 * @consumer: its end is set. It is called once, without the function's device lock, and may wait
 * @supplier: the function; its device lock is held, and a driver is bound
 * @name: PEERDMA_CONSUMER_*
 * @id: unique among this name
 * Return: 0, -ENODEV: the function is being unbound, or another errno.
 */
int peerdma_consumer_add(struct peerdma_consumer *consumer, struct device *supplier,
			 const char *name, u32 id)
{
	struct platform_device *dev;
	int err;

	device_lock_assert(supplier);
	dev = platform_device_alloc(name, id);
	if (!dev)
		return -ENOMEM;
	platform_set_drvdata(dev, consumer);
	/* platform_device_add() sets both again. The device link is named by them. */
	dev->dev.bus = &platform_bus_type;
	err = dev_set_name(&dev->dev, "%s.%u", name, id);
	if (err)
		goto err_put;
	err = -ENOMEM;
	if (!device_link_add(&dev->dev, supplier, DL_FLAG_AUTOREMOVE_CONSUMER))
		goto err_put;
	consumer->dev = dev;
	err = platform_device_add(dev);
	if (err)
		goto err_link;
	/* Not bound: the function is being unbound, or there is no memory. */
	if (!dev->dev.driver) {
		platform_device_unregister(dev);
		return supplier->links.status == DL_DEV_UNBINDING ? -ENODEV : -ENOMEM;
	}
	return 0;

err_link:
	device_link_remove(&dev->dev, supplier);
err_put:
	platform_device_put(dev);
	return err;
}

/* Calls the end, or waits until another thread's call has returned. */
void peerdma_consumer_remove(struct peerdma_consumer *consumer)
{
	platform_device_unregister(consumer->dev);
}

/* Waits until the end, which has been called, has returned. */
void peerdma_consumer_wait(struct platform_device *dev)
{
	device_lock(&dev->dev);
	device_unlock(&dev->dev);
}

int peerdma_consumers_init(void)
{
	return platform_driver_register(&consumer_driver);
}

/* No consumer is left. */
void peerdma_consumers_exit(void)
{
	platform_driver_unregister(&consumer_driver);
}
