/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PeerDMA: storage and network straight to and from the memory of a PCI function.
 *
 * A provider is a range of a PCI function's BAR that has ZONE_DEVICE pages. A mem is a contiguous
 * part of it with every page referenced. A buffer is a mem that a process knows by an id of its
 * open file. A read or write builds an iterator over one bio_vec, which costs nothing per page, and
 * hands it to the file's own ->read_iter or ->write_iter with IOCB_DIRECT; the storage driver's own
 * DMA mapping then finds P2PDMA pages and uses the function's bus address.
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

#ifdef CONFIG_ARM64
#error "holes of files are filled by memset(), which device memory on arm64 does not take"
#endif

#include <linux/blkdev.h>
#include <linux/kernfs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "compat/dmem.h"
#include "account.h"
#include "counters.h"
#include "dma.h"
#include "export.h"
#include "fabric.h"
#include "gate.h"
#include "held.h"
#include "ids.h"
#include "op.h"
#include "opener.h"
#include "pair.h"
#include "request.h"
#include "ref.h"
#include "sent.h"
#include "share.h"
#include "vendor.h"
#include "work.h"

#define PEERDMA_CONSUMER_PROVIDER "peerdma_provider"
#define PEERDMA_CONSUMER_IMPORTER "peerdma_importer"

/**
 * struct peerdma_consumer - what ends before a function loses its driver: consumer.c
 * @dev: linked to the function; immutable once it is added
 * @end: called once; immutable
 */
struct peerdma_consumer {
	struct platform_device *dev;
	void (*end)(struct peerdma_consumer *consumer);
};

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
 * @routes: struct peerdma_route that may be used again; protected by its own lock and RCU
 * @prune: delayed work that drops routes that nobody uses; pending while there are any
 * @pairs: by number of the top disk, struct peerdma_pair; protected by its own lock
 * @stats: of requests that belong to no pair
 * @region: what cgroups know it by, or NULL
 * @region_refs: one of the published range, and one of each mem that is charged to a cgroup
 * @foreign: its pages are another driver's: buffers are registered and not allocated: vendor.c; or
 *	NULL
 * @prefetchable: the BAR is; one that is not may be registers: only the bytes of a request are
 *	touched
 * @halted: its memory is about to be lost, or just was: nothing is allocated, buffers are revoked;
 *	written under the device's lock
 * @halts: how often that was so; written under @lock, after @halted
 * @halt: revokes them
 * @node: its device node, or NULL: node.c; used by the adder and the remover only
 * @consumer: whose unbinding ends it: consumer.c
 * @ended: called then, or NULL
 */
struct peerdma_provider {
	/* What requests read, and none writes. */
	u32 id; /* immutable */
	bool prefetchable; /* immutable */
	bool halted;
	struct foreign *foreign; /* immutable once it is announced */
	struct pci_dev *pdev; /* immutable */
	struct peerdma_gate gate;
	struct peerdma_ids routes;
	struct dmem_cgroup_region *region; /* immutable */
	u64 bar_offset; /* immutable */
	u64 len; /* immutable */
	int bar; /* immutable */

	/* What registering, and partial blocks, write. */
	refcount_t refs ____cacheline_aligned_in_smp;
	refcount_t region_refs;
	atomic64_t used;
	struct mutex lock; /* protects buffers */
	struct list_head buffers; /* protected by lock */
	struct delayed_work prune;
	unsigned int halts;
	struct work_struct halt;
	struct xarray pairs;
	struct peerdma_stats stats;
	struct device *node;
	struct peerdma_consumer consumer; /* immutable once it is reserved */
	void (*ended)(struct peerdma_provider *provider); /* immutable */
};

/**
 * struct peerdma_charge - who pays for a mem: charge.c
 * @len: bytes; 0: nobody does
 * @uid: of the user, in the first user namespace
 * @pool: of the cgroup, or NULL
 */
struct peerdma_charge {
	u64 len;
	u32 uid;
	struct dmem_cgroup_pool_state *pool;
};

