// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, holds a reference of a disk's queue, as a bio that is about to be merged does:
 * insmod inside.ko disk=/dev/nvme0n1
 */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/percpu-refcount.h>

static char *disk = "";
module_param(disk, charp, 0444);

static struct file *file;

static struct percpu_ref *usage(void)
{
	return &bdev_get_queue(file_bdev(file))->q_usage_counter;
}

static int __init inside_init(void)
{
	file = bdev_file_open_by_path(disk, BLK_OPEN_READ, NULL, NULL);
	if (IS_ERR(file))
		return PTR_ERR(file);
	percpu_ref_get(usage());
	return 0;
}

static void __exit inside_exit(void)
{
	percpu_ref_put(usage());
	bdev_fput(file);
}

module_init(inside_init);
module_exit(inside_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds a reference of a disk's queue");
