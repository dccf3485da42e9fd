// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the disks below a disk. A leaf is the disk of a PCI function, or a namespace of NVMe over
 * Fabrics, whose PCI function fabric.c finds. A level is made of other disks: md and device-mapper,
 * whose disks have a directory "slaves" with a link to each disk or partition that they have
 * opened. The directory is read as a kernel object, not by path, so a container's /sys does not
 * matter. NVMe multipath has no such links: its disk nvme1n2 is above each hidden disk nvme1c*n2,
 * its paths.
 *
 * A bio that is forwarded carries the peer pages with it. A level does not access them if it only
 * forwards bios: md without parity, and device-mapper targets that promise not to wait. That
 * promise (DM_TARGET_NOWAIT: linear, striped, unstriped, switch, zero) is a feature of the queue
 * only if every target of the table makes it, and it is the only property of a table that is
 * visible outside of the dm module. All other targets (crypt, integrity, thin, cache, mirror, raid,
 * snapshot, ...) do not make it. zero fills the buffer by the CPU, like a hole of a file.
 *
 * Whether a stack is unchanged is checked without a lock. Linking and unlinking change the
 * directory's revision. md and dm link a disk before they send bios to it; dm does so when a table
 * is loaded, which is before it is used. A directory that is removed loses its links first.
 * Replacing a table by one over the same disks does not change the links, so the promise is checked
 * each time too. A multipath head uses a path only after its hidden disk was added, and additions
 * and removals are counted.
 *
 * References are of kernfs nodes and queues. Both belong to the kernel itself and may outlive the
 * disk and the module of its driver, unlike a reference of the gendisk.
 */
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/device/class.h>
#include <linux/kernfs.h>
#include <linux/major.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "memory/provider.h"
#include "routing/fabric.h"
#include "routing/queue.h"
#include "routing/stack.h"

#define MAX_DEPTH 8
#define MAX_DISKS 96 /* levels and leaves */

/* A disk during the walk. It, and its driver's code, are kept until the walk is over. */
struct stack_step {
	struct gendisk *disk;
	struct module *owner; /* of disk; NULL until it is referenced */
	unsigned int depth;
};

struct stack_walk {
	struct peerdma_provider *provider;
	struct peerdma_stack *stack;
	struct stack_step steps[MAX_DISKS]; /* in the order of stack->disks */
};

/* Hidden disks that were added or removed, as reported to an interface of the block class. */
static atomic_long_t hidden_changes;

static void hidden_count_change(struct device *dev)
{
	if (dev_to_bdev(dev)->bd_disk->flags & GENHD_FL_HIDDEN)
		atomic_long_inc(&hidden_changes);
}

static int disk_added(PEERDMA_INTERFACE_ARGS)
{
	hidden_count_change(dev);
	return 0;
}

static void disk_removed(PEERDMA_INTERFACE_ARGS)
{
	hidden_count_change(dev);
}

static struct class_interface hidden_watch = {
	.add_dev = disk_added,
	.remove_dev = disk_removed,
};

static DEFINE_MUTEX(hidden_mutex); /* protects hidden_watch.class; NULL: no watch yet */

/* Started by the first multipath disk: the block class is reachable only through a disk. */
static int hidden_watch_start(struct gendisk *gendisk)
{
	int err = 0;

	mutex_lock(&hidden_mutex);
	if (!hidden_watch.class) {
		hidden_watch.class = disk_to_dev(gendisk)->class;
		err = class_interface_register(&hidden_watch);
		if (err)
			hidden_watch.class = NULL;
	}
	mutex_unlock(&hidden_mutex);
	return err;
}

void peerdma_stack_exit(void)
{
	if (hidden_watch.class)
		class_interface_unregister(&hidden_watch);
}

static u32 disk_level_reason(const struct peerdma_disk *disk)
{
	switch (disk->kind) {
	case PEERDMA_DISK_LEAF:
	case PEERDMA_DISK_PATHS:
	case PEERDMA_DISK_GONE:
		return PEERDMA_REASON_NONE;
	case PEERDMA_DISK_FABRIC:
	case PEERDMA_DISK_SHARE:
		return disk->result.reason;
	case PEERDMA_DISK_MD:
		return peerdma_queue_has_parity(disk->queue) ? PEERDMA_REASON_MD_LEVEL :
							       PEERDMA_REASON_NONE;
	case PEERDMA_DISK_DM:
		return peerdma_queue_nowait(disk->queue) ? PEERDMA_REASON_NONE :
							   PEERDMA_REASON_DM_TARGET;
	default:
		return PEERDMA_REASON_STACKED;
	}
}

