// SPDX-License-Identifier: GPL-2.0
/* The RDMA device of dmacard (dmacard_rdma.h): its port, which is RoCE's, and address handles. */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <rdma/ib_mad.h>

#include "dmacard_rdma.h"

#define GIDS 16
#define RXE_ABI 2 /* of rdma/rdma_user_rxe.h */

/* --- The device and its port */
static int query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	*attr = (struct ib_device_attr){
		.sys_image_guid = ib->node_guid,
		.max_mr_size = U64_MAX,
		.page_size_cap = PAGE_SIZE,
		.max_qp = 4096,
		.max_qp_wr = 8192,
		.device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS | IB_DEVICE_RC_RNR_NAK_GEN,
		.kernel_cap_flags = IBK_LOCAL_DMA_LKEY,
		.max_send_sge = DMACARD_SGES,
		.max_recv_sge = DMACARD_SGES,
		.max_sge_rd = DMACARD_SGES,
		.max_cq = 4096,
		.max_cqe = 16384,
		.max_mr = 65536,
		.max_pd = 4096,
		.max_ah = 4096,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.max_res_rd_atom = 4096 * 16,
		.max_fast_reg_page_list_len = DMACARD_PAGES,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
	};
	return 0;
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	const bool up = dmacard_link_is_up(dmacard_rdma_of(ib));

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_1024;
	attr->max_msg_sz = DMACARD_MESSAGE;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	attr->gid_tbl_len = GIDS;
	attr->pkey_tbl_len = 1;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	return 0;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static int get_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->gid_tbl_len = GIDS;
	immutable->pkey_tbl_len = 1;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

/* --- Protection domains and address handles */
static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int create_ah(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	struct dmacard_ah *ah = container_of(ib, struct dmacard_ah, ib);
	const struct ib_global_route *grh = rdma_ah_read_grh(init->ah_attr);

	ah->from = grh->sgid_attr->gid;
	ah->to = grh->dgid;
	return 0;
}

static int destroy_ah(struct ib_ah *ib, u32 flags)
{
	return 0;
}

/*
 * Not by ib_device_set_netdev(): rdma_rxe.ko takes any device of this driver_id that it finds by a
 * network interface for its own. When it is removed, the core unregisters all of this driver_id.
 */
static struct net_device *get_netdev(struct ib_device *ib, u32 port)
{
	struct net_device *netdev = READ_ONCE(dmacard_rdma_of(ib)->netdev);

	if (!netdev || netdev->reg_state != NETREG_REGISTERED)
		return NULL;
	dev_hold(netdev);
	return netdev;
}

static const struct ib_device_ops rdma_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_RXE,
	.uverbs_abi_ver = RXE_ABI,
	.query_device = query_device,
	.query_port = query_port,
	.query_pkey = query_pkey,
	.get_port_immutable = get_port_immutable,
	.get_link_layer = get_link_layer,
	.get_netdev = get_netdev,
	.alloc_ucontext = dmacard_alloc_context,
	.dealloc_ucontext = dmacard_dealloc_context,
	.disassociate_ucontext = dmacard_disassociate,
	.mmap = dmacard_mmap,
	.mmap_free = dmacard_mmap_free,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.create_ah = create_ah,
	.destroy_ah = destroy_ah,
	.create_cq = dmacard_create_cq,
	.destroy_cq = dmacard_destroy_cq,
	.poll_cq = dmacard_poll_cq,
	.req_notify_cq = dmacard_req_notify_cq,
	.get_dma_mr = dmacard_get_dma_mr,
	.reg_user_mr = dmacard_reg_user_mr,
	.reg_user_mr_dmabuf = dmacard_reg_user_mr_dmabuf,
	.alloc_mr = dmacard_alloc_mr,
	.map_mr_sg = dmacard_map_mr_sg,
	.dereg_mr = dmacard_dereg_mr,
	.create_qp = dmacard_create_qp,
	.modify_qp = dmacard_modify_qp,
	.query_qp = dmacard_query_qp,
	.destroy_qp = dmacard_destroy_qp,
	.post_send = dmacard_post_send,
	.post_recv = dmacard_post_recv,
	INIT_RDMA_OBJ_SIZE(ib_pd, dmacard_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_ah, dmacard_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, dmacard_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, dmacard_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, dmacard_context, ib),
};

