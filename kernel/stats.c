// SPDX-License-Identifier: GPL-2.0
/*
 * Counting requests, and showing the counts: to who owns an open file in its fdinfo, to root all of
 * them in debugfs.
 */
#include <linux/debugfs.h>
#include <linux/kdev_t.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "peerdma.h"
#include "trace.h"

static struct peerdma_stats total;

/* By dev_t, struct peerdma_stats. An entry stays until the module goes. */
static DEFINE_XARRAY_FLAGS(devices, XA_FLAGS_LOCK_IRQ);

static LIST_HEAD(openers);
static DEFINE_MUTEX(openers_lock); /* protects openers and last_opener */
static u64 last_opener;

static struct dentry *debugfs_dir;

int peerdma_stats_init(struct peerdma_stats *stats, gfp_t gfp)
{
	stats->counts = alloc_percpu_gfp(struct peerdma_counts, gfp);
	return stats->counts ? 0 : -ENOMEM;
}

void peerdma_stats_free(struct peerdma_stats *stats)
{
	free_percpu(stats->counts);
}

static struct peerdma_stats *add_device(dev_t dev)
{
	struct peerdma_stats *stats = kzalloc(sizeof(*stats), GFP_NOWAIT | __GFP_NOWARN);
	unsigned long flags;
	int err;

	if (!stats)
		return NULL;
	err = peerdma_stats_init(stats, GFP_NOWAIT | __GFP_NOWARN);
	if (!err) {
		xa_lock_irqsave(&devices, flags);
		err = __xa_insert(&devices, dev, stats, GFP_NOWAIT | __GFP_NOWARN);
		xa_unlock_irqrestore(&devices, flags);
	}
	if (err) {
		peerdma_stats_free(stats);
		kfree(stats);
		/* Another was faster, or there is no memory: NULL. */
		return xa_load(&devices, dev);
	}
	return stats;
}

/*
 * The first request of a device makes its entry, perhaps in an interrupt: without waiting. Where
 * there is no memory, the device's count misses a request.
 */
static struct peerdma_stats *device_stats(dev_t dev)
{
	return xa_load(&devices, dev) ?: add_device(dev);
}

/* END_OF_FILE and the like come without an errno: nothing was refused. */
static bool is_refused(const struct peerdma_seen *seen, int err)
{
	return err && seen->req->out_reason;
}

static void count(struct peerdma_stats *stats, const struct peerdma_seen *seen, int err)
{
	struct peerdma_counts __percpu *counts = stats->counts;
	const struct peerdma_io *req = seen->req;

	if (seen->write)
		this_cpu_inc(counts->writes);
	else
		this_cpu_inc(counts->reads);
	this_cpu_add(counts->direct, req->out_direct);
	if (req->out_near)
		this_cpu_add(counts->near, req->out_near);
	if (req->out_host)
		this_cpu_add(counts->host, req->out_host);
	if (likely(!err))
		return;
	if (is_refused(seen, err)) {
		this_cpu_inc(counts->refused);
		atomic64_inc(&stats->refused[req->out_reason % PEERDMA_REASONS]);
	} else {
		this_cpu_inc(counts->errors);
	}
}

static void trace_end(const struct peerdma_seen *seen, int err)
{
	if (seen->req->out_near)
		trace_peerdma_bounce(seen, seen->req->out_near, false);
	if (seen->req->out_host)
		trace_peerdma_bounce(seen, seen->req->out_host, true);
	if (is_refused(seen, err))
		trace_peerdma_refuse(seen, err);
	trace_peerdma_complete(seen, err);
}

/**
 * peerdma_account - a request that had a file and a buffer has ended
 * @seen: the request, its out_* members final
 * @err: what it ends with, 0 or -errno
 *
 * Does not sleep; any context but NMI. All that @seen points to must still be referenced.
 */
void peerdma_account(const struct peerdma_seen *seen, int err)
{
	struct peerdma_stats *device = seen->dev ? device_stats(seen->dev) : NULL;

	count(&total, seen, err);
	count(&seen->provider->stats, seen, err);
	count(&seen->ctx->opener.stats, seen, err);
	if (device)
		count(device, seen, err);
	trace_end(seen, err);
}

/**
 * peerdma_opener_add - an open file comes into being: begin to count
 * @ctx: zeroed
 * Return: 0 or -ENOMEM.
 */
int peerdma_opener_add(struct peerdma_ctx *ctx)
{
	struct peerdma_opener *opener = &ctx->opener;
	int err = peerdma_stats_init(&opener->stats, GFP_KERNEL_ACCOUNT);

	if (err)
		return err;
	opener->pid = task_tgid_nr(current);
	get_task_comm(opener->comm, current);
	mutex_lock(&openers_lock);
	opener->id = ++last_opener;
	list_add_tail(&opener->link, &openers);
	mutex_unlock(&openers_lock);
	return 0;
}

/* Before anything of @ctx is undone: from here on nobody looks at it. */
void peerdma_opener_del(struct peerdma_ctx *ctx)
{
	mutex_lock(&openers_lock);
	list_del(&ctx->opener.link);
	mutex_unlock(&openers_lock);
}

static struct peerdma_counts sum_of(struct peerdma_stats *stats)
{
	struct peerdma_counts sum = {}, *part;
	int cpu;

	for_each_possible_cpu(cpu) {
		part = per_cpu_ptr(stats->counts, cpu);
		sum.reads += READ_ONCE(part->reads);
		sum.writes += READ_ONCE(part->writes);
		sum.direct += READ_ONCE(part->direct);
		sum.near += READ_ONCE(part->near);
		sum.host += READ_ONCE(part->host);
		sum.refused += READ_ONCE(part->refused);
		sum.errors += READ_ONCE(part->errors);
	}
	return sum;
}

