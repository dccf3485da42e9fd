// SPDX-License-Identifier: GPL-2.0
#include <linux/memremap.h>

#include "compat/compat.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/provider.h"
#include "io/uring.h"
#include "face/op.h"

int peerdma_info_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_provider *provider;
	u32 id = 0;

	arg->info.out_abi = PEERDMA_ABI_VERSION;
	arg->info.out_page_size = PAGE_SIZE;
	arg->info.out_features = PEERDMA_URING_FEATURES;
	if (peerdma_exports_supported())
		arg->info.out_features |= PEERDMA_FEATURE_DMABUF;
	arg->info.out_features |= PEERDMA_ON_DEMAND;
	arg->info.out_publish_align = memremap_compat_align();
	arg->info.out_nproviders = 0;
	while ((provider = peerdma_provider_next(ctx, id))) {
		id = provider->id + 1;
		arg->info.out_nproviders++;
		peerdma_provider_put(provider);
	}
	return 0;
}
