/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Steps of a request. A step is as many bytes as one kiocb can carry.
 */
#ifndef PEERDMA_STEP_H
#define PEERDMA_STEP_H

#include <linux/types.h>

struct peerdma_request;

ssize_t peerdma_step(struct peerdma_request *io, u64 len, bool direct);
int peerdma_steps(struct peerdma_request *io, u64 len, bool direct);

#endif /* PEERDMA_STEP_H */
