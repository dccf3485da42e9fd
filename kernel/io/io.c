// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes of any offset and length. Whole blocks of the file go straight between the
 * storage and the buffer: a kiocb over one bio_vec, handed to the file's own methods
 * by the helpers that do the mode, security and notification checks. Nothing here is per page.
 *
 * What is less than a block goes another way, is counted and named:
 *
 * A read's partial block is read whole into a page of the same provider, and the CPU moves just the
 * bytes that were asked for from there to the buffer; where the provider has no page left, or who
 * pays for the buffer may have no more of it, by way of a page of host memory.
 *
 * A write's partial block goes through the page cache, whose locks make sure that nobody's
 * neighbouring bytes are lost, and is written back before the request ends. So does a write at the
 * end of a file that is open with O_APPEND, because only the filesystem knows where that is.
 *
 * Where the place in the buffer is one that the device cannot address, all of it goes through host
 * memory.
 *
 * The parameter wait_outside: a request does not wait for the locks of a regular file with the
 * buffer's usage reference. A direct step is sent with IOCB_NOWAIT. What the filesystem does not
 * take so, and all partial blocks, go by host memory: the usage reference is put before that is
 * read or written.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/gfp.h>
#include <linux/ioprio.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/sched/xacct.h>
#include <linux/uio.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "trace.h"
#include "base/checks.h"
#include "base/counters.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/charge.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/provider.h"
#include "routing/file.h"
#include "routing/route.h"
#include "routing/stack.h"
#include "routing/target.h"
#include "io/account.h"
#include "io/io.h"
#include "io/submitted.h"
#include "face/op.h"

#define HOST_STEP SZ_64K /* bytes of host memory that a bounce takes at a time */

/*
 * The second guard against merging, behind queue.c's: bios merge only where their priority is
 * equal, hint included, and nothing in the kernel uses this hint. It can be forged; what it is for
 * is in Documentation/design.md, "Merging".
 */
#define IO_HINT 512 /* plus the provider, modulo 512: two of them may map by different rules */

static bool wait_outside;
module_param(wait_outside, bool, 0644);
MODULE_PARM_DESC(wait_outside, "wait for a file's locks with host memory only");

/* One request in the making. */
struct io_request {
	struct file *file;
	struct peerdma_file *pfile; /* NULL if it came by descriptor */
	struct peerdma_buffer *buffer;
	struct peerdma_target target;
	struct peerdma_route *route; /* referenced while anything is under way */
	struct peerdma_io *req;
	struct task_struct *submitter; /* whom a worker acts for; NULL: the current task */
	bool write;
	bool nowait; /* -EAGAIN instead of sleeping for a route */
	bool stored; /* the CPU may have stored some of what the last read brought */
	bool wait_outside; /* the parameter, when the request began */
	bool outside; /* without a usage reference of the buffer: its memory may be gone */
	bool referenced; /* a reference to the buffer is the request's */
};

u16 peerdma_ioprio(struct peerdma_provider *provider, u16 ioprio)
{
	u16 hint = IO_HINT | (provider->id % IO_HINT);

	/* submit_bio() replaces class NONE, hint and all. */
	if (IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_NONE)
		return IOPRIO_PRIO_VALUE_HINT(IOPRIO_CLASS_BE, IOPRIO_BE_NORM, hint);
	return IOPRIO_PRIO_VALUE_HINT(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio), hint);
}

/* What went into the page cache is to be on the storage when the caller hears of it. */
static ssize_t io_write_back(struct io_request *io, loff_t pos, ssize_t len)
{
	int err;

	/* A server has not stored it when it has taken it. */
	if (unlikely(!io->target.bdev))
		err = vfs_fsync_range(io->file, pos, pos + len - 1, 1);
	else
		err = filemap_write_and_wait_range(io->file->f_mapping, pos, pos + len - 1);

	return err ?: len;
}

/* A kiocb, and who sleeps until it is done. */
struct io_wait {
	struct kiocb kiocb;
	struct task_struct *sleeper; /* NULL: it is done */
	ssize_t res;
};

static void io_wait_complete(struct kiocb *kiocb, long res)
{
	struct io_wait *wait = container_of(kiocb, struct io_wait, kiocb);
	struct task_struct *sleeper = wait->sleeper;

	wait->res = res;
	/* From here on the sleeper may leave, and end: RCU keeps its struct. */
	rcu_read_lock();
	smp_store_release(&wait->sleeper, NULL); /* pairs with io_wait_done() */
	wake_up_process(sleeper);
	rcu_read_unlock();
}

static __always_inline ssize_t io_wait_done(struct io_wait *wait)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (!smp_load_acquire(&wait->sleeper)) /* pairs with io_wait_complete() */
			break;
		io_schedule();
	}
	__set_current_state(TASK_RUNNING);
	return wait->res;
}

