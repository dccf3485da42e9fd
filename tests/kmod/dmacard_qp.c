// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs of dmacard (dmacard_rdma.h).
 *
 * The work of a queue pair executes its sends in order, one at a time. To move bytes it submits a
 * copy to the engine; the copy's completion queues the work again. A send waits without limit for
 * a receive at the other end.
 */
#include <linux/dma-mapping.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_pack.h>

#include "dmacard_rdma.h"

#define GENERAL_SERVICE 1 /* the queue pair number */

static struct dmacard_qp *qp_of(struct ib_qp *ib)
{
	return container_of(ib, struct dmacard_qp, ib);
}

static bool is_datagram(const struct dmacard_qp *qp)
{
	return qp->ib.qp_type != IB_QPT_RC;
}

/* With the lock held. */
static bool may_receive(const struct dmacard_qp *qp)
{
	return qp->attr.qp_state == IB_QPS_RTR || qp->attr.qp_state == IB_QPS_RTS ||
	       qp->attr.qp_state == IB_QPS_SQD;
}

/* --- Looking up */
static struct dmacard_qp *qp_get(struct dmacard_rdma *rdma, u32 number)
{
	struct dmacard_qp *qp;
	unsigned long flags;

	xa_lock_irqsave(&rdma->qps, flags);
	qp = xa_load(&rdma->qps, number);
	if (qp)
		refcount_inc(&qp->users);
	xa_unlock_irqrestore(&rdma->qps, flags);
	return qp;
}

static void qp_put(struct dmacard_qp *qp)
{
	if (refcount_dec_and_test(&qp->users))
		complete(&qp->unused);
}

static void qp_run(struct dmacard_qp *qp)
{
	queue_work(qp->rdma->work, &qp->work);
}

void dmacard_qps_run(struct dmacard_rdma *rdma)
{
	struct dmacard_qp *qp;
	unsigned long number, flags;

	xa_lock_irqsave(&rdma->qps, flags);
	xa_for_each(&rdma->qps, number, qp)
		qp_run(qp);
	xa_unlock_irqrestore(&rdma->qps, flags);
}

/* Runs the other end, which may wait for a receive or a state of this queue pair. */
static void qp_run_sender(struct dmacard_qp *qp)
{
	struct dmacard_qp *sender = NULL;

	if (!is_datagram(qp))
		sender = qp_get(qp->rdma, READ_ONCE(qp->attr.dest_qp_num));
	if (!sender)
		return;
	qp_run(sender);
	qp_put(sender);
}

/* --- Rings */
static struct dmacard_wr *ring_next(struct dmacard_ring *ring)
{
	if (ring->count == ring->size)
		return NULL;
	return &ring->wrs[(ring->first + ring->count++) % ring->size];
}

/* The next place, for a request with so many SGEs. */
static struct dmacard_wr *ring_post(struct dmacard_ring *ring, int nr_sges, u32 max_sges)
{
	if (nr_sges > max_sges)
		return ERR_PTR(-EINVAL);
	return ring_next(ring) ?: ERR_PTR(-ENOMEM);
}

static struct dmacard_wr *ring_first(struct dmacard_ring *ring)
{
	return ring->count ? &ring->wrs[ring->first] : NULL;
}

static void ring_drop(struct dmacard_ring *ring)
{
	ring->first = (ring->first + 1) % ring->size;
	ring->count--;
}

/* Only the work drops it, and a reset, which waits for the work. */
static const struct dmacard_wr *first_send(struct dmacard_qp *qp)
{
	const struct dmacard_wr *wr;
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	wr = ring_first(&qp->sends);
	spin_unlock_irqrestore(&qp->lock, flags);
	return wr;
}

static int ring_new(struct dmacard_ring *ring, u32 size)
{
	ring->size = max(size, 1U);
	ring->wrs = kvcalloc(ring->size, sizeof(*ring->wrs), GFP_KERNEL);
	return ring->wrs ? 0 : -ENOMEM;
}

