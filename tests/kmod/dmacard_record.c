// SPDX-License-Identifier: GPL-2.0
/* The record of dmacard (dmacard.h): each DMA that its engine was told to do. */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "dmacard.h"

#define ENTRIES 65536

struct dmacard_record {
	spinlock_t lock; /* protects everything below */
	u32 count;
	u64 lost; /* that came when the record was full */
	struct dmacard_dma entries[];
};

struct dmacard_record *dmacard_record_new(void)
{
	struct dmacard_record *record = kvzalloc(struct_size(record, entries, ENTRIES), GFP_KERNEL);

	if (record)
		spin_lock_init(&record->lock);
	return record;
}

void dmacard_record_end(struct dmacard_record *record)
{
	kvfree(record);
}

void dmacard_record_add(struct dmacard_record *record, const struct dmacard_dma *dma)
{
	unsigned long flags;

	spin_lock_irqsave(&record->lock, flags);
	if (record->count < ENTRIES)
		record->entries[record->count++] = *dma;
	else
		record->lost++;
	spin_unlock_irqrestore(&record->lock, flags);
}

bool dmacard_record_get(struct dmacard_record *record, u64 index, struct dmacard_dma *out)
{
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&record->lock, flags);
	found = index < record->count;
	if (found)
		*out = record->entries[index];
	spin_unlock_irqrestore(&record->lock, flags);
	return found;
}

u64 dmacard_record_lost(struct dmacard_record *record)
{
	unsigned long flags;
	u64 lost;

	spin_lock_irqsave(&record->lock, flags);
	lost = record->lost;
	spin_unlock_irqrestore(&record->lock, flags);
	return lost;
}

void dmacard_record_clear(struct dmacard_record *record)
{
	unsigned long flags;

	spin_lock_irqsave(&record->lock, flags);
	record->count = 0;
	record->lost = 0;
	spin_unlock_irqrestore(&record->lock, flags);
}
