// SPDX-License-Identifier: GPL-2.0
/*
 * Charges provider memory to users and cgroups. Memory of a pool is charged before it is taken,
 * until its pages are back in the pool, in two places:
 *
 * To the user, on every kernel. The module's parameter user_max limits what a user may have of all
 * providers together.
 *
 * To the cgroup, where the kernel has the dmem controller. Each provider is a dmem region, and a
 * cgroup's dmem.max limits what its processes may have of it. Memory of another driver is charged
 * when it is registered or imported, because it cannot be freed meanwhile; that driver may charge
 * for it too.
 *
 * The process that allocates is charged, and not the one that opened the file, which may be a
 * service that passes the file on. A bounce page of a read is charged to the buffer's user and to
 * the reader's cgroup. If either is at its limit, the bytes go through host memory.
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
MODULE_PARM_DESC(user_max, "limit of provider memory per user, in bytes; 0: no limit");

/**
 * struct peerdma_payer - a user with provider memory; exists as long as @bytes is not 0
 * @bytes: of all providers; protected by the lock of payers
 */
struct peerdma_payer {
	u64 bytes;
};

/* Indexed by uid of the initial user namespace. */
static DEFINE_XARRAY_FLAGS(payers, XA_FLAGS_ACCOUNT);

/*
 * The uid that is charged. A user can create a user namespace with more ids, and would have a limit
 * for each of them. So the owner of the namespace is charged, unless that is root: the users of
 * root's containers are separate.
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

/*
 * The payer with this uid, or *fresh, inserted. Called with the lock held, which this
 * may drop.
 */
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

/* Called with the lock held. */
static void payer_drop_if_empty(u32 uid, struct peerdma_payer *payer)
{
	if (payer->bytes)
		return;
	__xa_erase(&payers, uid);
	kfree(payer);
}

/* The limit of the current process's user. */
static u64 payer_limit(void)
{
	const u64 max = READ_ONCE(user_max);

	/* Without an audit message: most callers only want to know the limit. */
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

/* Charges a user that has been charged before. */
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
 * peerdma_charge_region_create - register a provider's dmem region
 * @provider: being created
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
 * Drops the region with the last charge of it. Not later: the device may be published again, with a
 * region of the same name.
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

/* Memory that is not charged to the cgroup is not charged to the user. */
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
 * peerdma_charge - charge memory to the current process, before it is taken
 * @provider: with a usage reference
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
 * peerdma_charge_more - charge a little more memory to the payer of a buffer
 * @provider: the caller holds a usage reference of the buffer
 * @len: bytes, not 0
 * @payer: of the buffer
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

/* Does nothing if @charge is empty or was uncharged before. */
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
 * peerdma_charge_host - charge host memory of a bounce to the process, as locked memory
 * @len: bytes
 * Return: 0, -EDQUOT beyond RLIMIT_MEMLOCK.
 *
 * Uses the process's counter of pinned pages, as RDMA does. The counter of mlock(2) needs
 * mmap_lock, which others may hold for long, and the caller holds a usage reference of a buffer. A
 * kernel worker has no process and charges nothing. What it reads was planned to go directly: it
 * bounces only if the file shrinks meanwhile and the pool is full.
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

/* Called by the task that charged: its mm does not change during a request. */
void peerdma_uncharge_host(u64 len)
{
	if (current->mm)
		atomic64_sub(DIV_ROUND_UP(len, PAGE_SIZE), &current->mm->pinned_vm);
}

/**
 * peerdma_payers_enter - charge what this worker does to the cgroups of @task
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

/* One line for each user with provider memory, for root. */
void peerdma_charges_show(struct seq_file *seq)
{
	unsigned long uid;
	struct peerdma_payer *payer;

	xa_lock(&payers);
	xa_for_each(&payers, uid, payer)
		seq_printf(seq, "user uid=%lu buffer-bytes=%llu\n", uid, payer->bytes);
	xa_unlock(&payers);
}
