// SPDX-License-Identifier: GPL-2.0
/*
 * Leaves that are not in this machine: namespaces of NVMe over Fabrics. Their bytes are moved by
 * whatever the controller's transport uses. tcp, loop and fc hand our pages to what never learned
 * of them; only rdma may go on, if another module says by which device: rdma.c.
 *
 * What a controller is, it says in its attributes "transport" and "address". They are read here as
 * sysfs would read them, by the functions in the device's groups, and by no path. That is safe as
 * long as the disk is kept from going: its controller, and the module of its transport, wait until
 * all its disks are gone.
 *
 * To resolve an address may take as long as the network does not answer, so it is done by a worker.
 * Whoever asks looks now and then whether it is done, and leaves when its provider goes away; what
 * is not waited for any more is thrown away by the worker. Taking the answering module out waits
 * for the workers, which give up on their own.
 *
 * One question about an address is enough for all who want to know at a time. A "yes" is kept by
 * those who asked, as a route. A "no" is kept here, for a moment: else each request to a server
 * that does not answer would take seconds to be refused.
 *
 * Nothing says that a controller has found another way since: its connection may be lost, and made
 * anew by another device, without the disk changing. What could make it do so is counted as a
 * change: devices and routes that come and go. Then the way is looked at again, which is what will
 * be used from then on, not what is used at this moment. So it may be wrong for a while, and that
 * does no harm to the bytes: a driver maps each request for the device that it sends it by, and one
 * that cannot reach our pages fails to map them; soft-RoCE copies. Documentation/limits.md has what
 * it does to those who wait.
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "memory/provider.h"
#include "routing/fabric.h"
#include "routing/stack.h"

#define WORKERS 8 /* more that ask wait for their turn, and nobody else does */
#define NO_LASTS HZ

/**
 * struct peerdma_lookup - one question where a controller's bytes go
 * @work: asks
 * @link: in asked, if others may have its answer; protected by fabric_mutex
 * @refs: of who wants to know, of the work, and of the list
 * @changes: that had been when it was asked
 * @done: there is an answer
 * @until: if it is a "no": when it is forgotten, in jiffies
 * @reason: enum peerdma_reason
 * @end: valid if there is no reason against it
 * @address: as the controller says it
 */
struct peerdma_lookup {
	struct work_struct work;
	struct list_head link;
	refcount_t refs;
	unsigned long changes;
	struct completion done;
	unsigned long until;
	u32 reason;
	struct peerdma_fabric_end end;
	char address[];
};

static DEFINE_MUTEX(fabric_mutex);
static const struct peerdma_fabric_ops *answers; /* NULL: no module; protected by fabric_mutex */
static struct workqueue_struct *workers; /* while there is one; protected by fabric_mutex */
static LIST_HEAD(asked); /* one for each address; protected by fabric_mutex */
atomic_long_t peerdma_fabric_count;

/* Whatever may make a controller use another device. From any context. */
void peerdma_fabric_changed(void)
{
	/*
	 * Whoever sees the new count sees what has changed, and if that can be seen only later, the
	 * caller counts again: pairs with queueing the question, after the count was read.
	 */
	smp_mb__before_atomic();
	atomic_long_inc(&peerdma_fabric_count);
}
EXPORT_SYMBOL_GPL(peerdma_fabric_changed);

static void lookup_put(struct peerdma_lookup *lookup)
{
	if (!refcount_dec_and_test(&lookup->refs))
		return;
	pci_dev_put(lookup->end.pdev);
	kfree(lookup);
}

/* Nobody else is given its answer any more. */
static void lookup_unlist(struct peerdma_lookup *lookup)
{
	lockdep_assert_held(&fabric_mutex);
	if (list_empty(&lookup->link))
		return;
	list_del_init(&lookup->link);
	lookup_put(lookup);
}

/**
 * peerdma_fabric_register - from now on there are answers
 * @ops: until peerdma_fabric_unregister()
 * Return: 0, -EBUSY or -ENOMEM.
 */
