// SPDX-License-Identifier: GPL-2.0
/*
 * Decides whether a disk can reach a provider directly, before anything is submitted, because the
 * layers below do not check. The block layer tests BLK_FEAT_PCI_P2PDMA for user pages only. A
 * driver that does not know P2PDMA pages would pass a wrong address to its device, or access the
 * BAR with the CPU. A mirror is worse: md may acknowledge a write that failed on one leg.
 *
 * So three conditions hold for the PCI function of every leaf. The queue of its driver has that
 * feature, the kernel knows a distance from the function to the provider, and the function can
 * really map a page of the provider. The function of a disk that is reached over a network is the
 * network card: fabric.c.
 */
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/dma.h"
#include "memory/provider.h"
#include "routing/fabric.h"
#include "routing/route.h"
#include "routing/share.h"
#include "routing/stack.h"

/*
 * Maps a page for the device, and unmaps it. The device lock keeps its driver bound and its IOMMU
 * domain attached.
 */
static int route_trial_map(struct peerdma_provider *provider, struct device *dev, struct page *page,
			   u32 *map)
{
	u64 addr;
	int err;

	while (!device_trylock(dev)) {
		err = peerdma_provider_pause(provider);
		if (err)
			return err;
	}
	err = dev->driver ? peerdma_dma_trial_map(dev, page, map, &addr) : -ENXIO;
	device_unlock(dev);
	return err;
}

/* The result for a leaf's function, which is the client in the terms of P2PDMA. */
static u32 route_check_client(struct peerdma_provider *provider, struct peerdma_disk *leaf,
			      struct page *page)
{
	struct device *client = &leaf->pdev->dev;
	u32 reason = peerdma_disk_reason(leaf);

	if (reason)
		return reason;
	leaf->result.distance = pci_p2pdma_distance(provider->pdev, client, false);
	if (leaf->result.distance < 0)
		return PEERDMA_REASON_DISTANCE;
	switch (route_trial_map(provider, client, page, &leaf->result.map)) {
	case 0:
		return PEERDMA_REASON_NONE;
	case -ENODEV:
	case -EINTR: /* killed: nobody hears */
		return PEERDMA_REASON_REVOKED;
	default:
		return PEERDMA_REASON_MAPPING;
	}
}

/* Checks a leaf whose function is known, and puts the function. */
static void route_check_leaf(struct peerdma_provider *provider, struct peerdma_disk *leaf,
			     struct page *page)
{
	leaf->domain = pci_domain_nr(leaf->pdev->bus);
	leaf->bdf = pci_dev_id(leaf->pdev);
	leaf->result.reason = route_check_client(provider, leaf, page);
	pci_dev_put(leaf->pdev);
	leaf->pdev = NULL;
}

/*
 * Checks a leaf that is reached over a network, by the function that its lookup finds. A network in
 * software has none, and maps nothing.
 */
static void route_check_fabric(struct peerdma_provider *provider, struct peerdma_disk *leaf,
			       struct page *page)
{
	struct peerdma_fabric_end end = {};

	if (!leaf->lookup)
		return;
	leaf->result.reason = peerdma_fabric_resolve(provider, leaf->lookup, &end);
	leaf->lookup = NULL;
	if (leaf->result.reason)
		return;
	if (!end.software) {
		leaf->pdev = end.pdev;
		route_check_leaf(provider, leaf, page);
		return;
	}
	leaf->result.map = PEERDMA_MAP_SOFTWARE;
	leaf->result.reason = peerdma_disk_reason(leaf);
}

/**
 * peerdma_route_check - walk a stack and check each of its disks
 * @provider: its range must stay during this call: hold a usage reference of it or of a buffer
 * @file: open
 * @bdev: of the file; NULL: a share
 * @page: any page of the provider
 * Return: the stack with all results; ERR_PTR of -ENODEV, -EINTR, -ENOMEM.
 */
struct peerdma_stack *peerdma_route_check(struct peerdma_provider *provider, struct file *file,
					  struct block_device *bdev, struct page *page)
{
	struct peerdma_stack *stack = bdev ? peerdma_stack_walk(provider, bdev->bd_disk) :
					     peerdma_share_walk(file_inode(file));
	unsigned int i;

	if (IS_ERR(stack))
		return stack;
	for (i = 0; i < stack->nr; i++) {
		if (stack->disks[i].kind == PEERDMA_DISK_LEAF)
			route_check_leaf(provider, &stack->disks[i], page);
		else if (peerdma_disk_is_leaf(&stack->disks[i]))
			route_check_fabric(provider, &stack->disks[i], page);
	}
	return stack;
}

/* A copy by the CPU counts as farther than any DMA. */
static bool route_is_farther(const struct peerdma_route_result *one,
			     const struct peerdma_route_result *other)
{
	if (one->map == PEERDMA_MAP_SOFTWARE || other->map == PEERDMA_MAP_SOFTWARE)
		return other->map != PEERDMA_MAP_SOFTWARE;
	return one->distance > other->distance;
}

/**
 * peerdma_route_worst - the disk that decides for the whole stack
 * @stack: checked
 * Return: the first disk that refuses, else the leaf that is farthest away.
 */
const struct peerdma_disk *peerdma_route_worst(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk, *found = stack->disks;

	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (disk->result.reason)
			return disk;
		if (route_is_farther(&disk->result, &found->result))
			found = disk;
	}
	return found;
}
