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
#include <linux/module.h>
#include <linux/ratelimit.h>
#include <linux/seq_file.h>

#include "peerdma.h"

#define NAMES_AT_ONCE 10 /* what an unbind says again, at most */
#define LOOKS_APART 11 /* 2 ms, then 4, 8 ... and 1 << LOOKS_APART, which is 2 s, in the end */
#define LOOKS_UNBIND 8 /* the same while an unbind waits: a quarter of a second */

static unsigned int held_seconds = 5;
module_param(held_seconds, uint, 0644);
MODULE_PARM_DESC(held_seconds,
		 "name memory in the log that others hold so long after it was let go; 0: never");

static LIST_HEAD(list);
static DEFINE_MUTEX(lock); /* protects list, and pages, most and named of what is in it */

static unsigned long seconds_of(const struct peerdma_held *held)
{
	return (jiffies - held->since) / HZ;
}

static void look_again(struct peerdma_mem *mem)
{
	const bool unbinding = peerdma_gate_closed(&mem->provider->gate);
	struct peerdma_held *held = &mem->held;

	held->looks = min(held->looks + 1, unbinding ? LOOKS_UNBIND : LOOKS_APART);
	queue_delayed_work(peerdma_wq, &held->look, msecs_to_jiffies(1 << held->looks));
}

/* A process's name may hold anything: escaped. */
static void name(struct peerdma_mem *mem)
{
	bool unbinding = peerdma_gate_closed(&mem->provider->gate);
	struct pci_dev *pdev = mem->provider->pdev;
	struct peerdma_held *held = &mem->held;

	lockdep_assert_held(&lock);
	pci_warn(pdev,
		 "others hold %lu of %llu pages of buffer %u (pid %d, %*pE), let go %lu s ago%s\n",
		 held->pages, mem->len >> PAGE_SHIFT, held->buffer, held->pid,
		 (int)strlen(held->comm), held->comm, seconds_of(held),
		 unbinding ? "; unbinding waits for them" : "");
	held->named = true;
}

static void name_no_more(struct peerdma_mem *mem)
{
	struct peerdma_held *held = &mem->held;
	struct pci_dev *pdev = mem->provider->pdev;

	pci_info_ratelimited(pdev, "the last page of buffer %u of pid %d was let go after %lu s\n",
			     held->buffer, held->pid, seconds_of(held));
}

/* Is it time to name who is waited for since then? If not, ask again: also if it is too often. */
bool peerdma_held_due(unsigned long since)
{
	static DEFINE_RATELIMIT_STATE(limit, 5 * HZ, 10);
	unsigned int after = READ_ONCE(held_seconds);

	return after && (jiffies - since) / HZ >= after && __ratelimit(&limit);
}

/* Importers are named when they are given up waiting for, unless the log was full then. */
static void name_importers(struct peerdma_held *held, bool settled)
{
	if (!held->exporter || (!settled && !peerdma_exports_name(held->exporter)))
		return;
	peerdma_buffer_put(held->exporter);
	held->exporter = NULL;
}

/* Nobody but this looks at the pages: it may take long, and is done outside of the lock. */
static void look(struct work_struct *work)
{
	struct peerdma_held *held = container_of(work, struct peerdma_held, look.work);
	struct peerdma_mem *mem = container_of(held, struct peerdma_mem, held);
	bool settled = peerdma_mem_settle(mem);
	unsigned long pages = 0;
	unsigned int most = 0;

	if (!settled)
		peerdma_mem_census(mem, &pages, &most);
	mutex_lock(&lock);
	held->pages = pages;
	held->most = most;
	if (settled)
		list_del(&held->link);
	else if (!held->named && peerdma_held_due(held->since))
		name(mem);
	mutex_unlock(&lock);
	name_importers(held, settled);
	if (!settled) {
		look_again(mem);
		return;
	}
	/* It may have been hurried meanwhile; nobody can any more. */
	cancel_delayed_work(&held->look);
	if (held->named)
		name_no_more(mem);
	peerdma_mem_free(mem);
}

