// SPDX-License-Identifier: GPL-2.0
/*
 * May this file's storage reach this provider directly? Decided before anything is submitted,
 * because nothing below asks: BLK_FEAT_PCI_P2PDMA is looked at for user pages only, and a driver
 * that never learned of P2PDMA pages would hand its device a wrong address or touch the BAR with
 * the CPU.
 *
 * The file: a block device, or a regular file of a filesystem whose direct I/O is known to go to
 * its one block device. The device: the disk of a PCI function itself, whose driver announces the
 * feature, to which the kernel knows a route, and which can really map a page of the provider.
 */
#include <linux/blk-integrity.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fileattr.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stat.h>

#include "peerdma.h"

static int refuse(u32 *out_reason, u32 reason)
{
	*out_reason = reason;
	return peerdma_reason_errno(reason);
}

static int resolve_block(struct inode *inode, struct peerdma_target *target)
{
	target->bdev = I_BDEV(inode);
	target->fs_name = "block";
	target->mem_align = bdev_dma_alignment(target->bdev) + 1;
	target->offset_align = bdev_logical_block_size(target->bdev);
	return 0;
}

static int resolve_regular(struct file *file, struct peerdma_target *target, u32 *reason)
{
	struct super_block *sb = file_inode(file)->i_sb;
	struct kstat stat = {};
	int err;

	target->fs_name = sb->s_type->name;
	if (sb->s_magic != EXT4_SUPER_MAGIC || strcmp(sb->s_type->name, "ext4") || !sb->s_bdev)
		return refuse(reason, PEERDMA_REASON_FILESYSTEM);
	err = vfs_getattr(&file->f_path, &stat, STATX_DIOALIGN, 0);
	if (err)
		return err;
	/* 0: this very file would go through the page cache: encrypted, verity, journalled ... */
	if (!stat.dio_offset_align || !stat.dio_mem_align || IS_DAX(file_inode(file)) ||
	    IS_ENCRYPTED(file_inode(file)) || IS_VERITY(file_inode(file)))
		return refuse(reason, PEERDMA_REASON_NO_DIO);
	target->bdev = sb->s_bdev;
	target->mem_align = stat.dio_mem_align;
	target->offset_align = stat.dio_offset_align;
	return 0;
}

/* ext4 writes to a file without extents through the page cache, wherever it has no block yet. */
static bool has_extents(struct file *file)
{
	struct file_kattr attr = { .flags_valid = true };

	return !vfs_fileattr_get(file->f_path.dentry, &attr) && (attr.flags & FS_EXTENT_FL);
}

/**
 * peerdma_target_writable - may this file be written as it was opened
 * @file: a regular file or a block device
 * Return: enum peerdma_reason.
 */
u32 peerdma_target_writable(struct file *file)
{
	if (S_ISREG(file_inode(file)->i_mode) && !has_extents(file))
		return PEERDMA_REASON_NO_DIO;
	return PEERDMA_REASON_NONE;
}

/**
 * peerdma_target_resolve - what a file is, for direct I/O
 * @file: any open file
 * @target: filled; valid as long as @file is open
 * @reason: enum peerdma_reason
 * Return: 0, or the errno that goes with @reason.
 */
int peerdma_target_resolve(struct file *file, struct peerdma_target *target, u32 *reason)
{
	/* Of a device node this is the block device's own inode, of a regular file its own. */
	struct inode *inode = file->f_mapping->host;

	*target = (struct peerdma_target){ .fs_name = file_inode(file)->i_sb->s_type->name };
	*reason = PEERDMA_REASON_NONE;
	if (S_ISDIR(inode->i_mode)) {
		*reason = PEERDMA_REASON_FILE_TYPE;
		return -EISDIR;
	}
	if (S_ISBLK(inode->i_mode))
		return resolve_block(inode, target);
	if (S_ISREG(inode->i_mode))
		return resolve_regular(file, target, reason);
	return refuse(reason, PEERDMA_REASON_FILE_TYPE);
}