int peerdma_fabric_register(const struct peerdma_fabric_ops *ops)
{
	struct workqueue_struct *fresh = alloc_workqueue("peerdma_fabric", WQ_UNBOUND, WORKERS);

	if (!fresh)
		return -ENOMEM;
	mutex_lock(&fabric_mutex);
	if (!answers) {
		WRITE_ONCE(answers, ops);
		swap(workers, fresh);
	}
	mutex_unlock(&fabric_mutex);
	if (fresh) {
		destroy_workqueue(fresh);
		return -EBUSY;
	}
	peerdma_fabric_changed();
	return 0;
}
EXPORT_SYMBOL_GPL(peerdma_fabric_register);

/* Returns when nobody is inside the ops any more. */
void peerdma_fabric_unregister(void)
{
	struct workqueue_struct *old = NULL;
	struct peerdma_lookup *lookup, *next;

	mutex_lock(&fabric_mutex);
	WRITE_ONCE(answers, NULL);
	swap(workers, old);
	list_for_each_entry_safe(lookup, next, &asked, link)
		lookup_unlist(lookup);
	mutex_unlock(&fabric_mutex);
	peerdma_fabric_changed();
	destroy_workqueue(old);
}
EXPORT_SYMBOL_GPL(peerdma_fabric_unregister);

static struct device_attribute *controller_attribute(struct device *dev, const char *name)
{
	typeof(dev->groups) group;
	struct attribute **attr;

	for (group = dev->groups; group && *group; group++) {
		for (attr = (*group)->attrs; attr && *attr; attr++) {
			if (!strcmp((*attr)->name, name))
				return container_of(*attr, struct device_attribute, attr);
		}
	}
	return NULL;
}

/* What an attribute of a device says, into a page, as sysfs would do it. */
static bool controller_read(struct device *dev, const char *name, char *page)
{
	struct device_attribute *attribute = controller_attribute(dev, name);

	return attribute && attribute->show && attribute->show(dev, attribute, page) > 0;
}

/* PEERDMA_REASON_NONE: rdma. PEERDMA_REASON_STACKED: nothing that we know. */
static u32 transport_reason(const char *transport)
{
	if (sysfs_streq(transport, "rdma"))
		return PEERDMA_REASON_NONE;
	if (sysfs_streq(transport, "tcp"))
		return PEERDMA_REASON_FABRIC_TCP;
	if (sysfs_streq(transport, "loop"))
		return PEERDMA_REASON_FABRIC_LOOP;
	if (sysfs_streq(transport, "fc"))
		return PEERDMA_REASON_FABRIC_FC;
	return PEERDMA_REASON_STACKED;
}

/* By somebody who was not killed meanwhile. If not, nobody comes to it any more. */
static bool lookup_is_wanted(struct peerdma_lookup *lookup)
{
	bool wanted;

	mutex_lock(&fabric_mutex);
	wanted = refcount_read(&lookup->refs) > 1 + !list_empty(&lookup->link);
	if (!wanted)
		lookup_unlist(lookup);
	mutex_unlock(&fabric_mutex);
	return wanted;
}

static void lookup_work(struct work_struct *work)
{
	struct peerdma_lookup *lookup = container_of(work, struct peerdma_lookup, work);
	/* Whoever unregisters waits for this work. */
	const struct peerdma_fabric_ops *ops = READ_ONCE(answers);

	/* It takes seconds where nobody answers. */
	if (lookup_is_wanted(lookup))
		lookup->reason = ops ? ops->resolve(lookup->address, &lookup->end) :
				       PEERDMA_REASON_RDMA_MODULE;
	mutex_lock(&fabric_mutex);
	lookup->until = jiffies + NO_LASTS;
	if (!lookup->reason)
		lookup_unlist(lookup);
	complete_all(&lookup->done);
	mutex_unlock(&fabric_mutex);
	lookup_put(lookup);
}

/**
 * peerdma_fabric_lookup - a question by which device an address is reached
 * @address: as a controller's attribute of that name
 * Return: for peerdma_fabric_resolve() or peerdma_fabric_put(); NULL if there is no memory.
 */
struct peerdma_lookup *peerdma_fabric_lookup(const char *address)
{
	struct peerdma_lookup *lookup;
	size_t size = strlen(address) + 1;

	lookup = kzalloc(struct_size(lookup, address, size), GFP_KERNEL);
	if (!lookup)
		return NULL;
	INIT_WORK(&lookup->work, lookup_work);
	INIT_LIST_HEAD(&lookup->link);
	refcount_set(&lookup->refs, 1);
	init_completion(&lookup->done);
	memcpy(lookup->address, address, size);
	return lookup;
}

