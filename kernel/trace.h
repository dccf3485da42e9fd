/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of a request: its process, its file by device and inode, its provider and buffer by
 * id, its bytes and how they were moved. Never an address, of the kernel or of the bus. Each submit
 * and each refuse has one complete. A request that was submitted without waiting, and turns out to
 * need waiting, completes with -EAGAIN and is submitted again.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM peerdma

#if !defined(PEERDMA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PEERDMA_TRACE_H

#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

#include "base/pair.h"
#include "io/account.h"
#include "memory/buffer.h"
#include "memory/provider.h"

#ifndef PEERDMA_TRACE_HELPERS_H
#define PEERDMA_TRACE_HELPERS_H
static inline pid_t peerdma_end_pid(const struct peerdma_io_end *seen)
{
	return seen->pid ?: task_tgid_nr(current);
}

/* 0: unknown, as the buffer was revoked. */
static inline u32 peerdma_end_provider(const struct peerdma_io_end *seen)
{
	return seen->buffer ? seen->buffer->provider->id : 0;
}

/* Without a disk the filesystem's number: for a share, the one that stat(2) shows. */
static inline dev_t peerdma_end_dev(const struct peerdma_io_end *seen)
{
	const struct inode *inode = file_inode(seen->file);

	if (seen->bdev)
		return seen->bdev->bd_dev;
	return S_ISBLK(inode->i_mode) ? inode->i_rdev : inode->i_sb->s_dev;
}
#endif

/* It would take these for C: */
/* clang-format off */

/* A request has passed all checks and is submitted now, in the context of this task. */
TRACE_EVENT(peerdma_submit,
	TP_PROTO(const struct peerdma_io_end *seen),
	TP_ARGS(seen),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(pid_t, pid)
		__field(u64, ino)
		__field(u64, file_off)
		__field(u64, len)
		__field(u32, buffer)
		__field(u32, provider)
		__field(u32, number)
		__field(bool, write)
		__field(bool, async)
	),
	TP_fast_assign(
		__entry->pid = peerdma_end_pid(seen);
		__entry->dev = peerdma_end_dev(seen);
		__entry->ino = file_inode(seen->file)->i_ino;
		__entry->file_off = seen->req->file_off;
		__entry->len = seen->req->len;
		__entry->buffer = seen->req->buf_id;
		__entry->provider = peerdma_end_provider(seen);
		__entry->write = seen->write;
		__entry->number = seen->number;
		__entry->async = seen->async;
	),
	TP_printk("%s pid=%d dev=%d:%d ino=%llu file_off=%llu len=%llu buffer=%u provider=%u async=%d number=%u",
		  __entry->write ? "write" : "read", __entry->pid,
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->file_off, __entry->len, __entry->buffer,
		  __entry->provider, __entry->async, __entry->number)
);

/* The end of a request, refused ones included. */
TRACE_EVENT(peerdma_complete,
	TP_PROTO(const struct peerdma_io_end *seen, int error),
	TP_ARGS(seen, error),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(pid_t, pid)
		__field(u64, ino)
		__field(u64, file_off)
		__field(u64, len)
		__field(u64, done)
		__field(u64, direct)
		__field(u64, near)
		__field(u64, host)
		__field(u32, buffer)
		__field(u32, provider)
		__field(u32, reason)
		__field(int, error)
		__field(u32, number)
		__field(bool, write)
		__field(bool, async)
	),
	TP_fast_assign(
		__entry->pid = peerdma_end_pid(seen);
		__entry->dev = peerdma_end_dev(seen);
		__entry->ino = file_inode(seen->file)->i_ino;
		__entry->file_off = seen->req->file_off;
		__entry->len = seen->req->len;
		__entry->done = seen->req->out_done;
		__entry->direct = seen->req->out_direct;
		__entry->near = seen->req->out_near;
		__entry->host = seen->req->out_host;
		__entry->buffer = seen->req->buf_id;
		__entry->provider = peerdma_end_provider(seen);
		__entry->reason = seen->req->out_reason;
		__entry->error = error;
		__entry->write = seen->write;
		__entry->number = seen->number;
		__entry->async = seen->async;
	),
	TP_printk("%s pid=%d dev=%d:%d ino=%llu file_off=%llu len=%llu buffer=%u provider=%u done=%llu direct=%llu near=%llu host=%llu reason=%u error=%d async=%d number=%u",
		  __entry->write ? "write" : "read", __entry->pid,
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->file_off, __entry->len, __entry->buffer,
		  __entry->provider, __entry->done, __entry->direct, __entry->near, __entry->host,
		  __entry->reason, __entry->error, __entry->async, __entry->number)
);

/* Bytes of a request that were bounced: one event for each way, at the request's end. */
TRACE_EVENT(peerdma_bounce,
	TP_PROTO(const struct peerdma_io_end *seen, u64 bytes, bool host),
	TP_ARGS(seen, bytes, host),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(pid_t, pid)
		__field(u64, ino)
		__field(u64, bytes)
		__field(u32, provider)
		__field(u32, reason)
		__field(bool, host)
	),
	TP_fast_assign(
		__entry->pid = peerdma_end_pid(seen);
		__entry->dev = peerdma_end_dev(seen);
		__entry->ino = file_inode(seen->file)->i_ino;
		__entry->bytes = bytes;
		__entry->provider = peerdma_end_provider(seen);
		__entry->reason = seen->req->out_reason;
		__entry->host = host;
	),
	TP_printk("%s pid=%d dev=%d:%d ino=%llu bytes=%llu provider=%u reason=%u",
		  __entry->host ? "host" : "near", __entry->pid,
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->bytes, __entry->provider, __entry->reason)
);

TRACE_EVENT(peerdma_refuse,
	TP_PROTO(const struct peerdma_io_end *seen, int error),
	TP_ARGS(seen, error),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(pid_t, pid)
		__field(u64, ino)
		__field(u32, provider)
		__field(u32, reason)
		__field(int, error)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->pid = peerdma_end_pid(seen);
		__entry->dev = peerdma_end_dev(seen);
		__entry->ino = file_inode(seen->file)->i_ino;
		__entry->provider = peerdma_end_provider(seen);
		__entry->reason = seen->req->out_reason;
		__entry->error = error;
		__entry->write = seen->write;
	),
	TP_printk("%s pid=%d dev=%d:%d ino=%llu provider=%u reason=%u error=%d",
		  __entry->write ? "write" : "read", __entry->pid,
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->provider, __entry->reason, __entry->error)
);

/* A buffer is revoked: by its owner, or because the provider is removed. */
TRACE_EVENT(peerdma_revoke,
	TP_PROTO(u32 provider, u64 len, bool unbind),
	TP_ARGS(provider, len, unbind),
	TP_STRUCT__entry(
		__field(u64, len)
		__field(u32, provider)
		__field(bool, unbind)
	),
	TP_fast_assign(
		__entry->len = len;
		__entry->provider = provider;
		__entry->unbind = unbind;
	),
	TP_printk("%s provider=%u len=%llu", __entry->unbind ? "unbind" : "destroy",
		  __entry->provider, __entry->len)
);

/* clang-format on */

#ifndef PEERDMA_TRACE_ENABLED_H
#define PEERDMA_TRACE_ENABLED_H
/* True if an event of the end of requests is enabled. Three no-ops if not. */
static __always_inline bool peerdma_trace_is_on(void)
{
	return trace_peerdma_complete_enabled() || trace_peerdma_bounce_enabled() ||
	       trace_peerdma_refuse_enabled();
}
#endif

#endif /* PEERDMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
