// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that was let go while somebody else still holds pages of it: I/O on a proxy address that
 * has not ended, a consumer below us that is late, or one that forgot. Nothing of ours waits for
 * them, but the kernel does when the provider is unbound, without end and without a word. So each
 * such mem is remembered with who had it, until the last page is let go.
 *
 * Every page that others hold has a reference of ours as well, so it stays a page, whatever is done
 * to the provider: it is safe to look at its count, and what the count has above ours is theirs.
 * When only ours is left it goes, and the page with it (mem.c). As nobody tells us, a work item
 * looks: more and more seldom, and each time at a bounded number of pages. While the provider is
 * being unbound it looks four times a second, so an unbind ends that much later than it could.
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

#define NAMES_AT_ONCE 10 /* what an unbind says again, at most */
#define LOOKS_APART 11 /* 2 ms, then 4, 8 ... and 1 << LOOKS_APART, which is 2 s, in the end */
#define LOOKS_UNBIND 8 /* the same while an unbind waits: a quarter of a second */

static unsigned int held_seconds = 5;
module_param(held_seconds, uint, 0644);
MODULE_PARM_DESC(held_seconds,
		 "name memory in the log that others hold so long after it was let go; 0: never");

static LIST_HEAD(busy_list);
static DEFINE_MUTEX(busy_mutex); /* protects busy_list; pages, most and named of each */

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

/* A process's name may hold anything: escaped. */
static void busy_log(struct peerdma_mem *mem)
{
	bool unbinding = peerdma_usage_killed(&mem->provider->usage);
	struct pci_dev *pdev = mem->provider->pdev;
	struct peerdma_busy *busy = &mem->busy;

	lockdep_assert_held(&busy_mutex);
	pci_warn(pdev,
		 "others hold %lu of %llu pages of buffer %u (pid %d, %*pE), let go %lu s ago%s\n",
		 busy->pages, mem->len >> PAGE_SHIFT, busy->buffer, busy->pid,
		 (int)strlen(busy->comm), busy->comm, busy_seconds(busy),
		 unbinding ? "; unbinding waits for them" : "");
	busy->named = true;
}

static void busy_log_end(struct peerdma_mem *mem)
{
	struct peerdma_busy *busy = &mem->busy;
	struct pci_dev *pdev = mem->provider->pdev;

	pci_info_ratelimited(pdev, "the last page of buffer %u of pid %d was let go after %lu s\n",
			     busy->buffer, busy->pid, busy_seconds(busy));
}

/* Is it time to name who is waited for since then? If not, ask again: also if it is too often. */
bool peerdma_busy_is_due(unsigned long since)
{
	static DEFINE_RATELIMIT_STATE(limit, 5 * HZ, 10);
	unsigned int after = READ_ONCE(held_seconds);

	return after && (jiffies - since) / HZ >= after && __ratelimit(&limit);
}

/* Importers are named when they are given up waiting for, unless the log was full then. */
static void busy_log_importers(struct peerdma_busy *busy, bool settled)
{
	if (!busy->exporter || (!settled && !peerdma_exports_log(busy->exporter)))
		return;
	peerdma_buffer_put(busy->exporter);
	busy->exporter = NULL;
}

/* Nobody but this looks at the pages: it may take long, and is done outside of the lock. */
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
	/* It may have been hurried meanwhile; nobody can any more. */
	cancel_delayed_work(&busy->look);
	if (busy->named)
		busy_log_end(mem);
	peerdma_mem_free(mem);
}

/* Now at all of a provider's: what nobody holds any more is gone when this returns. */
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

/* Remembers a mem until nobody holds pages of it: it belongs to the list from now on. */
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
	busy_schedule(mem); /* nobody else may have it looked at before, and gone */
	mutex_unlock(&busy_mutex);
}

/**
 * peerdma_mem_release - let a mem go
 * @mem: nobody of ours uses it any more
 * @buffer: what it was the memory of, not yet done with being revoked; NULL: of nothing
 *
 * Where somebody else still holds pages these stay away from the pool until that ends.
 */
void peerdma_mem_release(struct peerdma_mem *mem, struct peerdma_buffer *buffer)
{
	peerdma_mem_put_pages(mem);
	if (peerdma_mem_reclaim(mem))
		peerdma_mem_free(mem);
	else
		busy_add(mem, buffer);
}

/*
 * The provider is being unbound, its usage reference is killed, and the kernel will wait for all of
 * these: who was named long ago is named again. Who was not will be, with that addition.
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

/* Of an open file: how many pages others hold of what it has let go. */
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

/* All of them, one a line. */
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