/*
 * Direct reads are sent as if nobody waited, and waited for here: a filesystem that waits itself
 * arms a timer each time, to wake up now and then, which costs more than our whole own part. A
 * write that nobody waits for might be completed by a worker thread instead of the interrupt.
 */
static ssize_t io_read_direct(struct io_request *io, struct io_wait *wait, struct iov_iter *iter)
{
	const size_t len = iov_iter_count(iter);
	struct peerdma_submitted before;
	ssize_t ret;

	wait->sleeper = current;
	wait->kiocb.ki_complete = io_wait_complete;
	before = peerdma_submitted();
	ret = vfs_iocb_iter_read(io->file, &wait->kiocb, iter);
	io->stored = !peerdma_submitted_all(&before, io->file, len);
	if (ret != -EIOCBQUEUED)
		return ret;
	ret = io_wait_done(wait);
	/* Of what was queued the kernel leaves this to its caller. */
	if (ret > 0)
		fsnotify_access(io->file);
	return ret;
}

static void io_wait_complete_write(struct kiocb *kiocb, long res)
{
	peerdma_iocb_end_write(kiocb);
	io_wait_complete(kiocb, res);
}

/*
 * NFS lets go of who waits for it when he is killed, and goes on with the pages. Waited for here,
 * nobody leaves before the last byte.
 */
static noinline ssize_t io_write_share(struct io_request *io, struct io_wait *wait,
				       struct iov_iter *iter)
{
	ssize_t ret;

	wait->sleeper = current;
	wait->kiocb.ki_complete = io_wait_complete_write;
	ret = peerdma_iocb_iter_write(io->file, &wait->kiocb, iter);
	if (ret != -EIOCBQUEUED)
		return ret;
	ret = io_wait_done(wait);
	if (ret > 0)
		fsnotify_modify(io->file);
	return ret;
}

/*
 * A direct write first takes the range out of the page cache. If a page there is in use, by a pipe
 * for one, the kernel writes by way of the page cache instead and does not say so. So it is taken
 * out here before, and what cannot be is written that way openly.
 */
static noinline bool io_is_uncached(const struct io_request *io, loff_t pos, size_t len)
{
	struct address_space *mapping = io->file->f_mapping;
	const loff_t last = pos + len - 1;

	if (!filemap_range_has_page(mapping, pos, last))
		return true;
	return !filemap_write_and_wait_range(mapping, pos, last) &&
	       !invalidate_inode_pages2_range(mapping, pos >> PAGE_SHIFT, last >> PAGE_SHIFT);
}

static ssize_t io_write_once(struct io_request *io, struct kiocb *kiocb, struct iov_iter *iter,
			     bool direct)
{
	ssize_t ret = peerdma_iocb_iter_write(io->file, kiocb, iter);

	/* Where an appending write went is known only now. */
	if (ret > 0 && !direct)
		ret = io_write_back(io, kiocb->ki_pos - ret, ret);
	return ret;
}

/*
 * One kiocb. *direct: asked for, as it is of every read, and whether it was so: a filesystem that
 * changes its mind clears IOCB_DIRECT and copies through the page cache.
 */
static ssize_t io_submit(struct io_request *io, struct iov_iter *iter, u64 file_off, bool *direct)
{
	struct kiocb *kiocb;
	struct io_wait wait;
	ssize_t ret;

	kiocb = &wait.kiocb;
	init_sync_kiocb(kiocb, io->file);
	if (*direct)
		kiocb->ki_flags |= IOCB_DIRECT;
	else
		kiocb->ki_flags &= ~IOCB_DIRECT;
	if (unlikely(io->wait_outside && !io->outside))
		kiocb->ki_flags |= IOCB_NOWAIT;
	kiocb->ki_ioprio = peerdma_ioprio(io->buffer->provider, kiocb->ki_ioprio);
	kiocb->ki_pos = file_off;
	if (io->write && unlikely(!io->target.bdev) && *direct)
		ret = io_write_share(io, &wait, iter);
	else if (io->write)
		ret = io_write_once(io, kiocb, iter, *direct);
	else
		ret = io_read_direct(io, &wait, iter);
	*direct = kiocb->ki_flags & IOCB_DIRECT;
	return ret;
}

/* As read(2) and write(2) do. */
static void io_account_task(const struct peerdma_io *req, bool write)
{
	if (write) {
		add_wchar(current, req->out_done);
		inc_syscw(current);
	} else {
		add_rchar(current, req->out_done);
		inc_syscr(current);
	}
}