/* --- What programs post. With the lock held: */
static int sges_from_user(struct dmacard_wr *to, const struct rxe_dma_info *dma, u32 max)
{
	const u32 nr = READ_ONCE(dma->num_sge);
	u32 i;

	to->nr_sges = 0;
	if (nr > max)
		return -EINVAL;
	for (i = 0; i < nr; i++)
		to->sges[i] = (struct ib_sge){
			.addr = READ_ONCE(dma->sge[i].addr),
			.length = READ_ONCE(dma->sge[i].length),
			.lkey = READ_ONCE(dma->sge[i].lkey),
		};
	to->nr_sges = nr;
	return 0;
}

/* Others, as REG_MR with its kernel address, are the kernel's. */
static bool is_for_users(u32 opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM ||
	       opcode == IB_WR_RDMA_WRITE || opcode == IB_WR_RDMA_WRITE_WITH_IMM ||
	       opcode == IB_WR_RDMA_READ;
}

static void take_posted_sends(struct dmacard_qp *qp)
{
	const struct rxe_send_wqe *wqe;
	struct dmacard_wr *wr;
	u32 opcode;

	while (qp->user_sends && (wqe = dmacard_shared_next(qp->user_sends)) &&
	       (wr = ring_next(&qp->sends))) {
		opcode = READ_ONCE(wqe->wr.opcode);
		wr->wr_id = READ_ONCE(wqe->wr.wr_id);
		wr->flags = READ_ONCE(wqe->wr.send_flags);
		wr->ex.imm_data = READ_ONCE(wqe->wr.ex.imm_data);
		wr->remote = READ_ONCE(wqe->wr.wr.rdma.remote_addr);
		wr->rkey = READ_ONCE(wqe->wr.wr.rdma.rkey);
		if (sges_from_user(wr, &wqe->dma, qp->cap.max_send_sge) || !is_for_users(opcode) ||
		    wr->flags & IB_SEND_INLINE)
			opcode = IB_WR_MASKED_ATOMIC_CMP_AND_SWP; /* which is refused */
		wr->opcode = opcode;
		dmacard_shared_taken(qp->user_sends);
	}
}

static void take_posted_receives(struct dmacard_qp *qp)
{
	const struct rxe_recv_wqe *wqe;
	struct dmacard_wr *wr;

	while (qp->user_receives && (wqe = dmacard_shared_next(qp->user_receives)) &&
	       (wr = ring_next(&qp->receives))) {
		wr->wr_id = READ_ONCE(wqe->wr_id);
		/* One that is no request has no room. */
		sges_from_user(wr, &wqe->dma, qp->cap.max_recv_sge);
		dmacard_shared_taken(qp->user_receives);
	}
}

/* --- Ends of work requests, by the work of the sender */
static void qp_fail(struct dmacard_qp *qp)
{
	unsigned long flags;

	/* A datagram that fails is lost. */
	if (is_datagram(qp))
		return;
	spin_lock_irqsave(&qp->lock, flags);
	if (may_receive(qp))
		qp->attr.qp_state = IB_QPS_ERR;
	spin_unlock_irqrestore(&qp->lock, flags);
	qp_run(qp);
	qp_run_sender(qp);
}

static enum ib_wc_opcode sent_as(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case IB_WR_REG_MR:
		return IB_WC_REG_MR;
	default:
		return IB_WC_SEND;
	}
}

/* Completes the first send. */
static void send_end(struct dmacard_qp *qp, enum ib_wc_status status, u32 bytes)
{
	const struct dmacard_wr *wr = first_send(qp);
	const struct ib_wc wc = {
		.wr_id = wr->wr_id,
		.status = status,
		.opcode = sent_as(wr->opcode),
		.qp = &qp->ib,
		.byte_len = bytes,
	};
	const bool says = status || qp->all_signaled || (wr->flags & IB_SEND_SIGNALED);
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	ring_drop(&qp->sends);
	spin_unlock_irqrestore(&qp->lock, flags);
	if (says)
		dmacard_cq_add(qp->ib.send_cq, &wc, false);
	if (status && status != IB_WC_WR_FLUSH_ERR)
		qp_fail(qp);
}

