/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits until a usage reference is drained: drain.c.
 */
#ifndef PEERDMA_DRAIN_H
#define PEERDMA_DRAIN_H

#include <linux/types.h>

struct peerdma_buffer;
struct peerdma_opener;
struct peerdma_provider;
struct seq_file;

void peerdma_drain_wait(struct peerdma_provider *provider, struct peerdma_buffer *buffer);
void peerdma_drains_log(struct peerdma_provider *provider);
u64 peerdma_drain_requests(const struct peerdma_opener *opener);
void peerdma_drains_show(struct seq_file *seq);

#endif /* PEERDMA_DRAIN_H */
