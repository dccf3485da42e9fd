// SPDX-License-Identifier: GPL-2.0
/*
 * Files by number, of one open file of /dev/peerdma: for those who send many requests to the same
 * file, or who have no descriptor table when they do (io_uring). Only regular files and block
 * devices are taken, so that a file kept here can never be kept by itself in a circle. As what is
 * registered stays open without a descriptor, there may be as many as a process may have of those.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "peerdma.h"

/* NULL of NULL. */
static struct peerdma_file *to_file(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_file, entry));
	return container_of(entry, struct peerdma_file, entry);
}

void peerdma_file_put(struct peerdma_file *pfile)
{
	if (!refcount_dec_and_test(&pfile->refs))
		return;
	fput(pfile->file);
	kfree_rcu(pfile, rcu);
}

/* The file with this id, with a reference, or NULL. */
struct peerdma_file *peerdma_file_get(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_file *pfile;

	rcu_read_lock();
	pfile = to_file(peerdma_ids_find(&ctx->files, id));
	if (pfile && !refcount_inc_not_zero(&pfile->refs))
		pfile = NULL;
	rcu_read_unlock();
	return pfile;
}

static int file_remove(struct peerdma_ctx *ctx, u32 id, bool shown)
{
	struct peerdma_file *pfile = to_file(peerdma_ids_take(&ctx->files, id, shown));

	if (!pfile)
		return -ENOENT;
	atomic_dec(&ctx->opener.files);
	peerdma_file_put(pfile);
	return 0;
}

/* Closing: nobody else can look an id up any more. */
void peerdma_files_remove(struct peerdma_ctx *ctx)
{
	struct peerdma_file *pfile;

	while ((pfile = to_file(peerdma_ids_take_any(&ctx->files)))) {
		peerdma_file_put(pfile);
		cond_resched();
	}
}

static int file_create(struct peerdma_ctx *ctx, struct file *file, u32 *id)
{
	struct peerdma_file *pfile = kzalloc(sizeof(*pfile), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pfile)
		return -ENOMEM;
	refcount_set(&pfile->refs, 1);
	pfile->file = get_file(file);
	peerdma_target_learn(file, &pfile->memo);
	err = peerdma_ids_alloc(&ctx->files, &pfile->entry, INT_MAX);
	*id = pfile->entry.id;
	if (err)
		peerdma_file_put(pfile);
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
