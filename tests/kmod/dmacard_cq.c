// SPDX-License-Identifier: GPL-2.0
/* Completion queues of dmacard (dmacard_rdma.h). */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "dmacard_rdma.h"

#define SPARE 8 /* times the entries that were asked for */

static struct dmacard_cq *cq_of(struct ib_cq *ib)
{
	return container_of(ib, struct dmacard_cq, ib);
}

int dmacard_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		      struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct rxe_create_cq_resp resp = {};
	struct dmacard_cq *cq = cq_of(ib);

	if (!attr->cqe || attr->cqe > ib->device->attrs.max_cqe)
		return -EINVAL;
	spin_lock_init(&cq->lock);
	/* Flushed sends complete too if they are not signaled, which clients do not count. */
	cq->size = SPARE * attr->cqe;
	ib->cqe = attr->cqe;
	if (!udata) {
		cq->wcs = kvcalloc(cq->size, sizeof(*cq->wcs), GFP_KERNEL);
		return cq->wcs ? 0 : -ENOMEM;
	}
	if (udata->outlen < sizeof(resp))
		return -EINVAL;
	cq->shared = dmacard_shared_new(udata, cq->size, sizeof(struct ib_uverbs_wc), &resp.mi);
	if (IS_ERR(cq->shared))
		return PTR_ERR(cq->shared);
	if (ib_copy_to_udata(udata, &resp, sizeof(resp))) {
		dmacard_shared_end(cq->shared);
		return -EFAULT;
	}
	return 0;
}

int dmacard_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	dmacard_shared_end(cq_of(ib)->shared);
	kvfree(cq_of(ib)->wcs);
	return 0;
}

/* With the lock held. Whether there is room: a program may have taken none of those before. */
static bool add_shared(struct dmacard_shared *shared, const struct ib_wc *wc)
{
	struct ib_uverbs_wc *to = dmacard_shared_room(shared);

	if (!to)
		return false;
	*to = (struct ib_uverbs_wc){
		.wr_id = wc->wr_id,
		.status = wc->status,
		.opcode = wc->opcode,
		.byte_len = wc->byte_len,
		.ex.imm_data = wc->ex.imm_data,
		.qp_num = wc->qp->qp_num,
		.src_qp = wc->src_qp,
		.wc_flags = wc->wc_flags,
		.port_num = wc->port_num,
	};
	dmacard_shared_added(shared);
	return true;
}

/* With the lock held. */
static bool add(struct dmacard_cq *cq, const struct ib_wc *wc)
{
	if (cq->shared)
		return add_shared(cq->shared, wc);
	if (WARN_ON_ONCE(cq->count == cq->size))
		return false;
	cq->wcs[(cq->first + cq->count++) % cq->size] = *wc;
	return true;
}

static void report_lost(struct ib_cq *ib)
{
	struct ib_event event = {
		.device = ib->device,
		.element.cq = ib,
		.event = IB_EVENT_CQ_ERR,
	};

	if (ib->event_handler)
		ib->event_handler(&event, ib->cq_context);
}

void dmacard_cq_add(struct ib_cq *ib, const struct ib_wc *wc, bool solicited)
{
	struct dmacard_cq *cq = cq_of(ib);
	bool reports = false, notifies = false;
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (add(cq, wc)) {
		notifies = cq->armed && (solicited || wc->status || !cq->solicited_only);
		if (notifies)
			cq->armed = false;
	} else {
		reports = !cq->overrun;
		cq->overrun = true;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	if (reports)
		report_lost(ib);
	if (!notifies)
		return;
	/* A softirq that the handler raises runs at local_bh_enable(). */
	local_bh_disable();
	ib->comp_handler(ib, ib->cq_context);
	local_bh_enable();
}

int dmacard_poll_cq(struct ib_cq *ib, int nr, struct ib_wc *wc)
{
	struct dmacard_cq *cq = cq_of(ib);
	unsigned long flags;
	int i;

	spin_lock_irqsave(&cq->lock, flags);
	for (i = 0; i < nr && cq->count; i++) {
		wc[i] = cq->wcs[cq->first];
		cq->first = (cq->first + 1) % cq->size;
		cq->count--;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return i;
}

int dmacard_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct dmacard_cq *cq = cq_of(ib);
	unsigned long irq;
	bool missed;

	spin_lock_irqsave(&cq->lock, irq);
	/* A request for the next completion stays one. */
	cq->solicited_only = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED &&
			     (!cq->armed || cq->solicited_only);
	cq->armed = true;
	missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->count;
	spin_unlock_irqrestore(&cq->lock, irq);
	return missed;
}
