// SPDX-License-Identifier: GPL-2.0
/*
 * Why a file's bytes do or do not reach a provider directly, as data: the same code decides that
 * decides for a read, but nothing is remembered and each leaf is told.
 */
#include <linux/file.h>

#include "peerdma.h"

static const struct peerdma_disk *nth_leaf(const struct peerdma_stack *stack, u32 n, u32 *nr)
{
	const struct peerdma_disk *disk, *found = NULL;

	*nr = 0;
	for (disk = stack->disks; disk < stack->disks + stack->nr; disk++) {
		if (!peerdma_is_leaf(disk))
			continue;
		if (*nr == n)
			found = disk;
		(*nr)++;
	}
	return found;
}

static void describe_disk(const struct peerdma_disk *disk, struct peerdma_file_query *query)
{
	query->out_leaf_major = MAJOR(disk->devt);
	query->out_leaf_minor = MINOR(disk->devt);
	query->out_leaf_domain = disk->domain;
	query->out_leaf_bdf = disk->bdf;
	query->out_leaf_reason = disk->verdict.reason;
	query->out_leaf_map = disk->verdict.map;
	query->out_leaf_distance = disk->verdict.distance;
	strscpy(query->out_leaf_name, disk->name, sizeof(query->out_leaf_name));
}

static void describe(const struct peerdma_stack *stack, struct peerdma_file_query *query)
{
	const struct peerdma_disk *decisive = peerdma_route_decisive(stack);
	const struct peerdma_disk *leaf = nth_leaf(stack, query->leaf, &query->out_nr_leaves);

	query->out_reason = decisive->verdict.reason;
	query->out_map = decisive->verdict.map;
	query->out_distance = decisive->verdict.distance;
	if (query->out_reason)
		strscpy(query->out_refused_name, decisive->name, sizeof(query->out_refused_name));
	if (leaf)
		describe_disk(leaf, query);
	else if (!query->out_nr_leaves)
		describe_disk(stack->disks, query);
}

static int explain_disk(struct peerdma_provider *provider, struct file *file,
			struct block_device *bdev, struct peerdma_file_query *query)
{
	struct page *page = pfn_to_page(PHYS_PFN(peerdma_provider_start(provider)));
	struct peerdma_stack *stack = peerdma_route_judge(provider, file, bdev, page);

	if (IS_ERR(stack)) {
		if (PTR_ERR(stack) != -ENOMEM)
			query->out_reason = PEERDMA_REASON_REVOKED;
		return PTR_ERR(stack);
	}
	describe(stack, query);
	peerdma_stack_free(stack);
	return peerdma_reason_errno(query->out_reason);
}

/* All about one file and one provider; returns the errno that a read would end with. */
static int explain(struct file *file, struct peerdma_provider *provider,
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
	if (!peerdma_gate_enter(&provider->gate)) {
		query->out_reason = PEERDMA_REASON_REVOKED;
		return -ENODEV;
	}
	err = explain_disk(provider, file, target.bdev, query);
	peerdma_gate_exit(&provider->gate);
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
	query->out_errno = -explain(file, provider, query);
	peerdma_provider_put(provider);
	fput(file);
	return query->out_reason == PEERDMA_REASON_REVOKED ? -ENODEV : 0;
}
