// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers of an open file, by id. A provider can be removed at any time. Its buffers are revoked
 * then: they lose their memory, and calls return -ENODEV until the buffer is destroyed.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "base/ids.h"
#include "base/ref.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"

static void buffer_free(struct rcu_head *rcu)
{
	struct peerdma_buffer *buffer = container_of(rcu, struct peerdma_buffer, rcu);

	peerdma_usage_exit(&buffer->usage);
	kfree(buffer);
}

void peerdma_buffer_put(struct peerdma_buffer *buffer)
{
	if (!refcount_dec_and_test(&buffer->refs))
		return;
	peerdma_exports_fini(&buffer->exports);
	peerdma_provider_put(buffer->provider);
	if (buffer->pin)
		peerdma_pin_drop(buffer->pin);
	call_rcu(&buffer->rcu, buffer_free);
}

/*
 * The buffer with this id and a usage reference, which keeps the struct and the memory: destroy
 * waits for it. -ENOENT: no such id. -ENODEV: revoked. RCU keeps the struct between the lookup and
 * the reference.
 */
struct peerdma_buffer *peerdma_buffer_enter(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_buffer *buffer;

	rcu_read_lock();
	buffer = peerdma_buffer_of(peerdma_ids_find(&ctx->buffers, id));
	if (!buffer)
		buffer = ERR_PTR(-ENOENT);
	else if (!peerdma_usage_tryget(&buffer->usage))
		buffer = ERR_PTR(-ENODEV);
	rcu_read_unlock();
	if (!IS_ERR(buffer))
		peerdma_ref_used(&buffer->usage.refs);
	return buffer;
}

/* Adds a buffer to the counters of its open file, or takes it off: @n is 1 or -1. */
void peerdma_buffer_count(struct peerdma_buffer *buffer, int n)
{
	atomic_add(n, &buffer->opener->buffers);
	atomic64_add((s64)buffer->mem->len * n, &buffer->opener->buffer_bytes);
}

/**
 * peerdma_buffer_create - create a buffer of some memory, without an id
 * @ctx: its owner
 * @mem: owned by the buffer after a success
 * Return: the buffer with one reference, on its provider's list; or NULL. The caller holds a usage
 * reference of the provider.
 */
struct peerdma_buffer *peerdma_buffer_create(struct peerdma_ctx *ctx, struct peerdma_mem *mem)
{
	struct peerdma_buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL_ACCOUNT);
	struct peerdma_provider *provider = mem->provider;

	if (!buffer)
		return NULL;
	if (peerdma_usage_init(&buffer->usage)) {
		kfree(buffer);
		return NULL;
	}
	refcount_set(&buffer->refs, 1);
	init_completion(&buffer->revoked);
	peerdma_exports_init(&buffer->exports);
	buffer->mapping = ctx->inode->i_mapping;
	buffer->opener = &ctx->opener;
	buffer->mem = mem;
	refcount_inc(&provider->refs);
	buffer->provider = provider;
	peerdma_buffer_count(buffer, 1);
	mutex_lock(&provider->lock);
	list_add_tail(&buffer->link, &provider->buffers);
	if (mem->halts != provider->halts) /* a halt since the memory was zeroed may have lost it */
		peerdma_usage_kill(&buffer->usage);
	mutex_unlock(&provider->lock);
	return buffer;
}
