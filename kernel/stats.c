// SPDX-License-Identifier: GPL-2.0
/*
 * Counting requests, and showing the counts: to who owns an open file in its fdinfo, to root all of
 * them in debugfs. Never an address, of the kernel or of the bus.
 */
#include <linux/debugfs.h>
#include <linux/kdev_t.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "peerdma.h"
#include "trace.h"

/* Counters summed up. */
struct sum {
	u64 requests[2];
	u64 direct;
	u64 near;
	u64 host;
	u64 errors;
	u64 refused[PEERDMA_REASONS];
};

static LIST_HEAD(openers);
static DEFINE_MUTEX(openers_lock); /* protects openers, last_opener and past */
static u64 last_opener;
static struct sum past; /* of open files that are closed */

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

/* For who listens: what begins in one thread may end in another. */
u32 peerdma_request_number(void)
{
	static atomic_t last;

	return atomic_inc_return(&last) ?: atomic_inc_return(&last);
}

static void count_failure(struct peerdma_stats *stats, u32 reason)
{
	if (reason)
		atomic64_inc(&stats->refused[reason]);
	else
		atomic64_inc(&stats->errors);
}

/*
 * A request that failed. Without a route the pair is looked for; where there is none, or no memory
 * for one, it counts for the provider alone. One that was sent without waiting does not make one:
 * that may sleep, and with a route this may be an interrupt.
 */
static void count_failed(const struct peerdma_seen *seen)
{
	struct peerdma_provider *provider = seen->buffer->provider;
	struct peerdma_stats *stats = &provider->stats;
	struct peerdma_pair *pair = seen->pair;

	if (!pair && seen->bdev && seen->async)
		pair = xa_load(&provider->pairs, disk_devt(seen->bdev->bd_disk));
	else if (!pair && seen->bdev)
		pair = peerdma_pair_get(provider, disk_devt(seen->bdev->bd_disk),
					seen->bdev->bd_disk->disk_name);
	if (pair)
		stats = &pair->stats;
	peerdma_count(stats, seen->req, seen->write, seen->part);
	count_failure(stats, seen->req->out_reason);
	count_failure(&seen->buffer->opener->stats, seen->req->out_reason);
}

static void trace_end(const struct peerdma_seen *seen, int err)
{
	if (seen->req->out_near)
		trace_peerdma_bounce(seen, seen->req->out_near, false);
	if (seen->req->out_host)
		trace_peerdma_bounce(seen, seen->req->out_host, true);
	if (err && seen->req->out_reason)
		trace_peerdma_refuse(seen, err);
	trace_peerdma_complete(seen, err);
}

/**
 * peerdma_account - a request that had a file and a buffer has ended
 * @seen: the request, its out_* members final
 * @err: what it ends with, 0 or -errno
 *
 * Does not sleep if the request had a route; any context but NMI then.
 */
void peerdma_account(const struct peerdma_seen *seen, int err)
{
	/* It begins again where it may wait, and is counted then. */
	if (likely(err != -EAGAIN || !seen->async)) {
		peerdma_count(&seen->buffer->opener->stats, seen->req, seen->write, seen->part);
		if (likely(!err))
			peerdma_count(&seen->pair->stats, seen->req, seen->write, seen->part);
		else
			count_failed(seen);
	}
	if (peerdma_is_traced())
		trace_end(seen, err);
}

/* A request on a buffer that has lost its memory: nothing was looked at. */
void peerdma_account_revoked(struct peerdma_ctx *ctx, const struct peerdma_seen *seen)
{
	peerdma_count(&ctx->opener.stats, seen->req, seen->write, false);
	count_failure(&ctx->opener.stats, seen->req->out_reason);
	if (peerdma_is_traced())
		trace_end(seen, -ENODEV);
}

/* A device's driver may not have the buffer: no request, but counted as one that was refused. */
void peerdma_account_importer(struct peerdma_buffer *buffer, u32 reason)
{
	count_failure(&buffer->provider->stats, reason);
	count_failure(&buffer->opener->stats, reason);
}

static void add_to(struct sum *sum, struct peerdma_stats *stats)
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

static u64 all_refused(const struct sum *sum)
{
	u64 all = 0;
	int reason;

	for (reason = 0; reason < PEERDMA_REASONS; reason++)
		all += sum->refused[reason];
	return all;
}

/* --- Pairs of a disk and a provider. */

static struct peerdma_pair *pair_create(dev_t devt, const char *name)
{
	struct peerdma_pair *pair = kzalloc(sizeof(*pair), GFP_KERNEL);

