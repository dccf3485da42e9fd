// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches, pins and maps a dma-buf, and reads its table.
 */
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "memory/import.h"
#include "memory/pin.h"

static bool revocable_imports;
module_param(revocable_imports, bool, 0644);
MODULE_PARM_DESC(revocable_imports,
		 "import memory that its exporter may take back: it waits for requests under way");

/* Called with the dma-buf's resv held. The exporter may reuse the memory when this returns. */
static void import_invalidated(struct dma_buf_attachment *attach)
{
	struct peerdma_import *import = attach->importer_priv;

	if (import->asking)
		import->told = true;
	else
		peerdma_pin_revoke_wait(&import->pin);
}

static const struct dma_buf_attach_ops import_deaf_ops = {
	.allow_peer2peer = true,
};

static const struct dma_buf_attach_ops import_told_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = import_invalidated,
};

static u32 import_refuse(struct peerdma_import *import, const char *what, long err)
{
	pci_info_ratelimited(import->client, "exporter %s refused to %s: %ld\n",
			     import->dmabuf->exp_name, what, err);
	return PEERDMA_REASON_IMPORT_REFUSED;
}

/* Records the chunks of [@at, @at + @len), which is at @addr. False if one is not contiguous. */
static bool import_add_chunks(struct peerdma_pin *pin, u64 at, u64 addr, u64 len)
{
	u64 skip, step, *chunk_addr;

	for (; len; at += step, addr += step, len -= step) {
		chunk_addr = &pin->chunk_addrs[at >> PEERDMA_CHUNK_SHIFT];
		skip = at % PEERDMA_CHUNK_LEN;
		step = min_t(u64, len, PEERDMA_CHUNK_LEN - skip);
		if (!skip)
			*chunk_addr = addr;
		else if (addr != *chunk_addr + skip)
			return false;
		cond_resched();
	}
	return true;
}

/* Reads addresses and lengths only: the table may have no pages. */
static u32 import_read_table(struct peerdma_import *import)
{
	const u64 end = (u64)import->pin.nr_chunks << PEERDMA_CHUNK_SHIFT;
	u64 at = 0, skip = import->off, addr, len;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(import->sgt, sg, i) {
		if (skip >= sg_dma_len(sg)) {
			skip -= sg_dma_len(sg);
			continue;
		}
		addr = sg_dma_address(sg) + skip;
		len = min_t(u64, end - at, sg_dma_len(sg) - skip);
		skip = 0;
		if (!at && peerdma_import_is_host(addr))
			return PEERDMA_REASON_IMPORT_HOST;
		if (!import_add_chunks(&import->pin, at, addr, len))
			return PEERDMA_REASON_IMPORT_PIECES;
		at += len;
		if (at == end)
			return PEERDMA_REASON_NONE;
	}
	return PEERDMA_REASON_IMPORT_TABLE;
}

/* The caller holds the dma-buf's resv. */
static u32 import_map(struct peerdma_import *import)
{
	struct dma_buf_attachment *attach = import->attach;
	struct sg_table *sgt;
	long ret = dma_buf_pin(attach);

	if (ret)
		return import_refuse(import, "pin", ret);
	import->pinned = true;
	import->told = false;
	sgt = dma_buf_map_attachment(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR_OR_NULL(sgt))
		return import_refuse(import, "map", PTR_ERR(sgt));
	import->sgt = sgt;
	/* The exporter may still be moving the memory until its fences are signaled. */
	ret = dma_resv_wait_timeout(import->dmabuf->resv, DMA_RESV_USAGE_KERNEL, false,
				    PEERDMA_IMPORT_PATIENCE);
	if (ret <= 0)
		return PEERDMA_REASON_VENDOR_BUSY;
	if (import->told)
		return PEERDMA_REASON_VENDOR_FREED;
	return import_read_table(import);
}

static struct dma_buf_attachment *import_attach_with(struct peerdma_import *import,
						     const struct dma_buf_attach_ops *ops)
{
	return dma_buf_dynamic_attach(import->dmabuf, &import->client->dev, ops, import);
}

/* Finds out whether the exporter would accept an attachment with ->invalidate_mappings. */
static u32 import_attach_reason(struct peerdma_import *import, bool revocable, long err)
{
	struct dma_buf_attachment *attach =
		revocable ? ERR_PTR(err) : import_attach_with(import, &import_told_ops);

	if (IS_ERR(attach))
		return import_refuse(import, "attach", err);
	dma_buf_detach(import->dmabuf, attach);
	return PEERDMA_REASON_IMPORT_REVOCABLE;
}

u32 peerdma_import_attach(struct peerdma_import *import)
{
	const bool revocable = !PEERDMA_DMABUF_DEAF || READ_ONCE(revocable_imports);
	struct dma_buf *dmabuf = import->dmabuf;
	struct dma_buf_attachment *attach =
		import_attach_with(import, revocable ? &import_told_ops : &import_deaf_ops);
	u32 reason;

	if (IS_ERR(attach))
		return import_attach_reason(import, revocable, PTR_ERR(attach));
	import->attach = attach;
	dma_resv_lock(dmabuf->resv, NULL);
	reason = import_map(import);
	import->asking = false;
	dma_resv_unlock(dmabuf->resv);
	return reason;
}

void peerdma_import_detach(struct peerdma_import *import)
{
	struct dma_buf *dmabuf = import->dmabuf;

	if (!import->attach)
		return;
	dma_resv_lock(dmabuf->resv, NULL);
	if (import->sgt)
		dma_buf_unmap_attachment(import->attach, import->sgt, DMA_BIDIRECTIONAL);
	if (import->pinned)
		dma_buf_unpin(import->attach);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_detach(dmabuf, import->attach);
}
