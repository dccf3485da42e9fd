// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of dmacard (dmacard_rdma.h) for user programs: of their own memory, which is
 * pinned, and of dma-bufs, whose owner may move the memory or take it away at any time. Before it
 * does, invalidate() waits for the copies under way; the next access maps the memory again.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>

#include "dmacard_rdma.h"

#ifndef HAVE_UMEM_GET_VA
#define ib_umem_get_va ib_umem_get
#endif

/* A fault for a run that must fail: copies still go to the memory that the owner has left. */
static bool ignore_invalidation;
module_param(ignore_invalidation, bool, 0444);

/* Nothing uses the region. */
static int read_addresses(struct dmacard_mr *mr, struct ib_umem *umem)
{
	struct ib_block_iter block;

	/* Also refuses addresses whose offset in a page is another one than the memory's. */
	if (!ib_umem_find_best_pgsz(umem, PAGE_SIZE, mr->ib.iova))
		return -EINVAL;
	mr->nr_pages = 0;
	rdma_umem_for_each_dma_block(umem, &block, PAGE_SIZE) {
		if (mr->nr_pages == mr->max_pages)
			return -EINVAL;
		mr->pages[mr->nr_pages++] = rdma_block_iter_dma_address(&block);
	}
	return 0;
}

static struct ib_mr *umem_mr_new(struct ib_pd *pd, struct ib_umem *umem, u64 virt)
{
	struct ib_mr *ib = dmacard_mr_new(pd, ib_umem_num_pages(umem));

	if (IS_ERR(ib))
		return ib;
	ib->iova = virt;
	ib->length = umem->length;
	ib->page_size = PAGE_SIZE;
	dmacard_mr_of(ib)->umem = umem;
	return ib;
}

/* --- A program's own memory */
#ifdef HAVE_DMAH
struct ib_mr *dmacard_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				  struct ib_dmah *dmah, struct ib_udata *udata)
#else
struct ib_mr *dmacard_reg_user_mr(struct ib_pd *pd, u64 start, u64 len, u64 virt, int access,
				  struct ib_udata *udata)
#endif
{
	struct ib_umem *umem;
	struct ib_mr *ib;
	int err;

#ifdef HAVE_DMAH
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	if (access & IB_ACCESS_ON_DEMAND)
		return ERR_PTR(-EOPNOTSUPP);
	umem = ib_umem_get_va(pd->device, start, len, access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	ib = umem_mr_new(pd, umem, virt);
	if (IS_ERR(ib)) {
		ib_umem_release(umem);
		return ib;
	}
	err = read_addresses(dmacard_mr_of(ib), umem);
	if (!err) {
		dmacard_mr_set_mapped(dmacard_mr_of(ib), true);
		err = dmacard_mr_enable(dmacard_mr_of(ib), ib->rkey, access);
	}
	if (err) {
		dmacard_dereg_mr(ib, NULL);
		return ERR_PTR(err);
	}
	return ib;
}

/* --- dma-bufs. With the dma-buf's reservation held: */
static int map(struct dmacard_mr *mr)
{
	struct ib_umem_dmabuf *dmabuf = to_ib_umem_dmabuf(mr->umem);
	int err;

	/* Others may have mapped it before this work got the reservation. */
	if (dmabuf->sgt)
		return 0;
	err = ib_umem_dmabuf_map_pages(dmabuf) ?: read_addresses(mr, mr->umem);
	if (err)
		ib_umem_dmabuf_unmap_pages(dmabuf);
	else
		dmacard_mr_set_mapped(mr, true);
	return err;
}

static void invalidate(struct dma_buf_attachment *attach)
{
	struct ib_umem_dmabuf *dmabuf = attach->importer_priv;
	struct dmacard_mr *mr = dmabuf->private;

	if (!mr || ignore_invalidation)
		return;
	dmacard_mr_set_mapped(mr, false);
	wait_event(mr->idle, !READ_ONCE(mr->users));
	ib_umem_dmabuf_unmap_pages(dmabuf);
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
#ifdef HAVE_INVALIDATE_MAPPINGS
	.invalidate_mappings = invalidate,
#else
	.move_notify = invalidate,
#endif
};

int dmacard_mr_map(struct dmacard_mr *mr)
{
	struct dma_resv *resv = to_ib_umem_dmabuf(mr->umem)->attach->dmabuf->resv;
	int err;

	dma_resv_lock(resv, NULL);
	err = map(mr);
	dma_resv_unlock(resv);
	return err;
}

#ifdef HAVE_DMAH
struct ib_mr *dmacard_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 len, u64 virt, int fd,
					 int access, struct ib_dmah *dmah,
					 struct uverbs_attr_bundle *attrs)
#else
struct ib_mr *dmacard_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 len, u64 virt, int fd,
					 int access, struct uverbs_attr_bundle *attrs)
#endif
{
	struct ib_umem_dmabuf *dmabuf;
	struct dma_resv *resv;
	struct ib_mr *ib;
	int err;

#ifdef HAVE_DMAH
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	dmabuf = ib_umem_dmabuf_get(pd->device, offset, len, fd, access, &attach_ops);
	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	/* The core sets iova for a program's own memory only. The number of pages depends on it. */
	dmabuf->umem.iova = virt;
	ib = umem_mr_new(pd, &dmabuf->umem, virt);
	if (IS_ERR(ib)) {
		ib_umem_release(&dmabuf->umem);
		return ib;
	}
	resv = dmabuf->attach->dmabuf->resv;
	dma_resv_lock(resv, NULL);
	dmabuf->private = dmacard_mr_of(ib);
	err = map(dmacard_mr_of(ib));
	dma_resv_unlock(resv);
	if (!err)
		err = dmacard_mr_enable(dmacard_mr_of(ib), ib->rkey, access);
	if (err) {
		dmacard_dereg_mr(ib, NULL);
		return ERR_PTR(err);
	}
	return ib;
}
