// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a lock of another subsystem for some seconds, or until insmod is killed: a PCI function's
 * device lock, as SR-IOV and error recovery do; or the lock for opening a disk, as opening and
 * removal do; or a frozen disk queue, as a driver does during a reset.
 *
 * insmod devlock.ko device=0000:01:00.0 seconds=8
 * insmod devlock.ko disk=/dev/nvme0n1 seconds=8
 * insmod devlock.ko queue=/dev/nvme0n1 seconds=8
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *device = "";
module_param(device, charp, 0444);

static char *disk = "";
module_param(disk, charp, 0444);

static char *queue = "";
module_param(queue, charp, 0444);

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

static void thaw(struct request_queue *q)
{
#ifdef HAVE_UNFREEZE_NOMEMRESTORE
	blk_mq_unfreeze_queue_nomemrestore(q);
#else
	blk_mq_unfreeze_queue(q);
#endif
}

static int hold_queue(void)
{
	struct file *file = bdev_file_open_by_path(queue, BLK_OPEN_READ, NULL, NULL);
	struct request_queue *q;

	if (IS_ERR(file))
		return PTR_ERR(file);
	q = bdev_get_queue(file_bdev(file));
	blk_freeze_queue_start(q);
	blk_mq_freeze_queue_wait(q);
	pr_info("devlock: holding %s\n", queue);
	msleep_interruptible(seconds * 1000);
	thaw(q);
	bdev_fput(file);
	return 0;
}

static int __init devlock_init(void)
{
	if (*queue)
		return hold_queue();
	return *disk ? hold_disk() : hold_device();
}

static void __exit devlock_exit(void)
{
}

module_init(devlock_init);
module_exit(devlock_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds a lock of a PCI function or a disk, or its queue, for a while");
