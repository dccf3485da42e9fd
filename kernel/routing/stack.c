// SPDX-License-Identifier: GPL-2.0
/*
 * Which disks are below a disk. A leaf is the disk of a PCI function itself, or a namespace of NVMe
 * over Fabrics, of which fabric.c finds out which PCI function moves its bytes. A level is made of
 * others: md and device-mapper, whose disks have a directory "slaves" with a link to each disk or
 * partition that they have opened. The kernel keeps it for people; here it is read as an object,
 * never by a path, so that it does not matter what a container has mounted on /sys. NVMe multipath
 * has no such links: its disk nvme1n2 is above each hidden disk nvme1c*n2, which are the paths.
 *
 * A bio that goes down carries our pages with it, and no level looks at them if it only sends bios
 * on: md without parity, and device-mapper targets that promise not to wait. That promise
 * (DM_TARGET_NOWAIT: linear, striped, unstriped, switch, zero) is a queue's feature only if every
 * target of the table makes it, and it is the one thing about a table that can be seen from outside
 * of the dm module. All others (crypt, integrity, thin, cache, mirror, raid, snapshot, ...) do not
 * promise it. zero fills the buffer by the CPU, as a hole of a file does.
 *
 * That a stack is still what it was is seen without a lock. Linking and unlinking change the
 * directory's counter of revisions; md and dm link a disk before they send it anything, dm already
 * when a table is loaded, which is before it is used. A directory that is removed loses its links
 * first. A table that is replaced by another one over the same disks leaves the links alone: so the
 * promise is looked at each time as well. A path is used only after its hidden disk was added, and
 * adding and removing one is counted.
 *
 * References: kernfs nodes and queues. Both belong to the kernel itself and may outlive the disk
 * and the module of its driver, which a reference on the gendisk may not.
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

/* A disk on the way: kept, with its driver's code, until the walk is over. */
struct stack_step {
	struct gendisk *disk;
	struct module *owner; /* of disk; NULL while it is not known to be kept */
	unsigned int depth;
};

struct stack_walk {
	struct peerdma_provider *provider;
	struct peerdma_stack *stack;
	struct stack_step steps[MAX_DISKS]; /* in the order of stack->disks */
};

/* Hidden disks that came or went, as an interface of the class of all disks hears of it. */
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

static DEFINE_MUTEX(hidden_mutex); /* protects hidden_watch.class, NULL while nobody watches */

/* From the first multipath disk on: only a disk leads to the class. */
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

/* A hidden disk has no inode to be looked at. */
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
	/* Its major number is given out at run time; the name is its driver's own, and fixed. */
	if (!strncmp(gendisk->disk_name, "dm-", 3))
		return PEERDMA_DISK_DM;
	if (disk_is_multipath(gendisk) && !hidden_watch_start(gendisk))
		return PEERDMA_DISK_PATHS;
	return PEERDMA_DISK_OTHER;
}

/* What changes when something is linked or unlinked below; to be read before that is looked at. */
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

/* What a disk is, as long as it is kept from going: its open_mutex is held, and it is alive. */
static int step_probe_alive(struct stack_step *step, struct peerdma_disk *disk)
{
	struct gendisk *gendisk = step->disk;

	step->owner = gendisk->fops->owner;
	/* Not of a disk that its driver has given up, which may stay like that for long. */
	if (blk_get_queue(gendisk->queue))
		disk->queue = gendisk->queue;
	disk->pdev = disk->queue ? disk_pci_parent(gendisk) : NULL;
	/* A leaf has no need of it; one whose making fails loses it without a lock. */
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
 * del_gendisk() takes this lock to make the disk dead before it lets go of its parents, its slaves
 * directory and its driver. A path that is dead is none.
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

/* Once each: a disk may be below by two ways, and its partitions are the disk. False: too many. */
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

/* nvme1n2 of nvme1c3n2: the driver's own names, and fixed. */
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

/* Block devices know who is above them; from above there are only the names. */
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
	/* None: dm-zero alone, or what was below is gone. */
	if (!any || !room)
		disk->result.reason = PEERDMA_REASON_STACKED;
}

/* Is it made of others, and may those be reached? */
static bool disk_is_level(const struct peerdma_disk *disk)
{
	return !peerdma_disk_is_leaf(disk) && disk->kind != PEERDMA_DISK_GONE &&
	       !disk->result.reason;
}

/* All paths of a head may be dead: nobody knows where its requests will go. */
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

/* Most stacks are one disk; the room for the largest is only for the walk. */
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
 * peerdma_stack_walk - a disk and what is below it
 * @provider: of which the caller holds a usage reference; it gives up when that is killed
 * @top: a disk that the caller has open
 * Return: the stack with the reason of each level, leaves not yet judged; or ERR_PTR.
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

/* Its checksums are computed by the CPU, which would have to read the BAR. */
static u32 queue_integrity_reason(struct request_queue *queue)
{
	return blk_integrity_queue_supports_integrity(queue) ? PEERDMA_REASON_INTEGRITY :
							       PEERDMA_REASON_NONE;
}

/**
 * peerdma_queue_reason - what the queue of a leaf says; it can change while the disk lives
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
 * peerdma_disk_reason - what the queue of a leaf says, as far as it is asked
 * @leaf: judged, or about to be
 * Return: enum peerdma_reason.
 *
 * Where the CPU copies, no device has to reach anything.
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
 * peerdma_stack_is_unchanged - is the stack of a route still what was found, and guarded
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
		kfree(disk->address);
		kernfs_put(disk->slaves);
		if (disk->queue)
			blk_put_queue(disk->queue);
	}
	kvfree(stack);
}
