// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, counts how often the module reads back the CPU's stores during a read: calls in
 * debugfs.
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static atomic_t calls = ATOMIC_INIT(0);
static struct dentry *folder;

static int count(struct kprobe *probe, struct pt_regs *regs)
{
	atomic_inc(&calls);
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "peerdma_mem_read_back",
	.pre_handler = count,
};

static int __init readback_init(void)
{
	int err = register_kprobe(&probe);

	if (err)
		return err;
	folder = debugfs_create_dir("readback", NULL);
	debugfs_create_atomic_t("calls", 0444, folder, &calls);
	return 0;
}

static void __exit readback_exit(void)
{
	debugfs_remove(folder);
	unregister_kprobe(&probe);
}

module_init(readback_init);
module_exit(readback_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Counts reads back of the CPU's stores");
