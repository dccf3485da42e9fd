// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_rdma.ko: by which device of this machine is an RDMA address reached? Asks the kernel's
 * connection manager, as nvme-rdma does, in the initial network namespace, the only one that
 * nvme-rdma knows. The answer holds for a connection that is made now.
 *
 * A software device does no DMA. It uses kernel addresses in place of DMA addresses, and each
 * driver handles them in its own way. soft-RoCE (rxe) copies each byte between them and network
 * packets with the CPU, which is slow and correct. siw passes the pages to a TCP socket, and so to
 * any network card, whose driver may not know peer pages: siw is always refused.
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

#define RESOLVE_MS 2000 /* requests wait for the answer */
#define DUMPS 20 /* attempts to dump all routes without a change meanwhile */
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
MODULE_PARM_DESC(allow_software, "allow soft-RoCE, which copies by the CPU: for tests only");

/* The destination of a connection and, if given, its source. */
struct peerdma_rdma_path {
	struct sockaddr_storage to;
	struct sockaddr_storage from; /* ss_family 0: any */
};

/* A running resolution. */
struct peerdma_rdma_search {
	struct completion done;
	u32 reason;
	struct peerdma_fabric_end *end;
};

/* A present device, or a stranger that is being removed. */
struct peerdma_rdma_device {
	struct ib_event_handler handler;
	struct list_head going; /* protected by rdma_mutex */
};

/*
 * Present devices. The connection manager is notified of a removal after this module, and may name
 * the device until then. Such an answer is refused, for a second; the next one names another
 * device.
 */
static DEFINE_XARRAY(devices); /* struct peerdma_rdma_device, by address */

/*
 * The number of software devices that may pass peer pages to any device. A resolution only tells
 * where a new connection would go. An existing connection of NFS stays with its device whatever
 * routes say since, and a software device maps peer pages without an error. So nothing is allowed
 * while there are any.
 *
 * Clients registered before us are notified after us, so count the device until its last reference
 * is gone. A device without memory to track it counts for ever: its removal will not be noticed.
 */
static atomic_t strangers;
/* struct peerdma_rdma_device, with a reference of the device; protected by rdma_mutex */
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

/*
 * True if no client has the device any more: a client holds a reference until its removal is over.
 */
static bool device_is_gone(struct ib_device *device)
{
	if (!ib_device_try_get(device))
		return true;
	ib_device_put(device);
	return false;
}

/* Stops counting removed devices, or all. */
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

/* The device stays during this call. A second event reports its removal. */
static int search_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct peerdma_rdma_search *search = id->context;

	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		search->reason = path_describe(id->device, search->end);
	complete(&search->done);
	return 0;
}

/* The connection manager gives up on its own. No event comes after the id is destroyed. */
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
 * Events after which a new connection may use another device: devices, addresses (a bond that fails
 * over moves them to another card), routes, and next hops that routes share.
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
 * Some changes are notified before they are visible: a replaced next hop, a new IPv6 route, a
 * deleted IPv4 route. A lookup in between gets the old answer. So the change is counted once more
 * after the locks that it is made under were released: the tables' spin locks, which RCU waits for,
 * and RTNL.
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

/*
 * Registering dumps all routes first. The dump is not needed, and fails if a route changes
 * meanwhile.
 */
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
		devices_forget_strangers(true); /* it has removed the devices that it had added */
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
