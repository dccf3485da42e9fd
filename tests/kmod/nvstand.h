/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of NVIDIA's driver, for the stand-in. It deliberately does not include
 * kernel/addons/nvidia.h, whose declarations are tested.
 */
#ifndef NVSTAND_H
#define NVSTAND_H

#include <linux/types.h>

struct nvidia_p2p_page {
	u64 physical_address;
	u32 registers[6];
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;
	u32 flags;
};

int nvidia_p2p_get_pages(u64 token, u32 space, u64 addr, u64 len,
			 struct nvidia_p2p_page_table **table, void (*call)(void *data),
			 void *data);
int nvidia_p2p_put_pages(u64 token, u32 space, u64 addr, struct nvidia_p2p_page_table *table);
int nvidia_p2p_get_pages_persistent(u64 addr, u64 len, struct nvidia_p2p_page_table **table,
				    u32 get_flags);
int nvidia_p2p_put_pages_persistent(u64 addr, struct nvidia_p2p_page_table *table, u32 put_flags);

#endif /* NVSTAND_H */
