// SPDX-License-Identifier: GPL-2.0
/*
 * While loaded, a bio that takes peer pages from a bvec iterator gets REQ_NOMERGE, as with the
 * patch of Documentation/upstream/bio-iov-bvec-nomerge.
 */
#include <linux/bio.h>
#include <linux/kprobes.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/uio.h>

static int mark(struct kprobe *probe, struct pt_regs *regs)
{
	struct bio *bio = (struct bio *)regs_get_kernel_argument(regs, 0);
	const struct iov_iter *iter = (const struct iov_iter *)regs_get_kernel_argument(regs, 1);

	if (is_pci_p2pdma_page(iter->bvec->bv_page))
		bio->bi_opf |= REQ_NOMERGE;
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "bio_iov_bvec_set",
	.pre_handler = mark,
};

static int __init nomerge_init(void)
{
	return register_kprobe(&probe);
}

static void __exit nomerge_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(nomerge_init);
module_exit(nomerge_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Sets REQ_NOMERGE on bios with peer pages from bvec iterators");