static bool disk_is_hidden(const struct gendisk *gendisk)
{
	return gendisk->flags & GENHD_FL_HIDDEN;
}

/* A hidden disk has no inode to check. */
static bool disk_is_alive(struct gendisk *gendisk)
{
	return disk_is_hidden(gendisk) ? !test_bit(GD_DEAD, &gendisk->state) : disk_live(gendisk);
}

static bool disk_is_multipath(struct gendisk *gendisk)
{
	const struct device *parent = disk_to_dev(gendisk)->parent;

	return parent && parent->class && !strcmp(parent->class->name, "nvme-subsystem");
}

static enum peerdma_disk_kind disk_kind(struct gendisk *gendisk, const struct peerdma_disk *disk)
{
	if (disk->pdev)
		return PEERDMA_DISK_LEAF;
	if (!disk->queue || !disk->slaves)
		return PEERDMA_DISK_OTHER;
	if (gendisk->major == MD_MAJOR)
		return PEERDMA_DISK_MD;
	/* The major number is dynamic; the name is fixed by the driver. */
	if (!strncmp(gendisk->disk_name, "dm-", 3))
		return PEERDMA_DISK_DM;
	if (disk_is_multipath(gendisk) && !hidden_watch_start(gendisk))
		return PEERDMA_DISK_PATHS;
	return PEERDMA_DISK_OTHER;
}

/* Changes when a disk is linked or unlinked below. Read before the links are read. */
static unsigned long disk_revision(const struct peerdma_disk *disk)
{
	if (disk->kind == PEERDMA_DISK_PATHS || disk->kind == PEERDMA_DISK_GONE)
		return atomic_long_read(&hidden_changes);
	if (disk->kind == PEERDMA_DISK_FABRIC || disk->kind == PEERDMA_DISK_SHARE)
		return peerdma_fabric_changes();
	return disk->slaves ? READ_ONCE(disk->slaves->dir.rev) : 0;
}

static struct pci_dev *disk_pci_parent(struct gendisk *gendisk)
{
	struct device *dev;

	for (dev = disk_to_dev(gendisk)->parent; dev && !dev_is_pci(dev); dev = dev->parent)
		;
	return dev ? pci_dev_get(to_pci_dev(dev)) : NULL;
}

/* Probes a disk that is kept from being removed: its open_mutex is held, and it is alive. */
static int step_probe_alive(struct stack_step *step, struct peerdma_disk *disk)
{
	struct gendisk *gendisk = step->disk;

	step->owner = gendisk->fops->owner;
	/* Not the queue of a disk that its driver has given up, which may exist for long. */
	if (blk_get_queue(gendisk->queue))
		disk->queue = gendisk->queue;
	disk->pdev = disk->queue ? disk_pci_parent(gendisk) : NULL;
	/* A leaf needs no directory. If adding it fails, the directory is freed without a lock. */
	if (!disk->pdev && gendisk->slave_dir) {
		disk->slaves = gendisk->slave_dir->sd;
		kernfs_get(disk->slaves);
	}
	disk->kind = disk_kind(gendisk, disk);
	if (disk->kind != PEERDMA_DISK_OTHER || !disk->queue)
		return 0;
	return peerdma_fabric_probe(gendisk, disk);
}

/*
 * del_gendisk() takes open_mutex to mark the disk dead, before it drops its parents, its slaves
 * directory and its driver. A dead path is left out.
 */
static int step_probe(struct stack_walk *walk, struct stack_step *step, struct peerdma_disk *disk)
{
	struct gendisk *gendisk = step->disk;
	int err = 0;

	while (!mutex_trylock(&gendisk->open_mutex)) {
		err = peerdma_provider_pause(walk->provider);
		if (err)
			return err;
	}
	if (disk_is_alive(gendisk) && try_module_get(gendisk->fops->owner))
		err = step_probe_alive(step, disk);
	else if (disk_is_hidden(gendisk))
		disk->kind = PEERDMA_DISK_GONE;
	mutex_unlock(&gendisk->open_mutex);
	disk->rev = disk_revision(disk);
	disk->result.reason = disk_level_reason(disk);
	return err;
}

