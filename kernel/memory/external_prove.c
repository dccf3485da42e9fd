// SPDX-License-Identifier: GPL-2.0
/*
 * Proves that memory of another driver can be used. Each chunk lies in a memory BAR of one PCI
 * function, to which another driver is bound, and in one range of that BAR that is published as
 * peer-to-peer memory. The kernel does not map the range write-combined: this is checked on the
 * first chunk only, because a page map has one memory type. That no one else uses the pages is
 * proven when they are referenced: mem_pages.c.
 */
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/range.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/dma.h"
#include "memory/bar.h"
#include "memory/pin.h"

/*
 * The likely reason why the memory is not published: a driver cannot publish a BAR that is mapped
 * write-combined. A new mapping gets the type of the existing ones.
 */
static u32 prove_unpublished_reason(u64 at)
{
	void __iomem *probe = ioremap(at, PAGE_SIZE);
	u32 reason = PEERDMA_REASON_VENDOR_UNPUBLISHED;

	if (!probe)
		return reason;
	if (peerdma_dma_is_write_combined((__force void *)probe))
		reason = PEERDMA_REASON_VENDOR_WC;
	iounmap(probe);
	return reason;
}

static bool range_holds_chunk(u64 start, u64 end, u64 at)
{
	return at >= start && at < end && end - at >= PEERDMA_CHUNK_LEN;
}

static bool range_holds_pin(const struct peerdma_pin *pin, u64 start, u64 end)
{
	unsigned long i;

	for (i = 0; i < pin->nr_chunks; i++) {
		if (!range_holds_chunk(start, end, pin->chunk_addrs[i]) ||
		    !PAGE_ALIGNED(pin->chunk_addrs[i]))
			return false;
		cond_resched();
	}
	return true;
}

/* The PCI function whose BAR has the first chunk, referenced, and the BAR's number; or NULL. */
struct pci_dev *peerdma_pin_find_function(const struct peerdma_pin *pin, int *bar)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		for (*bar = 0; *bar < PCI_STD_NUM_BARS; (*bar)++) {
			if (pci_resource_flags(pdev, *bar) & IORESOURCE_MEM &&
			    range_holds_chunk(pci_resource_start(pdev, *bar),
					      pci_resource_end(pdev, *bar) + 1ULL,
					      pin->chunk_addrs[0]))
				return pdev;
		}
	}
	return NULL;
}

/* Whatever the result, the pin has a reference of the page map then, if there is one. */
static u32 prove_pages(struct peerdma_pin *pin)
{
	struct dev_pagemap *pgmap = get_dev_pagemap(PHYS_PFN(pin->chunk_addrs[0]));

	pin->pgmap = pgmap;
	if (!pgmap || pgmap->type != MEMORY_DEVICE_PCI_P2PDMA || pgmap->nr_range != 1 ||
	    !range_holds_pin(pin, pgmap->range.start, pgmap->range.end + 1))
		return prove_unpublished_reason(pin->chunk_addrs[0]);
	if (peerdma_dma_is_write_combined(page_address(pfn_to_page(PHYS_PFN(pin->chunk_addrs[0])))))
		return PEERDMA_REASON_VENDOR_WC;
	return PEERDMA_REASON_NONE;
}

/*
 * All proofs of this file, and those of the pin's operations. The caller holds the device lock of
 * @pdev. Returns enum peerdma_reason.
 */
u32 peerdma_pin_prove(struct peerdma_pin *pin, struct pci_dev *pdev, int bar)
{
	u32 reason;

	if (!pdev->dev.driver)
		return PEERDMA_REASON_VENDOR_FREED;
	if (peerdma_bar_is_bound(pdev))
		return PEERDMA_REASON_VENDOR_OURS;
	if (!range_holds_pin(pin, pci_resource_start(pdev, bar),
			     pci_resource_end(pdev, bar) + 1ULL))
		return PEERDMA_REASON_VENDOR_NOT_BAR;
	reason = prove_pages(pin);
	if (!reason && pin->ops->prove)
		reason = pin->ops->prove(pin, pdev);
	return reason;
}
