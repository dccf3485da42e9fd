/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files that a process has registered.
 */
#ifndef PEERDMA_FILE_H
#define PEERDMA_FILE_H

#include "base/ids.h"
#include "base/ref.h"
#include "memory/ctx.h"
#include "routing/target.h"

/**
 * struct peerdma_file - a registered file
 * @entry: in the open file's files
 * @ref: keeps @file open: one reference of the table, one of each request
 * @file: a regular file or a block device
 * @attrs: what was found out about it
 * @rcu: frees the struct after lookups under RCU have ended
 */
struct peerdma_file {
	struct peerdma_entry entry;
	struct peerdma_ref ref;
	struct file *file; /* immutable */
	struct peerdma_file_attrs attrs; /* immutable once shown, except extents_at */
	struct rcu_head rcu;
};

struct peerdma_file *peerdma_file_get(struct peerdma_ctx *ctx, u32 id);

static inline void peerdma_file_put(struct peerdma_file *pfile)
{
	peerdma_ref_put(&pfile->ref);
}

void peerdma_files_remove(struct peerdma_ctx *ctx);

#endif /* PEERDMA_FILE_H */
