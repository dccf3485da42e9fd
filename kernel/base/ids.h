/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects by id. An object gets its id first, and is shown to lookups after the caller has been
 * told the id. Or it has an id from the kernel.
 *
 * All objects are in a tree. A few shown objects, at most one for each value of the last bits of an
 * id, are also in an array: for the buffer, the file and the route of one request, walks down the
 * tree would cost more than all checks.
 */
#ifndef PEERDMA_IDS_H
#define PEERDMA_IDS_H

#include <linux/xarray.h>

#define PEERDMA_IDS_NEAR 16

/**
 * struct peerdma_entry - first member of such an object, which is freed after an RCU grace period
 * @id: immutable once shown
 * @shown: lookups may find it; protected by the lock of the tree
 */
struct peerdma_entry {
	u64 id;
	bool shown;
};

/**
 * struct peerdma_ids - objects by id
 * @all: the objects; its lock protects both members, RCU protects lookups
 * @near: by the last bits of the id, a shown object or NULL
 * @next: where the search for a free id begins, so that a freed id is not reused soon: a request
 *	that has not begun may still name it
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

/* The shown object with this id, or NULL. Called under RCU, which keeps it. */
static inline struct peerdma_entry *peerdma_ids_find(struct peerdma_ids *ids, u64 id)
{
	struct peerdma_entry *entry;

	/* Pairs with peerdma_ids_show(): the object's members are seen as they were before it. */
	entry = smp_load_acquire(&ids->near[id % PEERDMA_IDS_NEAR]);
	if (likely(entry && entry->id == id))
		return entry;
	entry = xa_load(&ids->all, id);
	/* Pairs with peerdma_ids_show(). */
	return entry && smp_load_acquire(&entry->shown) ? entry : NULL;
}

#endif /* PEERDMA_IDS_H */
