// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_nvidia.ko: CUDA memory as buffers, kept in place by NVIDIA's driver.
 *
 * That driver exports a few functions for this (nvidia.h). They are looked up when they are needed,
 * so the driver may be loaded and unloaded, and nothing of it is needed to build this module.
 *
 * There are two forms. Persistent: the memory stays until it is unpinned, even if its process frees
 * it or exits. Not every GPU supports that, as the driver reports when it is asked. Otherwise it is
 * by callback: the driver calls when the memory is freed. When that call returns, the memory is
 * gone, and so is the table with its addresses. The driver may call at any time after it has been
 * given the callback, which is before its answer arrives here, and it holds locks that an unpin
 * takes too. So:
 *
 * Ticket. The callback's argument is a number, which means nothing after the unpin. So a late call
 * finds no freed struct.
 *
 * A call that comes before the driver has answered is recorded and returns: the driver may wait for
 * the asking thread, which has not read any answer yet. A later call waits until the table has been
 * copied, and then until the memory is not used any more: register.c.
 *
 * Unpinning, persistent: by a work item, which no callback waits for.
 *
 * Unpinning, by ticket: the driver searches the memory of the current process. For another
 * process's memory it returns 0 without unpinning. So only the process that pinned may unpin, when
 * it destroys or closes the buffer, and never after the driver has begun to call. In all other
 * cases the memory is left with the driver until it calls, when the process frees the memory or
 * exits: another process destroyed the buffer (a child, or one that received the descriptor), the
 * GPU's driver was unbound, or others held pages at that moment. This module does not use the
 * memory any more then, so such a call waits only for those others.
 *
 * References. Until the driver has called, or an unpin has returned, this module and the driver are
 * referenced, because the driver calls code of this module.
 *
 * Races. A call may begin during an unpin. The driver's lock orders the two: either the unpin comes
 * first, and no call follows, or it waits for the call, and finds nothing. In the second case the
 * table is freed already, and no table of another pin may be at its address. So nothing is pinned
 * by callback during an unpin (turn).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

#include "memory/pin.h"
#include "addons/nvidia.h"

#define PCI_VENDOR 0x10de

static bool persistent = true;
module_param(persistent, bool, 0644);
MODULE_PARM_DESC(persistent, "pin memory even if its process frees it, on GPUs that support that");

static bool callback;
module_param(callback, bool, 0644);
MODULE_PARM_DESC(callback, "also pin by callback: freeing the memory waits for requests under way");

/* More than any GPU has; its table takes 64 MiB. */
#define MOST BIT_ULL(39)

/* One second, for a driver without memory for the unpin. */
#define TRIES 10
#define TRY_AGAIN 100 /* ms */

/**
 * struct nvidia_pin_state - memory that the driver keeps
 * @pin: how register.c knows it
 * @lock: protects @asking, @freed, @owed, and the contents of @table while they are copied
 * @asking: the driver has not answered yet
 * @freed: the driver has called
 * @owed: the driver will call or is calling, and nothing was unpinned: both modules are referenced
 * @ticket: argument of the callback; 0: there is no callback
 * @tgid: the process that pinned
 * @addr: of the memory
 * @table: the driver's
 * @put_persistent: unpins; NULL: nothing is pinned, or not in this form
 */
struct nvidia_pin_state {
	struct peerdma_pin pin;
	struct mutex lock; /* protects asking, freed, owed, and reading the table */
	bool asking;
	bool freed;
	bool owed;
	u32 ticket; /* immutable, once the driver has it */
	pid_t tgid; /* immutable */
	u64 addr; /* immutable */
	struct nvidia_p2p_page_table *table; /* immutable, once pin() has returned, as is: */
	int (*put_persistent)(u64 addr, struct nvidia_p2p_page_table *table, u32 flags);
};

static DEFINE_XARRAY_ALLOC1(tickets); /* by ticket; each has a reference */
static u32 next_ticket;
DEFINE_STATIC_SRCU(calls); /* calls of the driver: an unload waits for them */
static DEFINE_MUTEX(turn); /* orders pins by callback and unpins; taken before the driver's locks */

static void nvidia_unpin_as_owner(struct peerdma_pin *pin);
static void nvidia_unpin(struct peerdma_pin *pin);
static struct peerdma_pin *nvidia_pin(u64 addr, u64 len, u32 *reason);
static void kept_free(struct peerdma_pin *pin);

static struct peerdma_vendor_ops ops = {
	.owner = THIS_MODULE,
	.pci_vendor = PCI_VENDOR,
	.pin = nvidia_pin,
	.unpin_as_owner = nvidia_unpin_as_owner,
	.unpin = nvidia_unpin,
	.free = kept_free,
};

static struct nvidia_pin_state *to_kept(struct peerdma_pin *pin)
{
	return container_of(pin, struct nvidia_pin_state, pin);
}

static void kept_free(struct peerdma_pin *pin)
{
	kvfree(pin->chunks);
	kfree(to_kept(pin));
}

