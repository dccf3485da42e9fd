// SPDX-License-Identifier: GPL-2.0
/*
 * peerdma_nvidia.ko: CUDA memory as buffers, kept in place by NVIDIA's driver. pin.h has the words.
 *
 * That driver exports a few functions for this (nvidia.h). They are looked up when they are needed,
 * so the driver may be loaded and unloaded, and nothing of it is needed to build this module.
 *
 * Memory is pinned in one of two forms. Persistent: the memory stays until it is unpinned, even if
 * its process frees it or exits. Not every GPU supports that; the driver reports it when it is
 * asked to pin. By callback: the driver calls this module when the memory is freed. When that call
 * returns, the memory is gone, and so is the driver's table with its addresses. The call may come
 * at any time after the driver was given the callback, even before the driver has answered. The
 * driver holds locks during the call that an unpin takes too. So, by callback:
 *
 * Ticket. The callback's argument is not a pointer but a number, which is void after the unpin. So
 * a late call finds no freed struct.
 *
 * Early call. A call that comes before the driver has answered is recorded and returns: the driver
 * may wait for the asking thread, which has not read any answer yet. A later call waits until the
 * table has been copied, and then until no one uses the memory any more: pin_revoke.c.
 *
 * Unpinning. The driver searches the memory of the current process. For another process's memory it
 * returns 0 without unpinning. So only the registrant may unpin, when it destroys or closes the
 * buffer, and never after the driver has begun to call. In all other cases the memory is left with
 * the driver until it calls, when the registrant frees the memory or exits. These cases are:
 * another process destroyed the buffer (a child, or one that received the descriptor), the GPU's
 * driver was unbound, or others held pages at that moment. This module does not use the memory any
 * more then, so such a call waits only for those others.
 *
 * References. Until the driver has called, or an unpin has returned, this module and the driver are
 * referenced, because the driver calls code of this module.
 *
 * Races. A call may begin during an unpin. The driver's lock orders the two: either the unpin comes
 * first, and no call follows, or it waits for the call, and finds nothing. In the second case the
 * table is freed already, and no table of another pin may be at its address. So nothing is pinned
 * by callback during an unpin (callback_mutex).
 *
 * In the persistent form a work item unpins, for which no call of the driver waits.
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
#define MAX_PIN_LEN BIT_ULL(39)

/* One second, for a driver without memory for the unpin. */
#define UNPIN_RETRIES 10
#define UNPIN_RETRY_MS 100 /* ms */

/**
 * struct nvidia_pin_state - a pin, and what NVIDIA's driver must be told to unpin it
 * @pin: how the core knows it
 * @lock: protects @asking, @freed, @armed, and the contents of @table while they are copied
 * @asking: the driver has not answered yet
 * @freed: the driver has called
 * @armed: the driver may still call, and nothing was unpinned: the ticket is valid, and both
 *	modules are referenced
 * @ticket: argument of the callback; 0: there is no callback
 * @tgid: the registrant
 * @addr: of the memory, in the registrant
 * @table: the driver's table with the addresses of the chunks
 * @put_persistent: the driver's function to unpin; NULL: nothing is pinned in the persistent form
 */
struct nvidia_pin_state {
	struct peerdma_pin pin;
	struct mutex lock; /* protects asking, freed, armed, and reading the table */
	bool asking;
	bool freed;
	bool armed;
	u32 ticket; /* immutable, once the driver has it */
	pid_t tgid; /* immutable */
	u64 addr; /* immutable */
	struct nvidia_p2p_page_table *table; /* immutable, once pin() has returned, as is: */
	int (*put_persistent)(u64 addr, struct nvidia_p2p_page_table *table, u32 flags);
};

static DEFINE_XARRAY_ALLOC1(tickets); /* by ticket; each has a reference */
static u32 next_ticket;
DEFINE_STATIC_SRCU(calls); /* calls of the driver: an unload waits for them */
/* Orders pins by callback and unpins. Taken before the driver's locks. */
static DEFINE_MUTEX(callback_mutex);

static void nvidia_unpin_by_registrant(struct peerdma_pin *pin);
static void nvidia_unpin(struct peerdma_pin *pin);
static struct peerdma_pin *nvidia_create(u64 addr, u64 len, u32 *reason);
static int nvidia_pin(struct peerdma_pin *pin, u32 *reason);
static void state_free(struct peerdma_pin *pin);

static struct peerdma_vendor_ops ops = {
	.owner = THIS_MODULE,
	.pci_vendor = PCI_VENDOR,
	.create = nvidia_create,
	.pin = nvidia_pin,
	.unpin_by_registrant = nvidia_unpin_by_registrant,
	.unpin = nvidia_unpin,
	.free = state_free,
};

static struct nvidia_pin_state *to_state(struct peerdma_pin *pin)
{
	return container_of(pin, struct nvidia_pin_state, pin);
}

