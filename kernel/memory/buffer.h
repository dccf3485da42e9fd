/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Buffers: memory that a process names by an id of its open file.
 */
#ifndef PEERDMA_BUFFER_H
#define PEERDMA_BUFFER_H

#include <linux/completion.h>
#include <linux/refcount.h>

#include "base/ids.h"
#include "base/opener.h"
#include "base/usage.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"

struct peerdma_provider;

/**
 * struct peerdma_buffer - memory that a process names by an id of its open file
 * @entry: in the open file's buffers; its id is 0 if it has none
 * @usage: held by requests that use @mem; killed by the first revoke
 * @lost: the memory was, or may have been, lost while requests used it: they fail
 * @recalled: its owner takes the memory back: requests that sleep for a file are canceled
 * @refs: references of this struct; a request holds one only without a usage reference
 * @revoking: a revoke has begun
 * @revoked: completed when the mem has been released
 * @provider: referenced
 * @mapping: through which processes map it; valid until @revoked
 * @opener: of its open file; valid with a usage reference, and for a request of that file
 * @mem: valid with a usage reference
 * @link: in the provider's list; protected by the provider's lock
 * @exports: dma-bufs of parts of it
 * @pin: of external memory that perhaps only the registrant can unpin, held; or NULL
 * @rcu: frees the struct after lookups under RCU have ended
 */
struct peerdma_buffer {
	/* Read by requests, written by none. */
	struct peerdma_entry entry;
	struct peerdma_mem *mem;
	struct peerdma_provider *provider; /* immutable */
	struct peerdma_opener *opener; /* immutable */
	bool lost;
	bool recalled;
	struct peerdma_usage usage;

	refcount_t refs ____cacheline_aligned_in_smp;
	atomic_t revoking;
	struct completion revoked;
	struct address_space *mapping; /* immutable */
	struct list_head link;
	struct peerdma_exports exports;
	struct peerdma_pin *pin; /* immutable, once shown */
	struct rcu_head rcu;
};

/* NULL for NULL. */
static inline struct peerdma_buffer *peerdma_buffer_of(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_buffer, entry));
	return container_of(entry, struct peerdma_buffer, entry);
}

struct peerdma_buffer *peerdma_buffer_create(struct peerdma_ctx *ctx, struct peerdma_mem *mem);
struct peerdma_buffer *peerdma_buffer_enter(struct peerdma_ctx *ctx, u32 id);
void peerdma_buffer_put(struct peerdma_buffer *buffer);
void peerdma_buffer_count(struct peerdma_buffer *buffer, int n);

struct peerdma_buffer *peerdma_buffer_add(struct peerdma_ctx *ctx, struct peerdma_mem *mem);
int peerdma_buffer_destroy(struct peerdma_ctx *ctx, u32 id, bool shown);
void peerdma_buffer_show_or_destroy(struct peerdma_ctx *ctx, u32 id, int err);
void peerdma_buffer_revoke(struct peerdma_buffer *buffer);
void peerdma_buffers_destroy(struct peerdma_ctx *ctx);
void peerdma_buffers_kill(struct peerdma_provider *provider);
void peerdma_buffers_revoke(struct peerdma_provider *provider);

#endif /* PEERDMA_BUFFER_H */
