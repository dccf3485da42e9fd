// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/peerdma: from a process's struct to a call and back. Nothing of the struct is believed
 * before it has been copied once; what is copied back is never longer than what the process said it
 * has room for.
 */
#include <linux/fs.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "peerdma.h"

int peerdma_info_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_provider *provider;
	u32 id = 0;

	arg->info.out_abi = PEERDMA_ABI_VERSION;
	arg->info.out_page_size = PAGE_SIZE;
	arg->info.out_features =
		IS_ENABLED(CONFIG_IO_URING) && peerdma_fops.uring_cmd ?
			PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC :
			0;
	arg->info.out_publish_align = memremap_compat_align();
	arg->info.out_nproviders = 0;
	while ((provider = peerdma_provider_next(id))) {
		id = provider->id + 1;
		arg->info.out_nproviders++;
		peerdma_provider_put(provider);
	}
	return 0;
}

static long peerdma_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	void __user *user = (void __user *)uarg;
	const struct peerdma_op *op = peerdma_op_find(cmd);
	struct peerdma_ctx *ctx = file->private_data;
	union peerdma_arg arg;
	u32 user_size;
	int err;

	if (!op)
		return -ENOTTY;
	if (get_user(user_size, (u32 __user *)user))
		return -EFAULT;
	err = peerdma_op_check_size(op, user_size, PAGE_SIZE);
	if (err)
		return err;
	err = copy_struct_from_user(&arg, op->size, user, user_size);
	if (err)
		return err;
	/* Another thread may have changed it between the two looks; the first one counts. */
	arg.head.size = user_size;
	if (arg.head.flags & ~op->flags)
		return -EOPNOTSUPP;

	err = op->execute(ctx, &arg);
	if (copy_to_user(user, &arg, min(user_size, op->size)))
		err = err ?: -EFAULT;
	if (op->finish)
		op->finish(ctx, &arg, err);
	return err;
}

static int peerdma_open(struct inode *inode, struct file *file)
{
	struct peerdma_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int err;

	if (!ctx)
		return -ENOMEM;
	err = peerdma_proxy_open(ctx, file);
	if (err) {
		kfree(ctx);
		return err;
	}
	xa_init_flags(&ctx->buffers, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	xa_init_flags(&ctx->files, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	file->private_data = ctx;
	return nonseekable_open(inode, file);
}

static int peerdma_release(struct inode *inode, struct file *file)
{
	struct peerdma_ctx *ctx = file->private_data;

	peerdma_files_remove(ctx);
	peerdma_buffers_destroy(ctx);
	xa_destroy(&ctx->buffers);
	peerdma_proxy_release(ctx);
	kfree(ctx);
	return 0;
}

const struct file_operations peerdma_fops = {
	.owner = THIS_MODULE,
	.open = peerdma_open,
	.release = peerdma_release,
	.mmap = peerdma_mmap,
	.unlocked_ioctl = peerdma_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = peerdma_uring_cmd,
	.uring_cmd_iopoll = peerdma_uring_iopoll,
};
