// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a buffer: its memory is taken from it, by whoever destroys it, closes its open file or
 * unbinds its provider.
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
 * Destroying, closing and unbinding may meet here. The first does it, all return when it is done:
 * new requests fail, those inside have ended, no process has it mapped, drivers that had were told,
 * the memory has been let go. Cannot fail. Sleeps for as long as the storage takes to answer what
 * was sent to it.
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

	/* Off the list last: unbind must not believe it is done while the memory is still held. */
	peerdma_mem_release(buffer->mem, buffer);
	mutex_lock(&provider->lock);
	list_del_init(&buffer->link);
	mutex_unlock(&provider->lock);
	complete_all(&buffer->revoked);
}

/*
 * Its id is gone. A driver that wants its memory back is asked when all who wait for the revoking
 * have been let go: one of them may have that driver's locks.
 */
static void buffer_end(struct peerdma_buffer *buffer)
{
	peerdma_buffer_revoke(buffer);
	peerdma_pin_unpin_as_owner(buffer->pin);
	peerdma_buffer_put(buffer);
}

/* Closing: nobody else can look an id up any more. */
void peerdma_buffers_destroy(struct peerdma_ctx *ctx)
{
	struct peerdma_entry *entry;
	struct peerdma_buffer *buffer;
	unsigned long id;

	/* One grace period for all. */
	xa_for_each(&ctx->buffers.all, id, entry) {
		peerdma_usage_kill(&peerdma_buffer_of(entry)->usage);
		cond_resched();
	}
	while ((buffer = peerdma_buffer_of(peerdma_ids_take_any(&ctx->buffers))))
		buffer_end(buffer);
}

/**
 * peerdma_buffer_add - a buffer of some memory, with an id that nobody can look up yet
 * @ctx: whose buffer it will be
 * @mem: the buffer's from now on; let go if this fails
 *
 * The caller holds a usage reference of the provider until it is on the list and has its id: unbind
 * finds it complete, or the caller finds the reference killed.
 *
 * Return: the buffer, or ERR_PTR(-ENOMEM): the kernel has none, or no id is left.
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

/* Its maker was told its id, or could not be; 0: there is none. */
void peerdma_buffer_publish(struct peerdma_ctx *ctx, u32 id, int err)
{
	if (!id)
		return;
	if (err)
		peerdma_buffer_destroy(ctx, id, false);
	else
		peerdma_ids_show(&ctx->buffers, id);
}

/* One whose usage reference is killed, with a reference, or NULL. */
static struct peerdma_buffer *buffer_first_closed(struct peerdma_provider *provider)
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

/* So that no request begins in one buffer while those in another are waited for. */
void peerdma_buffers_kill(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&provider->lock);
	list_for_each_entry(buffer, &provider->buffers, link)
		peerdma_usage_kill(&buffer->usage);
	mutex_unlock(&provider->lock);
}

/* All that peerdma_buffers_kill() has closed, and none that was made since. */
void peerdma_buffers_revoke(struct peerdma_provider *provider)
{
	struct peerdma_buffer *buffer;

	while ((buffer = buffer_first_closed(provider))) {
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}