/* The controller is asked who it is; what it says goes through @page. */
static int controller_probe(struct device *controller, struct peerdma_disk *disk, char *page)
{
	u32 reason = PEERDMA_REASON_STACKED;

	if (controller_read(controller, "transport", page))
		reason = transport_reason(page);
	if (reason == PEERDMA_REASON_STACKED)
		return 0;
	disk->kind = PEERDMA_DISK_FABRIC;
	disk->result.reason = reason;
	if (reason)
		return 0;
	if (!controller_read(controller, "address", page)) {
		disk->result.reason = PEERDMA_REASON_RDMA_ROUTE;
		return 0;
	}
	disk->lookup = peerdma_fabric_lookup(strim(page));
	return disk->lookup ? 0 : -ENOMEM;
}

/**
 * peerdma_fabric_probe - is this disk a namespace of NVMe over Fabrics
 * @gendisk: kept from going: its open_mutex is held, and it is alive
 * @disk: if so, its kind, and either a reason or who to ask, are filled in
 * Return: 0 or -ENOMEM.
 */
int peerdma_fabric_probe(struct gendisk *gendisk, struct peerdma_disk *disk)
{
	struct device *controller = disk_to_dev(gendisk)->parent;
	char *page;
	int err;

	if (!controller || !controller->class || strcmp(controller->class->name, "nvme"))
		return 0;
	/* Whoever shows an attribute counts on a whole page. */
	page = (char *)get_zeroed_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	err = controller_probe(controller, disk, page);
	free_page((unsigned long)page);
	return err;
}

static bool lookup_is_done(struct peerdma_lookup *lookup)
{
	return lookup->changes != peerdma_fabric_changes() ||
	       (completion_done(&lookup->done) && time_after_eq(jiffies, lookup->until));
}

/* What is asked about this address already, or was a moment ago; or NULL. */
static struct peerdma_lookup *lookup_find(const char *address)
{
	struct peerdma_lookup *lookup, *next;

	lockdep_assert_held(&fabric_mutex);
	list_for_each_entry_safe(lookup, next, &asked, link) {
		if (lookup_is_done(lookup))
			lookup_unlist(lookup);
		else if (!strcmp(lookup->address, address))
			return lookup;
	}
	return NULL;
}

static void lookup_begin(struct peerdma_lookup *lookup)
{
	lockdep_assert_held(&fabric_mutex);
	refcount_add(2, &lookup->refs);
	lookup->changes = peerdma_fabric_changes();
	list_add(&lookup->link, &asked);
	queue_work(workers, &lookup->work);
}

/* In its place the same question of somebody else, if there is one. NULL: nobody could answer. */
static struct peerdma_lookup *lookup_share(struct peerdma_lookup *lookup)
{
	struct peerdma_lookup *other = NULL;

	mutex_lock(&fabric_mutex);
	if (workers) {
		other = lookup_find(lookup->address);
		if (!other) {
			lookup_begin(lookup);
			other = lookup;
		}
		refcount_inc(&other->refs);
	}
	mutex_unlock(&fabric_mutex);
	lookup_put(lookup);
	return other;
}

/**
 * peerdma_fabric_resolve - by which device do the bytes of a leaf go
 * @provider: of which the caller holds a usage reference; it gives up when that is killed
 * @lookup: from peerdma_fabric_probe(); let go of here
 * @end: filled, if there is no reason against it; its function is the caller's to put
 * Return: enum peerdma_reason.
 */
u32 peerdma_fabric_resolve(struct peerdma_provider *provider, struct peerdma_lookup *lookup,
			   struct peerdma_fabric_end *end)
{
	u32 reason = PEERDMA_REASON_NONE;

	lookup = lookup_share(lookup);
	if (!lookup)
		return PEERDMA_REASON_RDMA_MODULE;
	while (!reason && !try_wait_for_completion(&lookup->done)) {
		if (peerdma_provider_pause(provider))
			reason = PEERDMA_REASON_REVOKED;
	}
	if (!reason) {
		reason = lookup->reason;
		*end = lookup->end;
		pci_dev_get(end->pdev);
	}
	lookup_put(lookup);
	return reason;
}

/* One that nobody has asked. NULL is none. */
void peerdma_fabric_put(struct peerdma_lookup *lookup)
{
	if (lookup)
		lookup_put(lookup);
}