/**
 * struct peerdma_mem - referenced pages of a provider
 * @provider: referenced
 * @kaddr: kernel mapping of @page, uncached
 * @len: bytes
 * @page: the first of them
 * @frames: of a vendor's memory that is not contiguous, where it is, PEERDMA_FRAME_LEN each; NULL:
 *	all of it lies behind @page
 * @pin: of another driver's memory, what keeps it, and whose end comes with the last page; or NULL
 * @charge: given back when the pages are in the pool again
 * @halts: of the provider, before the memory was taken
 * @first: when it was let go, the first page that is not settled
 * @end: and the one behind the last
 * @held: and who had it
 */
struct peerdma_mem {
	struct peerdma_provider *provider;
	void *kaddr;
	u64 len;
	struct page *page; /* immutable */
	struct bio_vec *frames; /* immutable */
	struct peerdma_pin *pin; /* immutable */
	struct peerdma_charge charge;
	unsigned int halts; /* immutable */
	unsigned long first;
	unsigned long end;
	struct peerdma_held held;
};

/**
 * struct peerdma_buffer - a mem as a process knows it
 * @entry: of the open file's buffers; its id is 0 if it got none
 * @gate: requests that use @mem; closed by the first to revoke
 * @lost: the memory was, or may have been, while requests were inside: they fail
 * @refs: who holds this struct; not requests
 * @revoking: somebody has begun to revoke
 * @revoked: completed when the mem has been let go
 * @provider: referenced
 * @mapping: where processes have it mapped; valid until @revoked
 * @opener: of its open file; valid inside the gate
 * @mem: valid inside the gate
 * @link: in the provider's list; protected by the provider's lock
 * @exports: pieces of it that drivers of other devices may map
 * @pin: of a vendor's memory that its process gives back; held: peerdma_pin_drop(); else NULL
 * @rcu: frees the struct after those who have just looked it up
 */
struct peerdma_buffer {
	/* What requests read, and none writes. */
	struct peerdma_entry entry;
	struct peerdma_mem *mem;
	struct peerdma_provider *provider; /* immutable */
	struct peerdma_opener *opener; /* immutable */
	bool lost;
	struct peerdma_gate gate;

	refcount_t refs ____cacheline_aligned_in_smp;
	atomic_t revoking;
	struct completion revoked;
	struct address_space *mapping; /* immutable */
	struct list_head link;
	struct peerdma_exports exports;
	struct peerdma_pin *pin; /* immutable, once it can be found */
	struct rcu_head rcu;
};

/**
 * struct peerdma_target - what a file is, for direct I/O
 * @bdev: where its bytes are; NULL: on another machine, which shares them
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

/**
 * struct peerdma_memo - what was found out about a file that stays open
 * @target: what it is
 * @a_ops: of its mapping, when it was; NULL if it has to be asked each time
 * @extents_at: of a file of ext4, the inode's version at which it had extents; any request may
 *	write it, when the version has moved
 */
struct peerdma_memo {
	struct peerdma_target target;
	const struct address_space_operations *a_ops;
	u64 extents_at;
};

/**
 * struct peerdma_file - a file as a process knows it by a number
 * @entry: of the open file's files
 * @ref: keeps @file open: one reference of the table's, one of each request
 * @file: a regular file or a block device
 * @memo: what it is
 * @rcu: frees the struct after those who have just looked it up
 */
struct peerdma_file {
	struct peerdma_entry entry;
	struct peerdma_ref ref;
	struct file *file; /* immutable */
	struct peerdma_memo memo; /* immutable once it can be found, but for extents_at */
	struct rcu_head rcu;
};

/**
 * struct peerdma_ctx - one open file of /dev/peerdma, or of a provider's node
 * @only: the provider of the node that was opened, referenced; NULL: every provider
 * @buffers: struct peerdma_buffer; protected by its own lock
 * @files: struct peerdma_file; protected by its own lock
 * @inode: ours alone, for its mapping: proxy.c
 * @file: the open file, which holds this and not the other way round
 * @opener: who opened it, and what was done with it
 * @stash: of uring.c
 */
