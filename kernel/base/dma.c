// SPDX-License-Identifier: GPL-2.0
/*
 * The address that a device would use for peer-to-peer memory, and the kernel's own mapping of it.
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
 * peerdma_dma_is_translated - is the device's address another one than that on the bus?
 * @dev: its driver, and so its IOMMU domain, stay
 * Return: true if an IOMMU translates.
 */
bool peerdma_dma_is_translated(struct device *dev)
{
	const struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}

/**
 * peerdma_dma_is_swiotlb - is memory that was mapped through the host bridge a copy (swiotlb)?
 * @dev: its driver and its IOMMU domain stay
 * @sg: mapped for it
 *
 * The kernel copies if all DMA goes through host memory, as in guests with encrypted memory, or if
 * the device cannot address the memory.
 * Return: true if it is a copy.
 */
bool peerdma_dma_is_swiotlb(struct device *dev, struct scatterlist *sg)
{
	return !sg_dma_is_bus_address(sg) && sg_dma_address(sg) != sg_phys(sg) &&
	       !peerdma_dma_is_translated(dev);
}

/**
 * peerdma_dma_trial_map - map one page as the driver would: no other export tells the result
 * @dev: its driver and its IOMMU domain stay
 * @page: of peer-to-peer memory
 * @map: enum peerdma_map
 * @addr: the device's address
 * Return: 0, the kernel's error for the pair, or -EXDEV if the mapping would be a copy in host
 * memory.
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
	if (peerdma_dma_is_swiotlb(dev, &sg))
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

/*
 * True if the kernel has mapped this address write-combined. Where that cannot be found out, the
 * requested type is assumed.
 */
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
