/* SPDX-License-Identifier: GPL-2.0 */
/*
 * So much of what NVIDIA's driver offers to others as is used here, in words of our own. What it
 * says is from nv-p2p.h and nv-p2p.c of github.com/NVIDIA/open-gpu-kernel-modules, and from
 * NVIDIA's "Developing a Linux Kernel Module using GPUDirect RDMA".
 */
#ifndef PEERDMA_NVIDIA_H
#define PEERDMA_NVIDIA_H

#include <linux/types.h>

#define TABLE_MAJOR(version) ((version) >> 16)
#define TABLE_MINOR(version) ((u16)(version))
#define TABLE_SIZE_64K 1 /* of 4 KiB, 64 KiB and 128 KiB, in this order */

/* Where 64 KiB are; members that no GPU of today uses follow. */
struct nvidia_p2p_page {
	u64 physical_address;
};

/**
 * struct nvidia_p2p_page_table - where the memory is
 * @version: of the table's form
 * @page_size: TABLE_SIZE_64K
 * @pages: one for each page
 * @entries: number of @pages
 * @gpu_uuid: 16 bytes; since version 1.2
 * @flags: what kind of memory it is; since version 2.0; 0: that of a BAR
 */
struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;
	u32 flags;
};

int nvidia_p2p_get_pages(u64 token, u32 space, u64 addr, u64 len,
			 struct nvidia_p2p_page_table **table, void (*freed)(void *data),
			 void *data);
int nvidia_p2p_put_pages(u64 token, u32 space, u64 addr, struct nvidia_p2p_page_table *table);
int nvidia_p2p_get_pages_persistent(u64 addr, u64 len, struct nvidia_p2p_page_table **table,
				    u32 flags);
int nvidia_p2p_put_pages_persistent(u64 addr, struct nvidia_p2p_page_table *table, u32 flags);

#endif /* PEERDMA_NVIDIA_H */
