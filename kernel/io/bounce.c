// SPDX-License-Identifier: GPL-2.0
/*
 * Reads bytes that a device cannot move itself, by way of a page of the same provider or of host
 * memory. Such writes go by the page cache: io.c.
 */
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/uio.h>
#include <uapi/peerdma.h>

#include "memory/buffer.h"
#include "memory/busy.h"
#include "memory/charge.h"
#include "memory/mem.h"
#include "routing/target.h"
#include "io/bounce.h"
#include "io/kiocb.h"
#include "io/request.h"

/* Reads whole blocks into memory other than the buffer, from the block that holds @pos on. */
static ssize_t bounce_read_blocks(struct peerdma_request *io, struct iov_iter *iter, u64 pos,
				  bool *direct)
{
	*direct = true;
	return peerdma_kiocb_submit(io, iter, rounddown(pos, io->target.offset_align), direct);
}

/*
 * The bytes from @pos on, @len at most, of @got bytes that were read from the start of its block.
 */
static u64 bounce_bytes_wanted(struct peerdma_request *io, u64 pos, ssize_t got, u64 len)
{
	u64 skip = pos % io->target.offset_align;

	return got > (ssize_t)skip ? min_t(u64, got - skip, len) : 0;
}

/*
 * Reads part of a block by way of @mem, a page of the same provider. No byte reaches host memory.
 */
static ssize_t bounce_read_page(struct peerdma_request *io, struct peerdma_mem *mem, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 pos = req->file_off + req->out_done;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t ret;
	bool direct;

	peerdma_mem_iter(mem, &iter, &bvec, ITER_DEST, 0, io->target.offset_align);
	io->bounce = mem;
	ret = bounce_read_blocks(io, &iter, pos, &direct);
	io->bounce = NULL;
	len = bounce_bytes_wanted(io, pos, ret, len);
	if (!len)
		return ret;
	peerdma_mem_copy(io->buffer->mem, req->buf_off + req->out_done, mem,
			 pos % io->target.offset_align, len);
	peerdma_request_add(io, len, direct, &req->out_near);
	return ret;
}

/*
 * One step of a read by way of host memory. @copy holds @size bytes, whole blocks, and is aligned
 * to a block.
 */
static ssize_t bounce_read_host_step(struct peerdma_request *io, struct page *copy, u64 size,
				     u64 len)
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
	peerdma_request_put_usage(io);
	ret = bounce_read_blocks(io, &iter, pos, &direct);
	err = peerdma_request_get_usage(io);
	if (err)
		return err;
	len = bounce_bytes_wanted(io, pos, ret, len);
	/* The file was truncated meanwhile: all bytes that came may lie before @pos. */
	if (!len)
		return min_t(ssize_t, ret, 0);
	peerdma_mem_write(io->buffer->mem, req->buf_off + req->out_done, page_address(copy) + skip,
			  len);
	req->out_done += len;
	req->out_host += len;
	return ret < size ? 0 : ret;
}

/* Reads @len bytes of any alignment by way of host memory. Returns 0 at a short step. */
int peerdma_bounce_read_host(struct peerdma_request *io, u64 len)
{
	u64 block = io->target.offset_align, end = io->req->out_done + len;
	u64 size =
		max_t(u64, block, min_t(u64, PEERDMA_BOUNCE_STEP, roundup_pow_of_two(len + block)));
	struct page *copy;
	ssize_t ret = 1;
	int err = 0;

	/* Over the limit: try with one page. */
	if (peerdma_charge_host(size)) {
		size = max_t(u64, block, PAGE_SIZE);
		if (peerdma_charge_host(size))
			return peerdma_request_set_reason(io, PEERDMA_REASON_MEMLOCK);
	}
	/* The pages are aligned to their size. Slab pages would not do: NFS takes references. */
	copy = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_COMP | __GFP_NOWARN, get_order(size));
	if (!copy)
		err = -ENOMEM;
	while (!err && ret > 0 && io->req->out_done < end) {
		err = peerdma_request_interrupted(io);
		if (err)
			break;
		ret = bounce_read_host_step(io, copy, size, end - io->req->out_done);
	}
	if (copy)
		__free_pages(copy, get_order(size));
	peerdma_uncharge_host(size);
	return err ?: min_t(ssize_t, ret, 0);
}

/*
 * Reads part of a block. A device writes whole blocks only, so the block goes to a bounce page, and
 * the CPU copies the wanted bytes from there into the buffer.
 */
int peerdma_bounce_read_block(struct peerdma_request *io, u64 len)
{
	struct peerdma_mem *mem;
	ssize_t ret = peerdma_request_interrupted(io);

	if (ret)
		return ret;
	/* Not zeroed: only bytes that the device has just written are copied out of it. */
	mem = peerdma_mem_alloc_bounce(io->buffer->mem, PAGE_ALIGN(io->target.offset_align));
	if (IS_ERR(mem))
		return peerdma_bounce_read_host(io, len);
	ret = bounce_read_page(io, mem, len);
	if (likely(!io->outside))
		peerdma_mem_release(mem, io->buffer);
	return ret < 0 ? ret : 0;
}
