/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A disk and all disks below it.
 */
#ifndef PEERDMA_STACK_H
#define PEERDMA_STACK_H

#include <linux/blkdev.h>
#include <linux/kernfs.h>

struct pci_dev;
struct peerdma_guard;
struct peerdma_lookup;
struct peerdma_provider;
struct peerdma_share_server;

/**
 * struct peerdma_route_result - can this disk's device reach this provider?
 * @reason: enum peerdma_reason
 * @map: enum peerdma_map
 * @distance: PCI distance, -1 without one
 */
struct peerdma_route_result {
	u32 reason;
	u32 map;
	int distance;
};

/* Kinds of disks. */
enum peerdma_disk_kind {
	PEERDMA_DISK_OTHER, /* no known way through it */
	PEERDMA_DISK_LEAF, /* of a PCI function itself */
	PEERDMA_DISK_FABRIC, /* a leaf: a namespace of NVMe over Fabrics */
	PEERDMA_DISK_SHARE, /* not a disk: a superblock of NFS */
	PEERDMA_DISK_MD,
	PEERDMA_DISK_DM,
	PEERDMA_DISK_PATHS, /* NVMe multipath */
	PEERDMA_DISK_GONE, /* was a path, and has just been removed */
};

/**
 * struct peerdma_disk - a disk of a stack; keeps no reference of its driver, which may be unloaded
 * @queue: referenced; NULL if the disk was gone already
 * @slaves: of a level, the directory with a link to each disk below; referenced
 * @rev: the revision of @slaves, or the count of hidden disks, read before those below
 * @pdev: of a leaf, the function that moves its bytes; referenced, only until it is checked
 * @lookup: of a leaf over a fabric, finds @pdev; only until it is resolved
 * @server: of a share; freed with the stack
 * @guard: of a leaf of a route, its queue's guard; NULL if the kernel does not merge its bios
 * @guard_set: generation of the queue's flags that the route has drained
 * @kind: enum peerdma_disk_kind
 * @devt: device number
 * @domain: of a leaf, PCI domain
 * @bdf: of a leaf, bus << 8 | devfn
 * @result: of the check; of a level only @result.reason
 * @name: as in /sys/block
 */
struct peerdma_disk {
	struct request_queue *queue;
	struct kernfs_node *slaves;
	unsigned long rev;
	struct pci_dev *pdev;
	struct peerdma_lookup *lookup;
	struct peerdma_share_server *server;
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
 * struct peerdma_stack - a disk and all disks below it, at one moment
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
