// SPDX-License-Identifier: GPL-2.0
/*
 * Files of an open file of /dev/peerdma, registered by id. For callers that send many requests to
 * one file, or that have no descriptor table (io_uring). Only regular files and block devices can
 * be registered, so a registered file cannot reference itself in a circle. A registered file stays
 * open without a descriptor, so a process may register as many as it may have descriptors.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/handlers.h"
#include "base/ids.h"
#include "base/ref.h"
#include "base/usage.h"
#include "memory/ctx.h"
#include "routing/file.h"
#include "routing/target.h"

/* NULL for NULL. */
static struct peerdma_file *file_of(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_file, entry));
	return container_of(entry, struct peerdma_file, entry);
}

static struct peerdma_file *file_of_ref(struct percpu_ref *count)
{
	return container_of(count, struct peerdma_file, ref.count);
}

static void file_free(struct rcu_head *rcu)
{
	struct peerdma_file *pfile = container_of(rcu, struct peerdma_file, rcu);

	peerdma_ref_exit(&pfile->ref);
	kfree(pfile);
}

static void file_release(struct percpu_ref *count)
{
	struct peerdma_file *pfile = file_of_ref(count);

	fput(pfile->file);
	call_rcu(&pfile->rcu, file_free);
}

/*
 * First half of the end; a reference is kept for file_drop(). True: the counts of the CPUs are
 * still being summed up, by an RCU callback that puts a reference too.
 */
static bool file_kill(struct peerdma_file *pfile)
{
	percpu_ref_get(&pfile->ref.count);
	percpu_ref_kill(&pfile->ref.count);
	return READ_ONCE(pfile->ref.spread);
}

/*
 * Second half of the end. A file that no request uses is closed here, in the context of the caller,
 * and so before the call returns; not by the callback, which is waited for.
 */
static void file_drop(struct peerdma_file *pfile, bool spread)
{
	if (spread)
		rcu_barrier();
	peerdma_file_put(pfile);
}

/* The file with this id, referenced, or NULL. */
struct peerdma_file *peerdma_file_get(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_file *pfile;

	rcu_read_lock();
	pfile = file_of(peerdma_ids_find(&ctx->files, id));
	if (pfile && !peerdma_ref_tryget(&pfile->ref))
		pfile = NULL;
	rcu_read_unlock();
	if (pfile)
		peerdma_ref_used(&pfile->ref);
	return pfile;
}

static int file_remove(struct peerdma_ctx *ctx, u32 id, bool shown)
{
	struct peerdma_file *pfile = file_of(peerdma_ids_take(&ctx->files, id, shown));

	if (!pfile)
		return -ENOENT;
	atomic_dec(&ctx->opener.files);
	file_drop(pfile, file_kill(pfile));
	return 0;
}

/* Called by close: no other thread can look up an id any more. */
void peerdma_files_remove(struct peerdma_ctx *ctx)
{
	struct peerdma_entry *entry;
	struct peerdma_file *pfile;
	bool spread = false;
	unsigned long id;

	/* All callbacks are queued first, so that only the last one is waited for. */
	xa_for_each(&ctx->files.all, id, entry) {
		spread |= file_kill(file_of(entry));
		cond_resched();
	}
	while ((pfile = file_of(peerdma_ids_take_any(&ctx->files)))) {
		file_drop(pfile, spread);
		spread = false;
		cond_resched();
	}
}

static int file_create(struct peerdma_ctx *ctx, struct file *file, u32 *id)
{
	struct peerdma_file *pfile = kzalloc(sizeof(*pfile), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pfile)
		return -ENOMEM;
	if (peerdma_ref_init(&pfile->ref, file_release)) {
		kfree(pfile);
		return -ENOMEM;
	}
	pfile->file = get_file(file);
	peerdma_target_cache(file, &pfile->attrs);
	err = peerdma_ids_alloc(&ctx->files, &pfile->entry, INT_MAX);
	*id = pfile->entry.id;
	if (err)
		file_drop(pfile, file_kill(pfile));
	return err;
}

static int file_add(struct peerdma_ctx *ctx, struct file *file, u32 *id)
{
	int err = -EMFILE;

	if (atomic_inc_return(&ctx->opener.files) <= rlimit(RLIMIT_NOFILE))
		err = file_create(ctx, file, id);
	if (err)
		atomic_dec(&ctx->opener.files);
	return err;
}

int peerdma_file_add_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_file_add *req = &arg->file_add;
	struct file *file;
	int err;

	req->out_file_id = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	file = fget(req->fd);
	if (!file)
		return -EBADF;
	err = peerdma_target_type(file, &req->out_reason) ?: file_add(ctx, file, &req->out_file_id);
	fput(file);
	return err;
}

void peerdma_file_add_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	u32 id = arg->file_add.out_file_id;

	if (!id)
		return;
	if (err)
		file_remove(ctx, id, false);
	else
		peerdma_ids_show(&ctx->files, id);
}

int peerdma_file_remove_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	if (arg->destroy.__reserved)
		return -EINVAL;
	return file_remove(ctx, arg->destroy.id, true);
}
