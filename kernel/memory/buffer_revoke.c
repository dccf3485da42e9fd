// SPDX-License-Identifier: GPL-2.0
/*
 * Revoking buffers: one that is destroyed, or all of a provider.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>

#include "compat/compat.h"
#include "trace.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/drain.h"
#include "memory/export.h"
#include "memory/mem.h"
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