/*
 * Another device's locks are waited for inside a gate, and unbinding waits for the gate, holding
 * the provider's device lock and perhaps the lock of all PCI hotplug. Who holds the other device's
 * lock may want one of those: SR-IOV, error recovery. So nobody blocks on them here: try, and
 * between two tries leave if the provider is going away.
 * Return: 0 to try again, -ENODEV, or -EINTR.
 */
static int before_next_try(struct peerdma_provider *provider)
{
	if (peerdma_gate_closed(&provider->gate))
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	schedule_timeout_killable(1);
	return 0;
}

/* The PCI function behind a disk, with a reference; NULL if there is none; or ERR_PTR. */
static struct pci_dev *disk_pci_dev(struct peerdma_provider *provider, struct gendisk *disk)
{
	struct pci_dev *pdev = NULL;
	struct device *dev;
	int err;

	/* A disk that is removed drops its parents, not before this lock let it be marked. */
	while (!mutex_trylock(&disk->open_mutex)) {
		err = before_next_try(provider);
		if (err)
			return ERR_PTR(err);
	}
	if (disk_live(disk)) {
		for (dev = disk_to_dev(disk)->parent; dev && !dev_is_pci(dev); dev = dev->parent)
			;
		if (dev)
			pdev = pci_dev_get(to_pci_dev(dev));
	}
	mutex_unlock(&disk->open_mutex);
	return pdev;
}

