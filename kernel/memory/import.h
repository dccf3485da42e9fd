/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dma-bufs of other drivers as buffers.
 */
#ifndef PEERDMA_IMPORT_H
#define PEERDMA_IMPORT_H

int peerdma_imports_init(void);
void peerdma_imports_exit(void);

#endif /* PEERDMA_IMPORT_H */
