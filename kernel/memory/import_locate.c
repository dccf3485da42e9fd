// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the place in a BAR that a client's DMA address means.
 */
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <uapi/peerdma.h>

#include "memory/import.h"
#include "memory/pin.h"

bool peerdma_import_is_host(u64 addr)
{
	return region_intersects(addr, PAGE_SIZE, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	       REGION_DISJOINT;
}

/* True if a whole chunk at @addr lies in the BAR of @len bytes at @start. */
static bool import_bar_holds_chunk(u64 start, u64 len, u64 addr)
{
	return addr >= start && addr - start < len && len - (addr - start) >= PEERDMA_CHUNK_LEN;
}

/* The function that has a BAR at this address of the client's bus, referenced; or NULL. */
static struct pci_dev *import_find_bar(struct pci_dev *client, u64 addr, int *bar)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		if (pci_domain_nr(pdev->bus) != pci_domain_nr(client->bus))
			continue;
		for (*bar = 0; *bar < PCI_STD_NUM_BARS; (*bar)++) {
			if (pci_resource_flags(pdev, *bar) & IORESOURCE_MEM &&
			    import_bar_holds_chunk(pci_bus_address(pdev, *bar),
						   pci_resource_len(pdev, *bar), addr))
				return pdev;
		}
	}
	return NULL;
}

static u32 import_no_bar_reason(u64 addr)
{
	return peerdma_import_is_host(addr) ? PEERDMA_REASON_IMPORT_HOST :
					      PEERDMA_REASON_VENDOR_NOT_BAR;
}

/* Translates bus addresses to physical addresses. */
static u32 import_translate(struct peerdma_import *import, struct pci_dev *pdev, int bar)
{
	const u64 start = pci_bus_address(pdev, bar), len = pci_resource_len(pdev, bar);
	u64 *addrs = import->pin.chunk_addrs;
	unsigned long i;

	for (i = 0; i < import->pin.nr_chunks; i++) {
		if (!import_bar_holds_chunk(start, len, addrs[i]))
			return import_no_bar_reason(addrs[i]);
		addrs[i] = pci_resource_start(pdev, bar) + (addrs[i] - start);
		cond_resched();
	}
	return PEERDMA_REASON_NONE;
}

u32 peerdma_import_locate(struct peerdma_import *import)
{
	struct pci_dev *pdev;
	u32 reason;
	int bar;

	import->addr = import->pin.chunk_addrs[0];
	pdev = import_find_bar(import->client, import->addr, &bar);
	if (!pdev)
		return import_no_bar_reason(import->addr);
	reason = import_translate(import, pdev, bar);
	pci_dev_put(pdev);
	return reason;
}
