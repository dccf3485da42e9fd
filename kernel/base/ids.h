/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects by number. An object gets its number first, and is shown, so that it can be found, when
 * whoever asked for it has learned of the number; or it has one that the kernel gave it.
 *
 * All are in a tree. A few of those that are shown, at most one for each value of a number's last
 * bits, are also kept where they are found without a walk down the tree: for the buffer, the file
 * and the route of one request those walks would cost more than all that is decided about it.
 */
#ifndef PEERDMA_IDS_H
#define PEERDMA_IDS_H

#include <linux/xarray.h>

#define PEERDMA_IDS_NEAR 16

/**
 * struct peerdma_entry - the first member of such an object, which is freed after an RCU grace
 * period
 * @id: its number; immutable once it is shown
 * @shown: lookups may find it; protected by the lock of the ids' tree
 */
struct peerdma_entry {
	u64 id;
	bool shown;
};

/**
 * struct peerdma_ids - objects by number
 * @all: the objects; its lock protects both members, RCU those who only look
 * @near: by a number's last bits, an object that is shown, or NULL
 * @next: where to look for a free number: one that was let go does not soon mean another object,
 * to a request that names it and has not begun
 */
struct peerdma_ids {
	struct xarray all;
	struct peerdma_entry *near[PEERDMA_IDS_NEAR];
	u32 next;
};

void peerdma_ids_init(struct peerdma_ids *ids);
void peerdma_ids_destroy(struct peerdma_ids *ids);
int peerdma_ids_alloc(struct peerdma_ids *ids, struct peerdma_entry *entry, u32 max);
void peerdma_ids_show(struct peerdma_ids *ids, u64 id);
int peerdma_ids_insert(struct peerdma_ids *ids, struct peerdma_entry *entry);
bool peerdma_ids_remove(struct peerdma_ids *ids, struct peerdma_entry *entry);
struct peerdma_entry *peerdma_ids_take(struct peerdma_ids *ids, u64 id, bool shown);
struct peerdma_entry *peerdma_ids_take_any(struct peerdma_ids *ids);

/* The object with this number if it is shown, or NULL. Under RCU, which keeps it. */
static inline struct peerdma_entry *peerdma_ids_find(struct peerdma_ids *ids, u64 id)
{
	struct peerdma_entry *entry;

	/* Pairs with peerdma_ids_show(): what was filled in before it is seen. */
	entry = smp_load_acquire(&ids->near[id % PEERDMA_IDS_NEAR]);
	if (likely(entry && entry->id == id))
		return entry;
	entry = xa_load(&ids->all, id);
	/* The same. */
	return entry && smp_load_acquire(&entry->shown) ? entry : NULL;
}

#endif /* PEERDMA_IDS_H */
