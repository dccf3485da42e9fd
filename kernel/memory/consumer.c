// SPDX-License-Identifier: GPL-2.0
/*
 * A device for each provider, and for each function that imports are attached with, linked as a
 * consumer to that function. The driver core unbinds consumers before it unbinds their supplier,
 * and lets go of the supplier's device lock meanwhile. That is where requests are waited for:
 * whoever needs the function's lock so that they can end gets it (error recovery of a bus that the
 * drive is on too).
 *
 * Two may unbind a function at once. The second one finds no consumer that is bound, and goes on
 * with the function's lock held: it waits in peerdma_consumer_wait() or peerdma_consumer_remove().
 * A function that imports are attached with has nobody to wait there: import.c.
 *
 * It is a platform device because the driver core may still hold one, and use its bus, after this
 * module has gone.
 */
#include <linux/device.h>
#include <linux/mod_devicetable.h>
#include <linux/platform_device.h>

#include "compat/compat.h"
#include "memory/consumer.h"

/* Only when it is made: once it has been unbound there is nothing to end. */
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
 * peerdma_consumer_add - from now on unbinding the function calls the end first
 * @consumer: its end is set; called once, without the function's device lock, and may wait
 * @supplier: the function; its device lock is held, and a driver is bound
 * @name: PEERDMA_CONSUMER_*
 * @id: no other of this name has it
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
	/* As platform_device_add() does again: the link is named by them. */
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

/* Calls the end, if nobody has, or waits for who does. */
void peerdma_consumer_remove(struct peerdma_consumer *consumer)
{
	platform_device_unregister(consumer->dev);
}

/* The end is being called, or has been: it has returned when this does. */
void peerdma_consumer_wait(struct platform_device *dev)
{
	device_lock(&dev->dev);
	device_unlock(&dev->dev);
}

int peerdma_consumers_init(void)
{
	return platform_driver_register(&consumer_driver);
}

/* There is none. */
void peerdma_consumers_exit(void)
{
	platform_driver_unregister(&consumer_driver);
}
