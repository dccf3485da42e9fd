/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Providers: a range of a PCI function's memory that has struct pages.
 */
#ifndef PEERDMA_PROVIDER_H
#define PEERDMA_PROVIDER_H

#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "base/counters.h"
#include "base/ids.h"
#include "base/usage.h"
#include "compat/dmem.h"
#include "memory/consumer.h"
#include "memory/ctx.h"

struct device;
struct peerdma_external;
struct platform_device;

#ifdef CONFIG_ARM64
#error "holes of files are filled by memset(), which device memory on arm64 does not take"
#endif

/**
 * struct peerdma_provider - a published range of a PCI function's memory
 * @refs: references of this struct; the range itself may be gone
 * @usage: held by threads that use the range through this struct (allocation, trial mapping);
 *	killed by an unbind
 * @id: never 0, and not reused while the struct is referenced
 * @pdev: the function; referenced
 * @bar: BAR number
 * @bar_offset: bytes from the start of the BAR
 * @len: bytes
 * @used: bytes in mems
 * @lock: protects @buffers
 * @buffers: buffers whose mem is not yet released
 * @routes: struct peerdma_route that may be used again; protected by its own lock and RCU
 * @prune: delayed work that drops unused routes; pending while there are routes
 * @pairs: struct peerdma_pair, by number of the top disk; protected by its own lock
 * @stats: of requests without a pair
 * @region: the dmem region, or NULL
 * @region_refs: one of the published range, and one of each mem that is charged to a cgroup
 * @external: its pages belong to another driver: buffers are registered, not allocated: register.c;
 *	or NULL
 * @prefetchable: of the BAR. Another BAR may be registers: only the bytes of requests are accessed
 * @halted: the memory is about to be lost, or was just lost: nothing is allocated, buffers are
 *	revoked; written under the device lock
 * @halts: number of halts; written under @lock, after @halted
 * @halt: work that revokes the buffers
 * @node: its device node, or NULL: node.c; used by the events of its life only
 * @consumer: ends the provider when it is unbound: consumer.c
 * @ended: called at the end, or NULL
 */
struct peerdma_provider {
	/* Read by requests, written by none. */
	u32 id; /* immutable */
	bool prefetchable; /* immutable */
	bool halted;
	struct peerdma_external *external; /* immutable once it is announced */
	struct pci_dev *pdev; /* immutable */
	struct peerdma_usage usage;
	struct peerdma_ids routes;
	struct dmem_cgroup_region *region; /* immutable */
	u64 bar_offset; /* immutable */
	u64 len; /* immutable */
	int bar; /* immutable */

	/* Written by registering and by partial blocks. */
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
 * struct peerdma_provider_events - calls during a provider's life: lifecycle.c
 * @reserved: it has no id yet
 * @announced: lookups find it
 * @withdrawn: it is about to be hidden
 * @ended: it is not used, and no buffer has memory of it
 */
struct peerdma_provider_events {
	void (*reserved)(struct peerdma_provider *provider);
	void (*announced)(struct peerdma_provider *provider);
	void (*withdrawn)(struct peerdma_provider *provider);
	void (*ended)(struct peerdma_provider *provider);
};

int peerdma_lifecycle_init(const struct peerdma_provider_events *events);
void peerdma_lifecycle_exit(void);
struct peerdma_provider *peerdma_provider_reserve(struct pci_dev *pdev, int bar, u64 bar_offset,
						  u64 len,
						  void (*ended)(struct peerdma_provider *provider));
void peerdma_provider_announce(struct peerdma_provider *provider);
void peerdma_provider_remove(struct peerdma_provider *provider);
void peerdma_provider_halt(struct peerdma_provider *provider);
bool peerdma_provider_wait_unused(struct peerdma_provider *provider, unsigned int seconds);
void peerdma_provider_restart(struct peerdma_provider *provider);

/* Physical address of the published range. */
static inline phys_addr_t peerdma_provider_start(struct peerdma_provider *provider)
{
	return pci_resource_start(provider->pdev, provider->bar) + provider->bar_offset;
}

/* True if this open file can reach the provider. NULL: the module itself, which reaches all. */
static inline bool peerdma_provider_is_reachable(const struct peerdma_ctx *ctx,
						 const struct peerdma_provider *provider)
{
	return !ctx || !ctx->only || ctx->only == provider;
}

#endif /* PEERDMA_PROVIDER_H */
