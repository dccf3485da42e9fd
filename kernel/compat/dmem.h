/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The dmem cgroup controller came with "kernel/cgroup: Add "dmem" memory accounting cgroup" (in
 * v6.14), with stubs for kernels without CONFIG_CGROUP_DMEM. For older kernels the stubs are here.
 * Drop with 6.12. Up to v7.2 a region was registered by its size alone. Drop with 7.2.
 */
#ifndef PEERDMA_COMPAT_DMEM_H
#define PEERDMA_COMPAT_DMEM_H

#include <linux/types.h>

#ifdef PEERDMA_HAVE_CGROUP_DMEM
#include <linux/cgroup_dmem.h>
#endif

#ifndef PEERDMA_HAVE_DMEM_INIT
struct dmem_cgroup_init {
	u64 size;
};
#endif

#ifdef PEERDMA_HAVE_CGROUP_DMEM
#ifndef PEERDMA_HAVE_DMEM_INIT
#define dmem_cgroup_register_region(init, ...) \
	dmem_cgroup_register_region((init)->size, __VA_ARGS__)
#endif
#else
struct dmem_cgroup_region;
struct dmem_cgroup_pool_state;

static inline struct dmem_cgroup_region *
dmem_cgroup_register_region(const struct dmem_cgroup_init *init, const char *fmt, ...)
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
