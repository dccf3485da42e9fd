// SPDX-License-Identifier: GPL-2.0
/*
 * Shows the counters: those of an open file in its fdinfo, for its owner; all of them in debugfs,
 * for root. Never shows an address, of the kernel or of the bus.
 */
#include <linux/debugfs.h>
#include <linux/pci.h>
#include <linux/seq_file.h>

#include "compat/compat.h"
#include "base/counters.h"
#include "base/opener.h"
#include "base/pair.h"
#include "memory/busy.h"
#include "memory/charge.h"
#include "memory/ctx.h"
#include "memory/drain.h"
#include "memory/export.h"
#include "memory/provider.h"
#include "routing/queue.h"
#include "face/debugfs.h"

static struct dentry *debugfs_dir;

void peerdma_fdinfo_show(struct seq_file *seq, struct file *file)
{
	struct peerdma_ctx *ctx = file->private_data;
	struct peerdma_sum sum = {};
	int reason;

	peerdma_sum_add(&sum, &ctx->opener.stats);
	seq_printf(seq, "peerdma-file:\t%llu\n", ctx->opener.id);
	seq_printf(seq, "peerdma-files:\t%d\n", atomic_read(&ctx->opener.files));
	seq_printf(seq, "peerdma-buffers:\t%d\n", atomic_read(&ctx->opener.buffers));
	seq_printf(seq, "peerdma-buffer-bytes:\t%lld\n", atomic64_read(&ctx->opener.buffer_bytes));
	seq_printf(seq, "peerdma-held-pages:\t%llu\n", peerdma_busy_pages(&ctx->opener));
	seq_printf(seq, "peerdma-inside-requests:\t%llu\n", peerdma_drain_requests(&ctx->opener));
	seq_printf(seq, "peerdma-exports:\t%d\n", atomic_read(&ctx->opener.exports));
	seq_printf(seq, "peerdma-export-mapped-bytes:\t%lld\n",
		   atomic64_read(&ctx->opener.exported));
	seq_printf(seq, "peerdma-reads:\t%llu\n", sum.requests[0]);
	seq_printf(seq, "peerdma-writes:\t%llu\n", sum.requests[1]);
	seq_printf(seq, "peerdma-direct-bytes:\t%llu\n", sum.direct);
	seq_printf(seq, "peerdma-near-bytes:\t%llu\n", sum.near);
	seq_printf(seq, "peerdma-host-bytes:\t%llu\n", sum.host);
	seq_printf(seq, "peerdma-errors:\t%llu\n", sum.errors);
	seq_printf(seq, "peerdma-refused:\t%llu\n", peerdma_sum_refused(&sum));
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		if (sum.refused[reason])
			seq_printf(seq, "peerdma-refused-%d:\t%llu\n", reason, sum.refused[reason]);
	}
}

static void provider_show(struct seq_file *seq, struct peerdma_provider *provider)
{
	struct peerdma_sum sum = {};

	peerdma_sum_add(&sum, &provider->stats);
	peerdma_pairs_sum(&provider->pairs, &sum);
	seq_printf(seq, "provider id=%u pci=%s", provider->id, pci_name(provider->pdev));
	peerdma_sum_show(seq, &sum);
	seq_putc(seq, '\n');
	peerdma_pairs_show(&provider->pairs, provider->id, seq);
}

static void providers_show(struct seq_file *seq)
{
	struct peerdma_provider *provider;
	u32 id = 0;

	while ((provider = peerdma_provider_next(NULL, id))) {
		id = provider->id + 1;
		provider_show(seq, provider);
		peerdma_provider_put(provider);
	}
}

static int stats_show(struct seq_file *seq, void *unused)
{
	peerdma_openers_show(seq);
	peerdma_charges_show(seq);
	providers_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int held_show(struct seq_file *seq, void *unused)
{
	peerdma_drains_show(seq);
	peerdma_busy_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(held);

static int exports_show(struct seq_file *seq, void *unused)
{
	peerdma_exports_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(exports);

static int nomerge_show(struct seq_file *seq, void *unused)
{
	peerdma_nomerge_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nomerge);

void peerdma_debugfs_register(void)
{
	/* Without debugfs these are error pointers, which debugfs functions accept. */
	debugfs_dir = debugfs_create_dir("peerdma", NULL);
	debugfs_create_file("stats", 0400, debugfs_dir, NULL, &stats_fops);
	debugfs_create_file("held", 0400, debugfs_dir, NULL, &held_fops);
	debugfs_create_file("exports", 0400, debugfs_dir, NULL, &exports_fops);
	debugfs_create_file("nomerge", 0400, debugfs_dir, NULL, &nomerge_fops);
}

/* Waits for readers. */
void peerdma_debugfs_unregister(void)
{
	debugfs_remove_recursive(debugfs_dir);
}
