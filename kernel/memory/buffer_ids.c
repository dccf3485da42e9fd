// SPDX-License-Identifier: GPL-2.0
/*
 * The buffers of an open file of the module, by id.
 */
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "base/ids.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/proxy.h"

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
void peerdma_buffer_show_or_destroy(struct peerdma_ctx *ctx, u32 id, int err)
{
	if (!id)
		return;
	if (err)
		peerdma_buffer_destroy(ctx, id, false);
	else
		peerdma_ids_show(&ctx->buffers, id);
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
