// SPDX-License-Identifier: GPL-2.0
/*
 * Counts and traces the end of a request.
 */
#include <linux/blkdev.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "trace.h"
#include "base/counters.h"
#include "base/pair.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/provider.h"
#include "io/account.h"

/* A number for trace events: a request may begin in one thread and end in another. Never 0. */
u32 peerdma_account_number(void)
{
	static atomic_t last;

	return atomic_inc_return(&last) ?: atomic_inc_return(&last);
}

/*
 * Counts a request that failed. Without a route, the pair is looked up. Without a pair, or memory
 * for one, the request counts for the provider alone. An async request never creates a pair: that
 * may sleep, and the caller may be in an interrupt.
 */
static void account_failed(const struct peerdma_io_end *seen)
{
	struct peerdma_provider *provider = seen->buffer->provider;
	struct peerdma_stats *stats = &provider->stats;
	struct peerdma_pair *pair = seen->pair;

	if (!pair && seen->bdev && seen->async)
		pair = xa_load(&provider->pairs, disk_devt(seen->bdev->bd_disk));
	else if (!pair && seen->bdev)
		pair = peerdma_pair_get(&provider->pairs, disk_devt(seen->bdev->bd_disk),
					seen->bdev->bd_disk->disk_name);
	if (pair)
		stats = &pair->stats;
	peerdma_count(stats, seen->req, seen->write, seen->part);
	peerdma_count_failure(stats, seen->req->out_reason);
	peerdma_count_failure(&seen->buffer->opener->stats, seen->req->out_reason);
}

static void account_trace(const struct peerdma_io_end *seen, int err)
{
	if (seen->req->out_near)
		trace_peerdma_bounce(seen, seen->req->out_near, false);
	if (seen->req->out_host)
		trace_peerdma_bounce(seen, seen->req->out_host, true);
	if (err && seen->req->out_reason)
		trace_peerdma_refuse(seen, err);
	trace_peerdma_complete(seen, err);
}

/**
 * peerdma_account - count and trace the end of a request that had a file and a buffer
 * @seen: the request, its out_* members final
 * @err: its result, 0 or -errno
 *
 * Does not sleep if the request had a route. Any context but NMI then.
 */
void peerdma_account(const struct peerdma_io_end *seen, int err)
{
	/* An async request that got -EAGAIN is run again where it may sleep, and counted then. */
	if (likely(err != -EAGAIN || !seen->async)) {
		peerdma_count(&seen->buffer->opener->stats, seen->req, seen->write, seen->part);
		if (likely(!err))
			peerdma_count(&seen->pair->stats, seen->req, seen->write, seen->part);
		else
			account_failed(seen);
	}
	if (peerdma_trace_is_on())
		account_trace(seen, err);
}

/* Counts a request on a revoked buffer, which was refused before any other check. */
void peerdma_account_revoked(struct peerdma_ctx *ctx, const struct peerdma_io_end *seen)
{
	peerdma_count(&ctx->opener.stats, seen->req, seen->write, false);
	peerdma_count_failure(&ctx->opener.stats, seen->req->out_reason);
	if (peerdma_trace_is_on())
		account_trace(seen, -ENODEV);
}
