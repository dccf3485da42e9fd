/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How an importer of a dma-buf is told to let go.
 *
 * Newer kernels call it dma_buf_invalidate_mappings(), which also takes a buffer away for good, let
 * an importer do without, and have dma_buf_attach_revocable() to ask whether this one does. In
 * older ones it is dma_buf_move_notify(), every dynamic importer has a function for it, but that of
 * one that pins may do nothing, and nobody can tell; and without CONFIG_DMABUF_MOVE_NOTIFY the
 * kernel itself pins whatever is mapped. So there nobody may pin, if root does not say so.
 * Drop with 6.12.
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
#define PEERDMA_DMABUF_DEAF true /* who imports may have no function to be told by */
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
