/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that was let go while somebody else still holds pages of it: busy.c.
 */
#ifndef PEERDMA_BUSY_H
#define PEERDMA_BUSY_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct peerdma_buffer;
struct peerdma_mem;
struct peerdma_opener;
struct peerdma_provider;
struct seq_file;

/**
 * struct peerdma_busy - a mem that cannot go back to the pool yet
 * @link: in the list of them; protected by its lock
 * @look: looks again, more and more seldom
 * @looks: how often it did
 * @pages: that others held when it looked last
 * @most: references of theirs that one of them had then
 * @since: jiffies when it was let go
 * @named: the log has it
 * @buffer: number of the buffer that it was, 0 if of none
 * @opener: number of the open file that it belonged to
 * @pid: process that opened that, in the first PID namespace
 * @comm: its name then
 * @exporter: the buffer, referenced, until its importers that did not let go are named; or NULL
 *
 * @pages, @most and @named are written under that lock too. The rest from @look on belongs to the
 * work item, or is immutable.
 */
struct peerdma_busy {
	struct list_head link;
	struct delayed_work look;
	unsigned int looks;
	unsigned long pages;
	unsigned int most;
	unsigned long since;
	bool named;
	u32 buffer;
	u64 opener;
	pid_t pid;
	char comm[TASK_COMM_LEN];
	struct peerdma_buffer *exporter;
};

void peerdma_mem_release(struct peerdma_mem *mem, struct peerdma_buffer *buffer);
bool peerdma_busy_is_due(unsigned long since);
void peerdma_busy_log(struct peerdma_provider *provider);
void peerdma_busy_poll_now(const struct peerdma_provider *provider);
u64 peerdma_busy_pages(const struct peerdma_opener *opener);
void peerdma_busy_show(struct seq_file *seq);

#endif /* PEERDMA_BUSY_H */