static int io_refuse(struct io_request *io, u32 reason)
{
	io->req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

static __always_inline struct peerdma_route *io_find_route(struct io_request *io,
							   struct peerdma_route_result *result)
{
	struct peerdma_mem *mem = io->buffer->mem;

	if (unlikely(!io->target.bdev))
		return peerdma_route_get_share(mem->provider, io->file, mem->page, result);
	return peerdma_route_get(mem->provider, io->target.bdev, mem->page, result);
}

/* By software, for who wants no copies. */
static bool io_is_software_refused(const struct io_request *io, const struct peerdma_route *route)
{
	return unlikely(route->software) && io->req->flags & PEERDMA_IO_NO_BOUNCE;
}

/* What was true of the route for one step need not be for the next. */
static int io_refresh_route(struct io_request *io)
{
	struct peerdma_route_result result;
	struct peerdma_route *route;

	if (likely(io->target.bdev && peerdma_stack_is_unchanged(io->route->stack)))
		return 0;
	route = io_find_route(io, &result);
	if (IS_ERR(route)) {
		io->req->out_reason = result.reason;
		return PTR_ERR(route);
	}
	if (io_is_software_refused(io, route)) {
		peerdma_route_put(route);
		return io_refuse(io, PEERDMA_REASON_RDMA_SOFTWARE);
	}
	peerdma_route_put(io->route);
	io->route = route;
	return 0;
}

/*
 * Between two steps. Whoever unbinds, destroys or kills waits for one of them, not for all, and
 * whoever changes what is below the file is heard.
 */
static int io_interrupted(struct io_request *io)
{
	if (fatal_signal_pending(current) ||
	    unlikely(io->submitter && peerdma_task_is_dying(io->submitter)))
		return -EINTR;
	if (peerdma_usage_killed(&io->buffer->usage) ||
	    peerdma_usage_killed(&io->buffer->provider->usage))
		return io_refuse(io, PEERDMA_REASON_REVOKED);
	cond_resched();
	return io_refresh_route(io);
}

/*
 * Puts the buffer's usage reference to wait for the file, under the parameter. The reference keeps
 * the buffer, and so the provider and its counters; the memory may go.
 */
static int io_put_usage(struct io_request *io)
{
	if (!io->wait_outside)
		return 0;
	if (unlikely(READ_ONCE(io->buffer->lost)))
		return io_refuse(io, PEERDMA_REASON_REVOKED);
	if (!io->referenced)
		refcount_inc(&io->buffer->refs);
	io->referenced = true;
	io->outside = true;
	peerdma_usage_put(&io->buffer->usage);
	return 0;
}

/* After io_put_usage(). An error: the request is outside for good. */
static int io_get_usage(struct io_request *io)
{
	if (!io->outside)
		return 0;
	if (!peerdma_usage_tryget(&io->buffer->usage))
		return io_refuse(io, PEERDMA_REASON_REVOKED);
	io->outside = false;
	return 0;
}

/* By a network in software the CPU copies what the device would have moved. */
static noinline void io_by_software(struct io_request *io, u64 len)
{
	io->req->out_host += len;
	io->req->out_reason = PEERDMA_REASON_RDMA_SOFTWARE;
}

/*
 * Some of a read's bytes may be stores of the CPU's: zeros, a copy from the page cache, what a
 * network in software, or NFS for a short answer, copies.
 */
static bool io_is_stored(const struct io_request *io, bool direct)
{
	return unlikely(io->stored || !direct || !io->target.bdev || io->route->software);
}

/* Straight between file and buffer, by one kiocb. Returns the bytes that it moved. */
static ssize_t io_step(struct io_request *io, u64 len, bool direct)
{
	struct peerdma_io *req = io->req;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t ret;

	if (io->write && direct && unlikely(io->file->f_mapping->nrpages) &&
	    !io_is_uncached(io, req->file_off + req->out_done, len)) {
		req->out_reason = PEERDMA_REASON_NO_DIO;
		if (req->flags & PEERDMA_IO_NO_BOUNCE)
			return peerdma_reason_errno(PEERDMA_REASON_NO_DIO);
		direct = false;
	}
	peerdma_mem_iter(io->buffer->mem, &iter, &bvec, io->write ? ITER_SOURCE : ITER_DEST,
			 req->buf_off + req->out_done, len);
	ret = io_submit(io, &iter, req->file_off + req->out_done, &direct);
	if (ret <= 0)
		return ret;
	if (!io->write && io_is_stored(io, direct))
		peerdma_mem_read_back(io->buffer->mem, req->buf_off + req->out_done);
	req->out_done += ret;
	if (!direct)
		req->out_host += ret;
	else if (unlikely(io->route->software))
		io_by_software(io, ret);
	else
		req->out_direct += ret;
	return ret;
}

/* In steps that a kiocb can carry. Returns at a short one. */
static int io_by_kiocbs(struct io_request *io, u64 len, bool direct)
{
	u64 end = io->req->out_done + len, step;
	ssize_t ret;
	int err;

	while (io->req->out_done < end) {
		err = io_interrupted(io);
		if (err)
			return err;
		step = min_t(u64, end - io->req->out_done,
			     rounddown(MAX_RW_COUNT, io->target.offset_align));
		ret = io_step(io, step, direct);
		if (ret < (ssize_t)step)
			return min_t(ssize_t, ret, 0);
	}
	return 0;
}

/* Read file blocks into some memory that is not the buffer. Whole ones from the block of pos on. */
static ssize_t io_read_blocks(struct io_request *io, struct iov_iter *iter, u64 pos, bool *direct)
{
	*direct = true;
	return io_submit(io, iter, rounddown(pos, io->target.offset_align), direct);
}

/* Of len bytes from pos on those that came when got bytes were read from its block's start. */
static u64 io_bytes_wanted(struct io_request *io, u64 pos, ssize_t got, u64 len)
{
	u64 skip = pos % io->target.offset_align;

	return got > (ssize_t)skip ? min_t(u64, got - skip, len) : 0;
}

/* Less than a block by way of a page of the same provider: no byte of it is in host memory. */
static ssize_t io_read_bounce_page(struct io_request *io, struct peerdma_mem *mem, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 pos = req->file_off + req->out_done;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t ret;
	bool direct;

	peerdma_mem_iter(mem, &iter, &bvec, ITER_DEST, 0, io->target.offset_align);
	ret = io_read_blocks(io, &iter, pos, &direct);
	len = io_bytes_wanted(io, pos, ret, len);
	if (!len)
		return ret;
	peerdma_mem_copy(io->buffer->mem, req->buf_off + req->out_done, mem,
			 pos % io->target.offset_align, len);
	req->out_done += len;
	if (!direct)
		req->out_host += len;
	else if (unlikely(io->route->software))
		io_by_software(io, len);
	else
		req->out_near += len;
	return ret;
}

/* One step of a read by way of host memory. copy holds whole blocks and is aligned to one. */
static ssize_t io_read_host_step(struct io_request *io, struct page *copy, u64 size, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 pos = req->file_off + req->out_done;
	u64 skip = pos % io->target.offset_align;
	struct iov_iter iter;
	struct bio_vec bvec;
	ssize_t ret;
	bool direct;
	int err;

	size = min_t(u64, size, roundup(skip + len, io->target.offset_align));
	bvec_set_page(&bvec, copy, size, 0);
	iov_iter_bvec(&iter, ITER_DEST, &bvec, 1, size);
	err = io_put_usage(io);
	if (err)
		return err;
	ret = io_read_blocks(io, &iter, pos, &direct);
	err = io_get_usage(io);
	if (err)
		return err;
	len = io_bytes_wanted(io, pos, ret, len);
	/* Cut short meanwhile: what came may all lie before what was asked for. */
	if (!len)
		return min_t(ssize_t, ret, 0);
	peerdma_mem_write(io->buffer->mem, req->buf_off + req->out_done, page_address(copy) + skip,
			  len);
	req->out_done += len;
	req->out_host += len;
	return ret < size ? 0 : ret;
}

/* The same of a write, under the parameter. The copy is taken with the usage reference. */
static ssize_t io_write_host_step(struct io_request *io, struct page *copy, u64 size, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 pos = req->file_off + req->out_done;
	struct iov_iter iter;
	struct bio_vec bvec;
	ssize_t ret;
	bool direct;
	int err;

	len = min(len, size - pos % io->target.offset_align);
	peerdma_mem_read(io->buffer->mem, req->buf_off + req->out_done, page_address(copy), len);
	err = io_put_usage(io);
	if (err)
		return err;
	bvec_set_page(&bvec, copy, len, 0);
	iov_iter_bvec(&iter, ITER_SOURCE, &bvec, 1, len);
	direct = !(io->file->f_flags & O_APPEND) &&
		 peerdma_target_is_aligned(&io->target, pos, 0, len);
	ret = io_submit(io, &iter, pos, &direct);
	/* A direct write may have gone through the page cache. */
	if (ret > 0 && !(io->file->f_flags & O_APPEND) && io->file->f_mapping->nrpages)
		ret = io_write_back(io, pos, ret);
	if (ret > 0) {
		req->out_done += ret;
		req->out_host += ret;
	}
	err = io_get_usage(io);
	if (err)
		return err;
	return ret < (ssize_t)len ? min_t(ssize_t, ret, 0) : ret;
}

/* By way of host memory, whatever the alignments. Returns at a short step. */
static int io_by_host_pages(struct io_request *io, u64 len,
			    ssize_t (*move)(struct io_request *io, struct page *copy, u64 size,
					    u64 len))
{
	u64 block = io->target.offset_align, end = io->req->out_done + len;
	u64 size = max_t(u64, block, min_t(u64, HOST_STEP, roundup_pow_of_two(len + block)));
	struct page *copy;
	ssize_t ret = 1;
	int err = 0;

	/* Slower rather than not at all. */
	if (peerdma_charge_host(size)) {
		size = max_t(u64, block, PAGE_SIZE);
		if (peerdma_charge_host(size))
			return io_refuse(io, PEERDMA_REASON_MEMLOCK);
	}
	/* Aligned to itself. Not of the slab, whose pages have no references: NFS takes some. */
	copy = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_COMP | __GFP_NOWARN, get_order(size));
	if (!copy)
		err = -ENOMEM;
	while (!err && ret > 0 && io->req->out_done < end) {
		err = io_interrupted(io);
		if (err)
			break;
		ret = move(io, copy, size, end - io->req->out_done);
	}
	if (copy)
		__free_pages(copy, get_order(size));
	peerdma_uncharge_host(size);
	return err ?: min_t(ssize_t, ret, 0);
}

