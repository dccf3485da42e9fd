/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations of the functions of NVIDIA's driver that this module uses, written for it. Sources:
 * nv-p2p.h and nv-p2p.c of github.com/NVIDIA/open-gpu-kernel-modules, and NVIDIA's "Developing a
 * Linux Kernel Module using GPUDirect RDMA".
 */
#ifndef PEERDMA_NVIDIA_H
#define PEERDMA_NVIDIA_H

#include <linux/types.h>

#define TABLE_MAJOR(version) ((version) >> 16)
#define TABLE_MINOR(version) ((u16)(version))
#define TABLE_SIZE_64K 1 /* of 4 KiB, 64 KiB and 128 KiB, in this order */

/* A page of 64 KiB. Members that no current GPU uses follow. */
struct nvidia_p2p_page {
	u64 physical_address;
};

/**
 * struct nvidia_p2p_page_table - the pages of the memory
 * @version: of this struct
 * @page_size: TABLE_SIZE_64K
 * @pages: one pointer for each page
 * @entries: number of @pages
 * @gpu_uuid: 16 bytes; since version 1.2
 * @flags: kind of memory; since version 2.0; 0: in a BAR
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
