/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The address that a device would use for peer-to-peer memory, and the kernel's own mapping of it:
 * dma.c.
 */
#ifndef PEERDMA_DMA_H
#define PEERDMA_DMA_H

#include <linux/types.h>

struct device;
struct page;
struct scatterlist;

bool peerdma_dma_is_translated(struct device *dev);
bool peerdma_dma_is_swiotlb(struct device *dev, struct scatterlist *sg);
bool peerdma_dma_is_write_combined(const void *kaddr);
int peerdma_dma_trial_map(struct device *dev, struct page *page, u32 *map, u64 *addr);

#endif /* PEERDMA_DMA_H */
