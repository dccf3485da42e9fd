// SPDX-License-Identifier: GPL-2.0
/*
 * Steps of a request, each one kiocb directly between the file and the buffer.
 */
#include <linux/fs.h>
#include <linux/math.h>
#include <linux/pagemap.h>
#include <linux/uio.h>
#include <uapi/peerdma.h>

#include "base/checks.h"
#include "memory/buffer.h"
#include "memory/mem.h"
#include "routing/route.h"
#include "routing/target.h"
#include "io/io.h"
#include "io/kiocb.h"
#include "io/request.h"
#include "io/step.h"

/*
 * A direct write first invalidates the range in the page cache. If a page there is in use, for
 * example by a pipe, the kernel writes through the page cache instead and does not report it. So
 * the range is invalidated here before, and if that fails the bytes are written through the page
 * cache and counted so.
 */
static noinline bool step_is_uncached(const struct peerdma_request *io, loff_t pos, size_t len)
{
	struct address_space *mapping = io->file->f_mapping;
	const loff_t last = pos + len - 1;

	if (!filemap_range_has_page(mapping, pos, last))
		return true;
	return !filemap_write_and_wait_range(mapping, pos, last) &&
	       !invalidate_inode_pages2_range(mapping, pos >> PAGE_SHIFT, last >> PAGE_SHIFT);
}

/*
 * The CPU may have stored bytes of a read: zeros of a hole, a copy from the page cache, or what a
 * network in software, or NFS for a short reply, copied.
 */
static bool step_cpu_stored(const struct peerdma_request *io, bool direct)
{
	return unlikely(io->cpu_stored || !direct || !io->target.bdev || io->route->software);
}

/* Moves @len bytes by one kiocb between the file and the buffer. Returns the bytes moved. */
ssize_t peerdma_step(struct peerdma_request *io, u64 len, bool direct)
{
	struct peerdma_io *req = io->req;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t ret;

	if (io->write && direct && unlikely(io->file->f_mapping->nrpages) &&
	    !step_is_uncached(io, req->file_off + req->out_done, len)) {
		req->out_reason = PEERDMA_REASON_NO_DIO;
		if (req->flags & PEERDMA_IO_NO_BOUNCE)
			return peerdma_reason_errno(PEERDMA_REASON_NO_DIO);
		direct = false;
	}
	peerdma_mem_iter(io->buffer->mem, &iter, &bvec, io->write ? ITER_SOURCE : ITER_DEST,
			 req->buf_off + req->out_done, len);
	ret = peerdma_kiocb_submit(io, &iter, req->file_off + req->out_done, &direct);
	if (ret <= 0)
		return ret;
	if (!io->write && step_cpu_stored(io, direct))
		peerdma_mem_read_back(io->buffer->mem, req->buf_off + req->out_done);
	peerdma_request_add(io, ret, direct, &req->out_direct);
	return ret;
}

/* Moves @len bytes in steps that one kiocb can carry. Returns 0 at a short step. */
int peerdma_steps(struct peerdma_request *io, u64 len, bool direct)
{
	const u64 most = rounddown(MAX_RW_COUNT, io->target.offset_align);
	const u64 end = io->req->out_done + len;
	ssize_t ret;
	u64 step;
	int err;

	while (io->req->out_done < end) {
		err = peerdma_request_interrupted(io);
		if (err)
			return err;
		step = min(end - io->req->out_done, most);
		ret = peerdma_step(io, step, direct);
		if (ret < (ssize_t)step)
			return min_t(ssize_t, ret, 0);
	}
	return 0;
}
