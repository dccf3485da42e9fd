// SPDX-License-Identifier: GPL-2.0
/*
 * Explains why a file's bytes can or cannot reach a provider directly. Uses the code that decides
 * for a read, but remembers no route, and reports each leaf.
 */
#include <linux/file.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "base/usage.h"
#include "memory/ctx.h"
#include "memory/provider.h"
#include "routing/route.h"
#include "routing/stack.h"
#include "routing/target.h"

static const struct peerdma_disk *explain_nth_leaf(const struct peerdma_stack *stack, u32 n,
						   u32 *nr)
{
	const struct peerdma_disk *disk, *found = NULL;

	*nr = 0;
	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (!peerdma_disk_is_leaf(disk))
			continue;
		if (*nr == n)
			found = disk;
		(*nr)++;
	}
	return found;
}

static void explain_fill_disk(const struct peerdma_disk *disk, struct peerdma_file_query *query)
{
	query->out_leaf_major = MAJOR(disk->devt);
	query->out_leaf_minor = MINOR(disk->devt);
	query->out_leaf_domain = disk->domain;
	query->out_leaf_bdf = disk->bdf;
	query->out_leaf_reason = disk->result.reason;
	query->out_leaf_map = disk->result.map;
	query->out_leaf_distance = disk->result.distance;
	strscpy(query->out_leaf_name, disk->name, sizeof(query->out_leaf_name));
}

static void explain_fill(const struct peerdma_stack *stack, struct peerdma_file_query *query)
{
	const struct peerdma_disk *decisive = peerdma_route_worst(stack);
	const struct peerdma_disk *leaf =
		explain_nth_leaf(stack, query->leaf, &query->out_nr_leaves);

	query->out_reason = decisive->result.reason;
	query->out_map = decisive->result.map;
	query->out_distance = decisive->result.distance;
	if (query->out_reason)
		strscpy(query->out_refused_name, decisive->name, sizeof(query->out_refused_name));
	if (leaf)
		explain_fill_disk(leaf, query);
	else if (!query->out_nr_leaves)
		explain_fill_disk(stack->disks, query);
}

static int explain_disk(struct peerdma_provider *provider, struct file *file,
			struct block_device *bdev, struct peerdma_file_query *query)
{
	struct page *page = pfn_to_page(PHYS_PFN(peerdma_provider_start(provider)));
	struct peerdma_stack *stack = peerdma_route_check(provider, file, bdev, page);

	if (IS_ERR(stack)) {
		if (PTR_ERR(stack) != -ENOMEM)
			query->out_reason = PEERDMA_REASON_REVOKED;
		return PTR_ERR(stack);
	}
	explain_fill(stack, query);
	peerdma_stack_free(stack);
	return peerdma_reason_errno(query->out_reason);
}

/* Explains one file and one provider. Returns the errno that a read would end with. */
static int explain_file(struct file *file, struct peerdma_provider *provider,
			struct peerdma_file_query *query)
{
	struct peerdma_target target;
	int err;

	err = peerdma_target_resolve(file, &target, &query->out_reason);
	strscpy(query->out_fs_name, target.fs_name, sizeof(query->out_fs_name));
	if (err)
		return err;
	query->out_dio_mem_align = target.mem_align;
	query->out_dio_offset_align = target.offset_align;
	if (!peerdma_usage_tryget(&provider->usage)) {
		query->out_reason = PEERDMA_REASON_REVOKED;
		return -ENODEV;
	}
	err = explain_disk(provider, file, target.bdev, query);
	peerdma_usage_put(&provider->usage);
	return err;
}

int peerdma_file_query_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_file_query *query = &arg->file_query;
	struct peerdma_provider *provider;
	struct file *file;

	if (query->__reserved)
		return -EINVAL;
	*query = (struct peerdma_file_query){
		.size = query->size,
		.fd = query->fd,
		.provider_id = query->provider_id,
		.leaf = query->leaf,
		.out_distance = -1,
		.out_leaf_distance = -1,
	};
	file = fget(query->fd);
	if (!file)
		return -EBADF;
	provider = peerdma_provider_get(ctx, query->provider_id);
	if (!provider) {
		fput(file);
		return -ENOENT;
	}
	query->out_errno = -explain_file(file, provider, query);
	peerdma_provider_put(provider);
	fput(file);
	return query->out_reason == PEERDMA_REASON_REVOKED ? -ENODEV : 0;
}
