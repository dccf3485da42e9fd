/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that a process knows by a number of its open file.
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
 * struct peerdma_buffer - a mem as a process knows it
 * @entry: of the open file's buffers; its id is 0 if it got none
 * @usage: requests that use @mem; killed by the first to revoke
 * @lost: the memory was, or may have been, while requests were inside: they fail
 * @refs: who holds this struct; not requests
 * @revoking: somebody has begun to revoke
 * @revoked: completed when the mem has been let go
 * @provider: referenced
 * @mapping: where processes have it mapped; valid until @revoked
 * @opener: of its open file; valid with a usage reference
 * @mem: valid with a usage reference
 * @link: in the provider's list; protected by the provider's lock
 * @exports: pieces of it that drivers of other devices may map
 * @pin: of a vendor's memory that its process gives back; held: peerdma_pin_drop(); else NULL
 * @rcu: frees the struct after those who have just looked it up
 */
struct peerdma_buffer {
	/* What requests read, and none writes. */
	struct peerdma_entry entry;
	struct peerdma_mem *mem;
	struct peerdma_provider *provider; /* immutable */
	struct peerdma_opener *opener; /* immutable */
	bool lost;
	struct peerdma_usage usage;

	refcount_t refs ____cacheline_aligned_in_smp;
	atomic_t revoking;
	struct completion revoked;
	struct address_space *mapping; /* immutable */
	struct list_head link;
	struct peerdma_exports exports;
	struct peerdma_pin *pin; /* immutable, once it can be found */
	struct rcu_head rcu;
};

/* NULL of NULL. */
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
void peerdma_buffer_publish(struct peerdma_ctx *ctx, u32 id, int err);
void peerdma_buffer_revoke(struct peerdma_buffer *buffer);
void peerdma_buffers_destroy(struct peerdma_ctx *ctx);
void peerdma_buffers_kill(struct peerdma_provider *provider);
void peerdma_buffers_revoke(struct peerdma_provider *provider);

#endif /* PEERDMA_BUFFER_H */