static int io_read_host(struct io_request *io, u64 len)
{
	return io_by_host_pages(io, len, io_read_host_step);
}

static int io_write_host(struct io_request *io, u64 len)
{
	return io_by_host_pages(io, len, io_write_host_step);
}

/*
 * Will the filesystem be asked for a direct step that does not wait? On a disk, and not while the
 * filesystem is frozen.
 */
static bool io_may_try_nowait(const struct io_request *io)
{
	if (!io->target.bdev || !(io->file->f_mode & FMODE_NOWAIT))
		return false;
	return !io->write || !peerdma_io_is_frozen(io->file);
}

/* A step that does not wait, or the same bytes by host memory. The bytes that were moved. */
static ssize_t io_step_or_host(struct io_request *io, u64 len)
{
	struct peerdma_io *req = io->req;
	const u64 before = req->out_done;
	ssize_t ret = -EAGAIN;
	int err;

	if (io_may_try_nowait(io))
		ret = io_step(io, len, true);
	if (ret != -EAGAIN && ret != -EOPNOTSUPP)
		return ret;
	if (req->flags & PEERDMA_IO_NO_BOUNCE)
		return io_refuse(io, PEERDMA_REASON_FILE_WAIT);
	err = io->write ? io_write_host(io, len) : io_read_host(io, len);
	if (!err && req->out_done > before)
		req->out_reason = PEERDMA_REASON_FILE_WAIT;
	return err ?: req->out_done - before;
}