static void state_free(struct peerdma_pin *pin)
{
	kvfree(pin->chunk_addrs);
	kfree(to_state(pin));
}

/* The state for a ticket, referenced; or NULL. */
static struct nvidia_pin_state *ticket_find(u32 ticket)
{
	struct nvidia_pin_state *state;

	xa_lock(&tickets);
	state = xa_load(&tickets, ticket);
	if (state)
		refcount_inc(&state->pin.refs);
	xa_unlock(&tickets);
	return state;
}

/* Allocates a ticket, and references both modules. -ENXIO: the driver is not loaded. */
static int ticket_draw(struct nvidia_pin_state *state)
{
	int err;

	if (!symbol_get(nvidia_p2p_put_pages))
		return -ENXIO;
	/* Cyclic, so that the ticket of a late call is not soon another pin's. */
	refcount_inc(&state->pin.refs);
	err = xa_alloc_cyclic(&tickets, &state->ticket, state, xa_limit_31b, &next_ticket,
			      GFP_KERNEL_ACCOUNT);
	if (err < 0) {
		state->ticket = 0; /* xa_alloc_cyclic() has written it */
		peerdma_pin_put(&state->pin);
		symbol_put(nvidia_p2p_put_pages);
		return err;
	}
	__module_get(THIS_MODULE);
	state->armed = true;
	return 0;
}

/* Makes the ticket void, and puts the references of both modules. Does nothing the second time. */
static void ticket_void(struct nvidia_pin_state *state)
{
	bool armed;

	mutex_lock(&state->lock);
	armed = state->armed;
	state->armed = false;
	mutex_unlock(&state->lock);
	if (!armed)
		return;
	xa_erase(&tickets, state->ticket);
	peerdma_pin_put(&state->pin);
	symbol_put(nvidia_p2p_put_pages);
	module_put(THIS_MODULE);
}

/*
 * Records that the driver has called. False: it has not answered yet, and the asking thread will
 * see the record.
 */
static bool nvidia_record_freed(struct nvidia_pin_state *state)
{
	bool asking;

	mutex_lock(&state->lock);
	asking = state->asking;
	state->freed = true;
	mutex_unlock(&state->lock);
	return !asking;
}

/* The driver's callback when the memory is freed. Sleeps until the memory is not used any more. */
static void nvidia_freed(void *data)
{
	int idx = srcu_read_lock(&calls);
	struct nvidia_pin_state *state = ticket_find((unsigned long)data);

	if (state) {
		if (nvidia_record_freed(state))
			peerdma_pin_revoke_wait(&state->pin);
		ticket_void(state);
		peerdma_pin_put(&state->pin);
	}
	srcu_read_unlock(&calls, idx);
}

static bool nvidia_table_is_known(const struct nvidia_p2p_page_table *table)
{
	const u32 version = READ_ONCE(table->version);

	return TABLE_MAJOR(version) == 2 ||
	       (TABLE_MAJOR(version) == 1 && TABLE_MINOR(version) >= 1);
}

static u32 nvidia_read_table(struct nvidia_pin_state *state)
{
	const struct nvidia_p2p_page_table *table = state->table;
	unsigned long i;

	if (!table || !nvidia_table_is_known(table) || table->page_size != TABLE_SIZE_64K ||
	    table->entries != state->pin.nr_chunks || !table->pages)
		return PEERDMA_REASON_VENDOR_TABLE;
	if (TABLE_MAJOR(table->version) >= 2 && table->flags)
		return PEERDMA_REASON_VENDOR_NOT_BAR;
	for (i = 0; i < state->pin.nr_chunks; i++)
		state->pin.chunk_addrs[i] = table->pages[i]->physical_address;
	return PEERDMA_REASON_NONE;
}

/*
 * Pins in the persistent form. Looks the unpin function up first, and holds it while anything is
 * pinned: that keeps the driver loaded. -ENXIO: the driver has no such function.
 */
static int nvidia_ask_persistent(struct nvidia_pin_state *state, u64 len)
{
	typeof(nvidia_p2p_get_pages_persistent) *get;
	int err = -ENXIO;

	state->put_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	if (!state->put_persistent)
		return err;
	get = symbol_get(nvidia_p2p_get_pages_persistent);
	if (get) {
		err = get(state->addr, len, &state->table, 0);
		symbol_put(nvidia_p2p_get_pages_persistent);
	}
	if (err) {
		symbol_put(nvidia_p2p_put_pages_persistent);
		state->put_persistent = NULL;
	}
	return err;
}

/* Pins by callback. -ENXIO: the driver is not loaded. */
static int nvidia_ask_by_callback(struct nvidia_pin_state *state, u64 len)
{
	typeof(nvidia_p2p_get_pages) *get = symbol_get(nvidia_p2p_get_pages);
	int err = get ? ticket_draw(state) : -ENXIO;

	if (!err) {
		mutex_lock(&callback_mutex);
		err = get(0, 0, state->addr, len, &state->table, nvidia_freed,
			  (void *)(unsigned long)state->ticket);
		mutex_unlock(&callback_mutex);
		if (err)
			ticket_void(state);
	}
	if (get)
		symbol_put(nvidia_p2p_get_pages);
	return err;
}

