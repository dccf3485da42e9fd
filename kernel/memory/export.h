/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pieces of a buffer as dma-bufs, for drivers of other devices to map: export.c.
 */
#ifndef PEERDMA_EXPORT_H
#define PEERDMA_EXPORT_H

#include <linux/dma-resv.h>
#include <linux/list.h>
#include <linux/types.h>

struct peerdma_buffer;
struct seq_file;

/**
 * struct peerdma_exports - what of a buffer is exported
 * @resv: lock and fences of all of them: they are the same memory
 * @list: struct peerdma_export; protected by @resv
 * @mapped: bytes that importers have mapped, each as often as it is; written under @resv
 */
struct peerdma_exports {
	struct dma_resv resv;
	struct list_head list;
	u64 mapped;
};

bool peerdma_exports_supported(void);
static inline void peerdma_exports_init(struct peerdma_exports *exports)
{
	if (!IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		return;
	dma_resv_init(&exports->resv);
	INIT_LIST_HEAD(&exports->list);
}

/* The buffer's last reference is gone, and each export had one. */
static inline void peerdma_exports_fini(struct peerdma_exports *exports)
{
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		dma_resv_fini(&exports->resv);
}

void peerdma_exports_revoke(struct peerdma_buffer *buffer);
bool peerdma_exports_log(struct peerdma_buffer *buffer);
void peerdma_exports_show(struct seq_file *seq);

#endif /* PEERDMA_EXPORT_H */
