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

#define PEERDMA_IMPORT_PATIENCE HZ /* ticks, for what others have to do soon */

/**
 * struct peerdma_import - a range of a dma-buf, while it is kept
 * @pin: what register.c knows it by
 * @link: in its client's list, once it has been proven; protected by imports_mutex
 * @dmabuf: referenced
 * @client: the device that it is attached with; referenced
 * @attach: NULL if the exporter did not want it
 * @off: bytes from the dma-buf's start
 * @addr: of the first byte, for @client
 * @sgt: what is mapped, or NULL; this and all below is protected by the dma-buf's resv
 * @pinned: it has to be unpinned
 * @asking: the exporter has not said yet where it is
 * @told: it has called since it was pinned
 * @gone: completed when it is not attached any more
 */
struct peerdma_import {
	struct peerdma_pin pin;
	struct list_head link;
	struct dma_buf *dmabuf; /* immutable; these are as well: */
	struct pci_dev *client;
	struct dma_buf_attachment *attach; /* once it is registered, and so are these */
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