/* Completes the receive that the first send took. Returns the status. */
static enum ib_wc_status receive_end(struct dmacard_qp *qp, enum ib_wc_status status, u32 bytes)
{
	const struct dmacard_wr *send = first_send(qp);
	struct dmacard_qp *to = qp->other;
	struct ib_wc wc = {
		.wr_id = qp->receive.wr_id,
		.status = status,
		.opcode = IB_WC_RECV,
		.qp = &to->ib,
		.byte_len = bytes,
		.src_qp = qp->ib.qp_num,
		.port_num = DMACARD_PORT,
	};

	switch (send->opcode) {
	case IB_WR_RDMA_WRITE_WITH_IMM:
		wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
		fallthrough;
	case IB_WR_SEND_WITH_IMM:
		wc.wc_flags |= IB_WC_WITH_IMM;
		wc.ex.imm_data = send->ex.imm_data;
		break;
	case IB_WR_SEND_WITH_INV:
		if (!status && dmacard_mr_disable(to->ib.pd, send->ex.invalidate_rkey))
			wc.status = IB_WC_LOC_ACCESS_ERR;
		wc.wc_flags |= IB_WC_WITH_INVALIDATE;
		wc.ex.invalidate_rkey = send->ex.invalidate_rkey;
		break;
	default:
		break;
	}
	if (is_datagram(to)) {
		wc.wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
		wc.network_hdr_type = ipv6_addr_v4mapped((const struct in6_addr *)&send->from) ?
					      RDMA_NETWORK_IPV4 :
					      RDMA_NETWORK_IPV6;
	}
	dmacard_cq_add(to->ib.recv_cq, &wc, send->flags & IB_SEND_SOLICITED);
	if (wc.status)
		qp_fail(to);
	qp->has_receive = false;
	return wc.status;
}

/* The first send accesses no memory of the other end any more, and has completed there. */
static void leave(struct dmacard_qp *qp)
{
	struct dmacard_qp *other = qp->other;
	unsigned long flags;
	bool is_drained;

	if (!other)
		return;
	qp->other = NULL;
	spin_lock_irqsave(&other->lock, flags);
	is_drained = !--other->incoming && other->attr.qp_state == IB_QPS_ERR;
	spin_unlock_irqrestore(&other->lock, flags);
	wake_up_all(&other->idle);
	if (is_drained)
		qp_run(other);
	qp_put(other);
}

/* In the error state all posted requests are flushed. */
static void qp_flush(struct dmacard_qp *qp)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .opcode = IB_WC_RECV, .qp = &qp->ib };
	const struct dmacard_wr *wr;
	unsigned long flags;

	while (first_send(qp))
		send_end(qp, IB_WC_WR_FLUSH_ERR, 0);
	for (;;) {
		/* Other queue pairs' works take receives too. */
		spin_lock_irqsave(&qp->lock, flags);
		/* A program may post one after the other, while it destroys the queue pair too. */
		take_posted_receives(qp);
		wr = qp->attr.qp_state == IB_QPS_ERR ? ring_first(&qp->receives) : NULL;
		if (wr) {
			wc.wr_id = wr->wr_id;
			ring_drop(&qp->receives);
		}
		spin_unlock_irqrestore(&qp->lock, flags);
		if (!wr)
			return;
		dmacard_cq_add(qp->ib.recv_cq, &wc, false);
		cond_resched();
	}
}

/* --- Copies */
static void copy_done(struct dmacard_copy *copy, int error)
{
	struct dmacard_qp *qp = container_of(copy, struct dmacard_qp, copy);
	unsigned long flags;

	/*
	 * Before the completions: their receivers may deregister the memory. Not by the work: one
	 * that waits for a region's users may be in its way.
	 */
	dmacard_side_clear(&qp->from);
	dmacard_side_clear(&qp->to);
	/* Under the lock: once the work sees it, destroy_qp() may free the queue pair. */
	spin_lock_irqsave(&qp->lock, flags);
	qp->error = error;
	qp->copied = true;
	qp_run(qp);
	spin_unlock_irqrestore(&qp->lock, flags);
}