	if (!pair)
		return NULL;
	if (peerdma_stats_init(&pair->stats, GFP_KERNEL)) {
		kfree(pair);
		return NULL;
	}
	pair->devt = devt;
	strscpy(pair->name, name, sizeof(pair->name));
	return pair;
}

static void pair_free(struct peerdma_pair *pair)
{
	peerdma_stats_free(&pair->stats);
	kfree(pair->leaves);
	kfree(pair);
}

/**
 * peerdma_pair_get - the counters of a disk and a provider
 * @provider: the caller holds it
 * @devt: its number, or that of a share
 * @name: and name
 * Return: what lives as long as the provider, or NULL if there is no memory. May sleep.
 */
struct peerdma_pair *peerdma_pair_get(struct peerdma_provider *provider, dev_t devt,
				      const char *name)
{
	struct peerdma_pair *pair = xa_load(&provider->pairs, devt);

	if (pair)
		return pair;
	pair = pair_create(devt, name);
	if (!pair)
		return NULL;
	if (xa_insert(&provider->pairs, pair->devt, pair, GFP_KERNEL)) {
		pair_free(pair);
		/* Another was faster, or there is no memory: NULL. */
		return xa_load(&provider->pairs, devt);
	}
	return pair;
}

static char *names_of_leaves(const struct peerdma_stack *stack)
{
	const struct peerdma_disk *disk;
	size_t len = 0, size = stack->nr * (DISK_NAME_LEN + 1);
	char *names = kzalloc(size, GFP_KERNEL);

	if (!names)
		return NULL;
	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (peerdma_is_leaf(disk))
			len += scnprintf(names + len, size - len, "%s%s", len ? "," : "",
					 disk->name);
	}
	return names;
}

/* Where the requests that are counted for a pair from now on end. May sleep. */
void peerdma_pair_set_leaves(struct peerdma_provider *provider, struct peerdma_pair *pair,
			     const struct peerdma_stack *stack)
{
	char *names = names_of_leaves(stack);

	/* Without memory for it the old one stays. */
	if (!names)
		return;
	xa_lock(&provider->pairs);
	swap(pair->leaves, names);
	/* Another disk may have got the number. */
	strscpy(pair->name, stack->disks[0].name, sizeof(pair->name));
	xa_unlock(&provider->pairs);
	kfree(names);
}

/* The provider's last reference is gone. */
void peerdma_pairs_free(struct peerdma_provider *provider)
{
	struct peerdma_pair *pair;
	unsigned long devt;

	xa_for_each(&provider->pairs, devt, pair)
		pair_free(pair);
	xa_destroy(&provider->pairs);
}

/* --- Open files. */

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

/* Before anything of @ctx is undone, and after its last request: its counts become the past. */
void peerdma_opener_del(struct peerdma_ctx *ctx)
{
	mutex_lock(&openers_lock);
	list_del(&ctx->opener.link);
	add_to(&past, &ctx->opener.stats);
	mutex_unlock(&openers_lock);
	peerdma_stats_free(&ctx->opener.stats);
}

void peerdma_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct peerdma_ctx *ctx = file->private_data;
	struct sum sum = {};
	int reason;

	add_to(&sum, &ctx->opener.stats);
	seq_printf(seq, "peerdma-file:\t%llu\n", ctx->opener.id);
	seq_printf(seq, "peerdma-files:\t%d\n", atomic_read(&ctx->opener.files));
	seq_printf(seq, "peerdma-buffers:\t%d\n", atomic_read(&ctx->opener.buffers));
	seq_printf(seq, "peerdma-buffer-bytes:\t%lld\n", atomic64_read(&ctx->opener.buffer_bytes));
	seq_printf(seq, "peerdma-held-pages:\t%llu\n", peerdma_held_pages(&ctx->opener));
	seq_printf(seq, "peerdma-inside-requests:\t%llu\n", peerdma_inside_requests(&ctx->opener));
	seq_printf(seq, "peerdma-exports:\t%d\n", atomic_read(&ctx->opener.exports));
	seq_printf(seq, "peerdma-export-mapped-bytes:\t%lld\n",
		   atomic64_read(&ctx->opener.exported));
	seq_printf(seq, "peerdma-reads:\t%llu\n", sum.requests[0]);
	seq_printf(seq, "peerdma-writes:\t%llu\n", sum.requests[1]);
	seq_printf(seq, "peerdma-direct-bytes:\t%llu\n", sum.direct);
	seq_printf(seq, "peerdma-near-bytes:\t%llu\n", sum.near);
	seq_printf(seq, "peerdma-host-bytes:\t%llu\n", sum.host);
	seq_printf(seq, "peerdma-errors:\t%llu\n", sum.errors);
	seq_printf(seq, "peerdma-refused:\t%llu\n", all_refused(&sum));
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		if (sum.refused[reason])
			seq_printf(seq, "peerdma-refused-%d:\t%llu\n", reason, sum.refused[reason]);
	}
}

