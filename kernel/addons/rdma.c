// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_rdma.ko: by which device of this machine an RDMA address is reached. The kernel's own
 * connection manager is asked, as nvme-rdma asks it, in the initial network namespace, which is the
 * only one that nvme-rdma knows. What it says is true of a connection that is made now.
 *
 * A software device has no DMA of its own. It gives out kernel addresses in the place of DMA
 * addresses, and what its driver makes of those is for each driver to say. That of soft-RoCE (rxe)
 * copies each byte between them and network packets with the CPU, which is slow and right. siw
 * hands the pages themselves to a TCP socket, and from there any network card may take them, whose
 * driver never learned of peer pages: it is never let through.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/inet.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/fib_notifier.h>
#include <net/net_namespace.h>
#include <net/nexthop.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <uapi/peerdma.h>

#include "routing/fabric.h"

#define RESOLVE_MS 2000 /* others are waiting for the answer */
#define DUMPS 20 /* of all routes, until none changes meanwhile */
#define DUMP_PAUSE_MS 50

static bool allow_software;
static const char what_it_means[] =
	"allow_software is set: soft-RoCE may carry peer memory. The CPU copies each byte; "
	"nothing of it is direct, and all is counted as through the host. For tests only.";

static int set_allow_software(const char *value, const struct kernel_param *param)
{
	bool was_set = allow_software;
	int err = param_set_bool(value, param);

	if (!err && allow_software && !was_set)
		pr_warn("%s\n", what_it_means);
	peerdma_fabric_changed();
	return err;
}

static const struct kernel_param_ops allow_software_ops = {
	.set = set_allow_software,
	.get = param_get_bool,
};
module_param_cb(allow_software, &allow_software_ops, &allow_software, 0644);
MODULE_PARM_DESC(allow_software, "let soft-RoCE carry peer memory, by the CPU: for tests only");

/* Where a connection would go to, and, if it was asked for, from. */
struct peerdma_rdma_path {
	struct sockaddr_storage to;
	struct sockaddr_storage from; /* ss_family 0: any */
};

/* A question that is under way. */
struct peerdma_rdma_search {
	struct completion done;
	u32 reason;
	struct peerdma_fabric_end *end;
};

/* A device that is there, or a stranger that goes. */
struct peerdma_rdma_device {
	struct ib_event_handler handler;
	struct list_head going; /* protected by rdma_mutex */
};

/*
 * Those that are there. The manager hears later than we do that one goes, and until then may name
 * it: that is a "no", which holds for a second, and the next one to ask then is told another.
 */
static DEFINE_XARRAY(devices); /* struct peerdma_rdma_device, by address */

/*
 * Of these, those in software that may hand peer pages to anybody. What is asked is where a new
 * connection would go; one of NFS that is there stays with its device, whatever routes say since,
 * and maps our pages without an error if that is in software. So nothing goes while there are any.
 *
 * Who came before us hears later than we do that one goes, and has its connections until then. So
 * it counts until nobody has it any more. One for which there is no memory counts for good: nobody
 * will say that it goes.
 */
static atomic_t strangers;
/* struct peerdma_rdma_device, whose devices are referenced; protected by rdma_mutex */
static LIST_HEAD(going);
static DEFINE_MUTEX(rdma_mutex);

static bool device_is_stranger(struct ib_device *device)
{
	return ib_uses_virt_dma(device) && device->ops.driver_id != RDMA_DRIVER_RXE;
}

static bool device_is_present(struct ib_device *device)
{
	return xa_load(&devices, (unsigned long)device);
}

/* From everybody: what a client has of a device, until its removal is over, is a reference. */
static bool device_is_gone(struct ib_device *device)
{
	if (!ib_device_try_get(device))
		return true;
	ib_device_put(device);
	return false;
}

