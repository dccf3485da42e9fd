// SPDX-License-Identifier: GPL-2.0
#include <linux/xarray.h>

#include "base/ids.h"

void peerdma_ids_init(struct peerdma_ids *ids)
{
	xa_init_flags(&ids->all, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	memset(ids->near, 0, sizeof(ids->near));
	ids->next = 1;
}

/* No object is left. */
void peerdma_ids_destroy(struct peerdma_ids *ids)
{
	xa_destroy(&ids->all);
}

/**
 * peerdma_ids_alloc - allocate an id for an object
 * @ids: the objects
 * @entry: of the object; its id is 0 after an error
 * @max: largest id
 * Return: 0, -ENOMEM, -EBUSY without a free id.
 */
int peerdma_ids_alloc(struct peerdma_ids *ids, struct peerdma_entry *entry, u32 max)
{
	u32 id = 0;
	int err;

	entry->shown = false;
	/* The entry's id is written before a lookup can find it. */
	err = xa_alloc_cyclic(&ids->all, &id, NULL, XA_LIMIT(1, max), &ids->next,
			      GFP_KERNEL_ACCOUNT);
	entry->id = err < 0 ? 0 : id;
	if (err < 0)
		return err;
	/* The slot exists already, so this allocates nothing. */
	xa_store(&ids->all, id, entry, GFP_KERNEL_ACCOUNT);
	return 0;
}

static void show(struct peerdma_ids *ids, struct peerdma_entry *entry)
{
	struct peerdma_entry **near = &ids->near[entry->id % PEERDMA_IDS_NEAR];

	lockdep_assert_held(&ids->all.xa_lock);
	smp_store_release(&entry->shown, true); /* pairs with peerdma_ids_find() */
	if (!*near)
		smp_store_release(near, entry); /* the same */
}

/* From now on lookups find the object. */
void peerdma_ids_show(struct peerdma_ids *ids, u64 id)
{
	xa_lock(&ids->all);
	show(ids, xa_load(&ids->all, id));
	xa_unlock(&ids->all);
}

/**
 * peerdma_ids_insert - show an object that has an id already
 * @ids: the objects
 * @entry: of the object
 * Return: 0, -ENOMEM, -EBUSY if the id is taken.
 */
int peerdma_ids_insert(struct peerdma_ids *ids, struct peerdma_entry *entry)
{
	int err;

	xa_lock(&ids->all);
	err = __xa_insert(&ids->all, entry->id, entry, GFP_KERNEL);
	if (!err)
		show(ids, entry);
	xa_unlock(&ids->all);
	return err;
}

static void take(struct peerdma_ids *ids, struct peerdma_entry *entry)
{
	struct peerdma_entry **near = &ids->near[entry->id % PEERDMA_IDS_NEAR];

	lockdep_assert_held(&ids->all.xa_lock);
	if (*near == entry)
		WRITE_ONCE(*near, NULL);
	__xa_erase(&ids->all, entry->id);
}

/* Removes and returns the object with this id if its shown is @shown, or returns NULL. */
struct peerdma_entry *peerdma_ids_take(struct peerdma_ids *ids, u64 id, bool shown)
{
	struct peerdma_entry *entry;

	xa_lock(&ids->all);
	entry = xa_load(&ids->all, id);
	if (entry && entry->shown == shown)
		take(ids, entry);
	else
		entry = NULL;
	xa_unlock(&ids->all);
	return entry;
}

/* False if another thread has removed it. */
bool peerdma_ids_remove(struct peerdma_ids *ids, struct peerdma_entry *entry)
{
	bool found;

	xa_lock(&ids->all);
	found = xa_load(&ids->all, entry->id) == entry;
	if (found)
		take(ids, entry);
	xa_unlock(&ids->all);
	return found;
}

/* Removes any object. Returns NULL when all are gone. */
struct peerdma_entry *peerdma_ids_take_any(struct peerdma_ids *ids)
{
	struct peerdma_entry *entry;
	unsigned long id = 0;

	xa_lock(&ids->all);
	entry = xa_find(&ids->all, &id, ULONG_MAX, XA_PRESENT);
	if (entry)
		take(ids, entry);
	xa_unlock(&ids->all);
	return entry;
}