/* Now at all of a provider's: what nobody holds any more is gone when this returns. */
void peerdma_held_look(const struct peerdma_provider *provider)
{
	struct peerdma_mem *mem;

	mutex_lock(&lock);
	list_for_each_entry(mem, &list, held.link) {
		if (mem->provider == provider)
			mod_delayed_work(peerdma_wq, &mem->held.look, 0);
	}
	mutex_unlock(&lock);
	flush_workqueue(peerdma_wq);
}

/* Remembers a mem until nobody holds pages of it: it belongs to the list from now on. */
static void held_add(struct peerdma_mem *mem, struct peerdma_buffer *buffer)
{
	struct peerdma_held *held = &mem->held;

	INIT_DELAYED_WORK(&held->look, look);
	held->since = jiffies;
	if (buffer) {
		held->buffer = buffer->entry.id;
		held->opener = buffer->opener->id;
		held->pid = buffer->opener->pid;
		strscpy(held->comm, buffer->opener->comm, sizeof(held->comm));
		if (mem == buffer->mem && READ_ONCE(buffer->exports.mapped)) {
			refcount_inc(&buffer->refs);
			held->exporter = buffer;
		}
	}
	peerdma_mem_census(mem, &held->pages, &held->most);
	mutex_lock(&lock);
	list_add_tail(&held->link, &list);
	look_again(mem); /* nobody else may have it looked at before, and gone */
	mutex_unlock(&lock);
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
	peerdma_mem_unhold(mem);
	if (peerdma_mem_settle(mem))
		peerdma_mem_free(mem);
	else
		held_add(mem, buffer);
}

/*
 * The provider is being unbound, with its gate closed, and the kernel will wait for all of these:
 * who was named long ago is named again. Who was not will be, with that addition.
 */
void peerdma_held_name(struct peerdma_provider *provider)
{
	struct peerdma_mem *mem;
	unsigned int n = 0;

	mutex_lock(&lock);
	list_for_each_entry(mem, &list, held.link) {
		if (mem->provider != provider)
			continue;
		mod_delayed_work(peerdma_wq, &mem->held.look, 0);
		if (mem->held.named && ++n <= NAMES_AT_ONCE)
			name(mem);
	}
	mutex_unlock(&lock);
	if (n > NAMES_AT_ONCE)
		pci_warn(provider->pdev, "others hold pages of %u more buffers: see debugfs\n",
			 n - NAMES_AT_ONCE);
}

/* Of an open file: how many pages others hold of what it has let go. */
u64 peerdma_held_pages(const struct peerdma_opener *opener)
{
	struct peerdma_mem *mem;
	u64 all = 0;

	mutex_lock(&lock);
	list_for_each_entry(mem, &list, held.link) {
		if (mem->held.opener == opener->id)
			all += mem->held.pages;
	}
	mutex_unlock(&lock);
	return all;
}

static void show(struct seq_file *seq, struct peerdma_mem *mem)
{
	struct peerdma_held *held = &mem->held;

	seq_printf(seq, "held provider=%u pci=%s buffer=%u file=%llu pid=%d", mem->provider->id,
		   pci_name(mem->provider->pdev), held->buffer, held->opener, held->pid);
	seq_printf(seq, " bytes=%llu pages=%lu references=%u seconds=%lu comm=", mem->len,
		   held->pages, held->most, seconds_of(held));
	seq_escape(seq, held->comm, " \t\n\\");
	seq_putc(seq, '\n');
}

/* All of them, one a line. */
void peerdma_held_show(struct seq_file *seq)
{
	struct peerdma_mem *mem;

	mutex_lock(&lock);
	list_for_each_entry(mem, &list, held.link) {
		show(seq, mem);
		cond_resched();
	}
	mutex_unlock(&lock);
}
