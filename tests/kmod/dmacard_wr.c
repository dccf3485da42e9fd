// SPDX-License-Identifier: GPL-2.0
/* The memory that a work request of dmacard (dmacard_rdma.h) reads and writes, as DMA addresses. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "dmacard_rdma.h"

static int side_grow(struct dmacard_side *side)
{
	const unsigned int room = side->room ? 2 * side->room : 64;
	struct dmacard_piece *pieces = kvmalloc_array(room, sizeof(*pieces), GFP_NOIO);

	if (!pieces)
		return -ENOMEM;
	if (side->nr)
		memcpy(pieces, side->pieces, side->nr * sizeof(*pieces));
	kvfree(side->pieces);
	side->pieces = pieces;
	side->room = room;
	return 0;
}

int dmacard_side_add(struct dmacard_side *side, u64 addr, u64 bytes)
{
	if (!bytes)
		return 0;
	if (bytes > DMACARD_MESSAGE - side->bytes)
		return -EMSGSIZE;
	if (side->nr == side->room && side_grow(side))
		return -ENOMEM;
	side->pieces[side->nr++] = (struct dmacard_piece){ .addr = addr, .len = bytes };
	side->bytes += bytes;
	return 0;
}

/* All pages of a region have one size; the first may begin before the region's first byte. */
static int side_add_mr(struct dmacard_side *side, const struct dmacard_mr *mr, u64 addr, u64 bytes)
{
	const u64 size = mr->ib.page_size;
	u64 at;
	int err = 0;

	if (mr->all)
		return dmacard_side_add(side, addr, bytes);
	if (addr < mr->ib.iova || bytes > mr->ib.length ||
	    addr - mr->ib.iova > mr->ib.length - bytes)
		return -EACCES;
	at = (addr - mr->ib.iova) + (mr->ib.iova & (size - 1));
	while (bytes && !err) {
		const u64 here = min(bytes, size - (at & (size - 1)));

		if (at / size >= mr->nr_pages)
			return -EACCES;
		err = dmacard_side_add(side, mr->pages[at / size] + (at & (size - 1)), here);
		at += here;
		bytes -= here;
	}
	return err;
}

int dmacard_side_add_key(struct dmacard_side *side, struct ib_pd *pd, u64 addr, u64 bytes, u32 key,
			 int access)
{
	struct dmacard_mr *mr;
	int err;

	if (!bytes)
		return 0;
	/* All DMA addresses: of the kernel's clients only. */
	if (!pd->uobject && key == pd->device->local_dma_lkey && !(access & ~IB_ACCESS_LOCAL_WRITE))
		return dmacard_side_add(side, addr, bytes);
	err = dmacard_mr_get(pd, key, access, &mr);
	if (err == -EAGAIN)
		side->moved = mr;
	if (err)
		return err;
	side->mrs[side->nr_mrs++] = mr;
	return side_add_mr(side, mr, addr, bytes);
}

int dmacard_side_add_sges(struct dmacard_side *side, struct ib_pd *pd, const struct dmacard_wr *wr,
			  int access)
{
	int i, err = 0;

	for (i = 0; i < wr->nr_sges && !err; i++)
		err = dmacard_side_add_key(side, pd, wr->sges[i].addr, wr->sges[i].length,
					   wr->sges[i].lkey, access);
	return err;
}

void dmacard_side_clear(struct dmacard_side *side)
{
	while (side->nr_mrs)
		dmacard_mr_put(side->mrs[--side->nr_mrs]);
	if (side->moved)
		dmacard_mr_unhold(side->moved);
	side->moved = NULL;
	side->nr = 0;
	side->bytes = 0;
}
