// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of the requests between a disk and a provider. They exist as long as the provider.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "base/counters.h"
#include "base/pair.h"

static struct peerdma_pair *pair_create(dev_t devt, const char *name)
{
	struct peerdma_pair *pair = kzalloc(sizeof(*pair), GFP_KERNEL);

	if (!pair)
		return NULL;
	if (peerdma_stats_init(&pair->stats, GFP_KERNEL)) {
		kfree(pair);
		return NULL;
	}
	pair->devt = devt;
	strscpy(pair->name, name, sizeof(pair->name));
	return pair;
}

static void pair_free(struct peerdma_pair *pair)
{
	peerdma_stats_free(&pair->stats);
	kfree(pair->leaves);
	kfree(pair);
}

/**
 * peerdma_pair_get - the counters of a disk and a provider
 * @pairs: of a provider, which the caller holds
 * @devt: number of the disk, or of a share
 * @name: its name
 * Return: the pair, which exists as long as the provider, or NULL without memory. May sleep.
 */
struct peerdma_pair *peerdma_pair_get(struct xarray *pairs, dev_t devt, const char *name)
{
	struct peerdma_pair *pair = xa_load(pairs, devt);

	if (pair)
		return pair;
	pair = pair_create(devt, name);
	if (!pair)
		return NULL;
	if (xa_insert(pairs, pair->devt, pair, GFP_KERNEL)) {
		pair_free(pair);
		/* Another thread was faster, or there is no memory: NULL. */
		return xa_load(pairs, devt);
	}
	return pair;
}

/*
 * Records the leaves of a new route; the pair owns @leaves then. Another disk may have got the
 * number, so @name is recorded too.
 */
void peerdma_pair_rename(struct xarray *pairs, struct peerdma_pair *pair, const char *name,
			 char *leaves)
{
	xa_lock(pairs);
	swap(pair->leaves, leaves);
	strscpy(pair->name, name, sizeof(pair->name));
	xa_unlock(pairs);
	kfree(leaves);
}

void peerdma_pairs_sum(struct xarray *pairs, struct peerdma_sum *sum)
{
	struct peerdma_pair *pair;
	unsigned long devt;

	xa_for_each(pairs, devt, pair)
		peerdma_sum_add(sum, &pair->stats);
}

static void pair_show(struct seq_file *seq, struct xarray *pairs, u32 provider,
		      struct peerdma_pair *pair)
{
	struct peerdma_sum sum = {};

	peerdma_sum_add(&sum, &pair->stats);
	seq_printf(seq, "disk provider=%u dev=%u:%u", provider, MAJOR(pair->devt),
		   MINOR(pair->devt));
	xa_lock(pairs);
	seq_printf(seq, " name=%s", pair->name);
	if (pair->leaves)
		seq_printf(seq, " leaves=%s", pair->leaves);
	xa_unlock(pairs);
	peerdma_sum_show(seq, &sum);
	seq_putc(seq, '\n');
}

void peerdma_pairs_show(struct xarray *pairs, u32 provider, struct seq_file *seq)
{
	struct peerdma_pair *pair;
	unsigned long devt;

	xa_for_each(pairs, devt, pair)
		pair_show(seq, pairs, provider, pair);
}

/* The provider's last reference is gone. */
void peerdma_pairs_free(struct xarray *pairs)
{
	struct peerdma_pair *pair;
	unsigned long devt;

	xa_for_each(pairs, devt, pair)
		pair_free(pair);
	xa_destroy(pairs);
}
