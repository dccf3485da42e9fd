// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that was released while others still hold pages of it: I/O on a proxy address, or a
 * consumer below this module that puts its references late or never. The module does not wait for
 * those, but unbinding the provider does, in the kernel, without limit and without a message. So
 * each such mem stays on a list, with its last owner, until its last page is free.
 *
 * Each page that others hold has a reference of this module as well, so its struct page stays valid
 * whatever happens to the provider, and its count tells how many references others hold. When only
 * the module's own is left, the page is freed (mem_pages.c). No event reports that, so a work item
 * polls, at growing intervals and a bounded number of pages each time. While the provider is being
 * unbound it polls four times a second, which delays the unbind by that much at most.
 */
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/refcount.h>
#include <linux/seq_file.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "base/opener.h"
#include "base/usage.h"
#include "base/work.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/provider.h"

#define NAMES_AT_ONCE 10 /* mems that an unbind logs again, at most */
#define LOOKS_APART 11 /* the longest interval: 1 << 11 ms, or 2 s */
#define LOOKS_UNBIND 8 /* the same while an unbind waits: a quarter of a second */

static unsigned int held_seconds = 5;
module_param(held_seconds, uint, 0644);
MODULE_PARM_DESC(held_seconds,
		 "seconds until waited-for requests and held memory are logged; 0: never");

static LIST_HEAD(busy_list);
static DEFINE_MUTEX(busy_mutex); /* protects busy_list, and pages, most and named of each entry */

static unsigned long busy_seconds(const struct peerdma_busy *busy)
{
	return (jiffies - busy->since) / HZ;
}

static void busy_schedule(struct peerdma_mem *mem)
{
	const bool unbinding = peerdma_usage_killed(&mem->provider->usage);
	struct peerdma_busy *busy = &mem->busy;

	busy->looks = min(busy->looks + 1, unbinding ? LOOKS_UNBIND : LOOKS_APART);
	queue_delayed_work(peerdma_wq, &busy->look, msecs_to_jiffies(1 << busy->looks));
}

/* The process's name may contain any byte, so it is escaped. */
static void busy_log(struct peerdma_mem *mem)
{
	bool unbinding = peerdma_usage_killed(&mem->provider->usage);
	struct pci_dev *pdev = mem->provider->pdev;
	struct peerdma_busy *busy = &mem->busy;

	lockdep_assert_held(&busy_mutex);
	pci_warn(pdev,
		 "others hold %lu of %llu pages of buffer %u (pid %d, %*pE), freed %lu s ago%s\n",
		 busy->pages, mem->len >> PAGE_SHIFT, busy->buffer, busy->pid,
		 (int)strlen(busy->comm), busy->comm, busy_seconds(busy),
		 unbinding ? "; unbinding waits for them" : "");
	busy->named = true;
}

static void busy_log_end(struct peerdma_mem *mem)
{
	struct peerdma_busy *busy = &mem->busy;
	struct pci_dev *pdev = mem->provider->pdev;

	pci_info_ratelimited(pdev, "the last page of buffer %u of pid %d was freed after %lu s\n",
			     busy->buffer, busy->pid, busy_seconds(busy));
}

/*
 * True if a wait that began at @since is to be logged now. False: ask again later; the log may be
 * rate-limited.
 */
bool peerdma_busy_is_due(unsigned long since)
{
	static DEFINE_RATELIMIT_STATE(limit, 5 * HZ, 10);
	unsigned int after = READ_ONCE(held_seconds);

	return after && (jiffies - since) / HZ >= after && __ratelimit(&limit);
}

/*
 * Logs the importers that the revoke could not log because of the rate limit. Puts the exporter
 * when all are logged, or the mem is settled.
 */
static void busy_log_importers(struct peerdma_busy *busy, bool settled)
{
	if (!busy->exporter || (!settled && !peerdma_exports_log(busy->exporter)))
		return;
	peerdma_buffer_put(busy->exporter);
	busy->exporter = NULL;
}

/* Only this work item looks at the pages, so it does so without the lock: it may take long. */
static void busy_poll(struct work_struct *work)
{
	struct peerdma_busy *busy = container_of(work, struct peerdma_busy, look.work);
	struct peerdma_mem *mem = container_of(busy, struct peerdma_mem, busy);
	bool settled = peerdma_mem_reclaim(mem);
	unsigned long pages = 0;
	unsigned int most = 0;

	if (!settled)
		peerdma_mem_count_busy(mem, &pages, &most);
	mutex_lock(&busy_mutex);
	busy->pages = pages;
	busy->most = most;
	if (settled)
		list_del(&busy->link);
	else if (!busy->named && peerdma_busy_is_due(busy->since))
		busy_log(mem);
	mutex_unlock(&busy_mutex);
	busy_log_importers(busy, settled);
	if (!settled) {
		busy_schedule(mem);
		return;
	}
	/* peerdma_busy_poll_now() may have requeued it; from here on nothing can. */
	cancel_delayed_work(&busy->look);
	if (busy->named)
		busy_log_end(mem);
	peerdma_mem_free(mem);
}