/* Whole blocks, under the parameter. Returns at a short step. */
static int io_direct_or_host(struct io_request *io, u64 len)
{
	const u32 most = io->target.bdev ? peerdma_target_max_len(&io->target) : 0;
	u64 end = io->req->out_done + len, step;
	ssize_t ret;
	int err;

	while (io->req->out_done < end) {
		err = io_interrupted(io);
		if (err)
			return err;
		step = min_t(u64, end - io->req->out_done, most ?: HOST_STEP);
		ret = io_step_or_host(io, step);
		/* A kiocb that may not wait may come short before the end of the file. */
		if (ret <= 0 || ret % io->target.offset_align)
			return min_t(ssize_t, ret, 0);
	}
	return 0;
}

/*
 * A partial block of a read. The device can only write it whole, so it goes somewhere else, and the
 * CPU moves just the bytes that were asked for from there to the buffer.
 */
static int io_read_partial_block(struct io_request *io, u64 len)
{
	struct peerdma_mem *mem;
	ssize_t ret = io_interrupted(io);

	if (ret)
		return ret;
	if (io->wait_outside)
		return io_read_host(io, len);
	/* Nobody sees more of this page than the device has just written. */
	mem = peerdma_mem_alloc_bounce(io->buffer->mem, PAGE_ALIGN(io->target.offset_align));
	if (IS_ERR(mem))
		return io_read_host(io, len);
	ret = io_read_bounce_page(io, mem, len);
	peerdma_mem_release(mem, io->buffer);
	return ret < 0 ? ret : 0;
}

/* One piece of a plan; to be called with what should be done when it begins. */
static int io_piece(struct io_request *io, u64 begin, u64 len,
		    int (*move)(struct io_request *io, u64 len))
{
	/* A piece before came short: the file ends there now. */
	if (!len || io->req->out_done != begin)
		return 0;
	return move(io, len);
}

static int io_direct(struct io_request *io, u64 len)
{
	return io->wait_outside ? io_direct_or_host(io, len) : io_by_kiocbs(io, len, true);
}

static int io_through_cache(struct io_request *io, u64 len)
{
	return io->wait_outside ? io_write_host(io, len) : io_by_kiocbs(io, len, false);
}

