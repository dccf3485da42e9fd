/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cgroup controller of device memory came with "kernel/cgroup: Add "dmem" memory accounting
 * cgroup" (in v6.14), with functions that do nothing where CONFIG_CGROUP_DMEM is off. Before, they
 * are here. Drop with 6.12.
 */
#ifndef PEERDMA_COMPAT_DMEM_H
#define PEERDMA_COMPAT_DMEM_H

#ifdef PEERDMA_HAVE_CGROUP_DMEM
#include <linux/cgroup_dmem.h>
#else
#include <linux/types.h>

struct dmem_cgroup_region;
struct dmem_cgroup_pool_state;

static inline struct dmem_cgroup_region *dmem_cgroup_register_region(u64 size, const char *fmt, ...)
{
	return NULL;
}

static inline void dmem_cgroup_unregister_region(struct dmem_cgroup_region *region)
{
}

static inline int dmem_cgroup_try_charge(struct dmem_cgroup_region *region, u64 size,
					 struct dmem_cgroup_pool_state **ret_pool,
					 struct dmem_cgroup_pool_state **ret_limit_pool)
{
	*ret_pool = NULL;
	return 0;
}

static inline void dmem_cgroup_uncharge(struct dmem_cgroup_pool_state *pool, u64 size)
{
}
#endif

#endif /* PEERDMA_COMPAT_DMEM_H */
