// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of requests, and their sums.
 */
#include <linux/seq_file.h>

#include "base/counters.h"

int peerdma_stats_init(struct peerdma_stats *stats, gfp_t gfp)
{
	stats->counts = alloc_percpu_gfp(struct peerdma_counts, gfp);
	return stats->counts ? 0 : -ENOMEM;
}

void peerdma_stats_free(struct peerdma_stats *stats)
{
	free_percpu(stats->counts);
}

/* Counts a failed request, by its reason if it has one. */
void peerdma_count_failure(struct peerdma_stats *stats, u32 reason)
{
	if (reason)
		atomic64_inc(&stats->refused[reason]);
	else
		atomic64_inc(&stats->errors);
}

void peerdma_sum_add(struct peerdma_sum *sum, struct peerdma_stats *stats)
{
	struct peerdma_counts *part;
	int cpu, reason;

	for_each_possible_cpu(cpu) {
		part = per_cpu_ptr(stats->counts, cpu);
		sum->requests[0] += READ_ONCE(part->requests[0]);
		sum->requests[1] += READ_ONCE(part->requests[1]);
		sum->direct += READ_ONCE(part->direct);
		sum->near += READ_ONCE(part->near);
		sum->host += READ_ONCE(part->host);
	}
	sum->errors += atomic64_read(&stats->errors);
	for (reason = 0; reason < PEERDMA_REASONS; reason++)
		sum->refused[reason] += atomic64_read(&stats->refused[reason]);
}

u64 peerdma_sum_refused(const struct peerdma_sum *sum)
{
	u64 all = 0;
	int reason;

	for (reason = 0; reason < PEERDMA_REASONS; reason++)
		all += sum->refused[reason];
	return all;
}

/* Prints the rest of a debugfs line, after the name. */
void peerdma_sum_show(struct seq_file *seq, const struct peerdma_sum *sum)
{
	int reason;

	seq_printf(seq, " reads=%llu writes=%llu direct=%llu near=%llu host=%llu errors=%llu",
		   sum->requests[0], sum->requests[1], sum->direct, sum->near, sum->host,
		   sum->errors);
	seq_printf(seq, " refused=%llu", peerdma_sum_refused(sum));
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		if (sum->refused[reason])
			seq_printf(seq, " refused-%d=%llu", reason, sum->refused[reason]);
	}
}
