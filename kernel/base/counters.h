/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of requests.
 *
 * At its end a request is counted twice: for its open file, and for the pair of provider and disk
 * whose route it used. Readers compute all other sums. The counters are per CPU: a few adds to
 * cache lines that no other CPU writes, also if threads share an open file or processes a provider,
 * and also in an interrupt. Refusals are rare, and their counters are shared: per CPU they would
 * take half a KiB per open file and CPU. A reader may see a running request half counted, and sees
 * a completed one whole.
 *
 * Bytes are counted for the disk that has the file. If that is a stack, their distribution to its
 * leaves is not known; the leaves are listed beside.
 */
#ifndef PEERDMA_COUNTERS_H
#define PEERDMA_COUNTERS_H

#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <uapi/peerdma.h>

struct seq_file;

#define PEERDMA_REASONS 128 /* more than enum peerdma_reason has */
static_assert(PEERDMA_REASON_RULE < PEERDMA_REASONS);

/**
 * struct peerdma_counts - counters of one CPU
 * @requests: reads, then writes, including refused ones
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
 * struct peerdma_stats - counters of an open file, a pair or a provider
 * @counts: per CPU
 * @errors: requests that failed without a reason
 * @refused: requests that failed with a reason, by reason
 */
struct peerdma_stats {
	struct peerdma_counts __percpu *counts;
	atomic64_t errors;
	atomic64_t refused[PEERDMA_REASONS];
};

/* Sums of counters. */
struct peerdma_sum {
	u64 requests[2];
	u64 direct;
	u64 near;
	u64 host;
	u64 errors;
	u64 refused[PEERDMA_REASONS];
};

/* Counts a request of which all bytes went directly. @part: only its bytes. */
static __always_inline void peerdma_count_direct(struct peerdma_stats *stats, u64 bytes, bool write,
						 bool part)
{
	if (likely(!part))
		this_cpu_inc(stats->counts->requests[write]);
	this_cpu_add(stats->counts->direct, bytes);
}

/* Request completion; hot path. */
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
void peerdma_count_failure(struct peerdma_stats *stats, u32 reason);
void peerdma_sum_add(struct peerdma_sum *sum, struct peerdma_stats *stats);
u64 peerdma_sum_refused(const struct peerdma_sum *sum);
void peerdma_sum_show(struct seq_file *seq, const struct peerdma_sum *sum);

#endif /* PEERDMA_COUNTERS_H */