struct peerdma_ctx {
	struct peerdma_provider *only; /* immutable */
	struct peerdma_ids buffers;
	struct peerdma_ids files;
	struct inode *inode; /* immutable */
	struct file *file; /* immutable */
	struct peerdma_opener opener;
	struct peerdma_stash __percpu *stash;
};

/**
 * struct peerdma_verdict - can this disk's device reach this provider
 * @reason: enum peerdma_reason
 * @map: enum peerdma_map
 * @distance: PCI distance, -1 where there is none
 */
struct peerdma_verdict {
	u32 reason;
	u32 map;
	int distance;
};

/* What a disk is made of. */
enum peerdma_disk_kind {
	PEERDMA_DISK_OTHER, /* what we know no way through */
	PEERDMA_DISK_LEAF, /* a PCI function's own */
	PEERDMA_DISK_FABRIC, /* a leaf as well: a namespace of NVMe over Fabrics */
	PEERDMA_DISK_SHARE, /* and what is no disk: a superblock of NFS */
	PEERDMA_DISK_MD,
	PEERDMA_DISK_DM,
	PEERDMA_DISK_PATHS, /* NVMe multipath */
	PEERDMA_DISK_GONE, /* a path of that, until it was removed just now */
};

/**
 * struct peerdma_guard - a queue that merges nothing: queue.c; lives as long as it has users or is
 *	being frozen
 * @link: in the list of them
 * @queue: each of @users has a reference, and so has @freeze
 * @users: routes that go through it
 * @before: its merge flags, to be put back
 * @freeze: tries to freeze the queue, and thaws it
 * @freezing: @freeze is queued or runs
 * @next_freeze: jiffies before which it must not be frozen again
 * @set: how often the flags had to be set
 * @drained: what @set was when the queue was frozen last
 *
 * All but @queue is protected by queue.c's lock; @set and @drained are also read without it.
 */
struct peerdma_guard {
	struct list_head link;
	struct request_queue *queue; /* immutable */
	unsigned int users;
	unsigned long before;
	struct work_struct freeze;
	bool freezing;
	unsigned long next_freeze;
	unsigned int set;
	unsigned int drained;
};

/**
 * struct peerdma_disk - a disk of a stack; holds nothing of its driver, which may be unloaded
 * @queue: its queue; referenced; NULL if the disk was gone already
 * @slaves: of a level, the directory with a link to each disk below; referenced
 * @rev: what the counter of changes of what is below was before that was looked at
 * @pdev: of a leaf, the function that moves its bytes; referenced, only until it has been judged
 * @lookup: of a leaf over a fabric, by whom that is to be found out; only until it has been
 * @address: of a share, where its server is; ours to free
 * @guard: of a leaf of a route, its queue's; NULL if the kernel keeps our bios apart there
 * @guard_set: which time of setting the queue's flags the route has drained
 * @kind: what it is made of
 * @devt: its number
 * @domain: of a leaf, PCI domain
 * @bdf: of a leaf, bus << 8 | devfn
 * @verdict: of a leaf, whether it can be reached; of a level, @verdict.reason
 * @name: as in /sys/block
 */
struct peerdma_disk {
	struct request_queue *queue;
	struct kernfs_node *slaves;
	unsigned long rev;
	struct pci_dev *pdev;
	struct peerdma_lookup *lookup;
	char *address;
	struct peerdma_guard *guard;
	unsigned int guard_set;
	enum peerdma_disk_kind kind;
	dev_t devt;
	u32 domain;
	u32 bdf;
	struct peerdma_verdict verdict;
	char name[DISK_NAME_LEN];
};

/**
 * struct peerdma_stack - a disk and all below it, as they were at one moment
 * @nr: number of @disks
 * @disks: the top first, each before those below it, none twice
 */
struct peerdma_stack {
	unsigned int nr;
	struct peerdma_disk disks[] __counted_by(nr);
};

