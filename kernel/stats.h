/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of requests: for the module, for each provider, each device and each open file.
 *
 * A request that went well adds three numbers to each of the four. They are per CPU, so that this
 * is an add to a cache line that no other CPU writes, whether threads share an open file or many
 * processes a provider, and so that an interrupt may do it. Refusals are rare: their 64 counters
 * are shared, or an open file would cost half a KiB for each CPU. Whoever reads sums up and may see
 * a request half counted.
 */
#ifndef PEERDMA_STATS_H
#define PEERDMA_STATS_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <uapi/peerdma.h>

struct peerdma_ctx;
struct peerdma_provider;
struct seq_file;

#define PEERDMA_REASONS 64 /* all of enum peerdma_reason and room */

/**
 * struct peerdma_counts - one CPU's part
 * @reads: requests, refused ones too
 * @writes: likewise
 * @direct: bytes
 * @near: bytes
 * @host: bytes
 * @refused: requests that ended with an errno and a reason
 * @errors: requests that ended with an errno and no reason
 */
struct peerdma_counts {
	u64 reads;
	u64 writes;
	u64 direct;
	u64 near;
	u64 host;
	u64 refused;
	u64 errors;
};

struct peerdma_stats {
	struct peerdma_counts __percpu *counts;
	atomic64_t refused[PEERDMA_REASONS]; /* by reason */
};

/**
 * struct peerdma_opener - an open file as the list of them knows it
 * @link: protected by the list's mutex
 * @id: its number, never used again: two descriptors with one number are one open file
 * @pid: process that opened it, in the first PID namespace
 * @comm: its name then
 * @stats: of all requests on it
 */
struct peerdma_opener {
	struct list_head link;
	u64 id; /* immutable */
	pid_t pid; /* immutable */
	char comm[TASK_COMM_LEN]; /* immutable */
	struct peerdma_stats stats;
};

/**
 * struct peerdma_seen - what of a request is counted and traced
 * @ctx: its open file of /dev/peerdma
 * @provider: its buffer's
 * @file: the target
 * @dev: the target's block device, 0 if none was found
 * @req: with its results
 * @write: direction
 */
struct peerdma_seen {
	struct peerdma_ctx *ctx;
	struct peerdma_provider *provider;
	struct file *file;
	dev_t dev;
	const struct peerdma_io *req;
	bool write;
};

int peerdma_stats_init(struct peerdma_stats *stats, gfp_t gfp);
void peerdma_stats_free(struct peerdma_stats *stats);

int peerdma_opener_add(struct peerdma_ctx *ctx);
void peerdma_opener_del(struct peerdma_ctx *ctx);

void peerdma_account(const struct peerdma_seen *seen, int err);
void peerdma_show_fdinfo(struct seq_file *seq, struct file *file);

int peerdma_stats_register(void);
void peerdma_stats_unregister(void);

#endif /* PEERDMA_STATS_H */
