// SPDX-License-Identifier: GPL-2.0
/*
 * Stands in for an RDMA network card: an RDMA device with a RoCE port whose DMA belongs to a PCI
 * function, or to a device that is not a PCI function (platform=1). The routes of its network
 * interface nic0 resolve to this RDMA device. It transfers nothing and refuses to create objects or
 * to accept work requests.
 *
 * debugfs: up registers and unregisters the RDMA device while its function stays bound, as drivers
 * made of two modules do. hold blocks the removal of an RDMA device between the clients registered
 * after this module and those registered before. It also blocks a change of a next hop after all
 * notifiers were called and before the change is visible. held is set while a task is blocked.
 * software makes the next RDMA device one without DMA, as siw. references is the reference count of
 * the function.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <net/net_namespace.h>
#include <net/nexthop.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>

#define GIDS 16
#define HOLD_MS 60000 /* the longest time a task is blocked */

static bool platform;
module_param(platform, bool, 0444);

struct nic {
	struct ib_device ib;
};

static DEFINE_MUTEX(lock);
static struct nic *nic; /* NULL without a device; protected by lock */
static struct device *home; /* the device of its DMA; NULL: nothing is bound; protected by lock */
static struct net_device *netdev;
static struct platform_device *no_function;
static struct dentry *folder;
static bool hold, held, software;

/* --- The RDMA device */
static int query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	return 0;
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_1024;
	attr->active_mtu = IB_MTU_1024;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	attr->gid_tbl_len = GIDS;
	attr->pkey_tbl_len = 1;
	return 0;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

/* Without management datagrams: ib_mad creates no queue pairs for the port. */
static int get_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | RDMA_CORE_CAP_IB_CM |
				    RDMA_CORE_CAP_ETH_AH;
	immutable->gid_tbl_len = GIDS;
	immutable->pkey_tbl_len = 1;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	return -EOPNOTSUPP;
}

static int destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	return 0;
}

static int post_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	*bad = wr;
	return -EOPNOTSUPP;
}

static int post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	*bad = wr;
	return -EOPNOTSUPP;
}

static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	return -EOPNOTSUPP;
}

static int destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	return 0;
}

static int poll_cq(struct ib_cq *cq, int nr, struct ib_wc *wc)
{
	return 0;
}

static int req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	return -EOPNOTSUPP;
}

static struct ib_mr *get_dma_mr(struct ib_pd *pd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

#ifdef HAVE_DMAH
static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				 struct ib_dmah *dmah, struct ib_udata *udata)
#else
static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				 struct ib_udata *udata)
#endif
{
	return ERR_PTR(-EOPNOTSUPP);
}

static int dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	return 0;
}

static const struct ib_device_ops nic_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.query_device = query_device,
	.query_port = query_port,
	.query_pkey = query_pkey,
	.get_port_immutable = get_port_immutable,
	.get_link_layer = get_link_layer,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.destroy_qp = destroy_qp,
	.post_send = post_send,
	.post_recv = post_recv,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.poll_cq = poll_cq,
	.req_notify_cq = req_notify_cq,
	.get_dma_mr = get_dma_mr,
	.reg_user_mr = reg_user_mr,
	.dereg_mr = dereg_mr,
	.size_ib_pd = sizeof(struct ib_pd),
	.size_ib_cq = sizeof(struct ib_cq),
	.size_ib_qp = sizeof(struct ib_qp),
};

static int nic_begin(void)
{
	int err;

	lockdep_assert_held(&lock);
	if (!home || nic)
		return home ? -EEXIST : -ENODEV;
	nic = ib_alloc_device(nic, ib);
	if (!nic)
		return -ENOMEM;
	nic->ib.node_type = RDMA_NODE_IB_CA;
	nic->ib.phys_port_cnt = 1;
	nic->ib.num_comp_vectors = 1;
	nic->ib.node_guid = cpu_to_be64(1);
	ib_set_device_ops(&nic->ib, &nic_ops);
	err = ib_device_set_netdev(&nic->ib, netdev, 1);
	if (!err)
		err = ib_register_device(&nic->ib, "nicstand", software ? NULL : home);
	if (err) {
		ib_dealloc_device(&nic->ib);
		nic = NULL;
	}
	return err;
}

static void nic_end(void)
{
	lockdep_assert_held(&lock);
	if (!nic)
		return;
	ib_unregister_device(&nic->ib);
	ib_dealloc_device(&nic->ib);
	nic = NULL;
}

