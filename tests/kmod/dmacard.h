/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Moves bytes by the DMA engine of an emulated PCI function, to and from any DMA addresses: what an
 * RDMA card of the lab will move its bytes by.
 *
 * dmacard_pci.c     the PCI function, and debugfs
 * dmacard_engine.c  copies between lists of DMA addresses, by that function
 * dmacard_record.c  what it was told to read and write
 */
#ifndef DMACARD_H
#define DMACARD_H

#include <linux/list.h>
#include <linux/pci.h>
#include <linux/types.h>

/* Memory by its DMA address. */
struct dmacard_piece {
	dma_addr_t addr;
	u64 len;
};

/* Of the memory of one side of a copy, what is left. */
struct dmacard_cursor {
	const struct dmacard_piece *piece;
	u64 at; /* in the piece */
};

struct dmacard_copy {
	/* Set by who submits it. Each side has `bytes` bytes at least. */
	const struct dmacard_piece *from, *to;
	u64 bytes; /* not 0 */
	/* Called once, in any context. 0: all bytes are there. */
	void (*done)(struct dmacard_copy *copy, int error);

	/* The engine's */
	struct list_head list;
	struct dmacard_cursor from_left, to_left;
	u64 left;
	u32 now; /* bytes that are copied now */
	bool reads;
};

/* An access of the function's to memory. */
struct dmacard_dma {
	dma_addr_t addr;
	u32 len;
	bool is_write;
};

struct dmacard_record;

struct dmacard_record *dmacard_record_new(void);
void dmacard_record_end(struct dmacard_record *record);
/* In any context. */
void dmacard_record_add(struct dmacard_record *record, const struct dmacard_dma *dma);
/* The one at this index, from 0. False: there are no more. */
bool dmacard_record_get(struct dmacard_record *record, u64 index, struct dmacard_dma *out);
/* Accesses that were not recorded because the record was full. */
u64 dmacard_record_lost(struct dmacard_record *record);
void dmacard_record_clear(struct dmacard_record *record);

struct dmacard_engine;

/*
 * Takes the function over: an NVMe controller with one namespace, whose last blocks are scratch.
 * It records the accesses of its copies; the record must exist until the engine ends. Copies under
 * way end with -ENODEV 5 to 6 s after the function was pulled out.
 */
struct dmacard_engine *dmacard_engine_new(struct pci_dev *pdev, struct dmacard_record *record);
/*
 * Copies under way, and those that are submitted later, end with -ENODEV. When this returns the
 * function reads and writes no memory.
 */
void dmacard_engine_end(struct dmacard_engine *engine);
void dmacard_engine_submit(struct dmacard_engine *engine, struct dmacard_copy *copy);

#endif