/* Polls all mems of a provider now: pages that no one else holds are free when this returns. */
void peerdma_busy_poll_now(const struct peerdma_provider *provider)
{
	struct peerdma_mem *mem;

	mutex_lock(&busy_mutex);
	list_for_each_entry(mem, &busy_list, busy.link) {
		if (mem->provider == provider)
			mod_delayed_work(peerdma_wq, &mem->busy.look, 0);
	}
	mutex_unlock(&busy_mutex);
	flush_workqueue(peerdma_wq);
}

/* Adds a mem to the list, which owns it from now on. */
static void busy_add(struct peerdma_mem *mem, struct peerdma_buffer *buffer)
{
	struct peerdma_busy *busy = &mem->busy;

	INIT_DELAYED_WORK(&busy->look, busy_poll);
	busy->since = jiffies;
	if (buffer) {
		busy->buffer = buffer->entry.id;
		busy->opener = buffer->opener->id;
		busy->pid = buffer->opener->pid;
		strscpy(busy->comm, buffer->opener->comm, sizeof(busy->comm));
		if (mem == buffer->mem && READ_ONCE(buffer->exports.mapped)) {
			refcount_inc(&buffer->refs);
			busy->exporter = buffer;
		}
	}
	peerdma_mem_count_busy(mem, &busy->pages, &busy->most);
	mutex_lock(&busy_mutex);
	list_add_tail(&busy->link, &busy_list);
	busy_schedule(mem); /* under the lock: the work item may free the mem */
	mutex_unlock(&busy_mutex);
}

/**
 * peerdma_mem_release - release a mem
 * @mem: not used by this module any more
 * @buffer: the buffer that it was the memory of, being revoked; NULL: none
 *
 * Pages that others still hold return to the pool after their last reference is put.
 */
void peerdma_mem_release(struct peerdma_mem *mem, struct peerdma_buffer *buffer)
{
	peerdma_mem_start_reclaim(mem);
	if (peerdma_mem_reclaim(mem))
		peerdma_mem_free(mem);
	else
		busy_add(mem, buffer);
}

/*
 * Called during an unbind, with the provider's usage reference killed. Logs again what was logged
 * before, because the kernel now waits for all of these. Others are logged when they are due, with
 * a note about the unbind.
 */
void peerdma_busy_log(struct peerdma_provider *provider)
{
	struct peerdma_mem *mem;
	unsigned int n = 0;

	mutex_lock(&busy_mutex);
	list_for_each_entry(mem, &busy_list, busy.link) {
		if (mem->provider != provider)
			continue;
		mod_delayed_work(peerdma_wq, &mem->busy.look, 0);
		if (mem->busy.named && ++n <= NAMES_AT_ONCE)
			busy_log(mem);
	}
	mutex_unlock(&busy_mutex);
	if (n > NAMES_AT_ONCE)
		pci_warn(provider->pdev, "others hold pages of %u more buffers: see debugfs\n",
			 n - NAMES_AT_ONCE);
}

/* The number of pages that others hold of memory that this open file has released. */
u64 peerdma_busy_pages(const struct peerdma_opener *opener)
{
	struct peerdma_mem *mem;
	u64 all = 0;

	mutex_lock(&busy_mutex);
	list_for_each_entry(mem, &busy_list, busy.link) {
		if (mem->busy.opener == opener->id)
			all += mem->busy.pages;
	}
	mutex_unlock(&busy_mutex);
	return all;
}

static void busy_show(struct seq_file *seq, struct peerdma_mem *mem)
{
	struct peerdma_busy *busy = &mem->busy;

	seq_printf(seq, "held provider=%u pci=%s buffer=%u file=%llu pid=%d", mem->provider->id,
		   pci_name(mem->provider->pdev), busy->buffer, busy->opener, busy->pid);
	seq_printf(seq, " bytes=%llu pages=%lu references=%u seconds=%lu comm=", mem->len,
		   busy->pages, busy->most, busy_seconds(busy));
	seq_escape(seq, busy->comm, " \t\n\\");
	seq_putc(seq, '\n');
}

/* One line for each mem. */
void peerdma_busy_show(struct seq_file *seq)
{
	struct peerdma_mem *mem;

	mutex_lock(&busy_mutex);
	list_for_each_entry(mem, &busy_list, busy.link) {
		busy_show(seq, mem);
		cond_resched();
	}
	mutex_unlock(&busy_mutex);
}
