/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/eduN of edu.c. An open file is one importer; DMA is between its dma-buf and edu's memory. */
#ifndef EDU_H
#define EDU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EDU_MEMORY 4095 /* bytes; QEMU ends if the last one is touched */

/* How it imports, and what it does when it is told to let go. */
enum edu_way {
	EDU_NOW, /* stops the engine and unmaps before it returns */
	EDU_FENCED, /* has a fence while the engine runs, and unmaps before it has stopped */
	EDU_LATER, /* has a fence while the engine runs, unmaps a while after it was told */
	EDU_NEVER, /* nothing, and goes on */
	EDU_STATIC, /* imports statically */
	EDU_OWN, /* does not take another device's memory */
	EDU_DEAF, /* cannot be told, where the kernel allows that */
};

/**
 * struct edu_map - EDU_MAP
 * @dir: 0: both ways, 1: the device reads only, 2: it writes only
 * @out_pieces: of the scatterlist
 * @out_addr: DMA address of the first
 * @out_len: bytes in all
 */
struct edu_map {
	__u32 dir;
	__u32 out_pieces;
	__u64 out_addr;
	__u64 out_len;
};

/**
 * struct edu_dma - EDU_START: the engine begins; it takes 100 ms
 * @off: bytes from the start of what is mapped
 * @len: bytes
 * @at: bytes from the start of edu's memory
 * @out: from there to the dma-buf
 */
struct edu_dma {
	__u64 off;
	__u32 len;
	__u32 at;
	__u32 out;
	__u32 pad;
};

/**
 * struct edu_state - EDU_STATE
 * @out_told: how often it was told to let go
 * @out_mapped: it has a mapping
 * @out_busy: the engine runs
 */
struct edu_state {
	__u32 out_told;
	__u32 out_mapped;
	__u32 out_busy;
};

#define EDU_ATTACH _IO('E', 0) /* the argument: fd << 8 | enum edu_way */
#define EDU_PIN _IO('E', 1)
#define EDU_MAP _IO('E', 2)
#define EDU_START _IO('E', 3) /* -EINVAL: nothing is mapped, or not there */
#define EDU_WAIT _IO('E', 4) /* until the engine is done */
#define EDU_UNMAP _IO('E', 5)
#define EDU_STATE _IO('E', 6)
#define EDU_FENCE _IO('E', 7) /* a fence on the dma-buf, signalled when this file is closed */

#endif /* EDU_H */