static void copy_end(struct dmacard_qp *qp)
{
	const u32 bytes = qp->copy.bytes;
	const int error = qp->error;
	enum ib_wc_status status;

	WRITE_ONCE(qp->copying, false);
	wake_up_all(&qp->idle);
	status = error ? IB_WC_REM_OP_ERR : IB_WC_SUCCESS;
	if (qp->has_receive && receive_end(qp, error ? IB_WC_LOC_PROT_ERR : IB_WC_SUCCESS, bytes))
		status = IB_WC_REM_OP_ERR;
	leave(qp);
	send_end(qp, status, bytes);
}

/* Copies all bytes of `from` to the begin of `to`. */
static void copy_begin(struct dmacard_qp *qp)
{
	qp->error = 0;
	qp->copied = false;
	qp->copy = (struct dmacard_copy){
		.from = qp->from.pieces,
		.to = qp->to.pieces,
		.bytes = qp->from.bytes,
		.done = copy_done,
	};
	WRITE_ONCE(qp->copying, true);
	if (qp->copy.bytes)
		dmacard_engine_submit(qp->rdma->engine, &qp->copy);
	else
		copy_done(&qp->copy, 0);
}

/* Completes a send that cannot be executed, and the receive that it took. */
static bool refuse(struct dmacard_qp *qp, enum ib_wc_status status, enum ib_wc_status at_receiver)
{
	dmacard_side_clear(&qp->from);
	dmacard_side_clear(&qp->to);
	if (qp->has_receive)
		receive_end(qp, at_receiver, 0);
	leave(qp);
	send_end(qp, status, 0);
	return true;
}

/* --- The other end */
/* Enters the queue pair with this number, until leave(). False: it cannot be reached. */
static bool enter(struct dmacard_qp *qp, u32 number)
{
	struct dmacard_qp *other = dmacard_link_is_up(qp->rdma) ? qp_get(qp->rdma, number) : NULL;
	unsigned long flags;
	bool may;

	if (!other)
		return false;
	spin_lock_irqsave(&other->lock, flags);
	may = may_receive(other) && is_datagram(other) == is_datagram(qp) &&
	      (is_datagram(qp) || other->attr.dest_qp_num == qp->ib.qp_num);
	other->incoming += may;
	spin_unlock_irqrestore(&other->lock, flags);
	if (may)
		qp->other = other;
	else
		qp_put(other);
	return may;
}

/* Takes the other end's next receive. False: none is posted, or its state does not allow it. */
static bool take_receive(struct dmacard_qp *qp)
{
	struct dmacard_qp *other = qp->other;
	const struct dmacard_wr *wr;
	unsigned long flags;

	spin_lock_irqsave(&other->lock, flags);
	take_posted_receives(other);
	wr = may_receive(other) ? ring_first(&other->receives) : NULL;
	if (wr) {
		qp->receive = *wr;
		ring_drop(&other->receives);
	}
	spin_unlock_irqrestore(&other->lock, flags);
	qp->has_receive = wr;
	if (!wr && other->user_receives)
		mod_timer(&qp->poll, jiffies + 1);
	return wr;
}

/*
 * Whether to prepare both sides again, as the one region that was not mapped now is. Both are
 * empty then, and also if it cannot be mapped, which is an error of its side.
 */
static bool map_moved(struct dmacard_qp *qp, const struct dmacard_side *here, int *local,
		      int *remote)
{
	struct dmacard_side *side = qp->from.moved ? &qp->from : &qp->to;
	struct dmacard_mr *mr = side->moved;
	int err;

	if (!mr)
		return false;
	side->moved = NULL;
	dmacard_side_clear(&qp->from);
	dmacard_side_clear(&qp->to);
	err = dmacard_mr_map(mr);
	dmacard_mr_unhold(mr);
	*local = err && side == here ? -EACCES : 0;
	*remote = err && side != here ? -EACCES : 0;
	return !err;
}

/*
 * local, remote: errors of preparing the two sides. has_room: the other end has chosen its memory,
 * by a receive.
 */
