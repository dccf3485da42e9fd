/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/eduN of edu.c. An open file is one importer. DMA is between its dma-buf and edu's memory. */
#ifndef EDU_H
#define EDU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EDU_MEMORY 4095 /* bytes; QEMU aborts on an access to the last one */

/* How it imports, and its reaction to an invalidation. */
enum edu_way {
	EDU_NOW, /* stops the engine and unmaps before it returns */
	EDU_FENCED, /* adds a fence while the engine runs, and unmaps before it has stopped */
	EDU_LATER, /* adds a fence while the engine runs, and unmaps some time after it */
	EDU_NEVER, /* ignores the invalidation and continues */
	EDU_STATIC, /* imports statically */
	EDU_OWN, /* does not accept another device's memory */
	EDU_DEAF, /* has no invalidation callback, where the kernel allows that */
};

/**
 * struct edu_map - EDU_MAP
 * @dir: 0: both ways, 1: the device only reads, 2: it only writes
 * @out_pieces: entries of the scatterlist
 * @out_addr: DMA address of the first entry
 * @out_len: bytes in total
 */
struct edu_map {
	__u32 dir;
	__u32 out_pieces;
	__u64 out_addr;
	__u64 out_len;
};

/**
 * struct edu_dma - EDU_START: start the engine; it takes 100 ms
 * @off: bytes from the start of the mapping
 * @len: bytes
 * @at: bytes from the start of edu's memory
 * @out: from edu's memory to the dma-buf
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
 * @out_told: number of invalidations
 * @out_mapped: a mapping exists
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
#define EDU_START _IO('E', 3) /* -EINVAL: nothing is mapped, or the range is outside of it */
#define EDU_WAIT _IO('E', 4) /* until the engine has stopped */
#define EDU_UNMAP _IO('E', 5)
#define EDU_STATE _IO('E', 6)
#define EDU_FENCE _IO('E', 7) /* a fence on the dma-buf, signaled when this file is closed */

#endif /* EDU_H */