/* The state for a ticket, referenced; or NULL. */
static struct nvidia_pin_state *ticket_find(u32 ticket)
{
	struct nvidia_pin_state *kept;

	xa_lock(&tickets);
	kept = xa_load(&tickets, ticket);
	if (kept)
		refcount_inc(&kept->pin.refs);
	xa_unlock(&tickets);
	return kept;
}

/* Allocates a ticket. -ENXIO: the driver is not loaded. */
static int ticket_draw(struct nvidia_pin_state *kept)
{
	int err;

	if (!symbol_get(nvidia_p2p_put_pages))
		return -ENXIO;
	/* Cyclic, so that the ticket of a late call is not soon another pin's. */
	refcount_inc(&kept->pin.refs);
	err = xa_alloc_cyclic(&tickets, &kept->ticket, kept, xa_limit_31b, &next_ticket,
			      GFP_KERNEL_ACCOUNT);
	if (err < 0) {
		kept->ticket = 0; /* it is written even if there is no memory */
		peerdma_pin_put(&kept->pin);
		symbol_put(nvidia_p2p_put_pages);
		return err;
	}
	__module_get(THIS_MODULE);
	kept->owed = true;
	return 0;
}

/* The driver does not call any more, or is calling now. Any number of times. */
static void ticket_void(struct nvidia_pin_state *kept)
{
	bool owed;

	mutex_lock(&kept->lock);
	owed = kept->owed;
	kept->owed = false;
	mutex_unlock(&kept->lock);
	if (!owed)
		return;
	xa_erase(&tickets, kept->ticket);
	peerdma_pin_put(&kept->pin);
	symbol_put(nvidia_p2p_put_pages);
	module_put(THIS_MODULE);
}

/* Records the call. False: the driver has not answered yet, and the asking thread will see it. */
static bool nvidia_symbol(struct nvidia_pin_state *kept)
{
	bool asking;

	mutex_lock(&kept->lock);
	asking = kept->asking;
	kept->freed = true;
	mutex_unlock(&kept->lock);
	return !asking;
}

/* The driver's callback when the memory is freed. Sleeps until the memory is not used any more. */
static void nvidia_freed(void *data)
{
	int idx = srcu_read_lock(&calls);
	struct nvidia_pin_state *kept = ticket_find((unsigned long)data);

	if (kept) {
		if (nvidia_symbol(kept))
			peerdma_pin_revoke_wait(&kept->pin);
		ticket_void(kept);
		peerdma_pin_put(&kept->pin);
	}
	srcu_read_unlock(&calls, idx);
}

static bool nvidia_table_is_known(const struct nvidia_p2p_page_table *table)
{
	const u32 version = READ_ONCE(table->version);

	return TABLE_MAJOR(version) == 2 ||
	       (TABLE_MAJOR(version) == 1 && TABLE_MINOR(version) >= 1);
}

/* Copies the table. */
static u32 nvidia_read_table(struct nvidia_pin_state *kept)
{
	const struct nvidia_p2p_page_table *table = kept->table;
	unsigned long i;

	if (!table || !nvidia_table_is_known(table) || table->page_size != TABLE_SIZE_64K ||
	    table->entries != kept->pin.nr || !table->pages)
		return PEERDMA_REASON_VENDOR_TABLE;
	if (TABLE_MAJOR(table->version) >= 2 && table->flags)
		return PEERDMA_REASON_VENDOR_NOT_BAR;
	for (i = 0; i < kept->pin.nr; i++)
		kept->pin.chunks[i] = table->pages[i]->physical_address;
	return PEERDMA_REASON_NONE;
}

/*
 * Looks the unpin function up first, and holds it while anything is pinned: that keeps the driver
 * loaded. -ENXIO: the driver has no such function.
 */
static int nvidia_ask_persistent(struct nvidia_pin_state *kept, u64 len)
{
	typeof(nvidia_p2p_get_pages_persistent) *get;
	int err = -ENXIO;

	kept->put_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	if (!kept->put_persistent)
		return err;
	get = symbol_get(nvidia_p2p_get_pages_persistent);
	if (get) {
		err = get(kept->addr, len, &kept->table, 0);
		symbol_put(nvidia_p2p_get_pages_persistent);
	}
	if (err) {
		symbol_put(nvidia_p2p_put_pages_persistent);
		kept->put_persistent = NULL;
	}
	return err;
}

static int nvidia_ask_with_ticket(struct nvidia_pin_state *kept, u64 len)
{
	typeof(nvidia_p2p_get_pages) *get = symbol_get(nvidia_p2p_get_pages);
	int err = get ? ticket_draw(kept) : -ENXIO;

	if (!err) {
		mutex_lock(&turn);
		err = get(0, 0, kept->addr, len, &kept->table, nvidia_freed,
			  (void *)(unsigned long)kept->ticket);
		mutex_unlock(&turn);
		if (err)
			ticket_void(kept);
	}
	if (get)
		symbol_put(nvidia_p2p_get_pages);
	return err;
}

