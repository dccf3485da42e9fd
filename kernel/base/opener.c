// SPDX-License-Identifier: GPL-2.0
/*
 * The open files of /dev/peerdma and of the providers' nodes.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>

#include "base/counters.h"
#include "base/opener.h"

static LIST_HEAD(openers);
static DEFINE_MUTEX(openers_mutex); /* protects openers, last_opener and past */
static u64 last_opener;
static struct peerdma_sum past; /* sum of closed files */

/**
 * peerdma_opener_add - begin to count for a new open file
 * @opener: zeroed
 * Return: 0 or -ENOMEM.
 */
int peerdma_opener_add(struct peerdma_opener *opener)
{
	int err = peerdma_stats_init(&opener->stats, GFP_KERNEL_ACCOUNT);

	if (err)
		return err;
	opener->pid = task_tgid_nr(current);
	get_task_comm(opener->comm, current);
	mutex_lock(&openers_mutex);
	opener->id = ++last_opener;
	list_add_tail(&opener->link, &openers);
	mutex_unlock(&openers_mutex);
	return 0;
}

/*
 * Called after the last request, and before anything of the file is undone. Adds its counters to
 * those of closed files.
 */
void peerdma_opener_del(struct peerdma_opener *opener)
{
	mutex_lock(&openers_mutex);
	list_del(&opener->link);
	peerdma_sum_add(&past, &opener->stats);
	mutex_unlock(&openers_mutex);
	peerdma_stats_free(&opener->stats);
}

/* The process's name may contain any byte, so it is escaped, and comes last. */
static void opener_show(struct seq_file *seq, struct peerdma_opener *opener)
{
	struct peerdma_sum sum = {};

	peerdma_sum_add(&sum, &opener->stats);
	seq_printf(seq, "file id=%llu pid=%d buffers=%d buffer-bytes=%lld", opener->id, opener->pid,
		   atomic_read(&opener->buffers), atomic64_read(&opener->buffer_bytes));
	peerdma_sum_show(seq, &sum);
	seq_puts(seq, " comm=");
	seq_escape(seq, opener->comm, " \t\n\\");
	seq_putc(seq, '\n');
}

static void openers_show_total(struct seq_file *seq)
{
	struct peerdma_opener *opener;
	struct peerdma_sum sum = past;

	list_for_each_entry(opener, &openers, link) {
		peerdma_sum_add(&sum, &opener->stats);
		cond_resched();
	}
	seq_puts(seq, "total");
	peerdma_sum_show(seq, &sum);
	seq_putc(seq, '\n');
}

/* The sum first, then one line for each open file. */
void peerdma_openers_show(struct seq_file *seq)
{
	struct peerdma_opener *opener;

	mutex_lock(&openers_mutex);
	openers_show_total(seq);
	list_for_each_entry(opener, &openers, link) {
		opener_show(seq, opener);
		cond_resched();
	}
	mutex_unlock(&openers_mutex);
}
