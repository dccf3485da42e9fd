/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How importers of a dma-buf are notified.
 *
 * Newer kernels call dma_buf_invalidate_mappings(), which also revokes a buffer for good. Importers
 * may do without the callback, and dma_buf_attach_revocable() tells which do. Older kernels call
 * dma_buf_move_notify(). Every dynamic importer has that callback, but for one that pins it may do
 * nothing, which is not visible. Without CONFIG_DMABUF_MOVE_NOTIFY the kernel itself pins whatever
 * is mapped. So pinning is refused there, unless root allows it. Drop with 6.12.
 */
#ifndef PEERDMA_COMPAT_DMABUF_H
#define PEERDMA_COMPAT_DMABUF_H

#include <linux/dma-buf.h>

#ifndef PEERDMA_HAVE_DMABUF_INVALIDATE
#define dma_buf_invalidate_mappings(dmabuf) dma_buf_move_notify(dmabuf)
#define invalidate_mappings move_notify /* of struct dma_buf_attach_ops */
#endif

#ifdef PEERDMA_HAVE_DMABUF_REVOCABLE
#define PEERDMA_DMABUF_REVOCABLE true
#define PEERDMA_DMABUF_PIN true
#define PEERDMA_DMABUF_DEAF true /* importers may do without the callback */
#else
#define PEERDMA_DMABUF_REVOCABLE IS_ENABLED(CONFIG_DMABUF_MOVE_NOTIFY)
#define PEERDMA_DMABUF_PIN false
#define PEERDMA_DMABUF_DEAF false

static inline bool dma_buf_attach_revocable(struct dma_buf_attachment *attach)
{
	return attach->importer_ops;
}
#endif

#endif /* PEERDMA_COMPAT_DMABUF_H */