struct buffer_sum {
	u64 n;
	u64 bytes;
};

/* Buffers that still have their memory. The gate keeps it while we look at its length. */
static struct buffer_sum sum_of_buffers(struct peerdma_ctx *ctx)
{
	struct peerdma_buffer *buffer;
	struct buffer_sum sum = {};
	unsigned long id;

	xa_lock(&ctx->buffers);
	xa_for_each(&ctx->buffers, id, buffer) {
		if (!buffer->ready || !peerdma_gate_enter(&buffer->gate))
			continue;
		sum.n++;
		sum.bytes += buffer->mem->len;
		peerdma_gate_exit(&buffer->gate);
	}
	xa_unlock(&ctx->buffers);
	return sum;
}

void peerdma_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct peerdma_ctx *ctx = file->private_data;
	struct peerdma_stats *stats = &ctx->opener.stats;
	struct peerdma_counts sum = sum_of(stats);
	struct buffer_sum buffers = sum_of_buffers(ctx);
	int reason;
	u64 n;

	seq_printf(seq, "peerdma-file:\t%llu\n", ctx->opener.id);
	seq_printf(seq, "peerdma-buffers:\t%llu\n", buffers.n);
	seq_printf(seq, "peerdma-buffer-bytes:\t%llu\n", buffers.bytes);
	seq_printf(seq, "peerdma-reads:\t%llu\n", sum.reads);
	seq_printf(seq, "peerdma-writes:\t%llu\n", sum.writes);
	seq_printf(seq, "peerdma-direct-bytes:\t%llu\n", sum.direct);
	seq_printf(seq, "peerdma-near-bytes:\t%llu\n", sum.near);
	seq_printf(seq, "peerdma-host-bytes:\t%llu\n", sum.host);
	seq_printf(seq, "peerdma-errors:\t%llu\n", sum.errors);
	seq_printf(seq, "peerdma-refused:\t%llu\n", sum.refused);
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		n = atomic64_read(&stats->refused[reason]);
		if (n)
			seq_printf(seq, "peerdma-refused-%d:\t%llu\n", reason, n);
	}
}

static void show(struct seq_file *seq, struct peerdma_stats *stats)
{
	struct peerdma_counts sum = sum_of(stats);
	int reason;
	u64 n;

	seq_printf(seq, " reads=%llu writes=%llu direct=%llu near=%llu host=%llu errors=%llu",
		   sum.reads, sum.writes, sum.direct, sum.near, sum.host, sum.errors);
	seq_printf(seq, " refused=%llu", sum.refused);
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		n = atomic64_read(&stats->refused[reason]);
		if (n)
			seq_printf(seq, " refused-%d=%llu", reason, n);
	}
}

static void show_providers(struct seq_file *seq)
{
	struct peerdma_provider *provider;
	u32 id = 0;

	while ((provider = peerdma_provider_next(id))) {
		id = provider->id + 1;
		seq_printf(seq, "provider id=%u pci=%s", provider->id, pci_name(provider->pdev));
		show(seq, &provider->stats);
		seq_putc(seq, '\n');
		peerdma_provider_put(provider);
	}
}

static void show_devices(struct seq_file *seq)
{
	struct peerdma_stats *stats;
	unsigned long dev;

	xa_for_each(&devices, dev, stats) {
		seq_printf(seq, "device dev=%u:%u", MAJOR(dev), MINOR(dev));
		show(seq, stats);
		seq_putc(seq, '\n');
	}
}

/* A name goes last and escaped: it may hold anything. */
static void show_opener(struct seq_file *seq, struct peerdma_opener *opener)
{
	struct peerdma_ctx *ctx = container_of(opener, struct peerdma_ctx, opener);
	struct buffer_sum buffers = sum_of_buffers(ctx);

	seq_printf(seq, "file id=%llu pid=%d buffers=%llu buffer-bytes=%llu", opener->id,
		   opener->pid, buffers.n, buffers.bytes);
	show(seq, &opener->stats);
	seq_puts(seq, " comm=");
	seq_escape(seq, opener->comm, " \t\n\\");
	seq_putc(seq, '\n');
}

static int stats_show(struct seq_file *seq, void *unused)
{
	struct peerdma_opener *opener;

	seq_puts(seq, "total");
	show(seq, &total);
	seq_putc(seq, '\n');
	show_providers(seq);
	show_devices(seq);
	mutex_lock(&openers_lock);
	list_for_each_entry(opener, &openers, link)
		show_opener(seq, opener);
	mutex_unlock(&openers_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

int peerdma_stats_register(void)
{
	int err = peerdma_stats_init(&total, GFP_KERNEL);

	if (err)
		return err;
	/* Without debugfs these are error pointers, which debugfs itself knows to ignore. */
	debugfs_dir = debugfs_create_dir("peerdma", NULL);
	debugfs_create_file("stats", 0400, debugfs_dir, NULL, &stats_fops);
	return 0;
}

/* Waits for who is reading. */
void peerdma_stats_unregister(void)
{
	struct peerdma_stats *stats;
	unsigned long dev;

	debugfs_remove_recursive(debugfs_dir);
	xa_for_each(&devices, dev, stats) {
		peerdma_stats_free(stats);
		kfree(stats);
	}
	xa_destroy(&devices);
	peerdma_stats_free(&total);
}