static bool copy_or_refuse(struct dmacard_qp *qp, int local, int remote, bool has_room)
{
	if (local == -ENOMEM || remote == -ENOMEM)
		return refuse(qp, IB_WC_GENERAL_ERR, IB_WC_GENERAL_ERR);
	if (local == -EMSGSIZE || remote == -EMSGSIZE)
		return refuse(qp, IB_WC_LOC_LEN_ERR, IB_WC_LOC_LEN_ERR);
	if (local)
		return refuse(qp, IB_WC_LOC_PROT_ERR, IB_WC_WR_FLUSH_ERR);
	if (remote)
		return refuse(qp, has_room ? IB_WC_REM_OP_ERR : IB_WC_REM_ACCESS_ERR,
			      IB_WC_LOC_PROT_ERR);
	if (qp->from.bytes > qp->to.bytes)
		return refuse(qp, IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_LEN_ERR);
	copy_begin(qp);
	return true;
}

static bool send(struct dmacard_qp *qp, const struct dmacard_wr *wr)
{
	int local, remote;

	if (!enter(qp, READ_ONCE(qp->attr.dest_qp_num)))
		return refuse(qp, IB_WC_RETRY_EXC_ERR, 0);
	if (!take_receive(qp)) {
		leave(qp);
		return false;
	}
	do {
		local = dmacard_side_add_sges(&qp->from, qp->ib.pd, wr, 0);
		remote = dmacard_side_add_sges(&qp->to, qp->other->ib.pd, &qp->receive,
					       IB_ACCESS_LOCAL_WRITE);
	} while (map_moved(qp, &qp->from, &local, &remote));
	return copy_or_refuse(qp, local, remote, true);
}

static bool write_or_read(struct dmacard_qp *qp, const struct dmacard_wr *wr)
{
	const bool reads = wr->opcode == IB_WR_RDMA_READ;
	const int to_remote = reads ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;
	struct dmacard_side *here = reads ? &qp->to : &qp->from;
	struct dmacard_side *there = reads ? &qp->from : &qp->to;
	int local, remote;

	if (!enter(qp, READ_ONCE(qp->attr.dest_qp_num)))
		return refuse(qp, IB_WC_RETRY_EXC_ERR, 0);
	if (wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM && !take_receive(qp)) {
		leave(qp);
		return false;
	}
	do {
		local = dmacard_side_add_sges(here, qp->ib.pd, wr,
					      reads ? IB_ACCESS_LOCAL_WRITE : 0);
		remote = READ_ONCE(qp->other->attr.qp_access_flags) & to_remote ?
				 dmacard_side_add_key(there, qp->other->ib.pd, wr->remote,
						      here->bytes, wr->rkey, to_remote) :
				 -EACCES;
	} while (map_moved(qp, here, &local, &remote));
	return copy_or_refuse(qp, local, remote, false);
}

/* The 40 bytes in front of a datagram: an IPv6 header, or 20 unused bytes and an IPv4 header. */
static void write_grh(struct dmacard_qp *qp, const struct dmacard_wr *wr, u32 bytes)
{
	const struct in6_addr *from = (const void *)&wr->from, *to = (const void *)&wr->to;
	struct ipv6hdr *v6 = qp->grh;
	struct iphdr *v4 = qp->grh + DMACARD_GRH - sizeof(*v4);

	memset(qp->grh, 0, DMACARD_GRH);
	if (!ipv6_addr_v4mapped(from)) {
		*v6 = (struct ipv6hdr){
			.version = 6,
			.payload_len = cpu_to_be16(bytes),
			.nexthdr = IPPROTO_UDP,
			.hop_limit = 64,
			.saddr = *from,
			.daddr = *to,
		};
		return;
	}
	*v4 = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = cpu_to_be16(bytes + sizeof(*v4)),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = from->s6_addr32[3],
		.daddr = to->s6_addr32[3],
	};
	ip_send_check(v4);
}

