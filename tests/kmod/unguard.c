// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, every queue merges again: the flags that forbid merging are cleared while a bio is
 * submitted, and set at any other time. A test of the guard sees with this module what happens
 * without the guard.
 */
#include <linux/blkdev.h>
#include <linux/kprobes.h>
#include <linux/module.h>

#define GUARD (BIT(QUEUE_FLAG_NOMERGES) | BIT(QUEUE_FLAG_NOXMERGES))

struct taken {
	struct request_queue *queue;
	unsigned long flags;
};

static int take(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct bio *bio = (struct bio *)regs_get_kernel_argument(regs, 0);
	struct taken *taken = (struct taken *)instance->data;

	taken->queue = bdev_get_queue(bio->bi_bdev);
	taken->flags = set_mask_bits(&taken->queue->queue_flags, GUARD, 0UL) & GUARD;
	return 0;
}

static int put_back(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct taken *taken = (struct taken *)instance->data;

	set_mask_bits(&taken->queue->queue_flags, 0UL, taken->flags);
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name = "blk_mq_submit_bio",
	.entry_handler = take,
	.handler = put_back,
	.data_size = sizeof(struct taken),
};

static int __init unguard_init(void)
{
	return register_kretprobe(&probe);
}

static void __exit unguard_exit(void)
{
	unregister_kretprobe(&probe);
}

module_init(unguard_init);
module_exit(unguard_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lets every queue merge, whatever its flags say");
