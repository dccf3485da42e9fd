/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Mappings of a buffer in processes.
 */
#ifndef PEERDMA_PROXY_H
#define PEERDMA_PROXY_H

#include <linux/types.h>

struct file;
struct peerdma_buffer;
struct peerdma_ctx;
struct vm_area_struct;

#define PEERDMA_BUF_ID_BITS 24 /* the most for which each buffer's offset is valid */
int peerdma_proxy_init(void);
void peerdma_proxy_exit(void);
int peerdma_proxy_open(struct peerdma_ctx *ctx, struct file *file);
void peerdma_proxy_release(struct peerdma_ctx *ctx);
u64 peerdma_proxy_offset(struct peerdma_buffer *buffer);
void peerdma_proxy_unmap(struct peerdma_buffer *buffer);
int peerdma_proxy_mmap(struct file *file, struct vm_area_struct *vma);

#endif /* PEERDMA_PROXY_H */