/* A datagram without a receiver is dropped. */
static bool send_datagram(struct dmacard_qp *qp, const struct dmacard_wr *wr)
{
	const struct ib_gid_attr *gid =
		rdma_find_gid(&qp->rdma->ib, &wr->to, IB_GID_TYPE_ROCE_UDP_ENCAP, NULL);
	const bool is_here = !IS_ERR(gid);
	int local, remote;

	if (is_here)
		rdma_put_gid_attr(gid);
	if (!is_here || !enter(qp, wr->qpn) || !take_receive(qp)) {
		leave(qp);
		send_end(qp, IB_WC_SUCCESS, 0);
		return true;
	}
	local = dmacard_side_add(&qp->from, qp->grh_dma, DMACARD_GRH) ?:
			dmacard_side_add_sges(&qp->from, qp->ib.pd, wr, 0);
	remote = dmacard_side_add_sges(&qp->to, qp->other->ib.pd, &qp->receive,
				       IB_ACCESS_LOCAL_WRITE);
	write_grh(qp, wr, qp->from.bytes - DMACARD_GRH);
	return copy_or_refuse(qp, local, remote, true);
}

/* --- The work */
/* Returns whether there may be more to do. */
static bool execute(struct dmacard_qp *qp, const struct dmacard_wr *wr)
{
	int err;

	switch (wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
		return is_datagram(qp) ? send_datagram(qp, wr) : send(qp, wr);
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		return write_or_read(qp, wr);
	case IB_WR_REG_MR:
		err = dmacard_mr_enable(wr->mr, wr->key, wr->access);
		break;
	case IB_WR_LOCAL_INV:
		err = dmacard_mr_disable(qp->ib.pd, wr->ex.invalidate_rkey);
		break;
	default:
		err = -EOPNOTSUPP;
	}
	send_end(qp, err ? IB_WC_LOC_QP_OP_ERR : IB_WC_SUCCESS, 0);
	return true;
}

static bool qp_step(struct dmacard_qp *qp)
{
	const struct dmacard_wr *wr;
	enum ib_qp_state state;
	unsigned int incoming;
	unsigned long flags;
	bool copied;

	spin_lock_irqsave(&qp->lock, flags);
	state = qp->attr.qp_state;
	if (state == IB_QPS_RTS || state == IB_QPS_ERR)
		take_posted_sends(qp);
	wr = ring_first(&qp->sends);
	copied = qp->copied;
	incoming = qp->incoming;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (qp->copying) {
		if (copied)
			copy_end(qp);
		return copied;
	}
	if (state == IB_QPS_ERR) {
		/* Drained: its memory is not accessed after the last completion. */
		if (!incoming)
			qp_flush(qp);
		/* A program may have posted more than the ring has room for. */
		return !incoming && wr;
	}
	return wr && state == IB_QPS_RTS && execute(qp, wr);
}

static void qp_poll(struct timer_list *timer)
{
	qp_run(container_of(timer, struct dmacard_qp, poll));
}

static void qp_work(struct work_struct *work)
{
	struct dmacard_qp *qp = container_of(work, struct dmacard_qp, work);

	while (qp_step(qp))
		cond_resched();
}

/* --- Posting */
static void wr_from(struct dmacard_wr *to, const struct ib_send_wr *wr, const struct dmacard_qp *qp)
{
	const struct dmacard_ah *ah;

	to->wr_id = wr->wr_id;
	to->opcode = wr->opcode;
	to->flags = wr->send_flags;
	to->ex.invalidate_rkey = wr->ex.invalidate_rkey;
	to->nr_sges = 0;
	switch (wr->opcode) {
	case IB_WR_REG_MR:
		to->mr = container_of(reg_wr(wr)->mr, struct dmacard_mr, ib);
		to->key = reg_wr(wr)->key;
		to->access = reg_wr(wr)->access;
		return;
	case IB_WR_LOCAL_INV:
		return;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		to->remote = rdma_wr(wr)->remote_addr;
		to->rkey = rdma_wr(wr)->rkey;
		break;
	default:
		if (!is_datagram(qp))
			break;
		ah = container_of(ud_wr(wr)->ah, struct dmacard_ah, ib);
		to->from = ah->from;
		to->to = ah->to;
		to->qpn = ud_wr(wr)->remote_qpn;
	}
	to->nr_sges = wr->num_sge;
	memcpy(to->sges, wr->sg_list, wr->num_sge * sizeof(*to->sges));
}

