// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for those who are inside a gate that has been closed. As a rule that takes as long as a
 * drive does. But inside the gate a request may wait for another process: a write for the lock of a
 * file that somebody is writing to, who may be waiting for a page of their own memory that a
 * filesystem of theirs (FUSE) does not deliver. Nobody can call such a request back, and the memory
 * has to stay as long as it may still be used. So who is waited for that long is named, as those
 * are who hold pages: held.c.
 */
#include <linux/seq_file.h>

#include "peerdma.h"

#define LOOK (HZ / 4) /* between two looks whether it is time to say something */

/**
 * struct closing - somebody waits until nobody is inside; lives on their stack
 * @link: in the list of them; protected by its lock
 * @provider: whose gate it is
 * @buffer: or that of a buffer of it, else NULL; it cannot go before the waiting is over
 * @since: jiffies when it was closed
 * @named: the log has it; protected by the list's lock
 */
struct closing {
	struct list_head link;
	struct peerdma_provider *provider;
	struct peerdma_buffer *buffer;
	unsigned long since;
	bool named;
};

static LIST_HEAD(list);
static DEFINE_MUTEX(lock); /* protects list */

static struct peerdma_gate *gate_of(const struct closing *closing)
{
	return closing->buffer ? &closing->buffer->gate : &closing->provider->gate;
}

static unsigned long seconds_of(const struct closing *closing)
{
	return (jiffies - closing->since) / HZ;
}

/* A process's name may hold anything: escaped. */
static void name(struct closing *closing)
{
	const bool unbinding = peerdma_gate_closed(&closing->provider->gate);
	const char *why = unbinding ? "; unbinding waits for them" : "";
	const unsigned int inside = peerdma_gate_inside(gate_of(closing));
	struct pci_dev *pdev = closing->provider->pdev;
	const struct peerdma_opener *opener;

	lockdep_assert_held(&lock);
	closing->named = true;
	if (!closing->buffer) {
		pci_warn(pdev, "%u calls are inside, taken away %lu s ago%s\n", inside,
			 seconds_of(closing), why);
		return;
	}
	opener = closing->buffer->opener;
	pci_warn(pdev,
		 "%u requests are inside buffer %llu (pid %d, %*pE), taken away %lu s ago%s\n",
		 inside, closing->buffer->entry.id, opener->pid, (int)strlen(opener->comm),
		 opener->comm, seconds_of(closing), why);
}

static void name_no_more(const struct closing *closing)
{
	struct pci_dev *pdev = closing->provider->pdev;

	if (closing->buffer)
		pci_info(pdev, "the last request inside buffer %llu of pid %d ended after %lu s\n",
			 closing->buffer->entry.id, closing->buffer->opener->pid,
			 seconds_of(closing));
	else
		pci_info(pdev, "the last call inside ended after %lu s\n", seconds_of(closing));
}

static bool name_if_due(struct closing *closing)
{
	mutex_lock(&lock);
	if (peerdma_held_due(closing->since))
		name(closing);
	mutex_unlock(&lock);
	return closing->named;
}

/* Once it is named there is nothing more to say: the kernel's own watch over hung tasks sees it. */
static void wait_and_name(struct closing *closing)
{
	struct completion *empty = &gate_of(closing)->empty;

	mutex_lock(&lock);
	list_add_tail(&closing->link, &list);
	mutex_unlock(&lock);
	while (!wait_for_completion_timeout(empty, LOOK)) {
		if (!name_if_due(closing))
			continue;
		wait_for_completion(empty);
		break;
	}
	mutex_lock(&lock);
	list_del(&closing->link);
	mutex_unlock(&lock);
	if (closing->named)
		name_no_more(closing);
}

/**
 * peerdma_inside_wait - close a gate, and wait until nobody is inside
 * @provider: whose gate it is
 * @buffer: or that of a buffer of it; NULL: the provider's own
 *
 * Sleeps, without end if it must.
 */
void peerdma_inside_wait(struct peerdma_provider *provider, struct peerdma_buffer *buffer)
{
	struct closing closing = { .provider = provider, .buffer = buffer, .since = jiffies };

	peerdma_gate_close(gate_of(&closing));
	if (!try_wait_for_completion(&gate_of(&closing)->empty))
		wait_and_name(&closing);
}

/* The provider is being unbound, and will wait for all these: who was named before is again. */
void peerdma_inside_name(struct peerdma_provider *provider)
{
	struct closing *closing;

	mutex_lock(&lock);
	list_for_each_entry(closing, &list, link) {
		if (closing->provider == provider && closing->named)
			name(closing);
	}
	mutex_unlock(&lock);
}

/* Of an open file: requests inside buffers of it that are being taken away. */
u64 peerdma_inside_requests(const struct peerdma_opener *opener)
{
	struct closing *closing;
	u64 all = 0;

	mutex_lock(&lock);
	list_for_each_entry(closing, &list, link) {
		if (closing->buffer && closing->buffer->opener == opener)
			all += peerdma_gate_inside(gate_of(closing));
	}
	mutex_unlock(&lock);
	return all;
}

static void show(struct seq_file *seq, const struct closing *closing)
{
	const struct peerdma_buffer *buffer = closing->buffer;

	seq_printf(seq, "inside provider=%u pci=%s", closing->provider->id,
		   pci_name(closing->provider->pdev));
	if (buffer)
		seq_printf(seq, " buffer=%llu file=%llu pid=%d", buffer->entry.id,
			   buffer->opener->id, buffer->opener->pid);
	seq_printf(seq, " requests=%u seconds=%lu", peerdma_gate_inside(gate_of(closing)),
		   seconds_of(closing));
	if (buffer) {
		seq_puts(seq, " comm=");
		seq_escape(seq, buffer->opener->comm, " \t\n\\");
	}
	seq_putc(seq, '\n');
}

/* All of them, one a line. */
void peerdma_inside_show(struct seq_file *seq)
{
	struct closing *closing;

	mutex_lock(&lock);
	list_for_each_entry(closing, &list, link) {
		show(seq, closing);
		cond_resched();
	}
	mutex_unlock(&lock);
}
