// SPDX-License-Identifier: GPL-2.0
/*
 * Files by number, of one open file of /dev/peerdma: for those who send many requests to the same
 * file, or who have no descriptor table when they do (io_uring). Only regular files and block
 * devices are taken, so that a file kept here can never be kept by itself in a circle.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>

#include "peerdma.h"

static void file_free(struct rcu_head *rcu)
{
	struct peerdma_file *pfile = container_of(rcu, struct peerdma_file, rcu);

	kfree(pfile);
}

/* May come from interrupt context: fput() puts off what has to sleep. */
void peerdma_file_put(struct peerdma_file *pfile)
{
	if (!refcount_dec_and_test(&pfile->refs))
		return;
	fput(pfile->file);
	call_rcu(&pfile->rcu, file_free);
}

/* The file with this id, with a reference, or NULL. */
struct peerdma_file *peerdma_file_get(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_file *pfile;

	rcu_read_lock();
	pfile = xa_load(&ctx->files, id);
	if (pfile && !(READ_ONCE(pfile->ready) && refcount_inc_not_zero(&pfile->refs)))
		pfile = NULL;
	rcu_read_unlock();
	return pfile;
}

static struct peerdma_file *file_erase(struct peerdma_ctx *ctx, u32 id, bool ready)
{
	struct peerdma_file *pfile;

	xa_lock(&ctx->files);
	pfile = xa_load(&ctx->files, id);
	if (pfile && pfile->ready == ready)
		__xa_erase(&ctx->files, id);
	else
		pfile = NULL;
	xa_unlock(&ctx->files);
	return pfile;
}

/* Closing: nobody else can look an id up any more. */
void peerdma_files_remove(struct peerdma_ctx *ctx)
{
	struct peerdma_file *pfile;
	unsigned long id;

	xa_for_each(&ctx->files, id, pfile) {
		xa_erase(&ctx->files, id);
		peerdma_file_put(pfile);
	}
	xa_destroy(&ctx->files);
}

static int file_add(struct peerdma_ctx *ctx, struct file *file, u32 *id)
{
	struct peerdma_file *pfile = kzalloc(sizeof(*pfile), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pfile)
		return -ENOMEM;
	refcount_set(&pfile->refs, 1);
	pfile->file = get_file(file);
	err = xa_alloc(&ctx->files, id, pfile, xa_limit_31b, GFP_KERNEL_ACCOUNT);
	if (err) {
		*id = 0;
		peerdma_file_put(pfile);
	}
	return err;
}

int peerdma_file_add_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_file_add *req = &arg->file_add;
	umode_t mode;
	struct file *file;
	int err;

	req->out_file_id = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	file = fget(req->fd);
	if (!file)
		return -EBADF;
	mode = file->f_mapping->host->i_mode;
	if (S_ISREG(mode) || S_ISBLK(mode)) {
		err = file_add(ctx, file, &req->out_file_id);
	} else {
		req->out_reason = PEERDMA_REASON_FILE_TYPE;
		err = S_ISDIR(mode) ? -EISDIR : peerdma_reason_errno(req->out_reason);
	}
	fput(file);
	return err;
}

void peerdma_file_add_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	u32 id = arg->file_add.out_file_id;
	struct peerdma_file *pfile;

	if (!id)
		return;
	if (err) {
		pfile = file_erase(ctx, id, false);
		if (pfile)
			peerdma_file_put(pfile);
		return;
	}
	xa_lock(&ctx->files);
	pfile = xa_load(&ctx->files, id);
	WRITE_ONCE(pfile->ready, true);
	xa_unlock(&ctx->files);
}

int peerdma_file_remove_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_file *pfile;

	if (arg->destroy.__reserved)
		return -EINVAL;
	pfile = file_erase(ctx, arg->destroy.id, true);
	if (!pfile)
		return -ENOENT;
	peerdma_file_put(pfile);
	return 0;
}
