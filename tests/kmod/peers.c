// SPDX-License-Identifier: GPL-2.0
/*
 * Lets a multipath NVMe disk and all of its paths accept peer pages, as if the network card of each
 * path could: insmod peers.ko disk=/dev/nvme1n1. Tests must not send it requests that its real
 * paths cannot carry.
 */
#include <linux/blkdev.h>
#include <linux/device/class.h>
#include <linux/module.h>

static char *disk = "";
module_param(disk, charp, 0444);

static int take_peers(struct request_queue *queue)
{
	struct queue_limits limits = queue_limits_start_update(queue);

	limits.features |= BLK_FEAT_PCI_P2PDMA;
	return queue_limits_commit_update(queue, &limits);
}

/* nvme1c0n1 is a path of nvme1n1. */
static bool is_path(struct gendisk *head, struct gendisk *path)
{
	int subsystem, n, of, controller, nth;

	return sscanf(head->disk_name, "nvme%dn%d", &subsystem, &n) == 2 &&
	       sscanf(path->disk_name, "nvme%dc%dn%d", &of, &controller, &nth) == 3 &&
	       of == subsystem && nth == n;
}

static int take_peers_below(struct gendisk *head)
{
	struct class_dev_iter iter;
	struct device *dev;
	int err = -ENODEV;

	class_dev_iter_init(&iter, disk_to_dev(head)->class, NULL, disk_to_dev(head)->type);
	while ((dev = class_dev_iter_next(&iter))) {
		if (!is_path(head, dev_to_disk(dev)))
			continue;
		err = take_peers(dev_to_disk(dev)->queue);
		if (err)
			break;
	}
	class_dev_iter_exit(&iter);
	return err;
}

static int __init peers_init(void)
{
	struct file *file = bdev_file_open_by_path(disk, BLK_OPEN_READ, NULL, NULL);
	int err;

	if (IS_ERR(file))
		return PTR_ERR(file);
	err = take_peers_below(file_bdev(file)->bd_disk);
	if (!err)
		err = take_peers(bdev_get_queue(file_bdev(file)));
	bdev_fput(file);
	return err;
}

static void __exit peers_exit(void)
{
}

module_init(peers_init);
module_exit(peers_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lets a multipath NVMe disk take pages of peers");