/*
 * Adds a disk once: it may be below by two ways, and its partitions count as the disk. False: too
 * many.
 */
static bool walk_add(struct stack_walk *walk, struct gendisk *gendisk, unsigned int depth)
{
	unsigned int i, nr = walk->stack->nr;

	for (i = 0; i < nr; i++) {
		if (walk->steps[i].disk == gendisk)
			return true;
	}
	if (nr == MAX_DISKS || depth > MAX_DEPTH)
		return false;
	get_device(disk_to_dev(gendisk));
	walk->steps[nr] = (struct stack_step){ .disk = gendisk, .depth = depth };
	walk->stack->nr = nr + 1;
	walk->stack->disks[nr] = (struct peerdma_disk){
		.devt = disk_devt(gendisk),
		.result.distance = -1,
	};
	strscpy(walk->stack->disks[nr].name, gendisk->disk_name, DISK_NAME_LEN);
	return true;
}

static bool step_is_linked(struct kernfs_node *slaves, struct device *dev)
{
	struct kernfs_node *link = kernfs_find_and_get(slaves, dev_name(dev));
	bool same;

	if (!link)
		return false;
	same = kernfs_type(link) == KERNFS_LINK && link->symlink.target_kn == dev->kobj.sd;
	kernfs_put(link);
	return same;
}

/* True for nvme1c3n2 below nvme1n2: the names are fixed by the driver. */
static bool disk_is_path(struct gendisk *top, struct gendisk *gendisk)
{
	unsigned int subsys, head, path_subsys, path, path_head;

	return disk_is_hidden(gendisk) &&
	       sscanf(top->disk_name, "nvme%un%u", &subsys, &head) == 2 &&
	       sscanf(gendisk->disk_name, "nvme%uc%un%u", &path_subsys, &path, &path_head) == 3 &&
	       subsys == path_subsys && head == path_head;
}

static bool step_is_below(struct stack_step *step, struct peerdma_disk *disk, struct device *dev)
{
	if (disk->kind == PEERDMA_DISK_PATHS)
		return disk_is_path(step->disk, dev_to_bdev(dev)->bd_disk);
	return step_is_linked(disk->slaves, dev);
}

/* A block device knows its holders. From above there are only the names of the links. */
static void walk_add_below(struct stack_walk *walk, struct stack_step *step,
			   struct peerdma_disk *disk)
{
	struct class_dev_iter iter;
	struct device *dev;
	bool room = true, any = false;

	class_dev_iter_init(&iter, disk_to_dev(step->disk)->class, NULL, NULL);
	while (room && (dev = class_dev_iter_next(&iter))) {
		if (!step_is_below(step, disk, dev))
			continue;
		any = true;
		room = walk_add(walk, dev_to_bdev(dev)->bd_disk, step->depth + 1);
	}
	class_dev_iter_exit(&iter);
	/* No disk below: dm-zero alone, or what was below is gone. */
	if (!any || !room)
		disk->result.reason = PEERDMA_REASON_STACKED;
}

/* True if the disk is a level whose disks are allowed to be reached. */
static bool disk_is_level(const struct peerdma_disk *disk)
{
	return !peerdma_disk_is_leaf(disk) && disk->kind != PEERDMA_DISK_GONE &&
	       !disk->result.reason;
}

/* All paths of a head may be dead: where its requests will go is unknown then. */
static void stack_refuse_without_leaf(struct peerdma_stack *stack)
{
	unsigned int i;

	for (i = 0; i < stack->nr; i++) {
		if (peerdma_disk_is_leaf(&stack->disks[i]) || stack->disks[i].result.reason)
			return;
	}
	stack->disks[0].result.reason = PEERDMA_REASON_STACKED;
}

static int walk_down(struct stack_walk *walk)
{
	struct peerdma_disk *disk;
	unsigned int i;
	int err;

	for (i = 0; i < walk->stack->nr; i++) {
		disk = &walk->stack->disks[i];
		err = step_probe(walk, &walk->steps[i], disk);
		if (err)
			return err;
		if (disk_is_level(disk))
			walk_add_below(walk, &walk->steps[i], disk);
	}
	stack_refuse_without_leaf(walk->stack);
	return 0;
}

