// SPDX-License-Identifier: GPL-2.0
/*
 * Who pays for a provider's memory. What a process takes out of a pool is counted twice, before it
 * is taken, until its pages are back there:
 *
 * for the user, on every kernel. One number, the module's parameter user_max, limits what each may
 * have of all providers together.
 *
 * for the cgroup, where the kernel has the dmem controller: each provider is a region of it, and
 * dmem.max of a cgroup limits what its processes may have of that one. Memory of another driver is
 * charged when it is registered or imported, as it cannot be freed meanwhile; whether that driver
 * charges for it as well is not known here.
 *
 * Who allocates pays, and not who opened the file, which may be a service that hands it out. For
 * the page that a read's partial block passes through the buffer's user pays, and the cgroup of who
 * reads; where either has no room the bytes go through host memory.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "memory/charge.h"
#include "memory/provider.h"

static unsigned long long user_max;
module_param(user_max, ullong, 0644);
MODULE_PARM_DESC(user_max, "bytes of provider memory that one user may have, 0 for no limit");

/**
 * struct peerdma_payer - who has provider memory; exists as long as @bytes is not 0
 * @bytes: in all providers; protected by the lock of payers
 */
struct peerdma_payer {
	u64 bytes;
};

/* By uid of the first user namespace. */
static DEFINE_XARRAY_FLAGS(payers, XA_FLAGS_ACCOUNT);

/*
 * The uid that pays. A user who makes a user namespace can get ids of their own in it that are
 * nobody else's, and would have a limit for each: so the one who made it pays, unless that was
 * root, whose containers are not one user.
 */
static u32 payer_uid(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_uid();

	for (ns = current_user_ns(); ns->parent; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return __kuid_val(uid);
}

/* The user with this uid, made of *fresh if there is none. Under the lock, which it may drop. */
static struct peerdma_payer *payer_find_or_insert(u32 uid, struct peerdma_payer **fresh)
{
	struct peerdma_payer *payer;
	int err;

	do {
		payer = xa_load(&payers, uid);
		if (payer)
			return payer;
		err = __xa_insert(&payers, uid, *fresh, GFP_KERNEL_ACCOUNT);
	} while (err == -EBUSY);
	if (err)
		return ERR_PTR(err);
	payer = *fresh;
	*fresh = NULL;
	return payer;
}

/* Who has nothing pays for nothing. Under the lock. */
static void payer_drop_if_empty(u32 uid, struct peerdma_payer *payer)
{
	if (payer->bytes)
		return;
	__xa_erase(&payers, uid);
	kfree(payer);
}

/* What one user may have, the current process's rights considered. */
static u64 payer_limit(void)
{
	const u64 max = READ_ONCE(user_max);

	/* Quietly: most who ask this have no need of the answer. */
	return max && !ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE) ? max : U64_MAX;
}

static bool payer_fits(const struct peerdma_payer *payer, u64 len, u64 max)
{
	return len <= max && payer->bytes <= max - len;
}

static int charge_user(u32 uid, u64 len)
{
	const u64 max = payer_limit();
	struct peerdma_payer *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT), *payer;
	int err = 0;

	if (!fresh)
		return -ENOMEM;
	xa_lock(&payers);
	payer = payer_find_or_insert(uid, &fresh);
	if (IS_ERR(payer)) {
		err = PTR_ERR(payer);
	} else {
		if (payer_fits(payer, len, max))
			payer->bytes += len;
		else
			err = -EDQUOT;
		payer_drop_if_empty(uid, payer);
	}
	xa_unlock(&payers);
	kfree(fresh);
	return err;
}

/* For who has some already. */
static int charge_user_more(u32 uid, u64 len)
{
	const u64 max = payer_limit();
	struct peerdma_payer *payer;
	bool good;

	xa_lock(&payers);
	payer = xa_load(&payers, uid);
	good = payer_fits(payer, len, max);
	if (good)
		payer->bytes += len;
	xa_unlock(&payers);
	return good ? 0 : -EDQUOT;
}

static void uncharge_user(u32 uid, u64 len)
{
	struct peerdma_payer *payer;

	xa_lock(&payers);
	payer = xa_load(&payers, uid);
	payer->bytes -= len;
	payer_drop_if_empty(uid, payer);
	xa_unlock(&payers);
}

/**
 * peerdma_charge_region_create - let cgroups know of a provider
 * @provider: that is being made
 * Return: 0, -ENOMEM.
 */
int peerdma_charge_region_create(struct peerdma_provider *provider)
{
	const struct dmem_cgroup_init init = { .size = provider->len };
	struct dmem_cgroup_region *region =
		dmem_cgroup_register_region(&init, "peerdma/%s", pci_name(provider->pdev));

	if (IS_ERR(region))
		return PTR_ERR(region);
	provider->region = region;
	refcount_set(&provider->region_refs, 1);
	return 0;
}

/*
 * A charge is given back to its region, so the region stays as long as there are any; not longer,
 * because the device may be published again, under the same name.
 */
void peerdma_charge_region_put(struct peerdma_provider *provider)
{
	if (refcount_dec_and_test(&provider->region_refs))
		dmem_cgroup_unregister_region(provider->region);
}

