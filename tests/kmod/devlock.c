// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a lock of somebody else's for a while, or until insmod is told to end: a PCI function's
 * device lock, as SR-IOV and error recovery do, or that of opening a disk, as whoever opens or
 * removes it.
 * insmod devlock.ko device=0000:01:00.0 seconds=8
 * insmod devlock.ko disk=/dev/nvme0n1 seconds=8
 */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *device = "";
module_param(device, charp, 0444);

static char *disk = "";
module_param(disk, charp, 0444);

static unsigned int seconds = 1;
module_param(seconds, uint, 0444);

static int hold_device(void)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, device);

	if (!dev)
		return -ENODEV;
	device_lock(dev);
	pr_info("devlock: holding %s\n", device);
	msleep_interruptible(seconds * 1000);
	device_unlock(dev);
	put_device(dev);
	return 0;
}

static int hold_disk(void)
{
	struct file *file = bdev_file_open_by_path(disk, BLK_OPEN_READ, NULL, NULL);
	struct gendisk *gendisk;

	if (IS_ERR(file))
		return PTR_ERR(file);
	gendisk = file_bdev(file)->bd_disk;
	mutex_lock(&gendisk->open_mutex);
	pr_info("devlock: holding %s\n", disk);
	msleep_interruptible(seconds * 1000);
	mutex_unlock(&gendisk->open_mutex);
	bdev_fput(file);
	return 0;
}

static int __init devlock_init(void)
{
	return *disk ? hold_disk() : hold_device();
}

static void __exit devlock_exit(void)
{
}

module_init(devlock_init);
module_exit(devlock_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds a lock of a PCI function or a disk for a while");
