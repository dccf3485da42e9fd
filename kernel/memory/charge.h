/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Charges memory to users and cgroups.
 */
#ifndef PEERDMA_CHARGE_H
#define PEERDMA_CHARGE_H

#include <linux/types.h>

struct cgroup_subsys_state;
struct dmem_cgroup_pool_state;
struct mem_cgroup;
struct peerdma_provider;
struct seq_file;
struct task_struct;

/**
 * struct peerdma_charge - the charge of a mem: charge.c
 * @len: bytes; 0: not charged
 * @uid: of the user, in the initial user namespace
 * @pool: of the cgroup, or NULL
 */
struct peerdma_charge {
	u64 len;
	u32 uid;
	struct dmem_cgroup_pool_state *pool;
};

int peerdma_charge_region_create(struct peerdma_provider *provider);
void peerdma_charge_region_put(struct peerdma_provider *provider);
int peerdma_charge(struct peerdma_provider *provider, u64 len, struct peerdma_charge *charge,
		   u32 *reason);
int peerdma_charge_more(struct peerdma_provider *provider, u64 len,
			const struct peerdma_charge *payer, struct peerdma_charge *charge);
void peerdma_uncharge(struct peerdma_provider *provider, struct peerdma_charge *charge);
int peerdma_charge_host(u64 len);
void peerdma_uncharge_host(u64 len);
void peerdma_charges_show(struct seq_file *seq);

/* The worker's own cgroups, between peerdma_payers_enter() and peerdma_payers_exit(). */
struct peerdma_payers {
	struct cgroup_subsys_state *io;
	struct cgroup_subsys_state *memory;
	struct mem_cgroup *before;
};

void peerdma_payers_enter(struct peerdma_payers *payers, struct task_struct *task);
void peerdma_payers_exit(struct peerdma_payers *payers);

#endif /* PEERDMA_CHARGE_H */
