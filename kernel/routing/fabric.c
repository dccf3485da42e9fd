// SPDX-License-Identifier: GPL-2.0
/*
 * Leaves that are not in this machine: namespaces of NVMe over Fabrics. The controller's transport
 * moves their bytes. The transports tcp, loop and fc would pass peer pages to code that does not
 * know them. Only rdma is allowed, if another module (rdma.c) names the device that it uses.
 *
 * A controller describes itself in its attributes "transport" and "address". They are read here as
 * sysfs reads them, by the functions in the device's groups, not by path. That is safe while the
 * disk is kept from being removed: its controller and the module of its transport wait until all
 * its disks are gone.
 *
 * Resolving an address may take as long as the network does not respond, so a worker does it. The
 * caller polls for the answer and leaves when its provider is removed; the worker drops an answer
 * without waiters. Unregistering the answering module waits for the workers, which give up on their
 * own.
 *
 * Callers that ask about one address at the same time share one lookup. A positive answer is kept
 * by the callers, as a route. A negative answer is kept here for a moment: otherwise each request
 * to a server that does not respond would take seconds to be refused.
 *
 * No event reports that a controller uses another device: its connection may be lost and
 * established again by another one, without a change of the disk. So what can cause that is counted
 * as a change: devices and routes that come and go. After a change the device is resolved again.
 * The result is the device of the next connection, not of the current one, so it may be wrong for a
 * while. That does not harm the bytes: the driver maps each request for the device that sends it, a
 * device that cannot reach peer pages fails to map them, and soft-RoCE copies.
 * Documentation/fabrics.md has the effect on requests.
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

#define WORKERS 8 /* lookups at a time; further ones wait for their turn */
#define NO_LASTS HZ

/**
 * struct peerdma_lookup - a question by which device a controller's bytes go
 * @work: resolves it
 * @link: in asked, while its answer may be shared; protected by fabric_mutex
 * @refs: of the waiters, the work, and the list
 * @changes: the number of changes before it was asked
 * @done: there is an answer
 * @until: of a negative answer: jiffies when it expires
 * @reason: enum peerdma_reason
 * @end: valid if @reason is 0
 * @address: from the controller's attribute
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
static struct workqueue_struct *workers; /* NULL without a module; protected by fabric_mutex */
static LIST_HEAD(asked); /* one lookup per address; protected by fabric_mutex */
atomic_long_t peerdma_fabric_count;

/* Called for every event that may make a controller use another device. Any context. */
void peerdma_fabric_changed(void)
{
	/*
	 * A thread that reads the new count sees the change. If a change becomes visible only
	 * later, the caller counts again. Pairs with queueing a lookup after the count was read.
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

/* From here on its answer is not shared. */
static void lookup_unlist(struct peerdma_lookup *lookup)
{
	lockdep_assert_held(&fabric_mutex);
	if (list_empty(&lookup->link))
		return;
	list_del_init(&lookup->link);
	lookup_put(lookup);
}

/**
 * peerdma_fabric_register - register the module that resolves addresses
 * @ops: must stay until peerdma_fabric_unregister()
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

/* Returns when no call of the ops is running. */
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

/* Reads an attribute of a device into a page, as sysfs would. */
static bool controller_read(struct device *dev, const char *name, char *page)
{
	struct device_attribute *attribute = controller_attribute(dev, name);

	return attribute && attribute->show && attribute->show(dev, attribute, page) > 0;
}

/* PEERDMA_REASON_NONE: rdma. PEERDMA_REASON_STACKED: an unknown transport. */
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

/* False if every waiter has been killed; then unlinks it so that no new waiter joins. */
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
	/* Unregistering waits for this work. */
	const struct peerdma_fabric_ops *ops = READ_ONCE(answers);

	/* Resolving takes seconds if the server does not respond. */
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
 * peerdma_fabric_lookup - prepare a lookup of the device by which an address is reached
 * @address: from the controller's attribute
 * Return: for peerdma_fabric_resolve() or peerdma_fabric_put(); NULL without memory.
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

/* Reads the controller's attributes by way of @page. */
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
 * peerdma_fabric_probe - is this disk a namespace of NVMe over Fabrics?
 * @gendisk: kept from being removed: its open_mutex is held, and it is alive
 * @disk: if so, its kind is set, and either a reason or a lookup
 * Return: 0 or -ENOMEM.
 */
int peerdma_fabric_probe(struct gendisk *gendisk, struct peerdma_disk *disk)
{
	struct device *controller = disk_to_dev(gendisk)->parent;
	char *page;
	int err;

	if (!controller || !controller->class || strcmp(controller->class->name, "nvme"))
		return 0;
	/* The show function of an attribute needs a whole page. */
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

/* A lookup of this address that is running or has not expired; or NULL. */
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

/*
 * Replaces a lookup by a running one of the same address, if there is one. NULL: no module can
 * answer.
 */
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
 * peerdma_fabric_resolve - by which device do the bytes of a leaf go?
 * @provider: the caller holds a usage reference; this gives up when that is killed
 * @lookup: from peerdma_fabric_probe(); put here
 * @end: filled if the result is 0; the caller puts its function
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

/* Puts a lookup that was not resolved. NULL is allowed. */
void peerdma_fabric_put(struct peerdma_lookup *lookup)
{
	if (lookup)
		lookup_put(lookup);
}
