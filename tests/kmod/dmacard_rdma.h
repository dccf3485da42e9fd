/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An RDMA device whose work requests are executed by a PCI function's own DMA engine (dmacard.h),
 * at the DMA addresses that its clients map. A queue pair connects to queue pairs of the same
 * device only, so one guest has both ends.
 *
 * User programs need no provider of ours: towards them it is a soft-RoCE device, and librxe works.
 * They have reliable connections only, and nothing inline. Do not remove rdma_rxe while a function
 * is bound: driver_id is RXE's, so its ib_unregister_driver() unregisters this device as well, with
 * a WARN.
 *
 * dmacard_rdma.c  the device, its port, address handles
 * dmacard_user.c  contexts of user programs, queues shared with them
 * dmacard_cq.c    completion queues
 * dmacard_mr.c    memory regions, by fast registration
 * dmacard_umem.c  memory regions of user programs: their memory, dma-bufs
 * dmacard_wr.c    what a work request reads and writes, as DMA addresses
 * dmacard_qp.c    queue pairs: reliable connections, datagrams and the port's general service
 */
#ifndef DMACARD_RDMA_H
#define DMACARD_RDMA_H

#include <linux/completion.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "dmacard.h"

#define DMACARD_SGES 32 /* of a work request */
#define DMACARD_PAGES 1024 /* of a memory region */
#define DMACARD_MESSAGE SZ_1G /* the most bytes of a work request */
#define DMACARD_GRH 40 /* bytes before a datagram */
#define DMACARD_PORT 1

struct dmacard_rdma {
	struct ib_device ib;
	struct dmacard_engine *engine;
	struct net_device *netdev; /* drops all packets; has the addresses of this machine */
	bool registered; /* protected by the rtnl lock */
	struct workqueue_struct *work; /* executes work requests */
	u32 next_mr, next_qp; /* numbers are not reused at once */
	struct xarray mrs; /* by the number in their keys; its lock protects fields of theirs */
	struct xarray qps; /* by queue pair number; its lock protects lookups */
};

struct dmacard_rdma *dmacard_rdma_new(struct pci_dev *pdev, struct dmacard_engine *engine);
/* Waits for all copies. The engine must exist until this returns. */
void dmacard_rdma_end(struct dmacard_rdma *rdma);

static inline struct dmacard_rdma *dmacard_rdma_of(struct ib_device *ib)
{
	return container_of(ib, struct dmacard_rdma, ib);
}

/* Without it no other queue pair can be reached. */
static inline bool dmacard_link_is_up(const struct dmacard_rdma *rdma)
{
	return netif_running(rdma->netdev);
}

/* --- Protection domains and address handles */
struct dmacard_pd {
	struct ib_pd ib;
};

struct dmacard_ah {
	struct ib_ah ib;
	union ib_gid from, to;
};

/* --- User programs */
struct dmacard_context {
	struct ib_ucontext ib;
};

/* A queue that a program maps. Who uses it has a lock. */
struct dmacard_shared {
	struct rdma_user_mmap_entry entry;
	struct rxe_queue_buf *buf;
	u32 mask, shift; /* of an index; of an element's offset */
	u32 mine; /* the index that is ours: of the next element to take or to add */
};

struct dmacard_shared *dmacard_shared_new(struct ib_udata *udata, u32 elements, size_t size,
					  struct mminfo *out);
void dmacard_shared_end(struct dmacard_shared *shared);
/* The next element that the program has added, which it may still change, or NULL. */
const void *dmacard_shared_next(const struct dmacard_shared *shared);
void dmacard_shared_taken(struct dmacard_shared *shared);
void dmacard_shared_take_all(struct dmacard_shared *shared);
/* Where to write the next element for the program, or NULL. */
void *dmacard_shared_room(const struct dmacard_shared *shared);
void dmacard_shared_added(struct dmacard_shared *shared);
int dmacard_mmap(struct ib_ucontext *ib, struct vm_area_struct *vma);
void dmacard_mmap_free(struct rdma_user_mmap_entry *entry);
int dmacard_alloc_context(struct ib_ucontext *ib, struct ib_udata *udata);
void dmacard_dealloc_context(struct ib_ucontext *ib);
void dmacard_disassociate(struct ib_ucontext *ib);

/* --- Completion queues */
struct dmacard_cq {
	struct ib_cq ib;
	spinlock_t lock; /* protects everything below */
	struct dmacard_shared *shared; /* a program's; NULL: the ring is used */
	struct ib_wc *wcs; /* a ring */
	u32 size, first, count;
	bool armed, solicited_only;
	bool overrun; /* a completion was lost, and this was reported */
};

int dmacard_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		      struct uverbs_attr_bundle *attrs);
int dmacard_destroy_cq(struct ib_cq *ib, struct ib_udata *udata);
int dmacard_poll_cq(struct ib_cq *ib, int nr, struct ib_wc *wc);
int dmacard_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags);
/* In any context but hard interrupts. */
void dmacard_cq_add(struct ib_cq *ib, const struct ib_wc *wc, bool solicited);

/* --- Memory regions */
struct dmacard_mr {
	struct ib_mr ib; /* lkey and rkey are the same */
	struct dmacard_rdma *rdma;
	wait_queue_head_t idle; /* users has fallen */
	bool all; /* covers all DMA addresses */
	u32 number, max_pages;
	struct ib_umem *umem; /* of a program's region */
	/* Written while the region is not mapped, and has no users: */
	u32 nr_pages;
	dma_addr_t *pages;

