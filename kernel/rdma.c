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
#include <linux/dma-mapping.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xarray.h>
#include <net/fib_notifier.h>
#include <net/net_namespace.h>
#include <net/nexthop.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <uapi/peerdma.h>

#include "fabric.h"

#define RESOLVE_MS 2000 /* others are waiting for the answer */

static bool allow_software;
static const char what_it_means[] =
	"allow_software is set: soft-RoCE may carry peer memory. The CPU copies each byte; "
	"nothing of it is direct, and all is counted as through the host. For tests only.";

static int set_allow_software(const char *value, const struct kernel_param *param)
{
	int err = param_set_bool(value, param);

	if (!err && allow_software)
		pr_warn_once("%s\n", what_it_means);
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
struct way {
	struct sockaddr_storage to;
	struct sockaddr_storage from; /* ss_family 0: any */
};

/* A question that is under way. */
struct search {
	struct completion done;
	u32 reason;
	struct peerdma_fabric_end *end;
};

/*
 * Those that are there. The manager hears later than we do that one goes, and until then may name
 * it: that is no answer, and the next one to ask is told another.
 */
static DEFINE_XARRAY(devices); /* their ib_event_handler, by address */

/*
 * Of these, those in software that may hand peer pages to anybody. What is asked is where a new
 * connection would go; one of NFS that is there stays with its device, whatever routes say since,
 * and maps our pages without an error if that is in software. So nothing goes while there are any.
 */
static atomic_t strangers;

static bool is_stranger(struct ib_device *device)
{
	return ib_uses_virt_dma(device) && device->ops.driver_id != RDMA_DRIVER_RXE;
}

static bool is_there(struct ib_device *device)
{
	return xa_load(&devices, (unsigned long)device);
}

static u32 describe(struct ib_device *device, struct peerdma_fabric_end *end)
{
	if (!is_there(device))
		return PEERDMA_REASON_RDMA_ROUTE;
	if (atomic_read(&strangers))
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
static int hear(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct search *search = id->context;

	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		search->reason = describe(id->device, search->end);
	complete(&search->done);
	return 0;
}

/* The manager gives up on its own. No event comes any more when the id is destroyed. */
static u32 search_device(struct way *way, struct peerdma_fabric_end *end)
{
	struct search search = { .reason = PEERDMA_REASON_RDMA_ROUTE, .end = end };
	struct sockaddr *from = way->from.ss_family ? (struct sockaddr *)&way->from : NULL;
	struct rdma_cm_id *id;

	init_completion(&search.done);
	id = rdma_create_id(&init_net, hear, &search, RDMA_PS_TCP, IB_QPT_RC);
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
static bool read_way(char *address, struct way *way)
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

static u32 resolve(char *address, struct peerdma_fabric_end *end)
{
	struct way way = {};

	return read_way(address, &way) ? search_device(&way, end) : PEERDMA_REASON_RDMA_ROUTE;
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
	struct ib_event_handler *handler = kzalloc(sizeof(*handler), GFP_KERNEL);
	int err;

	if (!handler)
		return -ENOMEM;
	INIT_IB_EVENT_HANDLER(handler, device, device_event);
	err = xa_err(xa_store(&devices, (unsigned long)device, handler, GFP_KERNEL));
	if (err) {
		kfree(handler);
		return err;
	}
	ib_register_event_handler(handler);
	if (is_stranger(device))
		atomic_inc(&strangers);
	peerdma_fabric_changed();
	return 0;
}

static void device_removed(struct ib_device *device, void *data)
{
	struct ib_event_handler *handler = xa_erase(&devices, (unsigned long)device);

	ib_unregister_event_handler(handler);
	kfree(handler);
	if (is_stranger(device))
		atomic_dec(&strangers);
	peerdma_fabric_changed();
}

static struct ib_client client = {
	.name = "peerdma",
	.add = device_added,
	.remove = device_removed,
};

static int route_changed(struct notifier_block *block, unsigned long event, void *info)
{
	peerdma_fabric_changed();
	return NOTIFY_DONE;
}

static struct notifier_block routes = {
	.notifier_call = route_changed,
};

static struct notifier_block next_hops = {
	.notifier_call = route_changed,
};

static int __init peerdma_rdma_init(void)
{
	int err = ib_register_client(&client);

	if (err)
		return err;
	err = register_fib_notifier(&init_net, &routes, NULL, NULL);
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
	unregister_fib_notifier(&init_net, &routes);
err_client:
	ib_unregister_client(&client);
	return err;
}

static void __exit peerdma_rdma_exit(void)
{
	peerdma_fabric_unregister();
	unregister_nexthop_notifier(&init_net, &next_hops);
	unregister_fib_notifier(&init_net, &routes);
	ib_unregister_client(&client);
}

module_init(peerdma_rdma_init);
module_exit(peerdma_rdma_exit);

MODULE_DESCRIPTION("By which device an RDMA address is reached, for peerdma");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
