/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dma-bufs of other drivers as buffers.
 */
#ifndef PEERDMA_IMPORT_H
#define PEERDMA_IMPORT_H

#include <linux/completion.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/types.h>

#include "memory/pin.h"

struct dma_buf;
struct dma_buf_attachment;
struct pci_dev;
struct sg_table;

#define PEERDMA_IMPORT_PATIENCE HZ /* ticks to wait for locks and fences of other drivers */

/**
 * struct peerdma_import - a range of a dma-buf that is a buffer
 * @pin: how register.c knows it
 * @link: in its client's list once it has been proven; protected by imports_mutex
 * @dmabuf: referenced
 * @client: the device that it is attached with; referenced
 * @attach: NULL if the exporter refused
 * @off: bytes from the dma-buf's start
 * @addr: DMA address of the first byte, for @client
 * @sgt: the mapping, or NULL. This and the members below are protected by the dma-buf's resv
 * @pinned: it must be unpinned
 * @asking: the attachment is not complete yet
 * @told: the exporter has invalidated it since it was pinned
 * @gone: completed when it is detached
 */
struct peerdma_import {
	struct peerdma_pin pin;
	struct list_head link;
	struct dma_buf *dmabuf; /* immutable, and so is @client */
	struct pci_dev *client;
	struct dma_buf_attachment *attach; /* immutable once registered, as are @off and @addr */
	u64 off;
	u64 addr;
	struct sg_table *sgt;
	bool pinned;
	bool asking;
	bool told;
	struct completion gone;
};

static inline struct peerdma_import *peerdma_import_of(struct peerdma_pin *pin)
{
	return container_of(pin, struct peerdma_import, pin);
}

/* import_attach.c */
u32 peerdma_import_attach(struct peerdma_import *import);
void peerdma_import_detach(struct peerdma_import *import);

/* import_locate.c */
bool peerdma_import_is_host(u64 addr);
u32 peerdma_import_locate(struct peerdma_import *import);

/* import_client.c */
u32 peerdma_import_check_client(struct pci_dev *client);
u32 peerdma_import_prove(struct peerdma_pin *pin, struct pci_dev *pdev);
void peerdma_import_leave(struct peerdma_import *import);
int peerdma_imports_init(void);
void peerdma_imports_exit(void);

#endif /* PEERDMA_IMPORT_H */
