// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, a page of another device's memory is mapped for DMA at an address that is not the
 * one on the bus, as a kernel does that knows of an offset between the two.
 */
#include <linux/kprobes.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

/* What is being mapped; NULL: nothing of another one's. */
static int enter(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct sg_table **table = (struct sg_table **)instance->data;

	*table = (struct sg_table *)regs_get_kernel_argument(regs, 1);
	if (!is_pci_p2pdma_page(sg_page((*table)->sgl)))
		*table = NULL;
	return 0;
}

static int leave(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct sg_table *table = *(struct sg_table **)instance->data;

	if (table && !regs_return_value(regs))
		sg_dma_address(table->sgl) += SZ_64K;
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name = "dma_map_sgtable",
	.entry_handler = enter,
	.handler = leave,
	.data_size = sizeof(struct sg_table *),
};

static int __init astray_init(void)
{
	return register_kretprobe(&probe);
}

static void __exit astray_exit(void)
{
	unregister_kretprobe(&probe);
}

module_init(astray_init);
module_exit(astray_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Maps another device's memory where it is not");
