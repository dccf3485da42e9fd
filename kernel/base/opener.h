/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Open files of /dev/peerdma, with their counters: opener.c.
 */
#ifndef PEERDMA_OPENER_H
#define PEERDMA_OPENER_H

#include <linux/list.h>
#include <linux/sched.h>

#include "base/counters.h"

struct seq_file;

/**
 * struct peerdma_opener - an open file in the list of them
 * @link: protected by the list's mutex
 * @id: never reused: two descriptors with one id are one open file
 * @pid: process that opened it, in the first PID namespace
 * @comm: its name at that time
 * @stats: of all requests on it
 * @files: registered files
 * @buffers: buffers that are not being revoked
 * @buffer_bytes: of those
 * @exports: dma-bufs of its buffers
 * @exported: bytes of them that importers have mapped, counted once per mapping
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
