/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that was released while others still hold pages of it: busy.c.
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
 * struct peerdma_busy - a mem that cannot return to the pool yet
 * @link: in the list of them; protected by its lock
 * @look: polls, at growing intervals
 * @looks: number of polls
 * @pages: pages that others held at the last poll
 * @most: the most references of others on one of those pages
 * @since: jiffies of the release
 * @named: it has been logged
 * @buffer: id of the buffer that it was the memory of; 0: none
 * @opener: id of the open file that owned it
 * @pid: process that opened that file, in the first PID namespace
 * @comm: its name at that time
 * @exporter: the buffer, referenced, until its importers have been logged; or NULL
 *
 * @pages, @most and @named are also protected by that lock. The rest, from @look on, is immutable
 *	or used by the work item only.
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