/**
 * struct peerdma_route - a way from a disk to a provider that is open, while it is
 * @entry: of the provider's routes; its id is the diskseq of the top disk
 * @refs: one of each request that uses it, and one of the provider's table, which ends by a kill
 * @used: jiffies when it was last asked for, to within ROUTE_STAMP
 * @free: what the last put starts
 * @stack: what was found; immutable
 * @verdict: of the leaf that is farthest away; immutable
 * @pair: counts the requests; immutable
 * @software: bytes go through the CPU at a leaf, and count as that; immutable
 */
struct peerdma_route {
	struct peerdma_entry entry;
	struct percpu_ref refs;
	struct peerdma_stack *stack;
	struct peerdma_verdict verdict;
	struct peerdma_pair *pair;
	bool software;
	unsigned long used;
	struct rcu_work free;
};

/* provider.c */
struct peerdma_provider *peerdma_provider_create(struct pci_dev *pdev, int bar, u64 bar_offset,
						 u64 len);
int peerdma_provider_number(struct peerdma_provider *provider);
void peerdma_provider_show(struct peerdma_provider *provider);
void peerdma_provider_hide(struct peerdma_provider *provider);
struct peerdma_provider *peerdma_provider_next(const struct peerdma_ctx *ctx, u32 id);
struct peerdma_provider *peerdma_provider_get(const struct peerdma_ctx *ctx, u32 id);
void peerdma_provider_put(struct peerdma_provider *provider);
int peerdma_provider_pause(struct peerdma_provider *provider);

/**
 * struct peerdma_provider_events - whom the life of a provider concerns: lifecycle.c
 * @reserved: it has no number yet
 * @announced: it can be found
 * @withdrawn: it is about to be hidden
 * @ended: nobody is inside, and no buffer has memory of it
 */
struct peerdma_provider_events {
	void (*reserved)(struct peerdma_provider *provider);
	void (*announced)(struct peerdma_provider *provider);
	void (*withdrawn)(struct peerdma_provider *provider);
	void (*ended)(struct peerdma_provider *provider);
};

/* lifecycle.c */
int peerdma_lifecycle_init(const struct peerdma_provider_events *events);
void peerdma_lifecycle_exit(void);
struct peerdma_provider *peerdma_provider_reserve(struct pci_dev *pdev, int bar, u64 bar_offset,
						  u64 len,
						  void (*ended)(struct peerdma_provider *provider));
void peerdma_provider_announce(struct peerdma_provider *provider);
void peerdma_provider_remove(struct peerdma_provider *provider);
void peerdma_provider_halt(struct peerdma_provider *provider);
bool peerdma_provider_settle(struct peerdma_provider *provider, unsigned int seconds);
void peerdma_provider_restart(struct peerdma_provider *provider);

/* Physical address of the published range. */
static inline phys_addr_t peerdma_provider_start(struct peerdma_provider *provider)
{
	return pci_resource_start(provider->pdev, provider->bar) + provider->bar_offset;
}

/* Can this open file reach the provider? NULL: the module itself, which reaches all. */
static inline bool peerdma_reaches(const struct peerdma_ctx *ctx,
				   const struct peerdma_provider *provider)
{
	return !ctx || !ctx->only || ctx->only == provider;
}

/* consumer.c */
int peerdma_consumers_init(void);
void peerdma_consumers_exit(void);
int peerdma_consumer_add(struct peerdma_consumer *consumer, struct device *supplier,
			 const char *name, u32 id);
void peerdma_consumer_remove(struct peerdma_consumer *consumer);
void peerdma_consumer_wait(struct platform_device *dev);

/* node.c */
int peerdma_nodes_init(const struct file_operations *fops);
void peerdma_nodes_exit(void);
void peerdma_node_add(struct peerdma_provider *provider);
void peerdma_node_remove(struct peerdma_provider *provider);
struct peerdma_provider *peerdma_node_provider(const struct inode *inode);

/* bar.c */
int peerdma_bar_register(void);
void peerdma_bar_unregister(void);
bool peerdma_bar_drives(struct pci_dev *pdev);