static int nvidia_ask(struct nvidia_pin_state *state, u64 len)
{
	int err = READ_ONCE(persistent) ? nvidia_ask_persistent(state, len) : -ENXIO;

	if (READ_ONCE(callback) && (err == -ENXIO || err == -ENOTSUPP))
		err = nvidia_ask_by_callback(state, len);
	return err;
}

/*
 * Reads the addresses of the chunks from the driver's answer. After a failure the memory must be
 * unpinned, unless it was freed already.
 */
static u32 nvidia_read_chunks(struct nvidia_pin_state *state)
{
	u32 reason = PEERDMA_REASON_VENDOR_FREED;

	mutex_lock(&state->lock);
	state->asking = false;
	if (!state->freed)
		reason = nvidia_read_table(state);
	mutex_unlock(&state->lock);
	return reason;
}

static bool nvidia_can_unpin_by_registrant(struct nvidia_pin_state *state)
{
	bool can;

	mutex_lock(&state->lock);
	can = state->armed && !state->freed;
	mutex_unlock(&state->lock);
	return can;
}

/*
 * Unpins in the form by callback. For the registrant a result of 0 is reliable: the memory is
 * unpinned, or was freed.
 */
static void nvidia_unpin_by_registrant(struct peerdma_pin *pin)
{
	struct nvidia_pin_state *state = to_state(pin);
	typeof(nvidia_p2p_put_pages) *put;
	int err = -ENXIO;

	if (state->tgid != current->tgid)
		return;
	put = symbol_get(nvidia_p2p_put_pages); /* a call may put the ticket's reference */
	if (!put)
		return;
	mutex_lock(&callback_mutex);
	if (nvidia_can_unpin_by_registrant(state)) {
		err = put(0, 0, state->addr, state->table);
		if (err)
			pr_warn_ratelimited("NVIDIA's driver did not take memory back: %d\n", err);
	}
	mutex_unlock(&callback_mutex);
	symbol_put(nvidia_p2p_put_pages);
	if (!err)
		ticket_void(state);
}

/*
 * Unpins in the persistent form; nvidia_unpin_by_registrant() unpins in the other one. The driver
 * may have no memory for the call itself. All known versions have done nothing in that case.
 */
static void nvidia_unpin(struct peerdma_pin *pin)
{
	struct nvidia_pin_state *state = to_state(pin);
	unsigned int tries = 0;
	int err;

	if (!state->put_persistent)
		return;
	do {
		if (tries)
			msleep(UNPIN_RETRY_MS);
		err = state->put_persistent(state->addr, state->table, 0);
	} while (err == -ENOMEM && tries++ < UNPIN_RETRIES);
	symbol_put(nvidia_p2p_put_pages_persistent);
	if (err)
		pr_warn_ratelimited("NVIDIA's driver did not take memory back: %d\n", err);
}

static struct nvidia_pin_state *state_create(u64 addr, u64 len)
{
	struct nvidia_pin_state *state = kzalloc(sizeof(*state), GFP_KERNEL_ACCOUNT);

	if (!state)
		return NULL;
	peerdma_pin_init(&state->pin, &ops);
	mutex_init(&state->lock);
	state->asking = true;
	state->tgid = current->tgid;
	state->addr = addr;
	state->pin.nr_chunks = len >> PEERDMA_CHUNK_SHIFT;
	state->pin.chunk_addrs = kvmalloc_array(state->pin.nr_chunks,
						sizeof(*state->pin.chunk_addrs),
						GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (state->pin.chunk_addrs)
		return state;
	kfree(state);
	return NULL;
}

static struct peerdma_pin *nvidia_create(u64 addr, u64 len, u32 *reason)
{
	struct nvidia_pin_state *state;

	if (len > MAX_PIN_LEN) {
		*reason = PEERDMA_REASON_VENDOR_REFUSED;
		return ERR_PTR(-EOPNOTSUPP);
	}
	state = state_create(addr, len);
	return state ? &state->pin : ERR_PTR(-ENOMEM);
}

static int nvidia_pin(struct peerdma_pin *pin, u32 *reason)
{
	struct nvidia_pin_state *state = to_state(pin);
	int err = nvidia_ask(state, (u64)pin->nr_chunks << PEERDMA_CHUNK_SHIFT);

	if (!err) {
		*reason = nvidia_read_chunks(state);
		return 0;
	}
	if (err == -ENOMEM)
		return err;
	*reason = err == -ENXIO ? PEERDMA_REASON_VENDOR_DRIVER : PEERDMA_REASON_VENDOR_REFUSED;
	return -EOPNOTSUPP;
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