int dmacard_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct dmacard_qp *qp = qp_of(ib);
	struct dmacard_wr *next;
	unsigned long flags;
	int err = 0;

	/* Programs post to their queue, and call without a request then. */
	if (wr && qp->user_sends) {
		*bad = wr;
		return -EOPNOTSUPP;
	}
	spin_lock_irqsave(&qp->lock, flags);
	for (; wr && !err; wr = err ? wr : wr->next) {
		next = qp->attr.qp_state < IB_QPS_RTS ?
			       ERR_PTR(-EINVAL) :
			       ring_post(&qp->sends, wr->num_sge, qp->cap.max_send_sge);
		err = PTR_ERR_OR_ZERO(next);
		if (!err)
			wr_from(next, wr, qp);
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (err)
		*bad = wr;
	qp_run(qp);
	return err;
}

int dmacard_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct dmacard_qp *qp = qp_of(ib);
	struct dmacard_wr *next;
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&qp->lock, flags);
	for (; wr && !err; wr = err ? wr : wr->next) {
		next = ring_post(&qp->receives, wr->num_sge, qp->cap.max_recv_sge);
		err = PTR_ERR_OR_ZERO(next);
		if (err)
			continue;
		next->wr_id = wr->wr_id;
		next->nr_sges = wr->num_sge;
		memcpy(next->sges, wr->sg_list, wr->num_sge * sizeof(*next->sges));
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (err)
		*bad = wr;
	/* Flushes it in the error state. */
	qp_run(qp);
	qp_run_sender(qp);
	return err;
}

/* --- Objects */
static int number(struct dmacard_qp *qp)
{
	if (qp->ib.qp_type == IB_QPT_GSI) {
		qp->ib.qp_num = GENERAL_SERVICE;
		return xa_insert_irq(&qp->rdma->qps, GENERAL_SERVICE, qp, GFP_KERNEL);
	}
	return xa_alloc_cyclic_irq(&qp->rdma->qps, &qp->ib.qp_num, qp, XA_LIMIT(2, (1U << 24) - 1),
				   &qp->rdma->next_qp, GFP_KERNEL);
}

static void qp_free(struct dmacard_qp *qp)
{
	dmacard_shared_end(qp->user_sends);
	dmacard_shared_end(qp->user_receives);
	kvfree(qp->sends.wrs);
	kvfree(qp->receives.wrs);
	kvfree(qp->from.pieces);
	kvfree(qp->to.pieces);
	if (qp->grh)
		dma_free_coherent(qp->rdma->ib.dma_device, DMACARD_GRH, qp->grh, qp->grh_dma);
}

/* The queues that a program posts to. */
static int share_queues(struct dmacard_qp *qp, struct ib_udata *udata)
{
	struct rxe_create_qp_resp resp = {};
	struct dmacard_shared *shared;

	if (qp->ib.qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (udata->outlen < sizeof(resp))
		return -EINVAL;
	shared = dmacard_shared_new(udata, qp->sends.size,
				    sizeof(struct rxe_send_wqe) +
					    qp->cap.max_send_sge * sizeof(struct rxe_sge),
				    &resp.sq_mi);
	if (IS_ERR(shared))
		return PTR_ERR(shared);
	qp->user_sends = shared;
	shared = dmacard_shared_new(udata, qp->receives.size,
				    sizeof(struct rxe_recv_wqe) +
					    qp->cap.max_recv_sge * sizeof(struct rxe_sge),
				    &resp.rq_mi);
	if (IS_ERR(shared))
		return PTR_ERR(shared);
	qp->user_receives = shared;
	return ib_copy_to_udata(udata, &resp, sizeof(resp));
}

int dmacard_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct dmacard_qp *qp = qp_of(ib);
	int err;

	if (init->srq || (init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_UD &&
			  init->qp_type != IB_QPT_GSI))
		return -EOPNOTSUPP;
	if (init->cap.max_send_sge > DMACARD_SGES || init->cap.max_recv_sge > DMACARD_SGES ||
	    init->cap.max_send_wr > ib->device->attrs.max_qp_wr ||
	    init->cap.max_recv_wr > ib->device->attrs.max_qp_wr || init->cap.max_inline_data)
		return -EINVAL;
	qp->rdma = dmacard_rdma_of(ib->device);
	qp->all_signaled = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = init->cap;
	refcount_set(&qp->users, 1);
	init_completion(&qp->unused);
	init_waitqueue_head(&qp->idle);
	mutex_init(&qp->modifies);
	spin_lock_init(&qp->lock);
	INIT_WORK(&qp->work, qp_work);
	timer_setup(&qp->poll, qp_poll, 0);
	err = ring_new(&qp->sends, init->cap.max_send_wr) ?:
		      ring_new(&qp->receives, init->cap.max_recv_wr);
	if (!err && udata)
		err = share_queues(qp, udata);
	if (!err && init->qp_type != IB_QPT_RC) {
		qp->grh = dma_alloc_coherent(qp->rdma->ib.dma_device, DMACARD_GRH, &qp->grh_dma,
					     GFP_KERNEL);
		err = qp->grh ? 0 : -ENOMEM;
	}
	if (!err)
		err = number(qp);
	if (err < 0)
		qp_free(qp);
	return min(err, 0);
}