/* Less than a block. */
static int io_partial_block(struct io_request *io, u64 len)
{
	return io->write ? io_through_cache(io, len) : io_read_partial_block(io, len);
}

/* What no device can address. */
static int io_through_host(struct io_request *io, u64 len)
{
	return io->write ? io_through_cache(io, len) : io_read_host(io, len);
}

/* Why bytes will not go direct, if some will not. */
static u32 plan_reason(const struct peerdma_plan *plan)
{
	if (plan->host_len)
		return PEERDMA_REASON_BUF_ALIGN;
	return plan->head_len || plan->tail_len ? PEERDMA_REASON_FILE_ALIGN : PEERDMA_REASON_NONE;
}

/* In the order of the file, so that what was done is always its beginning. */
static int io_run_plan(struct io_request *io, u64 len)
{
	struct peerdma_io *req = io->req;
	struct peerdma_plan plan = peerdma_plan(req->file_off, req->buf_off, len,
						io->target.mem_align, io->target.offset_align);
	int err;

	req->out_reason = plan_reason(&plan);
	if (plan.host_len)
		return io_through_host(io, plan.host_len);
	err = io_piece(io, 0, plan.head_len, io_partial_block);
	if (!err)
		err = io_piece(io, plan.head_len, plan.direct_len, io_direct);
	if (!err)
		err = io_piece(io, plan.head_len + plan.direct_len, plan.tail_len,
			       io_partial_block);
	return err;
}

/* Others write there too: where the file ends now, its server knows. */
static noinline int io_ask_size(struct io_request *io)
{
	struct kstat stat;

	return vfs_getattr(&io->file->f_path, &stat, STATX_SIZE, AT_STATX_FORCE_SYNC);
}

/*
 * A share may come short without an error: somebody else has cut the file short since its end was
 * known, or the server failed half way, and only the next request hears of that.
 */
static noinline void io_note_end(struct io_request *io)
{
	struct peerdma_io *req = io->req;

	if (req->out_done < req->len && !io_ask_size(io) &&
	    req->file_off + req->out_done >= i_size_read(io->file->f_mapping->host))
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
}

static int io_read(struct io_request *io)
{
	struct peerdma_io *req = io->req;
	u64 len;
	int err;

	err = unlikely(!io->target.bdev) ? io_ask_size(io) : 0;
	if (err)
		return err;
	len = peerdma_io_clip(req->file_off, req->len, i_size_read(io->file->f_mapping->host));
	err = io_run_plan(io, len);
	/* Short because the file is, not because the storage stopped half way. */
	if (req->out_done == len && len < req->len)
		req->out_reason = PEERDMA_REASON_END_OF_FILE;
	else if (unlikely(!io->target.bdev && !err))
		io_note_end(io);
	return err;
}

static int io_write(struct io_request *io)
{
	struct peerdma_io *req = io->req;
	u64 len = req->len;

	if (io->file->f_flags & O_APPEND) {
		req->out_reason = PEERDMA_REASON_APPEND;
		return io_through_cache(io, len);
	}
	/* A filesystem cuts a write at this limit, perhaps in the middle of a block. */
	if (S_ISREG(file_inode(io->file)->i_mode))
		len = peerdma_io_clip(req->file_off, len, rlimit(RLIMIT_FSIZE)) ?: len;
	return io_run_plan(io, len);
}

/* Most requests: whole blocks inside the file, by one kiocb, where the device can address them. */
static bool io_is_one_step(const struct io_request *io)
{
	const struct peerdma_io *req = io->req;

	if (!peerdma_target_is_aligned(&io->target, req->file_off, req->buf_off, req->len) ||
	    req->len > MAX_RW_COUNT)
		return false;
	if (io->write)
		return !(io->file->f_flags & O_APPEND) &&
		       (req->file_off + req->len <= rlimit(RLIMIT_FSIZE) ||
			!S_ISREG(file_inode(io->file)->i_mode));
	return req->file_off + req->len <= i_size_read(io->file->f_mapping->host);
}

static int io_move(struct io_request *io)
{
	if (unlikely(READ_ONCE(wait_outside)))
		io->wait_outside = S_ISREG(file_inode(io->file)->i_mode);
	if (!io->wait_outside && io_is_one_step(io)) {
		ssize_t ret = io_step(io, io->req->len, true);

		if (unlikely(!io->target.bdev) && !io->write && ret >= 0)
			io_note_end(io);
		return min_t(ssize_t, ret, 0);
	}
	return io->write ? io_write(io) : io_read(io);
}

static int io_find_target(struct io_request *io)
{
	if (io->pfile && peerdma_target_is_cached(io->file, &io->pfile->attrs)) {
		io->target = io->pfile->attrs.target;
		return 0;
	}
	if (io->nowait && !peerdma_target_is_immediate(io->file))
		return -EAGAIN;
	return peerdma_target_resolve(io->file, &io->target, &io->req->out_reason);
}

