/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The end of a request, as counters and trace events see it: account.c.
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
 * struct peerdma_io_end - what is counted and traced of a request
 * @buffer: with a usage reference; NULL if it was revoked
 * @file: referenced
 * @bdev: of @file; NULL if none was found
 * @pair: of the route; NULL without a route
 * @req: with its results, once there are any
 * @pid: the submitter, in the first PID namespace; 0: the current process
 * @number: of an async request that was traced at its start, else 0
 * @write: direction
 * @async: submitted without waiting for its end
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