/* In a state in which the work begins no send: waits until none is executed, from it or to it. */
static void qp_stop(struct dmacard_qp *qp)
{
	flush_work(&qp->work);
	wait_event(qp->idle, !READ_ONCE(qp->copying) && !READ_ONCE(qp->incoming));
	flush_work(&qp->work);
}

static int qp_modify(struct dmacard_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state now, next;
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	now = qp->attr.qp_state;
	next = mask & IB_QP_STATE ? attr->qp_state : now;
	if (!ib_modify_qp_is_ok(now, next, qp->ib.qp_type, mask)) {
		spin_unlock_irqrestore(&qp->lock, flags);
		return -EINVAL;
	}
	if (mask & IB_QP_DEST_QPN)
		WRITE_ONCE(qp->attr.dest_qp_num, attr->dest_qp_num);
	if (mask & IB_QP_ACCESS_FLAGS)
		WRITE_ONCE(qp->attr.qp_access_flags, attr->qp_access_flags);
	if (mask & IB_QP_PATH_MTU)
		qp->attr.path_mtu = attr->path_mtu;
	qp->attr.qp_state = next;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (next == IB_QPS_RESET && now != next) {
		qp_stop(qp);
		spin_lock_irqsave(&qp->lock, flags);
		qp->sends.count = 0;
		qp->receives.count = 0;
		if (qp->user_sends) {
			dmacard_shared_take_all(qp->user_sends);
			dmacard_shared_take_all(qp->user_receives);
		}
		spin_unlock_irqrestore(&qp->lock, flags);
	}
	return 0;
}

int dmacard_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct dmacard_qp *qp = qp_of(ib);
	int err;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	mutex_lock(&qp->modifies);
	err = qp_modify(qp, attr, mask);
	mutex_unlock(&qp->modifies);
	if (err)
		return err;
	qp_run(qp);
	qp_run_sender(qp);
	return 0;
}

int dmacard_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init)
{
	struct dmacard_qp *qp = qp_of(ib);
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	*attr = qp->attr;
	spin_unlock_irqrestore(&qp->lock, flags);
	attr->cur_qp_state = attr->qp_state;
	attr->port_num = DMACARD_PORT;
	attr->cap = qp->cap;
	init->cap = qp->cap;
	init->qp_type = ib->qp_type;
	init->send_cq = ib->send_cq;
	init->recv_cq = ib->recv_cq;
	init->qp_context = ib->qp_context;
	init->event_handler = ib->event_handler;
	init->sq_sig_type = qp->all_signaled ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	return 0;
}

int dmacard_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct dmacard_qp *qp = qp_of(ib);
	unsigned long flags;

	/* From here on no lookup finds it. */
	xa_erase_irq(&qp->rdma->qps, ib->qp_num);
	spin_lock_irqsave(&qp->lock, flags);
	qp->attr.qp_state = IB_QPS_RESET;
	spin_unlock_irqrestore(&qp->lock, flags);
	qp_run_sender(qp);
	qp_stop(qp);
	timer_delete_sync(&qp->poll);
	qp_put(qp);
	wait_for_completion(&qp->unused);
	cancel_work_sync(&qp->work);
	qp_free(qp);
	return 0;
}