/* Those that are gone, or all, count no more. */
static void devices_forget_strangers(bool all)
{
	struct peerdma_rdma_device *known, *next;

	mutex_lock(&rdma_mutex);
	list_for_each_entry_safe(known, next, &going, going) {
		if (!all && !device_is_gone(known->handler.device))
			continue;
		list_del(&known->going);
		put_device(&known->handler.device->dev);
		kfree(known);
		atomic_dec(&strangers);
	}
	mutex_unlock(&rdma_mutex);
}

static bool devices_have_strangers(void)
{
	devices_forget_strangers(false);
	return atomic_read(&strangers);
}

static u32 path_describe(struct ib_device *device, struct peerdma_fabric_end *end)
{
	if (!device_is_present(device))
		return PEERDMA_REASON_RDMA_ROUTE;
	if (device_is_stranger(device) || devices_have_strangers())
		return PEERDMA_REASON_RDMA_SOFTWARE;
	if (ib_uses_virt_dma(device)) {
		end->software = READ_ONCE(allow_software);
		return end->software ? PEERDMA_REASON_NONE : PEERDMA_REASON_RDMA_SOFTWARE;
	}
	if (!dev_is_pci(device->dma_device))
		return PEERDMA_REASON_DISTANCE;
	if (!dma_pci_p2pdma_supported(device->dma_device))
		return PEERDMA_REASON_QUEUE;
	end->pdev = pci_dev_get(to_pci_dev(device->dma_device));
	return PEERDMA_REASON_NONE;
}

/* The device stays while this runs. A second event is that it goes. */
static int search_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct peerdma_rdma_search *search = id->context;

	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		search->reason = path_describe(id->device, search->end);
	complete(&search->done);
	return 0;
}