/* charge.c */
int peerdma_region_create(struct peerdma_provider *provider);
void peerdma_region_put(struct peerdma_provider *provider);
int peerdma_charge(struct peerdma_provider *provider, u64 len, struct peerdma_charge *charge,
		   u32 *reason);
int peerdma_charge_more(struct peerdma_provider *provider, u64 len,
			const struct peerdma_charge *payer, struct peerdma_charge *charge);
void peerdma_uncharge(struct peerdma_provider *provider, struct peerdma_charge *charge);
int peerdma_charge_host(u64 len);
void peerdma_uncharge_host(u64 len);
void peerdma_show_users(struct seq_file *seq);

/* The cgroups that a worker acts for, between the two calls. */
struct peerdma_payers {
	struct cgroup_subsys_state *io;
	struct cgroup_subsys_state *memory;
	struct mem_cgroup *before;
};

void peerdma_payers_enter(struct peerdma_payers *payers, struct task_struct *task);
void peerdma_payers_exit(struct peerdma_payers *payers);

/* mem.c */
struct peerdma_mem *peerdma_mem_alloc(struct peerdma_provider *provider, u64 len, u32 *reason);
int peerdma_mem_zero(struct peerdma_mem *mem);
struct peerdma_mem *peerdma_mem_alloc_near(struct peerdma_mem *mem, u64 len);
struct peerdma_mem *peerdma_mem_adopt(struct peerdma_provider *provider, struct peerdma_pin *pin,
				      u32 *reason);
void peerdma_mem_unhold(struct peerdma_mem *mem);
bool peerdma_mem_settle(struct peerdma_mem *mem);
void peerdma_mem_census(struct peerdma_mem *mem, unsigned long *pages, unsigned int *most);
void peerdma_mem_free(struct peerdma_mem *mem);
void peerdma_mem_iter(struct peerdma_mem *mem, struct iov_iter *iter, struct bio_vec *bvec,
		      int direction, u64 off, size_t len);
void peerdma_mem_copy(struct peerdma_mem *to, u64 to_off, struct peerdma_mem *from, u64 from_off,
		      u64 len);
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len);
void peerdma_mem_read_back(struct peerdma_mem *mem, u64 off);
void peerdma_mem_read(struct peerdma_mem *from, u64 from_off, void *to, u64 len);

/* The page that holds byte @index << PAGE_SHIFT. */
static inline struct page *peerdma_mem_page(const struct peerdma_mem *mem, unsigned long index)
{
	const unsigned int shift = PEERDMA_FRAME_SHIFT - PAGE_SHIFT;

	if (likely(!mem->frames))
		return mem->page + index;
	return mem->frames[index >> shift].bv_page + (index & (BIT(shift) - 1));
}

/* buffer.c */

/* NULL of NULL. */
static inline struct peerdma_buffer *peerdma_to_buffer(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_buffer, entry));
	return container_of(entry, struct peerdma_buffer, entry);
}

struct peerdma_buffer *peerdma_buffer_create(struct peerdma_ctx *ctx, struct peerdma_mem *mem);
struct peerdma_buffer *peerdma_buffer_enter(struct peerdma_ctx *ctx, u32 id);
void peerdma_buffer_put(struct peerdma_buffer *buffer);
void peerdma_buffer_count(struct peerdma_buffer *buffer, int n);

/* buffer_revoke.c */
struct peerdma_buffer *peerdma_buffer_add(struct peerdma_ctx *ctx, struct peerdma_mem *mem);
int peerdma_buffer_destroy(struct peerdma_ctx *ctx, u32 id, bool shown);
void peerdma_buffer_finish(struct peerdma_ctx *ctx, u32 id, int err);
void peerdma_buffer_revoke(struct peerdma_buffer *buffer);
void peerdma_buffers_destroy(struct peerdma_ctx *ctx);
void peerdma_buffers_close(struct peerdma_provider *provider);
void peerdma_buffers_revoke(struct peerdma_provider *provider);

