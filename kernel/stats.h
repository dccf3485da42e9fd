/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of requests.
 *
 * A request is counted twice when it ends: for the open file it was made on, and for the pair of
 * provider and disk whose route it took. All other sums are made of these by who reads them. The
 * counters are per CPU, so that this is a few adds to cache lines that no other CPU writes, whether
 * threads share an open file or many processes a provider, and so that an interrupt may do it.
 * Refusals are rare: their counters are shared, or an open file would cost half a KiB for each CPU.
 * Whoever reads may see a request half counted, and sees it whole when the request has returned.
 *
 * What a request moved is known of the disk that the file is on. If that disk is a stack, how the
 * bytes were shared out among its leaves is known to nobody here; the leaves are named beside.
 */
#ifndef PEERDMA_STATS_H
#define PEERDMA_STATS_H

#include <linux/atomic.h>
#include <linux/blkdev.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

struct peerdma_buffer;
struct peerdma_ctx;
struct peerdma_provider;
struct peerdma_stack;
struct seq_file;

#define PEERDMA_REASONS 128 /* every enum peerdma_reason, and room */
static_assert(PEERDMA_REASON_RULE < PEERDMA_REASONS);

/**
 * struct peerdma_counts - one CPU's part
 * @requests: reads, then writes; refused ones too
 * @direct: bytes
 * @near: bytes
 * @host: bytes
 */
struct peerdma_counts {
	u64 requests[2];
	u64 direct;
	u64 near;
	u64 host;
};

/**
 * struct peerdma_stats - counters of requests that have something in common
 * @counts: each CPU's
 * @errors: requests that ended with an errno and no reason
 * @refused: requests that ended with an errno and a reason, by reason
 */
struct peerdma_stats {
	struct peerdma_counts __percpu *counts;
	atomic64_t errors;
	atomic64_t refused[PEERDMA_REASONS];
};

/**
 * struct peerdma_pair - a disk and a provider that were used together; lives as long as the latter
 * @stats: of requests of files on this disk
 * @devt: the disk's number, its place among the provider's pairs
 * @name: the disk's, as in /sys/block
 * @leaves: names of the disks below that the latest route ends at, or NULL
 *
 * @name and @leaves are protected by the lock of the provider's pairs.
 */
struct peerdma_pair {
	struct peerdma_stats stats;
	dev_t devt; /* immutable */
	char name[DISK_NAME_LEN];
	char *leaves;
};

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

/**
 * struct peerdma_seen - what of a request is counted and traced
 * @buffer: its gate is held; NULL if it has lost its memory
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
struct peerdma_seen {
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

/*
 * A request that moved this many bytes and all of them direct, for one of the two that count it.
 * part: only its bytes.
 */
static __always_inline void peerdma_count_direct(struct peerdma_stats *stats, u64 bytes, bool write,
						 bool part)
{
	if (likely(!part))
		this_cpu_inc(stats->counts->requests[write]);
	this_cpu_add(stats->counts->direct, bytes);
}

/* The end of any request: in the way of every one. */
static __always_inline void peerdma_count(struct peerdma_stats *stats, const struct peerdma_io *req,
					  bool write, bool part)
{
	peerdma_count_direct(stats, req->out_direct, write, part);
	if (unlikely(req->out_done != req->out_direct)) {
		this_cpu_add(stats->counts->near, req->out_near);
		this_cpu_add(stats->counts->host, req->out_host);
	}
}

int peerdma_stats_init(struct peerdma_stats *stats, gfp_t gfp);
void peerdma_stats_free(struct peerdma_stats *stats);

struct peerdma_pair *peerdma_pair_get(struct peerdma_provider *provider, dev_t devt,
				      const char *name);
void peerdma_pair_set_leaves(struct peerdma_provider *provider, struct peerdma_pair *pair,
			     const struct peerdma_stack *stack);
void peerdma_pairs_free(struct peerdma_provider *provider);

int peerdma_opener_add(struct peerdma_ctx *ctx);
void peerdma_opener_del(struct peerdma_ctx *ctx);

u32 peerdma_request_number(void);
void peerdma_account(const struct peerdma_seen *seen, int err);
void peerdma_account_revoked(struct peerdma_ctx *ctx, const struct peerdma_seen *seen);
void peerdma_account_importer(struct peerdma_buffer *buffer, u32 reason);
void peerdma_show_fdinfo(struct seq_file *seq, struct file *file);

void peerdma_stats_register(void);
void peerdma_stats_unregister(void);

#endif /* PEERDMA_STATS_H */
