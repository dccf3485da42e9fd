/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver is written for the newest kernel. This adapts older ones. Each piece names the change
 * and the kernel with which it can be dropped. Kbuild.compat probes.
 */
#ifndef PEERDMA_COMPAT_H
#define PEERDMA_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

/*
 * Since "mm/mm_init: move p2pdma page refcount initialisation to p2pdma" (in v6.15) an idle P2PDMA
 * page has reference count 0. Before, it had 1, and a page whose count fell to 0 returned to the
 * pool before its count was set to 1 again: mem_pages.c. No header tells; page_pgmap() came with
 * the same series and stands for it. Drop with 6.12.
 */
#ifdef PEERDMA_HAVE_PAGE_PGMAP
#define PEERDMA_IDLE_PAGE_COUNT 0
#else
#define PEERDMA_IDLE_PAGE_COUNT 1
#endif

/* Up to v6.17 a page map could be passed as a hint. Drop with 6.12. */
#ifndef PEERDMA_HAVE_PAGEMAP_SHORT
#define get_dev_pagemap(pfn) get_dev_pagemap(pfn, NULL)
#endif

/* Since v6.6, and in later releases of v6.1. Drop with 6.1. */
#ifndef __counted_by
#define __counted_by(member)
#endif

/*
 * Since "RDMA/core: Convert UMEM ODP DMA mapping to caching IOVA and page linkage" (in v6.16)
 * memory for IBV_ACCESS_ON_DEMAND is mapped by hmm_dma_map_pfn(), which knows pages of other
 * devices. Before, ib_dma_map_page() mapped them like host memory: wrong bytes and no error. Drop
 * with 6.12.
 */
#ifdef PEERDMA_HAVE_HMM_DMA
#define PEERDMA_ON_DEMAND PEERDMA_FEATURE_ON_DEMAND
#else
#define PEERDMA_ON_DEMAND 0
#endif

/* Renamed in v6.17, when user space got a struct file_attr. Drop with 6.12. */
#ifndef PEERDMA_HAVE_FILE_KATTR
#define file_kattr fileattr
#endif

/* The name had another word order up to v6.1. Drop with 6.1. */
#ifndef PEERDMA_HAVE_SG_DMA_IS_BUS_ADDRESS
#define sg_dma_is_bus_address(sg) sg_is_dma_bus_address(sg)
#endif

/* bvec_set_page() came with v6.3. Drop with 6.1. */
#ifndef PEERDMA_HAVE_BVEC_SET_PAGE
static inline void bvec_set_page(struct bio_vec *bv, struct page *page, unsigned int len,
				 unsigned int offset)
{
	bv->bv_page = page;
	bv->bv_len = len;
	bv->bv_offset = offset;
}
#endif

/* Direction names of iterators came with v6.2. Drop with 6.1. */
#ifndef PEERDMA_HAVE_ITER_DEST
#define ITER_DEST READ
#define ITER_SOURCE WRITE
#endif

/* Since v6.2 a class gets its devices as const. Drop with 6.1. */
#ifdef PEERDMA_HAVE_DEVNODE_CONST
#define devnode_const const
#else
#define devnode_const
#endif

/* A platform driver's remove() returned int up to v6.10. Drop with 6.1. */
#ifdef PEERDMA_HAVE_PLATFORM_REMOVE_INT
#define platform_remove_void remove_new
#else
#define platform_remove_void remove
#endif

/* A vma's flags were written directly up to v6.2. Drop with 6.1. */
#ifndef PEERDMA_HAVE_VM_FLAGS_MOD
static inline void vm_flags_mod(struct vm_area_struct *vma, unsigned long set, unsigned long clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

/* I/O priority hints came with v6.5. Before, only queue.c prevents merging. Drop with 6.1. */
#ifndef PEERDMA_HAVE_IOPRIO_HINT
#define IOPRIO_PRIO_VALUE_HINT(class, level, hint) ((void)(hint), IOPRIO_PRIO_VALUE(class, level))
#endif
#ifndef IOPRIO_PRIO_LEVEL
#define IOPRIO_PRIO_LEVEL(ioprio) IOPRIO_PRIO_DATA(ioprio)
#endif

/* Queue features moved from flags to limits in v6.11. Drop with 6.1. */
static inline bool peerdma_queue_nowait(struct request_queue *q)
{
#ifdef PEERDMA_HAVE_BLK_FEAT
	return q->limits.features & BLK_FEAT_NOWAIT;
#else
	return test_bit(QUEUE_FLAG_NOWAIT, &q->queue_flags);
#endif
}

static inline bool peerdma_queue_polls(struct request_queue *q)
{
#ifdef PEERDMA_HAVE_BLK_FEAT
	return q->limits.features & BLK_FEAT_POLL;
#else
	return test_bit(QUEUE_FLAG_POLL, &q->queue_flags);
#endif
}

static inline bool peerdma_queue_has_parity(struct request_queue *q)
{
#ifdef PEERDMA_HAVE_BLK_FEAT
	return q->limits.features & BLK_FEAT_RAID_PARTIAL_STRIPES_EXPENSIVE;
#else
	return q->limits.raid_partial_stripes_expensive;
#endif
}

/* Up to v6.3 the functions of a class interface got the interface as an argument. Drop with 6.1. */
#ifdef PEERDMA_HAVE_CLASS_INTERFACE_SHORT
#define PEERDMA_INTERFACE_ARGS struct device *dev
#else
#define PEERDMA_INTERFACE_ARGS struct device *dev, struct class_interface *interface
#endif

/*
 * Since v6.14 freezing also keeps the task's allocations from doing I/O, by a function around the
 * one that thaws. Drop with 6.12.
 */
static inline void peerdma_queue_unfreeze(struct request_queue *q)
{
#ifdef PEERDMA_HAVE_UNFREEZE_NOMEMRESTORE
	blk_mq_unfreeze_queue_nomemrestore(q);
#else
	blk_mq_unfreeze_queue(q);
#endif
}

/*
 * Since v6.8 vfs_iocb_iter_write() itself takes freeze protection. Before, its caller had to. The
 * same series brought file_write_not_started(), which is probed for. Drop with 6.1.
 */
static inline ssize_t peerdma_iocb_iter_write(struct file *file, struct kiocb *iocb,
					      struct iov_iter *iter)
{
#ifdef PEERDMA_HAVE_IOCB_WRITE_PROTECTS
	return vfs_iocb_iter_write(file, iocb, iter);
#else
	ssize_t ret;

	file_start_write(file);
	ret = vfs_iocb_iter_write(file, iocb, iter);
	file_end_write(file);
	return ret;
#endif
}

/* Called when a write that returned -EIOCBQUEUED is done. */
static inline void peerdma_iocb_end_write(struct kiocb *kiocb)
{
#ifdef PEERDMA_HAVE_IOCB_WRITE_PROTECTS
	kiocb_end_write(kiocb);
#endif
}

#endif /* PEERDMA_COMPAT_H */
