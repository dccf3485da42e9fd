// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of a buffer's dma-bufs by importers. A mapping holds a reference of each of its pages.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/dma.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"

/*
 * The longest segment that the device accepts, none of which crosses a multiple of that length. A
 * power of two, as the device's limits are. A length in a scatterlist has 32 bits.
 */
static u64 export_sg_max_len(struct device *dev)
{
	u64 boundary = dma_get_seg_boundary(dev) + 1ULL; /* 0: no boundary */
	u64 most = min_t(u64, dma_get_max_seg_size(dev), SZ_2G);

	return max_t(u64, rounddown_pow_of_two(min_not_zero(most, boundary)), PAGE_SIZE);
}

/* Length of the segment that begins at @off, @len at most. */
static u64 export_sg_len(const struct peerdma_mem *mem, u64 off, u64 len, u64 longest)
{
	u64 at = page_to_phys(peerdma_mem_page(mem, off >> PAGE_SHIFT));

	if (mem->chunk_bvecs)
		len = min(len, PEERDMA_CHUNK_LEN - off % PEERDMA_CHUNK_LEN);
	return min(len, longest - (at & (longest - 1)));
}

static unsigned int export_sg_count(const struct peerdma_mem *mem, u64 off, u64 len, u64 longest)
{
	const u64 end = off + len;
	unsigned int n;

	for (n = 0; off < end; n++)
		off += export_sg_len(mem, off, end - off, longest);
	return n;
}

static struct sg_table *export_sg_alloc(const struct peerdma_mem *mem, u64 off, u64 len,
					u64 longest)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL_ACCOUNT);
	const u64 end = off + len;
	struct scatterlist *sg;
	unsigned int i;
	u64 piece;

	if (!sgt)
		return NULL;
	if (sg_alloc_table(sgt, export_sg_count(mem, off, len, longest), GFP_KERNEL_ACCOUNT)) {
		kfree(sgt);
		return NULL;
	}
	for_each_sgtable_sg(sgt, sg, i) {
		piece = export_sg_len(mem, off, end - off, longest);
		sg_set_page(sg, peerdma_mem_page(mem, off >> PAGE_SHIFT), piece, 0);
		off += piece;
	}
	return sgt;
}

static void export_sg_free(struct sg_table *sgt)
{
	sg_free_table(sgt);
	kfree(sgt);
}

/* Keeps the pages out of the pool until they are unmapped, even if the buffer is revoked. */
static void export_get_pages(struct sg_table *sgt)
{
	struct sg_page_iter at;

	for_each_sgtable_page(sgt, &at, 0) {
		get_page(sg_page_iter_page(&at));
		cond_resched();
	}
}

static void export_put_pages(struct sg_table *sgt)
{
	struct sg_page_iter at;

	for_each_sgtable_page(sgt, &at, 0) {
		put_page(sg_page_iter_page(&at));
		cond_resched();
	}
}

/*
 * True if a segment is mapped to a bounce buffer in host memory. Its bytes would never reach the
 * page, as no caller syncs it.
 */
static bool export_is_swiotlb(struct device *importer, struct sg_table *sgt)
{
	struct scatterlist *sg;
	int i;

	/* Only an IOMMU merges segments, and an IOMMU does not bounce whole pages. */
	if (peerdma_dma_is_translated(importer))
		return false;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		if (peerdma_dma_is_swiotlb(importer, sg))
			return true;
		cond_resched();
	}
	return false;
}

/* The caller holds a usage reference of the buffer. */
static struct sg_table *export_dma_map(struct peerdma_export *export, struct device *importer,
				       enum dma_data_direction dir)
{
	struct sg_table *sgt = export_sg_alloc(export->buffer->mem, export->off, export->len,
					       export_sg_max_len(importer));
	const char *why = "the device cannot map it";
	int err;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	export_get_pages(sgt);
	err = dma_map_sgtable(importer, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	if (!err) {
		if (!export_is_swiotlb(importer, sgt))
			return sgt;
		dma_unmap_sgtable(importer, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
		why = "its mapping would be a copy in host memory";
	}
	export_put_pages(sgt);
	export_sg_free(sgt);
	if (err == -ENOMEM)
		return ERR_PTR(err);
	return ERR_PTR(peerdma_export_refuse(export, importer, PEERDMA_REASON_MAPPING, why));
}

/* @mappings: 1 or -1. */
static void export_count_mapping(struct peerdma_export *export, struct dma_buf_attachment *attach,
				 int mappings)
{
	struct peerdma_exports *exports = &export->buffer->exports;
	const s64 len = export->len;
	struct peerdma_export_attachment *import = attach->priv;

	dma_resv_assert_held(&exports->resv);
	import->mappings += mappings;
	WRITE_ONCE(exports->mapped, exports->mapped + len * mappings);
	atomic64_add(len * mappings, &export->buffer->opener->exported);
}

struct sg_table *peerdma_export_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct peerdma_export *export = attach->dmabuf->priv;
	struct sg_table *sgt;

	if (!peerdma_usage_tryget(&export->buffer->usage))
		return ERR_PTR(-ENODEV);
	sgt = export_dma_map(export, attach->dev, dir);
	if (!IS_ERR(sgt))
		export_count_mapping(export, attach, 1);
	peerdma_usage_put(&export->buffer->usage);
	return sgt;
}

/* The buffer may be revoked. The mapping's references have kept these pages. */
void peerdma_export_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			  enum dma_data_direction dir)
{
	struct peerdma_export *export = attach->dmabuf->priv;

	dma_unmap_sgtable(attach->dev, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	export_put_pages(sgt);
	export_sg_free(sgt);
	export_count_mapping(export, attach, -1);
	if (export->buffer->exports.mapped)
		return;
	smp_mb(); /* before wake_up_var() looks for sleepers, as its comment requires */
	wake_up_var(&export->buffer->exports.mapped);
}
