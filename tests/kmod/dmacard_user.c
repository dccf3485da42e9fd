// SPDX-License-Identifier: GPL-2.0
/*
 * What user programs share with dmacard (dmacard_rdma.h): contexts, and the queues that librxe maps
 * (rdma/rdma_user_rxe.h). A queue is a ring of elements; one side adds, the other one takes. A
 * program may write anything to it: indices are masked, and an element is copied before it is read.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/uverbs_ioctl.h>

#include "dmacard_rdma.h"

static struct dmacard_shared *shared_of(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct dmacard_shared, entry);
}

struct dmacard_shared *dmacard_shared_new(struct ib_udata *udata, u32 elements, size_t size,
					  struct mminfo *out)
{
	struct dmacard_context *context =
		rdma_udata_to_drv_context(udata, struct dmacard_context, ib);
	struct dmacard_shared *shared = kzalloc(sizeof(*shared), GFP_KERNEL);
	const u32 nr = roundup_pow_of_two(elements + 1); /* a full ring has one left */
	const u32 shift = ilog2(roundup_pow_of_two(size));
	const size_t bytes = PAGE_ALIGN(sizeof(*shared->buf) + ((size_t)nr << shift));
	int err = -ENOMEM;

	if (!shared)
		return ERR_PTR(err);
	shared->mask = nr - 1;
	shared->shift = shift;
	shared->buf = vmalloc_user(bytes);
	if (shared->buf) {
		shared->buf->log2_elem_size = shift;
		shared->buf->index_mask = shared->mask;
		err = rdma_user_mmap_entry_insert(&context->ib, &shared->entry, bytes);
	}
	if (err) {
		vfree(shared->buf);
		kfree(shared);
		return ERR_PTR(err);
	}
	out->offset = rdma_user_mmap_get_offset(&shared->entry);
	out->size = bytes;
	return shared;
}

void dmacard_shared_end(struct dmacard_shared *shared)
{
	if (shared)
		rdma_user_mmap_entry_remove(&shared->entry);
}

static void *element(const struct dmacard_shared *shared)
{
	return shared->buf->data + ((size_t)shared->mine << shared->shift);
}

const void *dmacard_shared_next(const struct dmacard_shared *shared)
{
	/* Pairs with the program's release of what it has added. */
	const u32 theirs = smp_load_acquire(&shared->buf->producer_index) & shared->mask;

	return theirs == shared->mine ? NULL : element(shared);
}

void dmacard_shared_taken(struct dmacard_shared *shared)
{
	shared->mine = (shared->mine + 1) & shared->mask;
	/* The element was read: the program may write the next one there. */
	smp_store_release(&shared->buf->consumer_index, shared->mine);
}

void dmacard_shared_take_all(struct dmacard_shared *shared)
{
	/* As the two above. */
	shared->mine = smp_load_acquire(&shared->buf->producer_index) & shared->mask;
	/* As above. */
	smp_store_release(&shared->buf->consumer_index, shared->mine);
}

void *dmacard_shared_room(const struct dmacard_shared *shared)
{
	/* Pairs with the program's release of what it has taken. */
	const u32 theirs = smp_load_acquire(&shared->buf->consumer_index) & shared->mask;

	return ((shared->mine + 1) & shared->mask) == theirs ? NULL : element(shared);
}

void dmacard_shared_added(struct dmacard_shared *shared)
{
	shared->mine = (shared->mine + 1) & shared->mask;
	/* The element before its index. */
	smp_store_release(&shared->buf->producer_index, shared->mine);
}

int dmacard_mmap(struct ib_ucontext *ib, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(ib, vma);
	int err;

	if (!entry)
		return -EINVAL;
	err = remap_vmalloc_range(vma, shared_of(entry)->buf, 0);
	rdma_user_mmap_entry_put(entry);
	return err;
}

void dmacard_mmap_free(struct rdma_user_mmap_entry *entry)
{
	vfree(shared_of(entry)->buf);
	kfree(shared_of(entry));
}

int dmacard_alloc_context(struct ib_ucontext *ib, struct ib_udata *udata)
{
	return 0;
}

void dmacard_dealloc_context(struct ib_ucontext *ib)
{
}

/* The device goes while programs have it open. Their mappings are of memory only. */
void dmacard_disassociate(struct ib_ucontext *ib)
{
}