static int nvidia_ask(struct nvidia_pin_state *kept, u64 len)
{
	int err = READ_ONCE(persistent) ? nvidia_ask_persistent(kept, len) : -ENXIO;

	if (READ_ONCE(callback) && (err == -ENXIO || err == -ENOTSUPP))
		err = nvidia_ask_with_ticket(kept, len);
	return err;
}

/*
 * Reads the driver's answer. After a failure the memory must be unpinned, unless it was freed
 * already.
 */
static u32 nvidia_read_chunks(struct nvidia_pin_state *kept)
{
	u32 reason = PEERDMA_REASON_VENDOR_FREED;

	mutex_lock(&kept->lock);
	kept->asking = false;
	if (!kept->freed)
		reason = nvidia_read_table(kept);
	mutex_unlock(&kept->lock);
	return reason;
}

static bool nvidia_can_unpin_as_owner(struct nvidia_pin_state *kept)
{
	bool can;

	mutex_lock(&kept->lock);
	can = kept->owed && !kept->freed;
	mutex_unlock(&kept->lock);
	return can;
}

/*
 * By callback only. A result of 0 is reliable for the process that pinned: the memory is unpinned,
 * or was freed.
 */
static void nvidia_unpin_as_owner(struct peerdma_pin *pin)
{
	struct nvidia_pin_state *kept = to_kept(pin);
	typeof(nvidia_p2p_put_pages) *put;
	int err = -ENXIO;

	if (kept->tgid != current->tgid)
		return;
	put = symbol_get(nvidia_p2p_put_pages); /* a call may put the other reference */
	if (!put)
		return;
	mutex_lock(&turn);
	if (nvidia_can_unpin_as_owner(kept)) {
		err = put(0, 0, kept->addr, kept->table);
		if (err)
			pr_warn_ratelimited("NVIDIA's driver did not take memory back: %d\n", err);
	}
	mutex_unlock(&turn);
	symbol_put(nvidia_p2p_put_pages);
	if (!err)
		ticket_void(kept);
}

/*
 * Persistent only; nvidia_give_back() does the rest. The driver may have no memory for the call
 * itself. All known versions have done nothing in that case.
 */
static void nvidia_unpin(struct peerdma_pin *pin)
{
	struct nvidia_pin_state *kept = to_kept(pin);
	unsigned int tries = 0;
	int err;

	if (!kept->put_persistent)
		return;
	do {
		if (tries)
			msleep(TRY_AGAIN);
		err = kept->put_persistent(kept->addr, kept->table, 0);
	} while (err == -ENOMEM && tries++ < TRIES);
	symbol_put(nvidia_p2p_put_pages_persistent);
	if (err)
		pr_warn_ratelimited("NVIDIA's driver did not take memory back: %d\n", err);
}

static struct nvidia_pin_state *kept_create(u64 addr, u64 len)
{
	struct nvidia_pin_state *kept = kzalloc(sizeof(*kept), GFP_KERNEL_ACCOUNT);

	if (!kept)
		return NULL;
	peerdma_pin_init(&kept->pin, &ops);
	mutex_init(&kept->lock);
	kept->asking = true;
	kept->tgid = current->tgid;
	kept->addr = addr;
	kept->pin.nr = len >> PEERDMA_CHUNK_SHIFT;
	kept->pin.chunks = kvmalloc_array(kept->pin.nr, sizeof(*kept->pin.chunks),
					  GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (kept->pin.chunks)
		return kept;
	kfree(kept);
	return NULL;
}

static struct peerdma_pin *nvidia_pin(u64 addr, u64 len, u32 *reason)
{
	struct nvidia_pin_state *kept;
	int err;

	if (len > MOST) {
		*reason = PEERDMA_REASON_VENDOR_REFUSED;
		return ERR_PTR(-EOPNOTSUPP);
	}
	kept = kept_create(addr, len);
	if (!kept)
		return ERR_PTR(-ENOMEM);
	err = nvidia_ask(kept, len);
	if (!err) {
		*reason = nvidia_read_chunks(kept);
		return &kept->pin;
	}
	peerdma_pin_put(&kept->pin);
	if (err == -ENOMEM)
		return ERR_PTR(err);
	*reason = err == -ENXIO ? PEERDMA_REASON_VENDOR_DRIVER : PEERDMA_REASON_VENDOR_REFUSED;
	return ERR_PTR(-EOPNOTSUPP);
}

static int __init peerdma_nvidia_init(void)
{
	return peerdma_vendor_register(&ops);
}

static void __exit peerdma_nvidia_exit(void)
{
	peerdma_vendor_unregister(&ops);
	synchronize_srcu(&calls);
	synchronize_rcu_tasks(); /* callers may still run in this module after their last put */
}

module_init(peerdma_nvidia_init);
module_exit(peerdma_nvidia_exit);

MODULE_DESCRIPTION("Memory of NVIDIA's driver, for peerdma");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
