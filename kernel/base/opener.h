/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who has /dev/peerdma open, and what was done with it: opener.c.
 */
#ifndef PEERDMA_OPENER_H
#define PEERDMA_OPENER_H

#include <linux/list.h>
#include <linux/sched.h>

#include "base/counters.h"

struct seq_file;

/**
 * struct peerdma_opener - an open file as the list of them knows it
 * @link: protected by the list's mutex
 * @id: its number, never used again: two descriptors with one number are one open file
 * @pid: process that opened it, in the first PID namespace
 * @comm: its name then
 * @stats: of all requests on it
 * @files: that are registered
 * @buffers: that nobody has begun to revoke
 * @buffer_bytes: of those
 * @exports: dma-bufs of its buffers
 * @exported: bytes of them that importers have mapped, each as often as it is
 */
struct peerdma_opener {
	struct list_head link;
	u64 id; /* immutable */
	pid_t pid; /* immutable */
	char comm[TASK_COMM_LEN]; /* immutable */
	struct peerdma_stats stats;
	atomic_t files;
	atomic_t buffers;
	atomic64_t buffer_bytes;
	atomic_t exports;
	atomic64_t exported;
};

int peerdma_opener_add(struct peerdma_opener *opener);
void peerdma_opener_del(struct peerdma_opener *opener);
void peerdma_openers_show(struct seq_file *seq);

#endif /* PEERDMA_OPENER_H */