static void walk_end(struct stack_walk *walk)
{
	struct stack_step *step;

	for (step = walk->steps; step < walk->steps + walk->stack->nr; step++) {
		put_device(disk_to_dev(step->disk));
		module_put(step->owner);
	}
}

/* Most stacks are one disk. The walk needs room for the largest. */
static struct peerdma_stack *stack_shrink(struct peerdma_stack *large)
{
	struct peerdma_stack *stack =
		kmemdup(large, struct_size(large, disks, large->nr), GFP_KERNEL);

	if (!stack)
		return large;
	kvfree(large);
	return stack;
}

/**
 * peerdma_stack_walk - a disk and all disks below it
 * @provider: the caller holds a usage reference; this gives up when that is killed
 * @top: a disk that the caller has open
 * Return: the stack with the reason of each level, leaves not yet checked; or ERR_PTR.
 */
struct peerdma_stack *peerdma_stack_walk(struct peerdma_provider *provider, struct gendisk *top)
{
	struct stack_walk *walk = kvzalloc(sizeof(*walk), GFP_KERNEL_ACCOUNT);
	struct peerdma_stack *stack;
	int err;

	stack = kvzalloc(struct_size(stack, disks, MAX_DISKS), GFP_KERNEL_ACCOUNT);
	if (!stack || !walk) {
		kvfree(walk);
		kvfree(stack);
		return ERR_PTR(-ENOMEM);
	}
	walk->provider = provider;
	walk->stack = stack;
	walk_add(walk, top, 0);
	err = walk_down(walk);
	walk_end(walk);
	kvfree(walk);
	if (!err)
		return stack_shrink(stack);
	peerdma_stack_free(stack);
	return ERR_PTR(err);
}

/* The CPU computes the checksums, for which it would read the BAR. */
static u32 queue_integrity_reason(struct request_queue *queue)
{
	return blk_integrity_queue_supports_integrity(queue) ? PEERDMA_REASON_INTEGRITY :
							       PEERDMA_REASON_NONE;
}

/**
 * peerdma_queue_reason - the result for a leaf's queue, which can change while the disk exists
 * @queue: referenced
 * Return: enum peerdma_reason.
 */
u32 peerdma_queue_reason(struct request_queue *queue)
{
	if (!blk_queue_pci_p2pdma(queue))
		return PEERDMA_REASON_QUEUE;
	return queue_integrity_reason(queue);
}

/**
 * peerdma_disk_reason - the result for a leaf's queue, if it needs one
 * @leaf: checked, or about to be
 * Return: enum peerdma_reason.
 *
 * Where the CPU copies, no device has to reach the provider.
 */
u32 peerdma_disk_reason(const struct peerdma_disk *leaf)
{
	if (leaf->kind == PEERDMA_DISK_SHARE)
		return PEERDMA_REASON_NONE;
	if (leaf->result.map == PEERDMA_MAP_SOFTWARE)
		return queue_integrity_reason(leaf->queue);
	return peerdma_queue_reason(leaf->queue);
}

static bool disk_is_guarded(const struct peerdma_disk *leaf)
{
	return leaf->guard ? peerdma_queue_guarded(leaf->guard, leaf->guard_set) :
			     !blk_queue_dying(leaf->queue);
}

/**
 * peerdma_stack_is_unchanged - is the stack of a route unchanged, and guarded?
 * @stack: all of whose disks were allowed
 * Return: false if it must be walked again. A few instructions per disk, no locks.
 */
bool peerdma_stack_is_unchanged(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk;

	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (disk->kind == PEERDMA_DISK_LEAF) {
			if (peerdma_queue_reason(disk->queue) || !disk_is_guarded(disk))
				return false;
		} else if (disk->kind == PEERDMA_DISK_FABRIC) {
			if (disk_revision(disk) != disk->rev || peerdma_disk_reason(disk) ||
			    !disk_is_guarded(disk))
				return false;
		} else if (disk_revision(disk) != disk->rev || disk_level_reason(disk)) {
			return false;
		}
	}
	return true;
}

/* May sleep. */
void peerdma_stack_free(struct peerdma_stack *stack)
{
	struct peerdma_disk *disk;

	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		pci_dev_put(disk->pdev);
		peerdma_fabric_put(disk->lookup);
		kfree(disk->server);
		kernfs_put(disk->slaves);
		if (disk->queue)
			blk_put_queue(disk->queue);
	}
	kvfree(stack);
}
