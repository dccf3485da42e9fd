// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a disk's writes with FUA a write and a flush: insmod nofua.ko disk=/dev/nvme0n1. QEMU's
 * NVMe drive accepts FUA but does not honor it, so after a power cut a test would detect QEMU's
 * fault.
 */
#include <linux/blkdev.h>
#include <linux/module.h>

static char *disk = "";
module_param(disk, charp, 0444);

static int __init nofua_init(void)
{
	struct file *file = bdev_file_open_by_path(disk, BLK_OPEN_READ, NULL, NULL);
	struct request_queue *queue;
	struct queue_limits limits;
	int err;

	if (IS_ERR(file))
		return PTR_ERR(file);
	queue = bdev_get_queue(file_bdev(file));
	limits = queue_limits_start_update(queue);
	limits.features &= ~BLK_FEAT_FUA;
	err = queue_limits_commit_update(queue, &limits);
	bdev_fput(file);
	return err;
}

static void __exit nofua_exit(void)
{
}

module_init(nofua_init);
module_exit(nofua_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Makes a disk's FUA writes flush");