/* inside.c */
void peerdma_inside_wait(struct peerdma_provider *provider, struct peerdma_buffer *buffer);
void peerdma_inside_name(struct peerdma_provider *provider);
u64 peerdma_inside_requests(const struct peerdma_opener *opener);
void peerdma_inside_show(struct seq_file *seq);

/* proxy.c */
#define PEERDMA_BUF_ID_BITS 24 /* so many, and the offset of the last one is still an offset */
int peerdma_proxy_init(void);
void peerdma_proxy_exit(void);
int peerdma_proxy_open(struct peerdma_ctx *ctx, struct file *file);
void peerdma_proxy_release(struct peerdma_ctx *ctx);
u64 peerdma_proxy_offset(struct peerdma_buffer *buffer);
void peerdma_proxy_unmap(struct peerdma_buffer *buffer);
int peerdma_mmap(struct file *file, struct vm_area_struct *vma);

/* target.c */

/* Whole blocks of the file, at a place that the device can address? Both are powers of two. */
static __always_inline bool peerdma_target_takes(const struct peerdma_target *target, u64 file_off,
						 u64 buf_off, u64 len)
{
	return !((file_off | len) & (target->offset_align - 1)) &&
	       !(buf_off & (target->mem_align - 1));
}

int peerdma_target_type(struct file *file, u32 *reason);
int peerdma_target_resolve(struct file *file, struct peerdma_target *target, u32 *reason);
void peerdma_target_learn(struct file *file, struct peerdma_memo *memo);
bool peerdma_target_recall(struct file *file, const struct peerdma_memo *memo);
u32 peerdma_target_most(const struct peerdma_target *target);
bool peerdma_target_is_immediate(struct file *file);
u32 peerdma_target_writable(struct file *file, struct peerdma_memo *memo);

/* stack.c */
struct peerdma_stack *peerdma_stack_walk(struct peerdma_provider *provider, struct gendisk *top);
bool peerdma_stack_is_current(const struct peerdma_stack *stack);
void peerdma_stack_free(struct peerdma_stack *stack);
void peerdma_stack_exit(void);
u32 peerdma_queue_reason(struct request_queue *queue);
u32 peerdma_leaf_reason(const struct peerdma_disk *leaf);

static inline bool peerdma_is_leaf(const struct peerdma_disk *disk)
{
	return disk->kind == PEERDMA_DISK_LEAF || disk->kind == PEERDMA_DISK_FABRIC ||
	       disk->kind == PEERDMA_DISK_SHARE;
}

/* queue.c */
#define PEERDMA_QUEUE_GUARD (BIT(QUEUE_FLAG_NOMERGES) | BIT(QUEUE_FLAG_NOXMERGES))
struct peerdma_guard *peerdma_queue_guard(struct peerdma_provider *provider,
					  struct request_queue *queue, unsigned int *set);
void peerdma_queue_unguard(struct peerdma_guard *guard);
bool peerdma_kernel_keeps_apart(struct request_queue *queue, struct page *page);
void peerdma_nomerge_show(struct seq_file *seq);
int peerdma_queues_init(void);
void peerdma_queues_exit(void);

/* False: whoever guards it has to do so again, or the drive has gone. */
static inline bool peerdma_queue_guarded(const struct peerdma_guard *guard, unsigned int set)
{
	return (READ_ONCE(guard->queue->queue_flags) &
		(PEERDMA_QUEUE_GUARD | BIT(QUEUE_FLAG_DYING))) == PEERDMA_QUEUE_GUARD &&
	       READ_ONCE(guard->set) == set;
}

/* fabric.c */
struct peerdma_lookup;
extern atomic_long_t peerdma_fabric_count;

/* To be read before a controller's device is asked for: another value later, and it may differ. */
static inline unsigned long peerdma_fabric_changes(void)
{
	return atomic_long_read(&peerdma_fabric_count);
}

struct peerdma_lookup *peerdma_fabric_ask(const char *address);
int peerdma_fabric_look(struct gendisk *gendisk, struct peerdma_disk *disk);
u32 peerdma_fabric_resolve(struct peerdma_provider *provider, struct peerdma_lookup *lookup,
			   struct peerdma_fabric_end *end);
