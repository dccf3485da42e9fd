/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions that run ioctls. Each is in the file of its noun, in a layer above, and called
 * through the table of face/op.c. Compiled on the host too.
 */
#ifndef PEERDMA_HANDLERS_H
#define PEERDMA_HANDLERS_H

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

#endif /* PEERDMA_HANDLERS_H */
