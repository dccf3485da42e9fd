// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_nvidia.ko: memory of CUDA, kept where it is by NVIDIA's driver, as buffers.
 *
 * That driver offers it to others by a few exported functions (nvidia.h), which are looked up when
 * they are needed, so that it may come and go, and nothing of it is needed to build this.
 *
 * There are two forms. Persistent: the memory stays until it is given back, even if its process
 * frees it or ends. Not every GPU has that: the driver says so when it is asked. Else the driver
 * calls when the memory is freed, and the memory is gone, with the table that says where it was,
 * when that call returns. It does so at any time after it was told how to, which is before we hear
 * that it was, with locks held that giving back takes too. So:
 *
 * What it calls with is a number, a ticket, which means nothing any more once the memory was given
 * back: nothing is freed under a late call.
 *
 * A call that comes while the driver is still being asked is remembered, and returns: who asks may
 * be waited for by it, and looks at nothing that it was told. One that comes later waits until what
 * was told has been copied, and then until the memory is not used any more: register.c.
 *
 * Giving back, persistent: by work that nobody in such a call waits for. By ticket it is more. The
 * driver looks for the memory among that of the process that is current. Of another one's it says
 * that all is well, and keeps it. So only the process that asked gives back, when it destroys or
 * closes the buffer, and never once the driver has begun to call. What another one destroys (a
 * child, or who was passed the descriptor), what was lost with the GPU's driver, or what others
 * hold at that moment is left with the driver until it calls: when the process frees that memory,
 * or ends. Nobody of ours uses it any more, so such a call waits for those others at most.
 *
 * Until the driver has called, or giving back has returned, this module and the driver are
 * referenced: it is code in here that is called.
 *
 * A call may begin while its memory is given back. The driver's lock orders the two: giving back
 * comes first, and there is no call, or it waits for the call, and finds nothing. By then the table
 * is freed, and no other one of ours must be at its place: nothing is asked for meanwhile (turn).
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
MODULE_PARM_DESC(persistent, "keep memory that its process frees, where the GPU can do that");

static bool callback;
module_param(callback, bool, 0644);
MODULE_PARM_DESC(callback, "take other memory too: who frees it waits for requests under way");

/* No GPU has as much; a table for it is of 64 MiB. */
#define MOST BIT_ULL(39)

/* A second, for a driver that has no memory to take memory back. */
#define TRIES 10
#define TRY_AGAIN 100 /* ms */

/**
 * struct nvidia_pin_state - memory that the driver keeps for us
 * @pin: what register.c knows it by
 * @lock: protects @asking, @freed, @owed, and what is at @table while it is copied
 * @asking: the driver has not answered yet
 * @freed: it has called
 * @owed: it will call or is calling, and nothing was given back: both modules are referenced
 * @ticket: what it calls with; 0: it never calls
 * @tgid: the process that asked
 * @addr: of the memory
 * @table: the driver's
 * @put_persistent: gives it back; NULL: there is nothing to give back, or not in this form
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
	struct nvidia_p2p_page_table *table; /* immutable, once pin() has returned; so is this: */
	int (*put_persistent)(u64 addr, struct nvidia_p2p_page_table *table, u32 flags);
};

static DEFINE_XARRAY_ALLOC1(tickets); /* by number; each has a reference */
static u32 next_ticket;
DEFINE_STATIC_SRCU(calls); /* of the driver: who unloads waits for them */
static DEFINE_MUTEX(turn); /* for asking and giving back by ticket; outside of the driver's locks */

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

/* What a number of the driver's stands for, with a reference; or NULL. */
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

/* -ENXIO: there is no such driver now. After a success the driver is to be asked. */
static int ticket_draw(struct nvidia_pin_state *kept)
{
	int err;

	if (!symbol_get(nvidia_p2p_put_pages))
		return -ENXIO;
	/* Cyclic: a late call for one that is gone does not soon mean another. */
	refcount_inc(&kept->pin.refs);
	err = xa_alloc_cyclic(&tickets, &kept->ticket, kept, xa_limit_31b, &next_ticket,
			      GFP_KERNEL_ACCOUNT);
	if (err < 0) {
		kept->ticket = 0; /* written before there was no memory */
		peerdma_pin_put(&kept->pin);
		symbol_put(nvidia_p2p_put_pages);
		return err;
	}
	__module_get(THIS_MODULE);
	kept->owed = true;
	return 0;
}

/* It calls no more, or is just doing it. Any number of times. */
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

/* False: it came while the driver is still being asked, and who asks will see it. */
static bool nvidia_symbol(struct nvidia_pin_state *kept)
{
	bool asking;

	mutex_lock(&kept->lock);
	asking = kept->asking;
	kept->freed = true;
	mutex_unlock(&kept->lock);
	return !asking;
}

/* The driver's call that the memory is freed. Sleeps until nobody uses it. */
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

/* What the table says, copied. */
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
 * The function that gives back is looked up first, and held as long as there is something to give
 * back: it keeps the driver from being unloaded. -ENXIO: it has no such function now.
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

/* What the driver has answered. It has to be told that we are done, unless it was freed already. */
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

/* By ticket. An answer that is 0 says nothing, but to who asked: it is given back, or was freed. */
static void nvidia_unpin_as_owner(struct peerdma_pin *pin)
{
	struct nvidia_pin_state *kept = to_kept(pin);
	typeof(nvidia_p2p_put_pages) *put;
	int err = -ENXIO;

	if (kept->tgid != current->tgid)
		return;
	put = symbol_get(nvidia_p2p_put_pages); /* a call may let go of the other reference */
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
 * Persistent. The rest is nvidia_give_back()'s. The driver may have no memory for the call itself,
 * and has done nothing then, in all of its source that was found to answer so.
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
	synchronize_rcu_tasks(); /* they let go of us in there, and then leave it */
}

module_init(peerdma_nvidia_init);
module_exit(peerdma_nvidia_exit);

MODULE_DESCRIPTION("Memory of NVIDIA's driver, for peerdma");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
