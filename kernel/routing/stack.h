/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A disk and all below it.
 */
#ifndef PEERDMA_STACK_H
#define PEERDMA_STACK_H

#include <linux/blkdev.h>
#include <linux/kernfs.h>

struct pci_dev;
struct peerdma_guard;
struct peerdma_lookup;
struct peerdma_provider;

/**
 * struct peerdma_route_result - can this disk's device reach this provider
 * @reason: enum peerdma_reason
 * @map: enum peerdma_map
 * @distance: PCI distance, -1 where there is none
 */
struct peerdma_route_result {
	u32 reason;
	u32 map;
	int distance;
};

/* What a disk is made of. */
enum peerdma_disk_kind {
	PEERDMA_DISK_OTHER, /* what we know no way through */
	PEERDMA_DISK_LEAF, /* a PCI function's own */
	PEERDMA_DISK_FABRIC, /* a leaf as well: a namespace of NVMe over Fabrics */
	PEERDMA_DISK_SHARE, /* and what is no disk: a superblock of NFS */
	PEERDMA_DISK_MD,
	PEERDMA_DISK_DM,
	PEERDMA_DISK_PATHS, /* NVMe multipath */
	PEERDMA_DISK_GONE, /* a path of that, until it was removed just now */
};

/**
 * struct peerdma_disk - a disk of a stack; holds nothing of its driver, which may be unloaded
 * @queue: its queue; referenced; NULL if the disk was gone already
 * @slaves: of a level, the directory with a link to each disk below; referenced
 * @rev: what the counter of changes of what is below was before that was looked at
 * @pdev: of a leaf, the function that moves its bytes; referenced, only until it has been judged
 * @lookup: of a leaf over a fabric, by whom that is to be found out; only until it has been
 * @address: of a share, where its server is; ours to free
 * @guard: of a leaf of a route, its queue's; NULL if the kernel keeps our bios apart there
 * @guard_set: which time of setting the queue's flags the route has drained
 * @kind: what it is made of
 * @devt: its number
 * @domain: of a leaf, PCI domain
 * @bdf: of a leaf, bus << 8 | devfn
 * @result: of a leaf, whether it can be reached; of a level, @result.reason
 * @name: as in /sys/block
 */
struct peerdma_disk {
	struct request_queue *queue;
	struct kernfs_node *slaves;
	unsigned long rev;
	struct pci_dev *pdev;
	struct peerdma_lookup *lookup;
	char *address;
	struct peerdma_guard *guard;
	unsigned int guard_set;
	enum peerdma_disk_kind kind;
	dev_t devt;
	u32 domain;
	u32 bdf;
	struct peerdma_route_result result;
	char name[DISK_NAME_LEN];
};

/**
 * struct peerdma_stack - a disk and all below it, as they were at one moment
 * @nr: number of @disks
 * @disks: the top first, each before those below it, none twice
 */
struct peerdma_stack {
	unsigned int nr;
	struct peerdma_disk disks[] __counted_by(nr);
};

struct peerdma_stack *peerdma_stack_walk(struct peerdma_provider *provider, struct gendisk *top);
bool peerdma_stack_is_unchanged(const struct peerdma_stack *stack);
void peerdma_stack_free(struct peerdma_stack *stack);
void peerdma_stack_exit(void);
u32 peerdma_queue_reason(struct request_queue *queue);
u32 peerdma_disk_reason(const struct peerdma_disk *leaf);

static inline bool peerdma_disk_is_leaf(const struct peerdma_disk *disk)
{
	return disk->kind == PEERDMA_DISK_LEAF || disk->kind == PEERDMA_DISK_FABRIC ||
	       disk->kind == PEERDMA_DISK_SHARE;
}

#endif /* PEERDMA_STACK_H */
