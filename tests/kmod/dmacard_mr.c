// SPDX-License-Identifier: GPL-2.0
/* Memory regions of dmacard (dmacard_rdma.h). A key: a region's number and 8 bits of its owner. */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/ib_umem.h>

#include "dmacard_rdma.h"

#define KEY_BITS 8

struct ib_mr *dmacard_mr_new(struct ib_pd *pd, u32 pages)
{
	struct dmacard_rdma *rdma = dmacard_rdma_of(pd->device);
	struct dmacard_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	int err = -ENOMEM;

	if (!mr)
		return ERR_PTR(err);
	mr->rdma = rdma;
	mr->max_pages = pages;
	init_waitqueue_head(&mr->idle);
	mr->pages = kvcalloc(pages ?: 1, sizeof(*mr->pages), GFP_KERNEL);
	if (mr->pages)
		err = xa_alloc_cyclic_irq(&rdma->mrs, &mr->number, mr,
					  XA_LIMIT(1, (1U << (32 - KEY_BITS)) - 1), &rdma->next_mr,
					  GFP_KERNEL);
	if (err < 0) {
		kvfree(mr->pages);
		kfree(mr);
		return ERR_PTR(err);
	}
	mr->key = mr->number << KEY_BITS;
	mr->ib.pd = pd;
	mr->ib.device = pd->device;
	mr->ib.lkey = mr->key;
	mr->ib.rkey = mr->key;
	return &mr->ib;
}

struct ib_mr *dmacard_get_dma_mr(struct ib_pd *pd, int access)
{
	struct ib_mr *ib = dmacard_mr_new(pd, 0);

	if (IS_ERR(ib))
		return ib;
	dmacard_mr_of(ib)->all = true;
	dmacard_mr_set_mapped(dmacard_mr_of(ib), true);
	dmacard_mr_enable(dmacard_mr_of(ib), ib->rkey, access);
	return ib;
}

struct ib_mr *dmacard_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages)
{
	struct ib_mr *ib;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!pages || pages > DMACARD_PAGES)
		return ERR_PTR(-EINVAL);
	ib = dmacard_mr_new(pd, pages);
	if (!IS_ERR(ib))
		dmacard_mr_set_mapped(dmacard_mr_of(ib), true);
	return ib;
}

static int add_page(struct ib_mr *ib, u64 addr)
{
	struct dmacard_mr *mr = dmacard_mr_of(ib);

	if (mr->nr_pages == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->nr_pages++] = addr;
	return 0;
}

int dmacard_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int nr, unsigned int *offset)
{
	dmacard_mr_of(ib)->nr_pages = 0;
	return ib_sg_to_pages(ib, sg, nr, offset, add_page);
}

int dmacard_mr_enable(struct dmacard_mr *mr, u32 key, int access)
{
	unsigned long flags;
	int err = -EINVAL;

	xa_lock_irqsave(&mr->rdma->mrs, flags);
	if (!mr->valid && key >> KEY_BITS == mr->number) {
		mr->key = key;
		mr->access = access;
		mr->valid = true;
		err = 0;
	}
	xa_unlock_irqrestore(&mr->rdma->mrs, flags);
	return err;
}

/* With the lock held. */
static struct dmacard_mr *mr_find(struct dmacard_rdma *rdma, u32 key)
{
	struct dmacard_mr *mr = xa_load(&rdma->mrs, key >> KEY_BITS);

	return mr && mr->valid && mr->key == key ? mr : NULL;
}

int dmacard_mr_disable(struct ib_pd *pd, u32 key)
{
	struct dmacard_rdma *rdma = dmacard_rdma_of(pd->device);
	struct dmacard_mr *mr;
	unsigned long flags;

	xa_lock_irqsave(&rdma->mrs, flags);
	mr = mr_find(rdma, key);
	if (mr && (mr->ib.pd != pd || mr->umem))
		mr = NULL;
	if (mr) {
		mr->valid = false;
		mr->users++;
	}
	xa_unlock_irqrestore(&rdma->mrs, flags);
	if (!mr)
		return -EINVAL;
	wait_event(mr->idle, READ_ONCE(mr->users) == 1);
	dmacard_mr_put(mr);
	return 0;
}

void dmacard_mr_set_mapped(struct dmacard_mr *mr, bool mapped)
{
	unsigned long flags;

	xa_lock_irqsave(&mr->rdma->mrs, flags);
	mr->mapped = mapped;
	xa_unlock_irqrestore(&mr->rdma->mrs, flags);
}

int dmacard_mr_get(struct ib_pd *pd, u32 key, int access, struct dmacard_mr **out)
{
	struct dmacard_rdma *rdma = dmacard_rdma_of(pd->device);
	struct dmacard_mr *mr;
	unsigned long flags;
	int err = 0;

	xa_lock_irqsave(&rdma->mrs, flags);
	mr = mr_find(rdma, key);
	if (!mr || mr->ib.pd != pd || access & ~mr->access) {
		err = -EACCES;
	} else if (mr->mapped) {
		mr->users++;
	} else {
		mr->holds++;
		err = -EAGAIN;
	}
	xa_unlock_irqrestore(&rdma->mrs, flags);
	*out = mr;
	return err;
}

/* Under the lock, so that dereg_mr() frees it afterwards. */
static void drop(struct dmacard_mr *mr, unsigned int *count)
{
	struct xarray *mrs = &mr->rdma->mrs;
	unsigned long flags;

	xa_lock_irqsave(mrs, flags);
	--*count;
	wake_up_all(&mr->idle);
	xa_unlock_irqrestore(mrs, flags);
}

void dmacard_mr_put(struct dmacard_mr *mr)
{
	drop(mr, &mr->users);
}

void dmacard_mr_unhold(struct dmacard_mr *mr)
{
	drop(mr, &mr->holds);
}

int dmacard_dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	struct dmacard_mr *mr = dmacard_mr_of(ib);

	xa_erase_irq(&mr->rdma->mrs, mr->number);
	wait_event(mr->idle, !READ_ONCE(mr->users) && !READ_ONCE(mr->holds));
	xa_lock_irq(&mr->rdma->mrs);
	xa_unlock_irq(&mr->rdma->mrs);
	ib_umem_release(mr->umem);
	kvfree(mr->pages);
	kfree(mr);
	return 0;
}
