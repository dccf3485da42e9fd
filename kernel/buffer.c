// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers by number, of one open file. A buffer can lose its memory at any moment, because its
 * provider goes away; what is left then answers -ENODEV until it is destroyed.
 */
#include <linux/slab.h>

#include "peerdma.h"
#include "trace.h"

void peerdma_buffer_put(struct peerdma_buffer *buffer)
{
	if (!refcount_dec_and_test(&buffer->refs))
		return;
	peerdma_provider_put(buffer->provider);
	kfree(buffer);
}

/**
 * peerdma_buffer_revoke - take a buffer's memory away
 * @buffer: referenced by the caller
 *
 * Destroying, closing and unbinding may meet here. The first does it, all return when it is done:
 * new requests fail, those inside have ended, the memory has been let go. Cannot fail. Sleeps for
 * as long as the storage takes to answer what was sent to it.
 */
void peerdma_buffer_revoke(struct peerdma_buffer *buffer)
{
	struct peerdma_provider *provider = buffer->provider;

	if (atomic_xchg(&buffer->revoking, 1)) {
		wait_for_completion(&buffer->revoked);
		return;
	}
	peerdma_gate_close(&buffer->gate);
	trace_peerdma_revoke(provider->id, buffer->mem->len, peerdma_gate_closed(&provider->gate));

	/* Off the list last: unbind must not believe it is done while the memory is still held. */
	peerdma_mem_release(buffer->mem);
	mutex_lock(&provider->lock);
	list_del_init(&buffer->link);
	mutex_unlock(&provider->lock);
	complete_all(&buffer->revoked);
}

/* The buffer with this id, with a reference, or NULL. It may have been revoked. */
struct peerdma_buffer *peerdma_buffer_get(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_buffer *buffer;

	xa_lock(&ctx->buffers);
	buffer = xa_load(&ctx->buffers, id);
	if (buffer && buffer->ready)
		refcount_inc(&buffer->refs);
	else
		buffer = NULL;
	xa_unlock(&ctx->buffers);
	return buffer;
}

/* Closing: nobody else can look an id up any more. */
void peerdma_buffers_destroy(struct peerdma_ctx *ctx)
{
	struct peerdma_buffer *buffer;
	unsigned long id;

	xa_for_each(&ctx->buffers, id, buffer) {
		xa_erase(&ctx->buffers, id);
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}

static struct peerdma_buffer *buffer_create(struct peerdma_provider *provider, u64 len)
{
	struct peerdma_buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL_ACCOUNT);
	struct peerdma_mem *mem;

	if (!buffer)
		return ERR_PTR(-ENOMEM);
	mem = peerdma_mem_alloc(provider, len, true);
	if (IS_ERR(mem)) {
		kfree(buffer);
		return ERR_CAST(mem);
	}
	refcount_set(&buffer->refs, 1);
	peerdma_gate_init(&buffer->gate);
	init_completion(&buffer->revoked);
	buffer->mem = mem;
	refcount_inc(&provider->refs);
	buffer->provider = provider;
	mutex_lock(&provider->lock);
	list_add_tail(&buffer->link, &provider->buffers);
	mutex_unlock(&provider->lock);
	return buffer;
}

static u64 mem_bar_offset(struct peerdma_mem *mem)
{
	struct peerdma_provider *provider = mem->provider;

	return page_to_phys(peerdma_mem_page(mem)) -
	       pci_resource_start(provider->pdev, provider->bar);
}

static int buf_alloc(struct peerdma_ctx *ctx, struct peerdma_provider *provider,
		     struct peerdma_buf_alloc *req)
{
	struct peerdma_buffer *buffer;
	int err;

	/* Inside until it is on the list: unbind finds it there, or we find the gate closed. */
	if (!peerdma_gate_enter(&provider->gate))
		return -ENODEV;
	buffer = buffer_create(provider, req->len);
	if (IS_ERR(buffer)) {
		peerdma_gate_exit(&provider->gate);
		return PTR_ERR(buffer);
	}
	req->out_bar_offset = mem_bar_offset(buffer->mem);
	peerdma_gate_exit(&provider->gate);

	err = xa_alloc(&ctx->buffers, &req->out_buf_id, buffer, xa_limit_31b, GFP_KERNEL_ACCOUNT);
	if (err) {
		/* xa_alloc() may have written an id that it could not keep: another's by now. */
		req->out_buf_id = 0;
		req->out_bar_offset = 0;
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
	return err;
}

int peerdma_buf_alloc_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_alloc *req = &arg->buf_alloc;
	struct peerdma_provider *provider;
	int err;

	req->out_buf_id = 0;
	req->out_bar_offset = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	req->out_reason = peerdma_check_alloc(req->len, PAGE_SIZE);
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	provider = peerdma_provider_get(req->provider_id);
	if (!provider)
		return -ENOENT;
	err = buf_alloc(ctx, provider, req);
	if (err == -ENODEV)
		req->out_reason = PEERDMA_REASON_REVOKED;
	peerdma_provider_put(provider);
	return err;
}

static struct peerdma_buffer *erase_buffer(struct peerdma_ctx *ctx, u32 id, bool ready)
{
	struct peerdma_buffer *buffer;

	xa_lock(&ctx->buffers);
	buffer = xa_load(&ctx->buffers, id);
	if (buffer && buffer->ready == ready)
		__xa_erase(&ctx->buffers, id);
	else
		buffer = NULL;
	xa_unlock(&ctx->buffers);
	return buffer;
}

static int buffer_destroy(struct peerdma_ctx *ctx, u32 id, bool ready)
{
	struct peerdma_buffer *buffer = erase_buffer(ctx, id, ready);

	if (!buffer)
		return -ENOENT;
	peerdma_buffer_revoke(buffer);
	peerdma_buffer_put(buffer);
	return 0;
}

void peerdma_buf_alloc_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	u32 id = arg->buf_alloc.out_buf_id;
	struct peerdma_buffer *buffer;

	if (!id)
		return;
	if (err) {
		buffer_destroy(ctx, id, false);
		return;
	}
	xa_lock(&ctx->buffers);
	buffer = xa_load(&ctx->buffers, id);
	buffer->ready = true;
	xa_unlock(&ctx->buffers);
}

int peerdma_destroy_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	if (arg->destroy.__reserved)
		return -EINVAL;
	return buffer_destroy(ctx, arg->destroy.id, true);
}
