// SPDX-License-Identifier: GPL-2.0
/*
 * Waits until a killed usage reference is drained. In general that takes as long as a drive takes.
 * But the request that holds it may wait for another process, inside a filesystem: for example for
 * the inode lock of a writer whose user memory is on a filesystem (FUSE) that does not deliver a
 * page. If the provider's memory is to be given back, such a request is canceled: fs_call.c. A
 * wait that takes long all the same is logged, like pages that are held: busy.c.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/seq_file.h>

#include "compat/compat.h"
#include "base/opener.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/drain.h"
#include "memory/fs_call.h"
#include "memory/provider.h"

#define LOOK (HZ / 4) /* interval at which a wait checks whether to cancel and to log */

/**
 * struct drain - a thread waits for a usage reference; on that thread's stack
 * @link: in the list of them; protected by its lock
 * @provider: of the usage reference
 * @buffer: if the usage reference is a buffer's, that buffer, which stays during the wait; else
 *	NULL
 * @since: jiffies when the wait began
 * @named: it has been logged; protected by the list's lock
 */
struct drain {
	struct list_head link;
	struct peerdma_provider *provider;
	struct peerdma_buffer *buffer;
	unsigned long since;
	bool named;
};

static LIST_HEAD(drains);
static DEFINE_MUTEX(drains_mutex); /* protects drains */

static struct peerdma_usage *drain_usage(const struct drain *closing)
{
	return closing->buffer ? &closing->buffer->usage : &closing->provider->usage;
}

static unsigned long drain_seconds(const struct drain *closing)
{
	return (jiffies - closing->since) / HZ;
}

/* The process's name may contain any byte, so it is escaped. */
static void drain_log(struct drain *closing)
{
	const bool unbinding = peerdma_usage_killed(&closing->provider->usage);
	const char *why = unbinding ? "; unbinding waits for them" : "";
	const unsigned int inside = peerdma_usage_count(drain_usage(closing));
	struct pci_dev *pdev = closing->provider->pdev;
	const struct peerdma_opener *opener;

	lockdep_assert_held(&drains_mutex);
	closing->named = true;
	if (!closing->buffer) {
		pci_warn(pdev, "%u calls still use the provider, revoked %lu s ago%s\n", inside,
			 drain_seconds(closing), why);
		return;
	}
	opener = closing->buffer->opener;
	pci_warn(pdev, "%u requests still use buffer %llu (pid %d, %*pE), revoked %lu s ago%s\n",
		 inside, closing->buffer->entry.id, opener->pid, (int)strlen(opener->comm),
		 opener->comm, drain_seconds(closing), why);
}

static void drain_log_end(const struct drain *closing)
{
	struct pci_dev *pdev = closing->provider->pdev;

	if (closing->buffer)
		pci_info(pdev, "the last request on buffer %llu of pid %d ended after %lu s\n",
			 closing->buffer->entry.id, closing->buffer->opener->pid,
			 drain_seconds(closing));
	else
		pci_info(pdev, "the last call ended after %lu s\n", drain_seconds(closing));
}

static void drain_log_if_due(struct drain *closing)
{
	mutex_lock(&drains_mutex);
	if (!closing->named && peerdma_busy_is_due(closing->since))
		drain_log(closing);
	mutex_unlock(&drains_mutex);
}

static void drain_cancel(const struct drain *closing)
{
	const unsigned int canceled = peerdma_fs_calls_cancel(closing->provider);

	if (canceled)
		pci_warn(closing->provider->pdev,
			 "%u requests that waited for a file were canceled\n", canceled);
}

static void drain_wait_and_log(struct drain *closing)
{
	struct completion *empty = &drain_usage(closing)->drained;

	mutex_lock(&drains_mutex);
	list_add_tail(&closing->link, &drains);
	mutex_unlock(&drains_mutex);
	while (!wait_for_completion_timeout(empty, LOOK)) {
		drain_cancel(closing);
		drain_log_if_due(closing);
	}
	mutex_lock(&drains_mutex);
	list_del(&closing->link);
	mutex_unlock(&drains_mutex);
	if (closing->named)
		drain_log_end(closing);
}

/**
 * peerdma_drain_wait - kill a usage reference and wait until it is drained
 * @provider: of the usage reference
 * @buffer: whose usage reference it is; NULL: the provider's own
 *
 * Sleeps, without limit.
 */
void peerdma_drain_wait(struct peerdma_provider *provider, struct peerdma_buffer *buffer)
{
	struct drain closing = { .provider = provider, .buffer = buffer, .since = jiffies };

	peerdma_usage_kill(drain_usage(&closing));
	if (!try_wait_for_completion(&drain_usage(&closing)->drained))
		drain_wait_and_log(&closing);
}

/*
 * Called when the provider is being unbound and will wait for all of these: logs again what was
 * logged before.
 */
void peerdma_drains_log(struct peerdma_provider *provider)
{
	struct drain *closing;

	mutex_lock(&drains_mutex);
	list_for_each_entry(closing, &drains, link) {
		if (closing->provider == provider && closing->named)
			drain_log(closing);
	}
	mutex_unlock(&drains_mutex);
}

/* The number of requests inside those buffers of an open file that are being revoked. */
u64 peerdma_drain_requests(const struct peerdma_opener *opener)
{
	struct drain *closing;
	u64 all = 0;

	mutex_lock(&drains_mutex);
	list_for_each_entry(closing, &drains, link) {
		if (closing->buffer && closing->buffer->opener == opener)
			all += peerdma_usage_count(drain_usage(closing));
	}
	mutex_unlock(&drains_mutex);
	return all;
}

static void drain_show(struct seq_file *seq, const struct drain *closing)
{
	const struct peerdma_buffer *buffer = closing->buffer;

	seq_printf(seq, "inside provider=%u pci=%s", closing->provider->id,
		   pci_name(closing->provider->pdev));
	if (buffer)
		seq_printf(seq, " buffer=%llu file=%llu pid=%d", buffer->entry.id,
			   buffer->opener->id, buffer->opener->pid);
	seq_printf(seq, " requests=%u seconds=%lu", peerdma_usage_count(drain_usage(closing)),
		   drain_seconds(closing));
	if (buffer) {
		seq_puts(seq, " comm=");
		seq_escape(seq, buffer->opener->comm, " \t\n\\");
	}
	seq_putc(seq, '\n');
}

/* One line for each wait. */
void peerdma_drains_show(struct seq_file *seq)
{
	struct drain *closing;

	mutex_lock(&drains_mutex);
	list_for_each_entry(closing, &drains, link) {
		drain_show(seq, closing);
		cond_resched();
	}
	mutex_unlock(&drains_mutex);
}