/* --- debugfs. */

static void show(struct seq_file *seq, const struct sum *sum)
{
	int reason;

	seq_printf(seq, " reads=%llu writes=%llu direct=%llu near=%llu host=%llu errors=%llu",
		   sum->requests[0], sum->requests[1], sum->direct, sum->near, sum->host,
		   sum->errors);
	seq_printf(seq, " refused=%llu", all_refused(sum));
	for (reason = 0; reason < PEERDMA_REASONS; reason++) {
		if (sum->refused[reason])
			seq_printf(seq, " refused-%d=%llu", reason, sum->refused[reason]);
	}
}

static void show_pair(struct seq_file *seq, struct peerdma_provider *provider,
		      struct peerdma_pair *pair)
{
	struct sum sum = {};

	add_to(&sum, &pair->stats);
	seq_printf(seq, "disk provider=%u dev=%u:%u", provider->id, MAJOR(pair->devt),
		   MINOR(pair->devt));
	xa_lock(&provider->pairs);
	seq_printf(seq, " name=%s", pair->name);
	if (pair->leaves)
		seq_printf(seq, " leaves=%s", pair->leaves);
	xa_unlock(&provider->pairs);
	show(seq, &sum);
	seq_putc(seq, '\n');
}

static void show_provider(struct seq_file *seq, struct peerdma_provider *provider)
{
	struct peerdma_pair *pair;
	unsigned long devt;
	struct sum sum = {};

	add_to(&sum, &provider->stats);
	xa_for_each(&provider->pairs, devt, pair)
		add_to(&sum, &pair->stats);
	seq_printf(seq, "provider id=%u pci=%s", provider->id, pci_name(provider->pdev));
	show(seq, &sum);
	seq_putc(seq, '\n');
	xa_for_each(&provider->pairs, devt, pair)
		show_pair(seq, provider, pair);
}

static void show_providers(struct seq_file *seq)
{
	struct peerdma_provider *provider;
	u32 id = 0;

	while ((provider = peerdma_provider_next(NULL, id))) {
		id = provider->id + 1;
		show_provider(seq, provider);
		peerdma_provider_put(provider);
	}
}

/* A name goes last and escaped: it may hold anything. */
static void show_opener(struct seq_file *seq, struct peerdma_opener *opener)
{
	struct sum sum = {};

	add_to(&sum, &opener->stats);
	seq_printf(seq, "file id=%llu pid=%d buffers=%d buffer-bytes=%lld", opener->id, opener->pid,
		   atomic_read(&opener->buffers), atomic64_read(&opener->buffer_bytes));
	show(seq, &sum);
	seq_puts(seq, " comm=");
	seq_escape(seq, opener->comm, " \t\n\\");
	seq_putc(seq, '\n');
}

static void show_total(struct seq_file *seq)
{
	struct peerdma_opener *opener;
	struct sum sum = past;

	list_for_each_entry(opener, &openers, link) {
		add_to(&sum, &opener->stats);
		cond_resched();
	}
	seq_puts(seq, "total");
	show(seq, &sum);
	seq_putc(seq, '\n');
}

static int stats_show(struct seq_file *seq, void *unused)
{
	struct peerdma_opener *opener;

	mutex_lock(&openers_lock);
	show_total(seq);
	list_for_each_entry(opener, &openers, link) {
		show_opener(seq, opener);
		cond_resched();
	}
	mutex_unlock(&openers_lock);
	peerdma_show_users(seq);
	show_providers(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int held_show(struct seq_file *seq, void *unused)
{
	peerdma_inside_show(seq);
	peerdma_held_show(seq);
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

void peerdma_stats_register(void)
{
	/* Without debugfs these are error pointers, which debugfs itself knows to ignore. */
	debugfs_dir = debugfs_create_dir("peerdma", NULL);
	debugfs_create_file("stats", 0400, debugfs_dir, NULL, &stats_fops);
	debugfs_create_file("held", 0400, debugfs_dir, NULL, &held_fops);
	debugfs_create_file("exports", 0400, debugfs_dir, NULL, &exports_fops);
	debugfs_create_file("nomerge", 0400, debugfs_dir, NULL, &nomerge_fops);
}

/* Waits for who is reading. */
void peerdma_stats_unregister(void)
{
	debugfs_remove_recursive(debugfs_dir);
}
