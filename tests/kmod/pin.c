// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, holds references of pages of a PCI function's memory, as pending I/O does: insmod
 * pin.ko device=0000:01:00.0 bar=2 offset=1048576 pages=3 references=2. The pages must be in use.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *device = "";
module_param(device, charp, 0444);

static int bar = 2;
module_param(bar, int, 0444);

static ulong offset;
module_param(offset, ulong, 0444);

static uint pages = 1;
module_param(pages, uint, 0444);

static uint references = 1;
module_param(references, uint, 0444);

static struct page *first;

static void unpin(unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		put_page(first + i % pages);
}

static int __init pin_init(void)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, device);
	unsigned long pfn;
	unsigned int i;

	if (!dev)
		return -ENODEV;
	pfn = PHYS_PFN(pci_resource_start(to_pci_dev(dev), bar) + offset);
	put_device(dev);
	if (!pfn_valid(pfn))
		return -ENXIO;
	first = pfn_to_page(pfn);
	for (i = 0; i < pages * references; i++) {
		if (!get_page_unless_zero(first + i % pages)) {
			unpin(i);
			return -ENOENT; /* a free page cannot be held */
		}
	}
	return 0;
}

static void __exit pin_exit(void)
{
	unpin(pages * references);
}

module_init(pin_init);
module_exit(pin_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds pages of a PCI function's memory");