/* Map one page as the driver would and look what comes out: no other export says how. */
static int trial_map(struct device *dev, struct page *page, u32 *map)
{
	struct scatterlist sg;
	struct sg_table table = { .sgl = &sg, .nents = 1, .orig_nents = 1 };
	int err;

	sg_init_table(&sg, 1);
	sg_set_page(&sg, page, PAGE_SIZE, 0);
	err = dma_map_sgtable(dev, &table, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	if (err)
		return err;
	if (sg_dma_is_bus_address(&sg))
		*map = PEERDMA_MAP_BUS_ADDR;
	else if (sg_dma_address(&sg) == page_to_phys(page))
		*map = PEERDMA_MAP_HOST_BRIDGE;
	else
		*map = PEERDMA_MAP_IOVA;
	dma_unmap_sgtable(dev, &table, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	return 0;
}

/* Map a page for the device while its driver stays and its IOMMU domain is the same. */
static int trial_map_bound(struct peerdma_provider *provider, struct device *dev, struct page *page,
			   u32 *map)
{
	int err;

	while (!device_trylock(dev)) {
		err = before_next_try(provider);
		if (err)
			return err;
	}
	err = dev->driver ? trial_map(dev, page, map) : -ENXIO;
	device_unlock(dev);
	return err;
}

/* What the queue says can change while the disk lives: it is looked at each time. */
static u32 judge_queue(struct gendisk *disk)
{
	if (!blk_queue_pci_p2pdma(disk->queue))
		return PEERDMA_REASON_QUEUE;
	/* Its checksums are computed by the CPU, which would have to read the BAR. */
	if (blk_get_integrity(disk))
		return PEERDMA_REASON_INTEGRITY;
	return PEERDMA_REASON_NONE;
}

static u32 judge_client(struct peerdma_provider *provider, struct gendisk *disk,
			struct pci_dev *client, struct page *page, struct peerdma_verdict *verdict)
{
	u32 reason = judge_queue(disk);

	verdict->leaf_domain = pci_domain_nr(client->bus);
	verdict->leaf_bdf = pci_dev_id(client);
	if (reason)
		return reason;
	verdict->distance = pci_p2pdma_distance(provider->pdev, &client->dev, false);
	if (verdict->distance < 0)
		return PEERDMA_REASON_DISTANCE;
	switch (trial_map_bound(provider, &client->dev, page, &verdict->map)) {
	case 0:
		return PEERDMA_REASON_NONE;
	case -ENODEV:
		return PEERDMA_REASON_REVOKED;
	default:
		return PEERDMA_REASON_MAPPING;
	}
}

static void judge(struct peerdma_provider *provider, struct gendisk *disk, struct page *page,
		  struct peerdma_verdict *verdict)
{
	struct pci_dev *client = disk_pci_dev(provider, disk);

	*verdict = (struct peerdma_verdict){ .distance = -1 };
	if (IS_ERR(client)) {
		verdict->reason = PEERDMA_REASON_REVOKED;
		return;
	}
	if (!client) {
		verdict->reason = PEERDMA_REASON_STACKED;
		return;
	}
	verdict->reason = judge_client(provider, disk, client, page, verdict);
	pci_dev_put(client);
}

static void remember(struct peerdma_provider *provider, u64 diskseq,
		     const struct peerdma_verdict *verdict)
{
	struct peerdma_verdict *copy = kmemdup(verdict, sizeof(*verdict), GFP_KERNEL);

	/* Two may have come to the same verdict at once; without memory none is kept. */
	if (copy && xa_insert(&provider->verdicts, diskseq, copy, GFP_KERNEL))
		kfree(copy);
}

/**
 * peerdma_verdict - can the device under @bdev reach @provider
 * @provider: its range must stay while this runs: be inside its gate or a buffer's
 * @bdev: of an open file
 * @page: any page of the provider
 * @verdict: filled in, whatever is returned
 * Return: 0, or the errno that goes with the verdict's reason.
 *
 * A disk that may be reached is remembered by its diskseq, which no other disk ever has: the device
 * and the path to it are then the same. What the queue announces can change and is looked at each
 * time.
 */
int peerdma_verdict(struct peerdma_provider *provider, struct block_device *bdev, struct page *page,
		    struct peerdma_verdict *verdict)
{
	struct gendisk *disk = bdev->bd_disk;
	struct peerdma_verdict *known = xa_load(&provider->verdicts, disk->diskseq);

	if (known) {
		*verdict = *known;
		verdict->reason = judge_queue(disk);
	} else {
		judge(provider, disk, page, verdict);
		if (!verdict->reason)
			remember(provider, disk->diskseq, verdict);
	}
	return peerdma_reason_errno(verdict->reason);
}

/* All about one file and one provider; returns the errno that a read would end with. */
static int explain(struct file *file, struct peerdma_provider *provider,
		   struct peerdma_file_query *query)
{
	struct peerdma_target target;
	struct peerdma_verdict verdict;
	struct page *page;
	int err;

	err = peerdma_target_resolve(file, &target, &query->out_reason);
	strscpy(query->out_fs_name, target.fs_name, sizeof(query->out_fs_name));
	if (err)
		return err;
	query->out_dio_mem_align = target.mem_align;
	query->out_dio_offset_align = target.offset_align;
	query->out_leaf_major = MAJOR(target.bdev->bd_dev);
	query->out_leaf_minor = MINOR(target.bdev->bd_dev);
	snprintf(query->out_leaf_name, sizeof(query->out_leaf_name), "%pg", target.bdev);

	if (!peerdma_gate_enter(&provider->gate))
		return refuse(&query->out_reason, PEERDMA_REASON_REVOKED);
	page = pfn_to_page(PHYS_PFN(peerdma_provider_start(provider)));
	err = peerdma_verdict(provider, target.bdev, page, &verdict);
	peerdma_gate_exit(&provider->gate);
	query->out_reason = verdict.reason;
	query->out_map = verdict.map;
	query->out_distance = verdict.distance;
	query->out_leaf_domain = verdict.leaf_domain;
	query->out_leaf_bdf = verdict.leaf_bdf;
	return err;
}

int peerdma_file_query_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_file_query *query = &arg->file_query;
	struct peerdma_provider *provider;
	struct file *file;

	*query = (struct peerdma_file_query){
		.size = query->size,
		.fd = query->fd,
		.provider_id = query->provider_id,
		.out_distance = -1,
	};
	file = fget(query->fd);
	if (!file)
		return -EBADF;
	provider = peerdma_provider_get(query->provider_id);
	if (!provider) {
		fput(file);
		return -ENOENT;
	}
	query->out_errno = -explain(file, provider, query);
	peerdma_provider_put(provider);
	fput(file);
	return query->out_reason == PEERDMA_REASON_REVOKED ? -ENODEV : 0;
}
