// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, no device can map a page of another one's memory for DMA: what a drive behind an
 * IOMMU that has no room, or one that cannot address the page, answers.
 */
#include <linux/kprobes.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/scatterlist.h>

/* What is run instead, with the caller's return address. */
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

/* One that is there keeps the probe from being made faster in a way that takes no other path. */
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
MODULE_DESCRIPTION("Lets no device map another one's memory");
