// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, no device can map a page of another device's memory for DMA. A drive behind an
 * IOMMU without space, or one that cannot address the page, fails the same way.
 */
#include <linux/kprobes.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/scatterlist.h>

/* Runs instead of the probed function, with the caller's return address. */
static noinline int refuse(void)
{
	return -EIO;
}

static int look(struct kprobe *probe, struct pt_regs *regs)
{
	struct sg_table *table = (struct sg_table *)regs_get_kernel_argument(regs, 1);

	if (!is_pci_p2pdma_page(sg_page(table->sgl)))
		return 0;
	instruction_pointer_set(regs, (unsigned long)refuse);
	return 1;
}

/*
 * A post handler prevents the optimization of the probe, which could not change the instruction
 * pointer.
 */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "dma_map_sgtable",
	.pre_handler = look,
	.post_handler = after,
};

static int __init nomap_init(void)
{
	return register_kprobe(&probe);
}

static void __exit nomap_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(nomap_init);
module_exit(nomap_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Makes DMA mappings of another device's memory fail");
