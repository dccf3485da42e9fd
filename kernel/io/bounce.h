/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads bytes of a request that a device cannot move itself.
 */
#ifndef PEERDMA_BOUNCE_H
#define PEERDMA_BOUNCE_H

#include <linux/sizes.h>
#include <linux/types.h>

struct peerdma_request;

#define PEERDMA_BOUNCE_STEP SZ_64K /* bytes of host memory per step */

int peerdma_bounce_read_host(struct peerdma_request *io, u64 len);
int peerdma_bounce_read_block(struct peerdma_request *io, u64 len);

#endif /* PEERDMA_BOUNCE_H */
