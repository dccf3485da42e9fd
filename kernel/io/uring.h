/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads and writes as io_uring commands.
 */
#ifndef PEERDMA_URING_H
#define PEERDMA_URING_H

#include <linux/types.h>

struct io_comp_batch;
struct peerdma_ctx;

struct io_uring_cmd;
#ifdef PEERDMA_HAVE_URING_CMD
#define PEERDMA_URING_FEATURES \
	(IS_ENABLED(CONFIG_IO_URING) ? PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC : 0)
int peerdma_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
int peerdma_uring_iopoll(struct io_uring_cmd *cmd, struct io_comp_batch *iob,
			 unsigned int poll_flags);
int peerdma_uring_open(struct peerdma_ctx *ctx);
void peerdma_uring_release(struct peerdma_ctx *ctx);
int peerdma_uring_init(void);
void peerdma_uring_exit(void);
#else
#define PEERDMA_URING_FEATURES 0
#define peerdma_uring_cmd NULL
#define peerdma_uring_iopoll NULL
static inline int peerdma_uring_open(struct peerdma_ctx *ctx)
{
	return 0;
}

static inline void peerdma_uring_release(struct peerdma_ctx *ctx)
{
}

static inline int peerdma_uring_init(void)
{
	return 0;
}

static inline void peerdma_uring_exit(void)
{
}
#endif

#endif /* PEERDMA_URING_H */
