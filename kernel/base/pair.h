/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of the requests between a disk and a provider: pair.c.
 */
#ifndef PEERDMA_PAIR_H
#define PEERDMA_PAIR_H

#include <linux/blkdev.h>
#include <linux/kdev_t.h>
#include <linux/xarray.h>

#include "base/counters.h"

struct seq_file;

/**
 * struct peerdma_pair - a disk and a provider that were used together; exists as long as the
 *	provider
 * @stats: of requests to files on this disk
 * @devt: the disk's number, its index among the provider's pairs
 * @name: the disk's, as in /sys/block
 * @leaves: names of the leaves of the latest route, or NULL
 *
 * @name and @leaves are protected by the lock of the provider's pairs.
 */
struct peerdma_pair {
	struct peerdma_stats stats;
	dev_t devt; /* immutable */
	char name[DISK_NAME_LEN];
	char *leaves;
};

struct peerdma_pair *peerdma_pair_get(struct xarray *pairs, dev_t devt, const char *name);
void peerdma_pair_rename(struct xarray *pairs, struct peerdma_pair *pair, const char *name,
			 char *leaves);
void peerdma_pairs_sum(struct xarray *pairs, struct peerdma_sum *sum);
void peerdma_pairs_show(struct xarray *pairs, u32 provider, struct seq_file *seq);
void peerdma_pairs_free(struct xarray *pairs);

#endif /* PEERDMA_PAIR_H */
