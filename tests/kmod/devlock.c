// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a PCI function's device lock for a while, as SR-IOV and error recovery do:
 * insmod devlock.ko device=0000:01:00.0 seconds=8
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *device = "";
module_param(device, charp, 0444);

static unsigned int seconds = 1;
module_param(seconds, uint, 0444);

static int __init devlock_init(void)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, device);

	if (!dev)
		return -ENODEV;
	device_lock(dev);
	pr_info("devlock: holding %s\n", device);
	ssleep(seconds);
	device_unlock(dev);
	put_device(dev);
	return 0;
}

static void __exit devlock_exit(void)
{
}

module_init(devlock_init);
module_exit(devlock_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds a PCI function's device lock for a while");
