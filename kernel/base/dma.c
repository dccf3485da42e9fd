// SPDX-License-Identifier: GPL-2.0
/*
 * What a device would use as the address of peer-to-peer memory, and how the kernel has it mapped.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/dma.h"

/**
 * peerdma_dma_is_translated - what the device uses is not what is on the bus
 * @dev: its driver, and so its IOMMU domain, stay
 * Return: whether an IOMMU translates for it.
 */
bool peerdma_dma_is_translated(struct device *dev)
{
	const struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}

/**
 * peerdma_dma_is_bounced - what was mapped by way of the host bridge is a copy in host memory
 *	(swiotlb)
 * @dev: its driver and its IOMMU domain stay
 * @sg: mapped for it
 *
 * The kernel does so where all DMA passes through host memory, as in guests with encrypted memory,
 * and where the device does not reach the address.
 * Return: whether it is.
 */
bool peerdma_dma_is_bounced(struct device *dev, struct scatterlist *sg)
{
	return !sg_dma_is_bus_address(sg) && sg_dma_address(sg) != sg_phys(sg) &&
	       !peerdma_dma_is_translated(dev);
}

/**
 * peerdma_dma_trial_map - map one page as the driver would, and look: no other export says how
 * @dev: its driver and its IOMMU domain stay
 * @page: of peer-to-peer memory
 * @map: enum peerdma_map
 * @addr: what the device would use
 * Return: 0, what the kernel says of the pair, or -EXDEV if it would be a copy in host memory.
 */
int peerdma_dma_trial_map(struct device *dev, struct page *page, u32 *map, u64 *addr)
{
	struct scatterlist sg;
	struct sg_table table = { .sgl = &sg, .nents = 1, .orig_nents = 1 };
	int err;

	sg_init_table(&sg, 1);
	sg_set_page(&sg, page, PAGE_SIZE, 0);
	err = dma_map_sgtable(dev, &table, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	if (err)
		return err;
	if (peerdma_dma_is_bounced(dev, &sg))
		err = -EXDEV;
	else if (sg_dma_is_bus_address(&sg))
		*map = PEERDMA_MAP_BUS_ADDR;
	else if (sg_dma_address(&sg) == page_to_phys(page))
		*map = PEERDMA_MAP_HOST_BRIDGE;
	else
		*map = PEERDMA_MAP_IOVA;
	*addr = sg_dma_address(&sg);
	dma_unmap_sgtable(dev, &table, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	return err;
}

/* What a kernel address is mapped as. Where that cannot be told it is what it was asked for. */
bool peerdma_dma_is_write_combined(const void *kaddr)
{
#ifdef CONFIG_X86
	const pteval_t mask = _PAGE_PWT | _PAGE_PCD;
	unsigned int level;
	pte_t *pte = lookup_address((unsigned long)kaddr, &level);

	return pte && (pte_flags(*pte) & mask) == (cachemode2protval(_PAGE_CACHE_MODE_WC) & mask);
#else
	return false;
#endif
}
