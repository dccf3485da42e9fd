/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The end of a request, as observers see it: account.c.
 */
#ifndef PEERDMA_ACCOUNT_H
#define PEERDMA_ACCOUNT_H

#include <linux/types.h>

struct block_device;
struct file;
struct peerdma_buffer;
struct peerdma_ctx;
struct peerdma_io;
struct peerdma_pair;

/**
 * struct peerdma_io_end - what of a request is counted and traced
 * @buffer: a usage reference is held; NULL if it has lost its memory
 * @file: the target; referenced
 * @bdev: the target's block device, NULL if none was found
 * @pair: of its route, NULL if it got none
 * @req: with its results, once there are any
 * @pid: process that made it, in the first PID namespace; 0: the current one
 * @number: of a request that was sent without waiting while somebody listened, else 0
 * @write: direction
 * @async: sent without waiting for its end
 * @part: of a request that is counted already
 */
struct peerdma_io_end {
	struct peerdma_buffer *buffer;
	struct file *file;
	struct block_device *bdev;
	struct peerdma_pair *pair;
	const struct peerdma_io *req;
	pid_t pid;
	u32 number;
	bool write;
	bool async;
	bool part;
};

u32 peerdma_account_number(void);
void peerdma_account(const struct peerdma_io_end *seen, int err);
void peerdma_account_revoked(struct peerdma_ctx *ctx, const struct peerdma_io_end *seen);

#endif /* PEERDMA_ACCOUNT_H */
