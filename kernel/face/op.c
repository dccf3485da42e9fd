// SPDX-License-Identifier: GPL-2.0
#include <linux/errno.h>
#include <linux/stddef.h>
#include "face/op.h"

#ifdef __KERNEL__
#include <linux/fs.h>
#include <linux/nospec.h>
#include <uapi/peerdma.h>
#else
#define FMODE_READ 1U
#define FMODE_WRITE 2U
#define __force
#define array_index_nospec(index, size) (index)
#endif

#ifndef offsetofend
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#endif

/*
 * Queries need no mode. Calls that create, destroy or fill a buffer need write; calls that give out
 * its bytes need read; an export needs both.
 */
#define ASKS 0
#define READS ((__force __u32)FMODE_READ)
#define WRITES ((__force __u32)FMODE_WRITE)

/* last: the last member of the first published form of the struct. It never changes. */
#define OP(cmd_, name_, member_, last_, mode_, ...)                              \
	{                                                                        \
		.cmd = (cmd_), .size = sizeof(struct member_),                   \
		.min_size = offsetofend(struct member_, last_), .mode = (mode_), \
		.execute = peerdma_##name_##_execute, ##__VA_ARGS__              \
	}

static const struct peerdma_op ops[] = {
	OP(PEERDMA_INFO, info, peerdma_info, out_publish_align, ASKS),
	OP(PEERDMA_PROVIDER_QUERY, provider_query, peerdma_provider_query, out_pci_device, ASKS),
	OP(PEERDMA_PUBLISH, publish, peerdma_publish, __reserved, WRITES,
	   .flags = PEERDMA_PUBLISH_NONPREFETCHABLE),
	OP(PEERDMA_BUF_ALLOC, buf_alloc, peerdma_buf_alloc, __reserved, WRITES,
	   .flags = PEERDMA_BUF_FLAGS, .finish = peerdma_buf_alloc_finish),
	OP(PEERDMA_DESTROY, destroy, peerdma_destroy, __reserved, WRITES),
	OP(PEERDMA_FILE_QUERY, file_query, peerdma_file_query, out_fs_name, ASKS),
	OP(PEERDMA_READ, read, peerdma_io, __reserved, WRITES, .flags = PEERDMA_IO_FLAGS),
	OP(PEERDMA_WRITE, write, peerdma_io, __reserved, READS, .flags = PEERDMA_IO_FLAGS),
	OP(PEERDMA_FILE_ADD, file_add, peerdma_file_add, out_reason, ASKS,
	   .finish = peerdma_file_add_finish),
	OP(PEERDMA_FILE_REMOVE, file_remove, peerdma_destroy, __reserved, ASKS),
	OP(PEERDMA_BUF_EXPORT, buf_export, peerdma_buf_export, __reserved, READS | WRITES,
	   .finish = peerdma_buf_export_finish),
	OP(PEERDMA_BUF_REGISTER, buf_register, peerdma_buf_register, out_mmap_offset, WRITES,
	   .finish = peerdma_buf_register_finish),
	OP(PEERDMA_BUF_IMPORT, buf_import, peerdma_buf_import, out_mmap_offset, WRITES,
	   .finish = peerdma_buf_import_finish),
};

/**
 * peerdma_op_find - the row for an ioctl number
 * @cmd: any number
 * Return: the row or NULL.
 */
const struct peerdma_op *peerdma_op_find(__u32 cmd)
{
	__u32 nr = cmd & 0xff;

	if (nr >= sizeof(ops) / sizeof(ops[0]) || ops[nr].cmd != cmd)
		return NULL;
	return &ops[array_index_nospec(nr, sizeof(ops) / sizeof(ops[0]))];
}

/**
 * peerdma_op_check_size - may a struct of this size be read?
 * @op: the row
 * @user_size: the size that the caller gave
 * @max: the largest size that is accepted
 * Return: 0, -EINVAL too short, -E2BIG too long.
 */
int peerdma_op_check_size(const struct peerdma_op *op, __u32 user_size, __u32 max)
{
	if (user_size < op->min_size)
		return -EINVAL;
	return user_size > max ? -E2BIG : 0;
}