void peerdma_fabric_drop(struct peerdma_lookup *lookup);

/* share.c */
u32 peerdma_share_look(struct inode *inode, char *address);
struct peerdma_stack *peerdma_share_walk(struct inode *inode);

/* route.c */
struct peerdma_stack *peerdma_route_judge(struct peerdma_provider *provider, struct file *file,
					  struct block_device *bdev, struct page *page);
const struct peerdma_disk *peerdma_route_decisive(const struct peerdma_stack *stack);
struct peerdma_route *peerdma_route_get(struct peerdma_provider *provider,
					struct block_device *bdev, struct page *page,
					struct peerdma_verdict *verdict);
struct peerdma_route *peerdma_route_share(struct peerdma_provider *provider, struct file *file,
					  struct page *page, struct peerdma_verdict *verdict);
struct peerdma_route *peerdma_route_find(struct peerdma_provider *provider,
					 struct block_device *bdev);

/* From any context. */
static inline void peerdma_route_put(struct peerdma_route *route)
{
	percpu_ref_put(&route->refs);
}

void peerdma_routes_init(struct peerdma_provider *provider);
void peerdma_routes_drop(struct peerdma_provider *provider);

/* import.c */
int peerdma_imports_init(void);
void peerdma_imports_exit(void);

/* file.c */
struct peerdma_file *peerdma_file_get(struct peerdma_ctx *ctx, u32 id);

static inline void peerdma_file_put(struct peerdma_file *pfile)
{
	peerdma_ref_put(&pfile->ref);
}

void peerdma_files_remove(struct peerdma_ctx *ctx);

/* io.c */

/* A request of a task that is being killed, or has ended, is not continued. */
static inline bool peerdma_is_dying(struct task_struct *task)
{
	return fatal_signal_pending(task) || READ_ONCE(task->flags) & PF_EXITING;
}

u16 peerdma_ioprio(struct peerdma_provider *provider, u16 ioprio);
struct file *peerdma_io_file(struct peerdma_ctx *ctx, struct peerdma_io *req,
			     struct peerdma_file **pfile);
void peerdma_io_file_put(struct file *file, struct peerdma_file *pfile);
int peerdma_io_check(struct file *file, struct peerdma_file *pfile, struct peerdma_buffer *buffer,
		     struct peerdma_io *req, bool write, bool nowait, struct peerdma_target *target,
		     struct peerdma_route **route);
int peerdma_io_run(struct peerdma_ctx *ctx, struct file *file, struct peerdma_file *pfile,
		   struct peerdma_io *req, bool write, struct task_struct *submitter);
int peerdma_io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write);

/* uring.c */
struct io_uring_cmd;
#ifdef PEERDMA_HAVE_URING_CMD
#define PEERDMA_URING_FEATURES \
	(IS_ENABLED(CONFIG_IO_URING) ? PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC : 0)
int peerdma_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
int peerdma_uring_iopoll(struct io_uring_cmd *cmd, struct io_comp_batch *iob,
			 unsigned int poll_flags);
int peerdma_uring_open(struct peerdma_ctx *ctx);
void peerdma_uring_release(struct peerdma_ctx *ctx);
int peerdma_uring_init(void);
void peerdma_uring_exit(void);
#else
#define PEERDMA_URING_FEATURES 0
#define peerdma_uring_cmd NULL
#define peerdma_uring_iopoll NULL
static inline int peerdma_uring_open(struct peerdma_ctx *ctx)
{
	return 0;
}

static inline void peerdma_uring_release(struct peerdma_ctx *ctx)
{
}

static inline int peerdma_uring_init(void)
{
	return 0;
}

static inline void peerdma_uring_exit(void)
{
}
#endif

/* debugfs.c */
void peerdma_show_fdinfo(struct seq_file *seq, struct file *file);
void peerdma_debugfs_register(void);
void peerdma_debugfs_unregister(void);

/* ioctl.c */
extern const struct file_operations peerdma_fops;

#endif /* PEERDMA_H */
