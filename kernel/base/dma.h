/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a device would use as the address of peer-to-peer memory, and how the kernel has it mapped:
 * dma.c.
 */
#ifndef PEERDMA_DMA_H
#define PEERDMA_DMA_H

#include <linux/types.h>

struct device;
struct page;
struct scatterlist;

bool peerdma_dma_is_translated(struct device *dev);
bool peerdma_dma_is_bounced(struct device *dev, struct scatterlist *sg);
bool peerdma_dma_is_write_combined(const void *kaddr);
int peerdma_dma_trial_map(struct device *dev, struct page *page, u32 *map, u64 *addr);

#endif /* PEERDMA_DMA_H */