/* --- Its network interface drops all packets. */
static netdev_tx_t lose(struct sk_buff *skb, struct net_device *dev)
{
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

/* The link is the interface: clients are told when it comes and goes. */
static void tell(struct net_device *dev, enum ib_event_type what)
{
	struct dmacard_rdma *rdma = *(struct dmacard_rdma **)netdev_priv(dev);
	struct ib_event event = {
		.device = &rdma->ib,
		.element.port_num = DMACARD_PORT,
		.event = what,
	};

	if (rdma->registered)
		ib_dispatch_event(&event);
}

static int link_up(struct net_device *dev)
{
	tell(dev, IB_EVENT_PORT_ACTIVE);
	return 0;
}

static int link_down(struct net_device *dev)
{
	struct dmacard_rdma *rdma = *(struct dmacard_rdma **)netdev_priv(dev);

	/* Those that wait for the other end cannot reach it any more. */
	dmacard_qps_run(rdma);
	tell(dev, IB_EVENT_PORT_ERR);
	return 0;
}

static const struct net_device_ops netdev_ops = {
	.ndo_open = link_up,
	.ndo_stop = link_down,
	.ndo_start_xmit = lose,
};

static void netdev_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &netdev_ops;
	dev->flags |= IFF_NOARP;
	eth_hw_addr_random(dev);
}

/* --- The whole */
static int begin(struct dmacard_rdma *rdma, struct pci_dev *pdev)
{
	int err;

	rdma->work = alloc_workqueue("dmacard", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!rdma->work)
		return -ENOMEM;
	rdma->netdev = alloc_netdev(sizeof(rdma), "card%d", NET_NAME_ENUM, netdev_setup);
	if (!rdma->netdev) {
		err = -ENOMEM;
		goto err_work;
	}
	*(struct dmacard_rdma **)netdev_priv(rdma->netdev) = rdma;
	SET_NETDEV_DEV(rdma->netdev, &pdev->dev);
	err = register_netdev(rdma->netdev);
	if (err)
		goto err_netdev;
	ib_set_device_ops(&rdma->ib, &rdma_ops);
	err = ib_register_device(&rdma->ib, "dmacard%d", &pdev->dev);
	if (!err) {
		rtnl_lock();
		rdma->registered = true;
		rtnl_unlock();
		return 0;
	}
	unregister_netdev(rdma->netdev);
err_netdev:
	free_netdev(rdma->netdev);
err_work:
	destroy_workqueue(rdma->work);
	return err;
}

struct dmacard_rdma *dmacard_rdma_new(struct pci_dev *pdev, struct dmacard_engine *engine)
{
	struct dmacard_rdma *rdma = ib_alloc_device(dmacard_rdma, ib);
	int err;

	if (!rdma)
		return ERR_PTR(-ENOMEM);
	rdma->engine = engine;
	rdma->ib.dev.parent = &pdev->dev;
	rdma->ib.node_type = RDMA_NODE_IB_CA;
	rdma->ib.phys_port_cnt = 1;
	rdma->ib.num_comp_vectors = num_online_cpus();
	rdma->ib.node_guid = cpu_to_be64(0x0200000000000000ULL | pci_dev_id(pdev));
	/* As soft-RoCE's: a call tells that requests were posted. */
	rdma->ib.uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				    BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	xa_init_flags(&rdma->mrs, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&rdma->qps, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
	err = begin(rdma, pdev);
	if (err) {
		ib_dealloc_device(&rdma->ib);
		return ERR_PTR(err);
	}
	return rdma;
}

void dmacard_rdma_end(struct dmacard_rdma *rdma)
{
	rtnl_lock();
	rdma->registered = false;
	rtnl_unlock();
	ib_unregister_device(&rdma->ib);
	unregister_netdev(rdma->netdev);
	free_netdev(rdma->netdev);
	destroy_workqueue(rdma->work);
	xa_destroy(&rdma->mrs);
	xa_destroy(&rdma->qps);
	ib_dealloc_device(&rdma->ib);
}