/* What the file says against it. */
static int io_check_file(struct io_request *io)
{
	int err = io_find_target(io);

	if (err)
		return err;
	/* The block layer of older kernels wants whole blocks in each bio_vec. */
	if (unlikely(io->buffer->mem->chunks))
		io->target.mem_align = max(io->target.mem_align, io->target.offset_align);
	if (!(io->file->f_mode & (io->write ? FMODE_WRITE : FMODE_READ)))
		return io_refuse(io, PEERDMA_REASON_FD_MODE);
	if (!io->write)
		return 0;
	return io_refuse(io,
			 peerdma_target_writable(io->file, io->pfile ? &io->pfile->attrs : NULL));
}

/* What its numbers say against it. */
static u32 io_check_numbers(const struct io_request *io)
{
	const struct peerdma_io *req = io->req;
	u32 reason;

	reason = peerdma_check_io(req->file_off, req->buf_off, req->len, io->buffer->mem->len);
	if (reason || !(req->flags & PEERDMA_IO_NO_BOUNCE))
		return reason;
	if (io->write && (io->file->f_flags & O_APPEND))
		return PEERDMA_REASON_APPEND;
	return peerdma_check_align(req->file_off, req->buf_off, req->len, io->target.mem_align,
				   io->target.offset_align);
}

/* All that can be said against it before anything is submitted. */
static int io_check(struct io_request *io)
{
	struct peerdma_route_result result;
	u32 reason;
	int err;

	if (unlikely(READ_ONCE(io->buffer->lost)))
		return io_refuse(io, PEERDMA_REASON_REVOKED);
	err = io_check_file(io);
	if (err)
		return err;
	reason = io_check_numbers(io);
	if (reason)
		return io_refuse(io, reason);
	if (io->nowait) {
		if (unlikely(!io->target.bdev))
			return -EAGAIN;
		io->route = peerdma_route_lookup(io->buffer->provider, io->target.bdev);
		if (!io->route)
			return -EAGAIN;
	} else {
		io->route = io_find_route(io, &result);
		io->req->out_reason = result.reason;
		if (IS_ERR(io->route))
			return PTR_ERR(io->route);
	}
	if (!io_is_software_refused(io, io->route))
		return 0;
	peerdma_route_put(io->route);
	io->route = NULL;
	return io_refuse(io, PEERDMA_REASON_RDMA_SOFTWARE);
}

/* As observers see it. */
static struct peerdma_io_end io_end(struct io_request *io)
{
	return (struct peerdma_io_end){
		.buffer = io->buffer,
		.file = io->file,
		.bdev = io->target.bdev,
		.pair = IS_ERR_OR_NULL(io->route) ? NULL : io->route->pair,
		.req = io->req,
		.pid = io->submitter ? task_tgid_nr(io->submitter) : 0,
		.write = io->write,
	};
}

static noinline void io_trace_submit(struct io_request *io)
{
	struct peerdma_io_end seen = io_end(io);

	trace_peerdma_submit(&seen);
}

/* A request that failed, or that somebody is watching. */
static noinline void io_account(struct io_request *io, int err)
{
	struct peerdma_io_end seen = io_end(io);

	peerdma_account(&seen, err);
}

static noinline void io_account_moved(struct io_request *io, int err)
{
	u32 *reason = &io->req->out_reason;

	/* How it was to be moved is said of what was moved: it is not why nothing was. */
	if (err && (*reason == PEERDMA_REASON_FILE_ALIGN || *reason == PEERDMA_REASON_BUF_ALIGN ||
		    *reason == PEERDMA_REASON_APPEND))
		*reason = PEERDMA_REASON_NONE;
	io_account(io, err);
}

/* What peerdma_account() does, for the one case that has to be quick. */
static void io_count(struct io_request *io, int err)
{
	if (unlikely(err || peerdma_trace_is_on()))
		return io_account_moved(io, err);
	peerdma_count(&io->buffer->opener->stats, io->req, io->write, false);
	peerdma_count(&io->route->pair->stats, io->req, io->write, false);
}

/*
 * NFS ends what it gives up, at "umount -f", with a number that no user may see: the kernel turns
 * it into another one where a signal is pending, and here none need be.
 */
static int io_errno(int err)
{
	return err == -ERESTARTSYS ? -EIO : err;
}

/* The memory went while a device moved bytes of it: nobody knows which. */
static noinline int io_fail_lost(struct io_request *io)
{
	struct peerdma_io *req = io->req;

	req->out_done = 0;
	req->out_direct = 0;
	req->out_near = 0;
	req->out_host = 0;
	return io_refuse(io, PEERDMA_REASON_REVOKED);
}

