/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parts of a buffer as dma-bufs, for drivers of other devices to map: export.c.
 */
#ifndef PEERDMA_EXPORT_H
#define PEERDMA_EXPORT_H

#include <linux/dma-direction.h>
#include <linux/dma-resv.h>
#include <linux/list.h>
#include <linux/types.h>

struct device;
struct dma_buf;
struct dma_buf_attachment;
struct file;
struct peerdma_buffer;
struct seq_file;

/**
 * struct peerdma_exports - all exports of a buffer
 * @resv: lock and fences, shared because the exports share the memory
 * @list: struct peerdma_export; protected by @resv
 * @mapped: bytes mapped by importers, counted once per mapping; written under @resv
 */
struct peerdma_exports {
	struct dma_resv resv;
	struct list_head list;
	u64 mapped;
};

/**
 * struct peerdma_export - a part of a buffer as a dma-buf
 * @link: in the buffer's list; protected by its resv
 * @all: in the list of all exports; protected by its lock
 * @dmabuf: the dma-buf
 * @buffer: referenced
 * @file: the buffer's open file; referenced
 * @off: bytes from the buffer's start
 * @len: bytes
 */
struct peerdma_export {
	struct list_head link;
	struct list_head all;
	struct dma_buf *dmabuf; /* immutable */
	struct peerdma_buffer *buffer; /* immutable */
	struct file *file; /* immutable */
	u64 off; /* immutable */
	u64 len; /* immutable */
};

/**
 * struct peerdma_export_attachment - priv of an importer's attachment
 * @mappings: number of them
 * @named: it has been logged that the importer did not unmap
 *
 * Both are protected by the buffer's resv.
 */
struct peerdma_export_attachment {
	unsigned int mappings;
	bool named;
};

static inline void peerdma_exports_init(struct peerdma_exports *exports)
{
	if (!IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		return;
	dma_resv_init(&exports->resv);
	INIT_LIST_HEAD(&exports->list);
}

/* Called with the last reference of the buffer gone: each export had one. */
static inline void peerdma_exports_fini(struct peerdma_exports *exports)
{
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		dma_resv_fini(&exports->resv);
}

void peerdma_exports_show(struct seq_file *seq);

/* export_attach.c */
bool peerdma_exports_supported(void);
int peerdma_export_refuse(struct peerdma_export *export, struct device *importer, u32 reason,
			  const char *why);
int peerdma_export_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach);
void peerdma_export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach);
int peerdma_export_pin(struct dma_buf_attachment *attach);
void peerdma_export_unpin(struct dma_buf_attachment *attach);

/* export_map.c */
struct sg_table *peerdma_export_map(struct dma_buf_attachment *attach, enum dma_data_direction dir);
void peerdma_export_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			  enum dma_data_direction dir);

/* export_revoke.c */
void peerdma_exports_revoke(struct peerdma_buffer *buffer);
bool peerdma_exports_log(struct peerdma_buffer *buffer);

#endif /* PEERDMA_EXPORT_H */
