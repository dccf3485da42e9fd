/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of ioctls: what is checked of each before its struct is used. Compiled on the host too.
 */
#ifndef PEERDMA_OP_H
#define PEERDMA_OP_H

#include "base/handlers.h"

/**
 * struct peerdma_op - one ioctl
 * @cmd: its number
 * @size: bytes of its struct in this module
 * @min_size: bytes of the shortest struct that was ever published
 * @flags: known flags
 * @mode: FMODE_READ and FMODE_WRITE: how the device node must be open
 * @execute: runs the call; fills out_* members, returns 0 or -errno
 * @finish: shows what execute has reserved if the struct was copied back (err is 0), or undoes it
 */
struct peerdma_op {
	__u32 cmd;
	__u32 size;
	__u32 min_size;
	__u32 flags;
	__u32 mode;
	int (*execute)(struct peerdma_ctx *ctx, union peerdma_arg *arg);
	void (*finish)(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);
};

const struct peerdma_op *peerdma_op_find(__u32 cmd);
int peerdma_op_check_size(const struct peerdma_op *op, __u32 user_size, __u32 max);

#endif /* PEERDMA_OP_H */