	/* Protected by the lock of rdma->mrs: */
	unsigned int users; /* copies under way, and calls */
	unsigned int holds; /* of those that will map it */
	bool valid, mapped;
	int access;
	u32 key;
};

static inline struct dmacard_mr *dmacard_mr_of(struct ib_mr *ib)
{
	return container_of(ib, struct dmacard_mr, ib);
}

/* Neither valid nor mapped. */
struct ib_mr *dmacard_mr_new(struct ib_pd *pd, u32 pages);
struct ib_mr *dmacard_get_dma_mr(struct ib_pd *pd, int access);
struct ib_mr *dmacard_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages);
int dmacard_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int nr, unsigned int *offset);
int dmacard_dereg_mr(struct ib_mr *ib, struct ib_udata *udata);
/* Makes the region valid under this key. */
int dmacard_mr_enable(struct dmacard_mr *mr, u32 key, int access);
/* Invalidates the kernel's region with this key, and waits for copies under way. */
int dmacard_mr_disable(struct ib_pd *pd, u32 key);
/* Whether pages are the region's addresses. */
void dmacard_mr_set_mapped(struct dmacard_mr *mr, bool mapped);
/*
 * Looks up a valid region that allows this access. 0: *out is in use until dmacard_mr_put().
 * -EAGAIN: it is not mapped, and *out exists until dmacard_mr_unhold(). -EACCES: there is none.
 */
int dmacard_mr_get(struct ib_pd *pd, u32 key, int access, struct dmacard_mr **out);
void dmacard_mr_put(struct dmacard_mr *mr);
void dmacard_mr_unhold(struct dmacard_mr *mr);

#ifdef HAVE_DMAH /* since v6.17 */
struct ib_mr *dmacard_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				  struct ib_dmah *dmah, struct ib_udata *udata);
struct ib_mr *dmacard_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 len, u64 virt, int fd,
					 int access, struct ib_dmah *dmah,
					 struct uverbs_attr_bundle *attrs);
#else
struct ib_mr *dmacard_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				  struct ib_udata *udata);
struct ib_mr *dmacard_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 len, u64 virt, int fd,
					 int access, struct uverbs_attr_bundle *attrs);
#endif
/*
 * Maps a region whose memory has moved. Waits for whoever moves it, who waits for the region's
 * users: the caller must be none.
 */
int dmacard_mr_map(struct dmacard_mr *mr);

/* --- Work requests */
struct dmacard_wr {
	u64 wr_id;
	enum ib_wr_opcode opcode;
	int flags;
	union {
		__be32 imm_data;
		u32 invalidate_rkey;
	} ex;
	struct ib_sge sges[DMACARD_SGES];
	int nr_sges;
	/* READ and WRITE */
	u64 remote;
	u32 rkey;
	/* REG_MR */
	struct dmacard_mr *mr;
	u32 key;
	int access;
	/* Datagrams */
	union ib_gid from, to;
	u32 qpn;
};

/* One side of a copy. */
struct dmacard_side {
	struct dmacard_piece *pieces;
	unsigned int nr, room;
	u64 bytes;
	struct dmacard_mr *mrs[DMACARD_SGES + 1]; /* in use */
	unsigned int nr_mrs;
	struct dmacard_mr *moved; /* held: not mapped */
};

/*
 * Add memory. Return 0, -ENOMEM, -EACCES, -EMSGSIZE: more than DMACARD_MESSAGE, or -EAGAIN: `moved`
 * is not mapped. After an error a part may have been added.
 */
int dmacard_side_add(struct dmacard_side *side, u64 addr, u64 bytes);
int dmacard_side_add_key(struct dmacard_side *side, struct ib_pd *pd, u64 addr, u64 bytes, u32 key,
			 int access);
int dmacard_side_add_sges(struct dmacard_side *side, struct ib_pd *pd, const struct dmacard_wr *wr,
			  int access);
/* Empties the side and drops its references. Keeps the array. */
void dmacard_side_clear(struct dmacard_side *side);

/* --- Queue pairs */
struct dmacard_ring {
	struct dmacard_wr *wrs;
	u32 size, first, count;
};

struct dmacard_qp {
	struct ib_qp ib;
	struct dmacard_rdma *rdma;
	refcount_t users; /* its owner and lookups */
	struct completion unused;
	bool all_signaled;
	struct work_struct work;
	struct timer_list poll; /* runs the work: programs post receives without a call */
	wait_queue_head_t idle;
	struct mutex modifies; /* protects changes of the state: one at a time, to its end */

	spinlock_t lock; /* protects everything up to the next comment */
	struct ib_qp_attr attr; /* what was set, and the state */
	struct ib_qp_cap cap;
	struct dmacard_ring sends, receives;
	struct dmacard_shared *user_sends, *user_receives; /* a program's, or NULL */
	unsigned int incoming; /* sends of other queue pairs to this one that are executed */
	bool copied; /* the engine has ended the copy */
	int error; /* of that */

	/* Used by its work only: the other end of the first send, and the receive taken there. */
	struct dmacard_qp *other; /* held, with `incoming` */
	bool has_receive;
	struct dmacard_wr receive;
	bool copying; /* also read by waiters on idle */
	struct dmacard_copy copy;
	struct dmacard_side from, to; /* while copying: used by copy_done() only */
	void *grh;
	dma_addr_t grh_dma;
};

/* Queues the work of all queue pairs. */
void dmacard_qps_run(struct dmacard_rdma *rdma);
int dmacard_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata);
int dmacard_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int dmacard_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init);
int dmacard_destroy_qp(struct ib_qp *ib, struct ib_udata *udata);
int dmacard_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int dmacard_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);

#endif