/* The manager gives up on its own. No event comes any more when the id is destroyed. */
static u32 search_device(struct peerdma_rdma_path *way, struct peerdma_fabric_end *end)
{
	struct peerdma_rdma_search search = { .reason = PEERDMA_REASON_RDMA_ROUTE, .end = end };
	struct sockaddr *from = way->from.ss_family ? (struct sockaddr *)&way->from : NULL;
	struct rdma_cm_id *id;

	init_completion(&search.done);
	id = rdma_create_id(&init_net, search_event, &search, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return PEERDMA_REASON_RDMA_ROUTE;
	if (!rdma_resolve_addr(id, from, (struct sockaddr *)&way->to, RESOLVE_MS))
		wait_for_completion_timeout(&search.done, msecs_to_jiffies(2 * RESOLVE_MS));
	rdma_destroy_id(id);
	return search.reason;
}

static bool read_ip(const char *text, struct sockaddr_storage *ip)
{
	return !inet_pton_with_scope(&init_net, AF_UNSPEC, text, NULL, ip);
}

/* traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.2 */
static bool read_way(char *address, struct peerdma_rdma_path *way)
{
	char *field, *value;
	bool known = false;

	while ((field = strsep(&address, ","))) {
		value = strchr(field, '=');
		if (!value)
			continue;
		*value++ = '\0';
		if (!strcmp(field, "traddr"))
			known = read_ip(value, &way->to);
		else if (!strcmp(field, "host_traddr") && !read_ip(value, &way->from))
			return false;
	}
	return known;
}

static u32 resolve(const char *address, struct peerdma_fabric_end *end)
{
	char *fields = kstrdup(address, GFP_KERNEL);
	struct peerdma_rdma_path way = {};
	bool known = fields && read_way(fields, &way);

	kfree(fields);
	return known ? search_device(&way, end) : PEERDMA_REASON_RDMA_ROUTE;
}

static const struct peerdma_fabric_ops ops = {
	.resolve = resolve,
};

/*
 * What may make a connection go another way the next time: devices, addresses, which a bond that
 * fails over gives to another of its cards, routes, and next hops that routes share.
 */
static void device_event(struct ib_event_handler *handler, struct ib_event *event)
{
	if (event->event == IB_EVENT_GID_CHANGE)
		peerdma_fabric_changed();
}

static int device_added(struct ib_device *device)
{
	struct peerdma_rdma_device *known;
	int err;

	if (device_is_stranger(device)) {
		atomic_inc(&strangers);
		peerdma_fabric_changed();
	}
	known = kzalloc(sizeof(*known), GFP_KERNEL);
	if (!known)
		return -ENOMEM;
	INIT_IB_EVENT_HANDLER(&known->handler, device, device_event);
	err = xa_err(xa_store(&devices, (unsigned long)device, known, GFP_KERNEL));
	if (err) {
		kfree(known);
		return err;
	}
	ib_register_event_handler(&known->handler);
	peerdma_fabric_changed();
	return 0;
}

static void device_removed(struct ib_device *device, void *data)
{
	struct peerdma_rdma_device *known = xa_erase(&devices, (unsigned long)device);

	ib_unregister_event_handler(&known->handler);
	if (device_is_stranger(device)) {
		devices_forget_strangers(false);
		get_device(&device->dev);
		mutex_lock(&rdma_mutex);
		list_add(&known->going, &going);
		mutex_unlock(&rdma_mutex);
	} else {
		kfree(known);
	}
	peerdma_fabric_changed();
}

static struct ib_client client = {
	.name = "peerdma",
	.add = device_added,
	.remove = device_removed,
};

static void unregister_client(void)
{
	ib_unregister_client(&client);
	devices_forget_strangers(true);
}

/*
 * Of some changes everybody is told before they can be seen: a next hop that is another, a route of
 * IPv6 that comes, one of IPv4 that goes. Who asks in between is given the old answer. So it is
 * counted once more when whoever made the change is out of what changes are made under: the tables'
 * spin locks, which RCU waits for, and RTNL.
 */
static void devices_recount(struct work_struct *work)
{
	synchronize_rcu();
	rtnl_lock();
	rtnl_unlock();
	peerdma_fabric_changed();
}

static DECLARE_WORK(afterwards, devices_recount);

static int route_changed(struct notifier_block *block, unsigned long event, void *info)
{
	peerdma_fabric_changed();
	queue_work(system_long_wq, &afterwards);
	return NOTIFY_DONE;
}

static struct notifier_block routes = {
	.notifier_call = route_changed,
};

static struct notifier_block next_hops = {
	.notifier_call = route_changed,
};

/* All routes come first, which is not needed, and is refused when one has changed meanwhile. */
static int fib_listen(void)
{
	int err, tries = 0;

	do {
		err = register_fib_notifier(&init_net, &routes, NULL, NULL);
	} while (err == -EBUSY && ++tries < DUMPS && !msleep_interruptible(DUMP_PAUSE_MS));
	if (err)
		cancel_work_sync(&afterwards);
	return err;
}

static void fib_unlisten(void)
{
	unregister_fib_notifier(&init_net, &routes);
	cancel_work_sync(&afterwards);
}

static int __init peerdma_rdma_init(void)
{
	int err = ib_register_client(&client);

	if (err) {
		devices_forget_strangers(true); /* it has removed what it had added */
		return err;
	}
	err = fib_listen();
	if (err)
		goto err_client;
	err = register_nexthop_notifier(&init_net, &next_hops, NULL);
	if (err)
		goto err_routes;
	err = peerdma_fabric_register(&ops);
	if (err)
		goto err_next_hops;
	return 0;

err_next_hops:
	unregister_nexthop_notifier(&init_net, &next_hops);
err_routes:
	fib_unlisten();
err_client:
	unregister_client();
	return err;
}

static void __exit peerdma_rdma_exit(void)
{
	peerdma_fabric_unregister();
	unregister_nexthop_notifier(&init_net, &next_hops);
	fib_unlisten();
	unregister_client();
}

module_init(peerdma_rdma_init);
module_exit(peerdma_rdma_exit);

MODULE_DESCRIPTION("By which device an RDMA address is reached, for peerdma");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
