// SPDX-License-Identifier: GPL-2.0
/*
 * Reads two adjacent blocks of a disk under one plug, the first to host memory, the second to
 * memory that a PCI function publishes for peer-to-peer DMA, with bvec iterators. Then the second
 * block alone. The log says how each read ended and how many bios the disk merged.
 * insmod p2pmerge.ko provider=0000:01:00.0 disk=/dev/nvme1n1
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/part_stat.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/uio.h>

static char *provider = "";
module_param(provider, charp, 0444);

static char *disk = "";
module_param(disk, charp, 0444);

struct part {
	struct page *page;
	struct bio_vec bvec;
	struct kiocb kiocb;
	struct completion done;
	long ret;
};

static void part_done(struct kiocb *kiocb, long ret)
{
	struct part *part = container_of(kiocb, struct part, kiocb);

	part->ret = ret;
	complete(&part->done);
}

static void part_read(struct part *part, struct file *file, loff_t pos)
{
	struct iov_iter iter;
	ssize_t ret;

	bvec_set_page(&part->bvec, part->page, PAGE_SIZE, 0);
	iov_iter_bvec(&iter, ITER_DEST, &part->bvec, 1, PAGE_SIZE);
	init_completion(&part->done);
	init_sync_kiocb(&part->kiocb, file);
	part->kiocb.ki_pos = pos;
	part->kiocb.ki_complete = part_done;
	ret = vfs_iocb_iter_read(file, &part->kiocb, &iter);
	if (ret != -EIOCBQUEUED)
		part_done(&part->kiocb, ret);
}

static void read_parts(struct file *file, struct part *parts, unsigned int nr, loff_t pos)
{
	struct block_device *bdev = I_BDEV(file->f_mapping->host);
	unsigned long before = part_stat_read(bdev, merges[STAT_READ]);
	struct blk_plug plug;
	unsigned int i;

	blk_start_plug(&plug);
	for (i = 0; i < nr; i++)
		part_read(&parts[i], file, pos + i * PAGE_SIZE);
	blk_finish_plug(&plug);
	for (i = 0; i < nr; i++) {
		wait_for_completion(&parts[i].done);
		pr_info("p2pmerge: read to %s memory: %ld\n",
			is_pci_p2pdma_page(parts[i].page) ? "peer" : "host", parts[i].ret);
	}
	pr_info("p2pmerge: %lu merged\n", part_stat_read(bdev, merges[STAT_READ]) - before);
}

static int run(struct pci_dev *pdev, struct file *file)
{
	struct part parts[2] = { { .page = alloc_page(GFP_KERNEL) } };
	void *peer = pci_alloc_p2pmem(pdev, PAGE_SIZE);
	int err = -ENOMEM;

	if (peer && parts[0].page) {
		parts[1].page = virt_to_page(peer);
		read_parts(file, parts, 2, 0);
		read_parts(file, &parts[1], 1, PAGE_SIZE);
		err = 0;
	}
	if (parts[0].page)
		__free_page(parts[0].page);
	if (peer)
		pci_free_p2pmem(pdev, peer, PAGE_SIZE);
	return err;
}

static int __init p2pmerge_init(void)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, provider);
	struct file *file;
	int err;

	if (!dev)
		return -ENODEV;
	file = filp_open(disk, O_RDONLY | O_DIRECT | O_LARGEFILE, 0);
	err = PTR_ERR_OR_ZERO(file);
	if (!err) {
		err = run(to_pci_dev(dev), file);
		filp_close(file, NULL);
	}
	put_device(dev);
	return err;
}

static void __exit p2pmerge_exit(void)
{
}

module_init(p2pmerge_init);
module_exit(p2pmerge_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Has a bio with peer-to-peer pages merged with one without");
