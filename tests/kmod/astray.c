// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, a page of another device's memory is mapped for DMA at an address that differs from
 * its bus address, as on a host bridge with an address offset.
 */
#include <linux/kprobes.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

static struct scatterlist *astray; /* the mapped table */

/* The table that is being mapped; NULL if its memory does not belong to another device. */
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

	if (table && !regs_return_value(regs)) {
		sg_dma_address(table->sgl) += SZ_64K;
		WRITE_ONCE(astray, table->sgl);
	}
	return 0;
}

/* Unmapping subtracts the offset again. */
static int undo(struct kprobe *unmap, struct pt_regs *regs)
{
	struct scatterlist *list = (struct scatterlist *)regs_get_kernel_argument(regs, 1);

	if (cmpxchg(&astray, list, NULL) == list)
		sg_dma_address(list) -= SZ_64K;
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name = "dma_map_sgtable",
	.entry_handler = enter,
	.handler = leave,
	.data_size = sizeof(struct sg_table *),
};

static struct kprobe unmap = {
	.symbol_name = "dma_unmap_sg_attrs",
	.pre_handler = undo,
};

static int __init astray_init(void)
{
	int rc = register_kprobe(&unmap);

	if (rc)
		return rc;
	rc = register_kretprobe(&probe);
	if (rc)
		unregister_kprobe(&unmap);
	return rc;
}

static void __exit astray_exit(void)
{
	unregister_kretprobe(&probe);
	unregister_kprobe(&unmap);
}

module_init(astray_init);
module_exit(astray_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Maps another device's memory at a wrong address");
