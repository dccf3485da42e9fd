// SPDX-License-Identifier: GPL-2.0
/*
 * Revoking buffers: by destroying them, closing their open file, or unbinding their provider.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "trace.h"
#include "base/ids.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/ctx.h"
#include "memory/drain.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"
#include "memory/proxy.h"

/**
 * peerdma_buffer_revoke - take a buffer's memory away
 * @buffer: referenced by the caller
 *
 * Destroy, close and unbind may race: the first caller revokes, and all return when that is done.
 * Then new requests fail, running ones have ended, no process maps the memory, importers were
 * notified, and the memory is released.
 *
 * Cannot fail. Sleeps until the storage has completed what was submitted.
 */
void peerdma_buffer_revoke(struct peerdma_buffer *buffer)
{
	struct peerdma_provider *provider = buffer->provider;

	if (atomic_xchg(&buffer->revoking, 1)) {
		wait_for_completion(&buffer->revoked);
		return;
	}
	peerdma_buffer_count(buffer, -1);
	peerdma_drain_wait(provider, buffer);
	trace_peerdma_revoke(provider->id, buffer->mem->len,
			     peerdma_usage_killed(&provider->usage));
	peerdma_proxy_unmap(buffer);
	peerdma_exports_revoke(buffer);

	/* Removed from the list last, so that unbind waits until the memory is released. */
	peerdma_mem_release(buffer->mem, buffer);
	mutex_lock(&provider->lock);
	list_del_init(&buffer->link);
	mutex_unlock(&provider->lock);
	complete_all(&buffer->revoked);
}

/*
 * Ends a buffer whose id is removed. Unpins only after all waiters for the revoke have been woken:
 * one of them may hold locks of the driver that unpins.
 */
static void buffer_end(struct peerdma_buffer *buffer)
{
	peerdma_buffer_revoke(buffer);
	peerdma_pin_unpin_by_registrant(buffer->pin);
	peerdma_buffer_put(buffer);
}

/* Called by close: no other thread can look up an id any more. */
void peerdma_buffers_destroy(struct peerdma_ctx *ctx)
{
	struct peerdma_entry *entry;
	struct peerdma_buffer *buffer;
	unsigned long id;

	/* Kills all first, so that they share one RCU grace period. */
	xa_for_each(&ctx->buffers.all, id, entry) {
		peerdma_usage_kill(&peerdma_buffer_of(entry)->usage);
		cond_resched();
	}
	while ((buffer = peerdma_buffer_of(peerdma_ids_take_any(&ctx->buffers))))
		buffer_end(buffer);
}

/**
 * peerdma_buffer_add - create a buffer of some memory, with an id that lookups do not find yet
 * @ctx: its owner
 * @mem: owned by the buffer from now on; released if this fails
 *
 * The caller holds a usage reference of the provider until the buffer is on the provider's list and
 * has its id. So unbind finds a complete buffer, or the caller finds the reference killed.
 *
 * Return: the buffer, or ERR_PTR(-ENOMEM) without memory or a free id.
 */
struct peerdma_buffer *peerdma_buffer_add(struct peerdma_ctx *ctx, struct peerdma_mem *mem)
{
	const u32 max_id = (1 << PEERDMA_BUF_ID_BITS) - 1;
	struct peerdma_buffer *buffer = peerdma_buffer_create(ctx, mem);

	if (!buffer) {
		peerdma_mem_release(mem, NULL);
		return ERR_PTR(-ENOMEM);
	}
	if (!peerdma_ids_alloc(&ctx->buffers, &buffer->entry, max_id))
		return buffer;
	peerdma_buffer_revoke(buffer);
	peerdma_buffer_put(buffer);
	return ERR_PTR(-ENOMEM);
}

int peerdma_buffer_destroy(struct peerdma_ctx *ctx, u32 id, bool shown)
{
	struct peerdma_buffer *buffer =
		peerdma_buffer_of(peerdma_ids_take(&ctx->buffers, id, shown));

	if (!buffer)
		return -ENOENT;
	buffer_end(buffer);
	return 0;
}

/*
 * Shows the buffer once its id has been copied to the process, or destroys it if that failed. @id
 * 0: there is no buffer.
 */
void peerdma_buffer_publish(struct peerdma_ctx *ctx, u32 id, int err)
{
	if (!id)
		return;
	if (err)
		peerdma_buffer_destroy(ctx, id, false);
	else
		peerdma_ids_show(&ctx->buffers, id);
}

/* A buffer with a killed usage reference, referenced; or NULL. */
static struct peerdma_buffer *buffer_first_killed(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer, *found = NULL;

	mutex_lock(&provider->lock);
	list_for_each_entry(buffer, &provider->buffers, link) {
		if (!peerdma_usage_killed(&buffer->usage))
			continue;
		refcount_inc(&buffer->refs);
		found = buffer;
		break;
	}
	mutex_unlock(&provider->lock);
	return found;
}

/*
 * Kills the usage reference of every buffer, so that no request begins in one buffer while another
 * is being drained.
 */
void peerdma_buffers_kill(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&provider->lock);
	list_for_each_entry(buffer, &provider->buffers, link)
		peerdma_usage_kill(&buffer->usage);
	mutex_unlock(&provider->lock);
}

/* Revokes every buffer that peerdma_buffers_kill() has killed, and no newer one. */
void peerdma_buffers_revoke(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	while ((buffer = buffer_first_killed(provider))) {
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}
