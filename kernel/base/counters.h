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
#ifndef PEERDMA_COUNTERS_H
#define PEERDMA_COUNTERS_H

#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <uapi/peerdma.h>

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

/* Counters summed up. */
struct peerdma_sum {
	u64 requests[2];
	u64 direct;
	u64 near;
	u64 host;
	u64 errors;
	u64 refused[PEERDMA_REASONS];
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
void peerdma_count_failure(struct peerdma_stats *stats, u32 reason);
void peerdma_sum_add(struct peerdma_sum *sum, struct peerdma_stats *stats);
u64 peerdma_sum_refused(const struct peerdma_sum *sum);
void peerdma_sum_show(struct seq_file *seq, const struct peerdma_sum *sum);

#endif /* PEERDMA_COUNTERS_H */
