/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One kiocb between a file and memory, submitted and waited for.
 */
#ifndef PEERDMA_KIOCB_H
#define PEERDMA_KIOCB_H

#include <linux/types.h>

struct iov_iter;
struct peerdma_provider;
struct peerdma_request;

u16 peerdma_kiocb_ioprio(struct peerdma_provider *provider, u16 ioprio);
ssize_t peerdma_kiocb_submit(struct peerdma_request *io, struct iov_iter *iter, u64 file_off,
			     bool *direct);

#endif /* PEERDMA_KIOCB_H */