static int charge_cgroup(struct peerdma_provider *provider, u64 len, struct peerdma_charge *charge)
{
	int err = dmem_cgroup_try_charge(provider->region, len, &charge->pool, NULL);

	if (!err)
		refcount_inc(&provider->region_refs);
	return err;
}

/* What is charged to a user already is charged to the cgroup too, or to nobody. */
static int charge_both(struct peerdma_provider *provider, u64 len, struct peerdma_charge *charge)
{
	int err = charge_cgroup(provider, len, charge);

	if (err)
		uncharge_user(charge->uid, len);
	else
		charge->len = len;
	return err;
}

/**
 * peerdma_charge - count memory for the current process, before it is taken
 * @provider: whose memory; the caller holds a usage reference
 * @len: bytes, not 0
 * @charge: filled, for peerdma_uncharge()
 * @reason: enum peerdma_reason, written with -EDQUOT
 * Return: 0, -EDQUOT, -ENOMEM, -ENODEV.
 */
int peerdma_charge(struct peerdma_provider *provider, u64 len, struct peerdma_charge *charge,
		   u32 *reason)
{
	int err;

	charge->uid = payer_uid();
	err = charge_user(charge->uid, len);
	if (err == -EDQUOT)
		*reason = PEERDMA_REASON_USER_LIMIT;
	if (err)
		return err;
	err = charge_both(provider, len, charge);
	if (err != -EAGAIN)
		return err;
	*reason = PEERDMA_REASON_CGROUP_LIMIT;
	return -EDQUOT;
}

/**
 * peerdma_charge_more - count a little more memory for who pays for some
 * @provider: whose memory; the caller holds a usage reference of a buffer of it
 * @len: bytes, not 0
 * @payer: of that buffer
 * @charge: filled, for peerdma_uncharge()
 * Return: 0 or -errno.
 */
int peerdma_charge_more(struct peerdma_provider *provider, u64 len,
			const struct peerdma_charge *payer, struct peerdma_charge *charge)
{
	int err;

	charge->uid = payer->uid;
	err = charge_user_more(charge->uid, len);
	return err ?: charge_both(provider, len, charge);
}

/* Nothing if nothing was charged, or it was given back before. */
void peerdma_uncharge(struct peerdma_provider *provider, struct peerdma_charge *charge)
{
	if (!charge->len)
		return;
	dmem_cgroup_uncharge(charge->pool, charge->len);
	peerdma_charge_region_put(provider);
	uncharge_user(charge->uid, charge->len);
	charge->len = 0;
}

/**
 * peerdma_charge_host - count host memory that bytes pass through as locked memory of the process
 * @len: bytes
 * Return: 0, -EDQUOT beyond RLIMIT_MEMLOCK.
 *
 * By the process's counter of pinned pages, as RDMA does: the one of mlock(2) wants mmap_lock,
 * which others may hold for long, and this holds a usage reference of a buffer.
 * A worker of the module's has no process and counts nothing; what it reads was meant to go direct,
 * and passes here only if the file shrinks meanwhile and the provider is full.
 */
int peerdma_charge_host(u64 len)
{
	const u64 pages = DIV_ROUND_UP(len, PAGE_SIZE);
	struct mm_struct *mm = current->mm;
	u64 locked;

	if (!mm)
		return 0;
	locked = atomic64_add_return(pages, &mm->pinned_vm);
	if (locked <= rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT || capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(pages, &mm->pinned_vm);
	return -EDQUOT;
}

/* By who charged it: a process's memory does not change under a request. */
void peerdma_uncharge_host(u64 len)
{
	if (current->mm)
		atomic64_sub(DIV_ROUND_UP(len, PAGE_SIZE), &current->mm->pinned_vm);
}

/**
 * peerdma_payers_enter - from here on the cgroups of @task pay for what this worker does
 * @payers: for peerdma_payers_exit()
 * @task: kept by the caller
 */
void peerdma_payers_enter(struct peerdma_payers *payers, struct task_struct *task)
{
#ifdef CONFIG_BLK_CGROUP
	payers->io = task_get_css(task, io_cgrp_id);
	kthread_associate_blkcg(payers->io);
#endif
#ifdef CONFIG_MEMCG
	payers->memory = task_get_css(task, memory_cgrp_id);
	payers->before = set_active_memcg(mem_cgroup_from_css(payers->memory));
#endif
}

void peerdma_payers_exit(struct peerdma_payers *payers)
{
#ifdef CONFIG_MEMCG
	set_active_memcg(payers->before);
	css_put(payers->memory);
#endif
#ifdef CONFIG_BLK_CGROUP
	kthread_associate_blkcg(NULL);
	css_put(payers->io);
#endif
}

/* A line for each user who has any, for root. */
void peerdma_charges_show(struct seq_file *seq)
{
	unsigned long uid;
	struct peerdma_payer *payer;

	xa_lock(&payers);
	xa_for_each(&payers, uid, payer)
		seq_printf(seq, "user uid=%lu buffer-bytes=%llu\n", uid, payer->bytes);
	xa_unlock(&payers);
}
