/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of ioctls: what is checked of each before its struct is used. Compiled on the host too.
 */
#ifndef PEERDMA_OP_H
#define PEERDMA_OP_H

#include <linux/types.h>
#include <uapi/peerdma.h>

struct dma_buf;
struct peerdma_ctx;

/* Room for the struct of any ioctl. All begin with size and flags. */
union peerdma_arg {
	struct {
		__u32 size;
		__u32 flags;
	} head;
	struct peerdma_info info;
	struct peerdma_provider_query provider_query;
	struct peerdma_publish publish;
	struct peerdma_buf_alloc buf_alloc;
	struct peerdma_destroy destroy;
	struct peerdma_file_query file_query;
	struct peerdma_io io;
	struct peerdma_file_add file_add;
	struct {
		struct peerdma_buf_export req;
		struct dma_buf *made; /* to be installed by finish(), or NULL */
	} buf_export;
	struct peerdma_buf_register buf_register;
	struct peerdma_buf_import buf_import;
};

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

int peerdma_info_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_provider_query_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_publish_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_buf_alloc_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
void peerdma_buf_alloc_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);
int peerdma_destroy_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_file_query_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_read_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_write_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_file_add_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
void peerdma_file_add_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);
int peerdma_file_remove_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
int peerdma_buf_export_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
void peerdma_buf_export_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);
int peerdma_buf_register_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
void peerdma_buf_register_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);
int peerdma_buf_import_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg);
void peerdma_buf_import_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err);

#endif /* PEERDMA_OP_H */
