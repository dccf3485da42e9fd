/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PeerDMA: storage and network straight to and from the memory of a PCI function.
 *
 * A provider is a range of a PCI function's BAR that has ZONE_DEVICE pages. A mem is a contiguous
 * part of it with every page referenced. A buffer is a mem that a process knows by an id of its
 * open file. A read or write builds an iterator over the buffer's bio_vec table, which costs
 * nothing per page, and hands it to the file's own ->read_iter or ->write_iter with IOCB_DIRECT;
 * the storage driver's own DMA mapping then finds P2PDMA pages and uses the function's bus address.
 * Whether that is safe for a pair of device and provider is decided before anything is submitted:
 * route.c.
 *
 * Who keeps whom alive: an open file its buffers; a buffer its mem until it is revoked, and its
 * provider struct; a provider's range its pages, until the driver is unbound. Unbinding closes the
 * provider's gate, revokes each buffer (which waits for the requests inside it) and then leaves the
 * rest to the PCI core, which waits for the last page reference. See Documentation/locking.md.
 */
#ifndef PEERDMA_H
#define PEERDMA_H

#include <linux/blkdev.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "gate.h"
#include "op.h"
#include "request.h"
#include "stats.h"

/**
 * struct peerdma_provider - a published range of a PCI function's memory
 * @refs: who holds this struct; the range itself may be gone
 * @gate: who is using the range by way of this struct (allocating, trial mapping); closed by unbind
 * @id: its number, never 0 and not reused while anyone holds the struct
 * @pdev: the function; referenced
 * @bar: BAR number
 * @bar_offset: bytes from the start of the BAR
 * @len: bytes
 * @used: bytes in mems
 * @lock: protects @buffers
 * @buffers: buffers whose mem is not yet released
 * @verdicts: by diskseq, struct peerdma_verdict of disks that were asked about; protected by its
 * own lock
 * @stats: of requests on its buffers
 */
struct peerdma_provider {
	refcount_t refs;
	struct peerdma_gate gate;
	u32 id; /* immutable */
	struct pci_dev *pdev; /* immutable */
	int bar; /* immutable */
	u64 bar_offset; /* immutable */
	u64 len; /* immutable */
	atomic64_t used;
	struct mutex lock; /* protects buffers */
	struct list_head buffers; /* protected by lock */
	struct xarray verdicts;
	struct peerdma_stats stats;
};

/**
 * struct peerdma_mem - referenced pages of a provider, contiguous
 * @provider: referenced
 * @kaddr: kernel mapping, uncached
 * @len: bytes
 * @release: delayed work of the release on kernels whose idle page count is 1
 * @release_tries: how often it found pages still held
 * @nr_bvecs: entries of @bvecs
 * @bvecs: the pages, for iterators; entries of up to SEGMENT_LEN
 */
struct peerdma_mem {
	struct peerdma_provider *provider;
	void *kaddr;
	u64 len;
	struct delayed_work release;
	unsigned int release_tries;
	unsigned int nr_bvecs;
	struct bio_vec bvecs[] __counted_by(nr_bvecs);
};

/**
 * struct peerdma_buffer - a mem as a process knows it
 * @refs: who holds this struct
 * @gate: requests that use @mem; closed by the first to revoke
 * @ready: its id has reached the process: lookups may find it
 * @revoking: somebody has begun to revoke
 * @revoked: completed when the mem has been let go
 * @provider: referenced
 * @mem: valid inside the gate
 * @link: in the provider's list; protected by the provider's lock
 */
struct peerdma_buffer {
	refcount_t refs;
	struct peerdma_gate gate;
	bool ready;
	atomic_t revoking;
	struct completion revoked;
	struct peerdma_provider *provider; /* immutable */
	struct peerdma_mem *mem;
	struct list_head link;
};

/**
 * struct peerdma_ctx - one open file of /dev/peerdma
 * @buffers: by id; protected by its own lock
 * @opener: who opened it, and what was done with it
 */
struct peerdma_ctx {
	struct xarray buffers;
	struct peerdma_opener opener;
};

/**
 * struct peerdma_verdict - can this disk's device reach this provider: what does not change while
 * both live
 * @reason: enum peerdma_reason
 * @map: enum peerdma_map
 * @distance: PCI distance, -1 where there is none
 * @leaf_domain: PCI domain of the device
 * @leaf_bdf: its bus << 8 | devfn
 */
struct peerdma_verdict {
	u32 reason;
	u32 map;
	int distance;
	u32 leaf_domain;
	u32 leaf_bdf;
};

/**
 * struct peerdma_target - what a file is, for direct I/O
 * @bdev: where its bytes are
 * @fs_name: name of the filesystem, "block" for a block device
 * @mem_align: bytes, of the buffer's offset
 * @offset_align: bytes, of the file's offset and the length
 */
struct peerdma_target {
	struct block_device *bdev;
	const char *fs_name;
	u32 mem_align;
	u32 offset_align;
};

/* provider.c */
extern struct workqueue_struct *peerdma_wq;
struct peerdma_provider *peerdma_provider_reserve(struct pci_dev *pdev, int bar, u64 bar_offset,
						  u64 len);
void peerdma_provider_unreserve(struct peerdma_provider *provider);
void peerdma_provider_announce(struct peerdma_provider *provider);
void peerdma_provider_remove(struct peerdma_provider *provider);
struct peerdma_provider *peerdma_provider_next(u32 id);
struct peerdma_provider *peerdma_provider_get(u32 id);
void peerdma_provider_put(struct peerdma_provider *provider);

/* Physical address of the published range. */
static inline phys_addr_t peerdma_provider_start(struct peerdma_provider *provider)
{
	return pci_resource_start(provider->pdev, provider->bar) + provider->bar_offset;
}

/* bar.c */
int peerdma_bar_register(void);
void peerdma_bar_unregister(void);

/* mem.c */
struct peerdma_mem *peerdma_mem_alloc(struct peerdma_provider *provider, u64 len, bool zero);
void peerdma_mem_release(struct peerdma_mem *mem);
struct page *peerdma_mem_page(struct peerdma_mem *mem);
void peerdma_mem_iter(struct peerdma_mem *mem, struct iov_iter *iter, int direction, u64 off,
		      u64 len);
void peerdma_mem_copy(struct peerdma_mem *to, u64 to_off, struct peerdma_mem *from, u64 len);
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len);

/* buffer.c */
struct peerdma_buffer *peerdma_buffer_get(struct peerdma_ctx *ctx, u32 id);
void peerdma_buffer_put(struct peerdma_buffer *buffer);
void peerdma_buffer_revoke(struct peerdma_buffer *buffer);
void peerdma_buffers_destroy(struct peerdma_ctx *ctx);

/* route.c */
int peerdma_target_resolve(struct file *file, struct peerdma_target *target, u32 *reason);
u32 peerdma_target_writable(struct file *file);
int peerdma_verdict(struct peerdma_provider *provider, struct block_device *bdev, struct page *page,
		    struct peerdma_verdict *verdict);

/* ioctl.c */
extern const struct file_operations peerdma_fops;

#endif /* PEERDMA_H */
