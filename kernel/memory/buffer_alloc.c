// SPDX-License-Identifier: GPL-2.0
/*
 * The calls that allocate a buffer of a provider's own memory, and that destroy a buffer.
 */
#include <linux/capability.h>
#include <linux/pci.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/provider.h"
#include "memory/proxy.h"

static u64 mem_bar_offset(struct peerdma_mem *mem)
{
	struct peerdma_provider *provider = mem->provider;

	return page_to_phys(mem->page) - pci_resource_start(provider->pdev, provider->bar);
}

/* Zeroed, unless the caller asked for memory as its last owner left it. */
static struct peerdma_mem *buf_alloc_mem(struct peerdma_provider *provider,
					 struct peerdma_buf_alloc *req)
{
	struct peerdma_mem *mem = peerdma_mem_alloc(provider, req->len, &req->out_reason);
	int err;

	if (IS_ERR(mem) || req->flags & PEERDMA_BUF_NO_ZERO)
		return mem;
	err = peerdma_mem_zero(mem);
	if (!err)
		return mem;
	peerdma_mem_release(mem, NULL);
	return ERR_PTR(err);
}

static int buf_alloc(struct peerdma_ctx *ctx, struct peerdma_provider *provider,
		     struct peerdma_buf_alloc *req)
{
	struct peerdma_buffer *buffer;
	struct peerdma_mem *mem;
	u64 bar_offset = 0;
	int err;

	if (!peerdma_usage_tryget(&provider->usage))
		return -ENODEV;
	mem = buf_alloc_mem(provider, req);
	if (!IS_ERR(mem))
		bar_offset = mem_bar_offset(mem); /* a buffer may be revoked at any time */
	buffer = IS_ERR(mem) ? ERR_CAST(mem) : peerdma_buffer_add(ctx, mem);
	err = PTR_ERR_OR_ZERO(buffer);
	if (!err && peerdma_usage_killed(&buffer->usage)) {
		peerdma_buffer_destroy(ctx, buffer->entry.id, false);
		err = -ENODEV;
	}
	if (!err) {
		req->out_buf_id = buffer->entry.id;
		req->out_bar_offset = bar_offset;
		req->out_mmap_offset = peerdma_proxy_offset(buffer);
	}
	peerdma_usage_put(&provider->usage);
	return err;
}

int peerdma_buf_alloc_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_alloc *req = &arg->buf_alloc;
	struct peerdma_provider *provider;
	int err;

	req->out_buf_id = 0;
	req->out_bar_offset = 0;
	req->out_mmap_offset = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	/*
	 * The memory may hold another user's data: CAP_SYS_ADMIN of a user namespace does not
	 * suffice.
	 */
	if (req->flags & PEERDMA_BUF_NO_ZERO && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	req->out_reason = peerdma_check_alloc(req->len, PAGE_SIZE);
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	provider = peerdma_provider_get(ctx, req->provider_id);
	if (!provider)
		return -ENOENT;
	if (provider->external)
		req->out_reason = PEERDMA_REASON_VENDOR_MEMORY;
	else if (!provider->prefetchable && !(req->flags & PEERDMA_BUF_NO_ZERO))
		req->out_reason = PEERDMA_REASON_NOT_PREFETCHABLE;
	err = peerdma_reason_errno(req->out_reason) ?: buf_alloc(ctx, provider, req);
	if (err == -ENODEV)
		req->out_reason = PEERDMA_REASON_REVOKED;
	peerdma_provider_put(provider);
	return err;
}

void peerdma_buf_alloc_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	peerdma_buffer_show_or_destroy(ctx, arg->buf_alloc.out_buf_id, err);
}

int peerdma_destroy_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	if (arg->destroy.__reserved)
		return -EINVAL;
	return peerdma_buffer_destroy(ctx, arg->destroy.id, true);
}