static int home_begin(struct device *dev)
{
	int err = -EBUSY;

	mutex_lock(&lock);
	if (!home) {
		home = dev;
		err = nic_begin();
		if (err)
			home = NULL;
	}
	mutex_unlock(&lock);
	return err;
}

static void home_end(void)
{
	mutex_lock(&lock);
	nic_end();
	home = NULL;
	mutex_unlock(&lock);
}

/* --- Its network interface drops all packets. */
static netdev_tx_t lose(struct sk_buff *skb, struct net_device *dev)
{
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops netdev_ops = {
	.ndo_start_xmit = lose,
};

static void netdev_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &netdev_ops;
	dev->flags |= IFF_NOARP;
	eth_hw_addr_random(dev);
}

/* --- Its PCI function, bound by driver_override only. */
static int stand_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pdev);

	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	return err ?: home_begin(&pdev->dev);
}

static void stand_remove(struct pci_dev *pdev)
{
	home_end();
}

static const struct pci_device_id stand_ids[] = { {} };

static struct pci_driver stand_driver = {
	.name = "nicstand",
	.id_table = stand_ids,
	.probe = stand_probe,
	.remove = stand_remove,
};

/* --- Blocking the removal of an RDMA device. */
static int client_add(struct ib_device *ib)
{
	return 0;
}

static void wait_while_held(void)
{
	unsigned int ms;

	for (ms = 0; READ_ONCE(hold) && ms < HOLD_MS; ms += 20) {
		WRITE_ONCE(held, true);
		msleep(20);
	}
	WRITE_ONCE(held, false);
}

static void client_remove(struct ib_device *ib, void *data)
{
	if (ib->ops.owner == THIS_MODULE)
		wait_while_held();
}

static struct ib_client client = {
	.name = "nicstand",
	.add = client_add,
	.remove = client_remove,
};

/* --- Blocking a change of a next hop. */
static int next_hop_event(struct notifier_block *block, unsigned long event, void *info)
{
	if (event == NEXTHOP_EVENT_REPLACE)
		wait_while_held();
	return NOTIFY_DONE;
}

static struct notifier_block next_hops = {
	.notifier_call = next_hop_event,
	.priority = -1, /* called last */
};

static int set_up(void *data, u64 up)
{
	int err = 0;

	mutex_lock(&lock);
	if (up)
		err = nic_begin();
	else
		nic_end();
	mutex_unlock(&lock);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(up_fops, NULL, set_up, "%llu\n");

static int get_references(void *data, u64 *references)
{
	mutex_lock(&lock);
	*references = home ? kref_read(&home->kobj.kref) : 0;
	mutex_unlock(&lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(references_fops, get_references, NULL, "%llu\n");

static int begin_without_function(void)
{
	int err;

	no_function = platform_device_register_simple("nicstand", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(no_function))
		return PTR_ERR(no_function);
	err = home_begin(&no_function->dev);
	if (err)
		platform_device_unregister(no_function);
	return err;
}

static void end_without_function(void)
{
	home_end();
	platform_device_unregister(no_function);
}

static int __init stand_init(void)
{
	int err = -ENOMEM;

	netdev = alloc_netdev(0, "nic0", NET_NAME_ENUM, netdev_setup);
	if (!netdev)
		return err;
	err = register_netdev(netdev);
	if (err)
		goto err_netdev;
	err = ib_register_client(&client);
	if (err)
		goto err_registered;
	err = register_nexthop_notifier(&init_net, &next_hops, NULL);
	if (err)
		goto err_client;
	err = platform ? begin_without_function() : pci_register_driver(&stand_driver);
	if (err)
		goto err_next_hops;
	folder = debugfs_create_dir("nicstand", NULL);
	debugfs_create_file("up", 0200, folder, NULL, &up_fops);
	debugfs_create_file("references", 0400, folder, NULL, &references_fops);
	debugfs_create_bool("hold", 0600, folder, &hold);
	debugfs_create_bool("held", 0400, folder, &held);
	debugfs_create_bool("software", 0600, folder, &software);
	return 0;

err_next_hops:
	unregister_nexthop_notifier(&init_net, &next_hops);
err_client:
	ib_unregister_client(&client);
err_registered:
	unregister_netdev(netdev);
err_netdev:
	free_netdev(netdev);
	return err;
}

static void __exit stand_exit(void)
{
	debugfs_remove(folder);
	if (platform)
		end_without_function();
	else
		pci_unregister_driver(&stand_driver);
	unregister_nexthop_notifier(&init_net, &next_hops);
	ib_unregister_client(&client);
	unregister_netdev(netdev);
	free_netdev(netdev);
}

module_init(stand_init);
module_exit(stand_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stands in for an RDMA network card");
