// SPDX-License-Identifier: GPL-2.0
/*
 * Calls on /dev/peerdma and the providers' nodes. A struct of the process is copied once before any
 * of it is used. The result is never longer than the size that the process gave.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/ids.h"
#include "base/opener.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/provider.h"
#include "memory/proxy.h"
#include "routing/file.h"
#include "io/io.h"
#include "io/uring.h"
#include "face/debugfs.h"
#include "face/ioctl.h"
#include "face/node.h"
#include "face/op.h"

/*
 * A read or write whose struct has today's size. Copied member by member, because two copies of
 * variable length cost more than all checks between them.
 */
static long io_ioctl(struct file *file, struct peerdma_io __user *user, bool write)
{
	struct peerdma_io io;
	int err;

	if (!(file->f_mode & (write ? FMODE_READ : FMODE_WRITE)))
		return -EBADF;
	if (!user_read_access_begin(user, sizeof(*user)))
		return -EFAULT;
	io.size = sizeof(io);
	unsafe_get_user(io.flags, &user->flags, err_read);
	unsafe_get_user(io.fd, &user->fd, err_read);
	unsafe_get_user(io.buf_id, &user->buf_id, err_read);
	unsafe_get_user(io.file_off, &user->file_off, err_read);
	unsafe_get_user(io.buf_off, &user->buf_off, err_read);
	unsafe_get_user(io.len, &user->len, err_read);
	unsafe_get_user(io.__reserved, &user->__reserved, err_read);
	user_read_access_end();
	if (io.flags & ~PEERDMA_IO_FLAGS)
		return -EOPNOTSUPP;

	err = peerdma_io_execute(file->private_data, &io, write);
	if (!user_write_access_begin(user, sizeof(*user)))
		return err ?: -EFAULT;
	unsafe_put_user(io.out_done, &user->out_done, err_write);
	unsafe_put_user(io.out_direct, &user->out_direct, err_write);
	unsafe_put_user(io.out_near, &user->out_near, err_write);
	unsafe_put_user(io.out_host, &user->out_host, err_write);
	unsafe_put_user(io.out_reason, &user->out_reason, err_write);
	user_write_access_end();
	return err;

err_read:
	user_read_access_end();
	return -EFAULT;
err_write:
	user_write_access_end();
	return err ?: -EFAULT;
}

/* All other calls: any struct of the table, of any size. */
static noinline long op_ioctl(struct file *file, unsigned int cmd, void __user *user, u32 user_size)
{
	struct peerdma_ctx *ctx = file->private_data;
	const struct peerdma_op *op = peerdma_op_find(cmd);
	union peerdma_arg arg;
	int err;

	if (!op)
		return -ENOTTY;
	if (op->mode & ~(__force u32)file->f_mode)
		return -EBADF;
	err = peerdma_op_check_size(op, user_size, PAGE_SIZE);
	if (err)
		return err;
	err = copy_struct_from_user(&arg, op->size, user, user_size);
	if (err)
		return err;
	/* Another thread may have changed it between the two reads; the first one counts. */
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

static long peerdma_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	void __user *user = (void __user *)uarg;
	u32 user_size;

	/* A call with an unknown number may have any argument. */
	if (get_user(user_size, (u32 __user *)user))
		return peerdma_op_find(cmd) ? -EFAULT : -ENOTTY;
	if (likely(user_size == sizeof(struct peerdma_io))) {
		if (cmd == PEERDMA_READ)
			return io_ioctl(file, user, false);
		if (cmd == PEERDMA_WRITE)
			return io_ioctl(file, user, true);
	}
	return op_ioctl(file, cmd, user, user_size);
}

static int peerdma_open(struct inode *inode, struct file *file)
{
	struct peerdma_ctx *ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	int err;

	if (!ctx)
		return -ENOMEM;
	ctx->only = peerdma_node_provider(inode);
	err = PTR_ERR_OR_ZERO(ctx->only);
	if (err)
		goto err_ctx;
	peerdma_ids_init(&ctx->buffers);
	peerdma_ids_init(&ctx->files);
	err = peerdma_opener_add(&ctx->opener);
	if (err)
		goto err_only;
	err = peerdma_uring_open(ctx);
	if (err)
		goto err_opener;
	err = peerdma_proxy_open(ctx, file);
	if (err)
		goto err_uring;
	ctx->file = file;
	file->private_data = ctx;
	return nonseekable_open(inode, file);

err_uring:
	peerdma_uring_release(ctx);
err_opener:
	peerdma_opener_del(&ctx->opener);
err_only:
	if (ctx->only)
		peerdma_provider_put(ctx->only);
err_ctx:
	kfree(ctx);
	return err;
}

static int peerdma_release(struct inode *inode, struct file *file)
{
	struct peerdma_ctx *ctx = file->private_data;

	peerdma_opener_del(&ctx->opener);
	peerdma_files_remove(ctx);
	peerdma_buffers_destroy(ctx);
	peerdma_ids_destroy(&ctx->buffers);
	peerdma_ids_destroy(&ctx->files);
	peerdma_proxy_release(ctx);
	peerdma_uring_release(ctx);
	if (ctx->only)
		peerdma_provider_put(ctx->only);
	kfree(ctx);
	return 0;
}

const struct file_operations peerdma_fops = {
	.owner = THIS_MODULE,
	.open = peerdma_open,
	.release = peerdma_release,
	.mmap = peerdma_proxy_mmap,
	.unlocked_ioctl = peerdma_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = peerdma_uring_cmd,
	.uring_cmd_iopoll = peerdma_uring_iopoll,
	.show_fdinfo = peerdma_fdinfo_show,
};