/* With a usage reference of the buffer: its memory stays, but while io->outside. */
static int io_run(struct io_request *io)
{
	int err = io_check(io);

	if (err) {
		io_account(io, err);
		return err;
	}
	if (trace_peerdma_submit_enabled())
		io_trace_submit(io);
	err = io_move(io);
	/* What was moved was moved: the error, if it lasts, is the next request's. */
	err = io->req->out_done ? 0 : io_errno(err);
	/* Before the usage reference was put for good nothing was lost. */
	if (unlikely(READ_ONCE(io->buffer->lost)) && !io->outside)
		err = io_fail_lost(io);
	io_count(io, err);
	peerdma_route_put(io->route);
	return err;
}

/*
 * What io_run() looks at before it sends anything, for who sends it in another way. After a success
 * the route is the caller's to put, when the device is done. nowait: -EAGAIN where a route has to
 * be looked for, which sleeps.
 */
int peerdma_io_check(struct file *file, struct peerdma_file *pfile, struct peerdma_buffer *buffer,
		     struct peerdma_io *req, bool write, bool nowait, struct peerdma_target *target,
		     struct peerdma_route **route)
{
	struct io_request io = {
		.file = file,
		.pfile = pfile,
		.buffer = buffer,
		.req = req,
		.write = write,
		.nowait = nowait,
	};
	int err = io_check(&io);

	*target = io.target;
	*route = io.route;
	return err;
}

/*
 * The file of a request, by descriptor or by id. *pfile is who holds it, NULL if the caller does
 * now. Let it go by peerdma_io_file_put().
 */
struct file *peerdma_io_file(struct peerdma_ctx *ctx, struct peerdma_io *req,
			     struct peerdma_file **pfile)
{
	struct file *file;

	*pfile = NULL;
	if (!(req->flags & PEERDMA_IO_FILE_ID)) {
		file = fget(req->fd);
		return file ?: ERR_PTR(-EBADF);
	}
	*pfile = peerdma_file_get(ctx, req->fd);
	return *pfile ? (*pfile)->file : ERR_PTR(-ENOENT);
}

void peerdma_io_file_put(struct file *file, struct peerdma_file *pfile)
{
	if (pfile)
		peerdma_file_put(pfile);
	else
		fput(file);
}

/**
 * peerdma_io_enter - the buffer of a request
 * @ctx: whose buffer it is
 * @file: of the request
 * @req: names the buffer; its out_reason is written, and it is counted, if that was revoked
 * @write: direction
 * Return: the buffer with a usage reference, or ERR_PTR.
 */
struct peerdma_buffer *peerdma_io_enter(struct peerdma_ctx *ctx, struct file *file,
					struct peerdma_io *req, bool write)
{
	struct peerdma_io_end seen = { .file = file, .req = req, .write = write };
	struct peerdma_buffer *buffer = peerdma_buffer_enter(ctx, req->buf_id);

	if (buffer == ERR_PTR(-ENODEV)) {
		req->out_reason = PEERDMA_REASON_REVOKED;
		peerdma_account_revoked(ctx, &seen);
	}
	return buffer;
}

/**
 * peerdma_io_run - a read or write of a file that is held, as the ioctl does it; may sleep
 * @ctx: whose buffer it is
 * @file: referenced
 * @pfile: the registered file, or NULL
 * @req: its out_* members are filled
 * @write: direction
 * @submitter: whom a worker acts for; NULL: the current task
 * Return: 0 or -errno.
 */
int peerdma_io_run(struct peerdma_ctx *ctx, struct file *file, struct peerdma_file *pfile,
		   struct peerdma_io *req, bool write, struct task_struct *submitter)
{
	struct io_request io = {
		.file = file,
		.pfile = pfile,
		.req = req,
		.submitter = submitter,
		.write = write,
	};
	int err;

	io.buffer = peerdma_io_enter(ctx, file, req, write);
	if (IS_ERR(io.buffer))
		return PTR_ERR(io.buffer);
	err = io_run(&io);
	if (!io.outside)
		peerdma_usage_put(&io.buffer->usage);
	if (unlikely(io.referenced))
		peerdma_buffer_put(io.buffer);
	return err;
}

int peerdma_io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write)
{
	struct peerdma_file *pfile;
	struct file *file;
	int err;

	req->out_done = 0;
	req->out_direct = 0;
	req->out_near = 0;
	req->out_host = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	file = peerdma_io_file(ctx, req, &pfile);
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = peerdma_io_run(ctx, file, pfile, req, write, NULL);
	peerdma_io_file_put(file, pfile);
	io_account_task(req, write);
	return err;
}

int peerdma_read_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return peerdma_io_execute(ctx, &arg->io, false);
}

int peerdma_write_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	return peerdma_io_execute(ctx, &arg->io, true);
}
