// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes that a device cannot move itself: by way of a page of the same provider, or of host memory.
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

/* Read file blocks into some memory that is not the buffer. Whole ones from the block of pos on. */
static ssize_t bounce_read_blocks(struct peerdma_request *io, struct iov_iter *iter, u64 pos,
				  bool *direct)
{
	*direct = true;
	return peerdma_kiocb_submit(io, iter, rounddown(pos, io->target.offset_align), direct);
}

/* Of len bytes from pos on those that came when got bytes were read from its block's start. */
static u64 bounce_bytes_wanted(struct peerdma_request *io, u64 pos, ssize_t got, u64 len)
{
	u64 skip = pos % io->target.offset_align;

	return got > (ssize_t)skip ? min_t(u64, got - skip, len) : 0;
}

/* Less than a block by way of a page of the same provider: no byte of it is in host memory. */
static ssize_t bounce_read_page(struct peerdma_request *io, struct peerdma_mem *mem, u64 len)
{
	struct peerdma_io *req = io->req;
	u64 pos = req->file_off + req->out_done;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t ret;
	bool direct;

	peerdma_mem_iter(mem, &iter, &bvec, ITER_DEST, 0, io->target.offset_align);
	ret = bounce_read_blocks(io, &iter, pos, &direct);
	len = bounce_bytes_wanted(io, pos, ret, len);
	if (!len)
		return ret;
	peerdma_mem_copy(io->buffer->mem, req->buf_off + req->out_done, mem,
			 pos % io->target.offset_align, len);
	peerdma_request_add(io, len, direct, &req->out_near);
	return ret;
}

/* One step of a read by way of host memory. copy holds whole blocks and is aligned to one. */
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
	err = peerdma_request_put_usage(io);
	if (err)
		return err;
	ret = bounce_read_blocks(io, &iter, pos, &direct);
	err = peerdma_request_get_usage(io);
	if (err)
		return err;
	len = bounce_bytes_wanted(io, pos, ret, len);
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
static ssize_t bounce_write_host_step(struct peerdma_request *io, struct page *copy, u64 size,
				      u64 len)
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
	err = peerdma_request_put_usage(io);
	if (err)
		return err;
	bvec_set_page(&bvec, copy, len, 0);
	iov_iter_bvec(&iter, ITER_SOURCE, &bvec, 1, len);
	direct = !(io->file->f_flags & O_APPEND) &&
		 peerdma_target_is_aligned(&io->target, pos, 0, len);
	ret = peerdma_kiocb_submit(io, &iter, pos, &direct);
	/* A direct write may have gone through the page cache. */
	if (ret > 0 && !(io->file->f_flags & O_APPEND) && io->file->f_mapping->nrpages)
		ret = peerdma_kiocb_write_back(io, pos, ret);
	if (ret > 0) {
		req->out_done += ret;
		req->out_host += ret;
	}
	err = peerdma_request_get_usage(io);
	if (err)
		return err;
	return ret < (ssize_t)len ? min_t(ssize_t, ret, 0) : ret;
}

/* By way of host memory, whatever the alignments. Returns at a short step. */
static int bounce_by_host_pages(struct peerdma_request *io, u64 len,
				ssize_t (*move)(struct peerdma_request *io, struct page *copy,
						u64 size, u64 len))
{
	u64 block = io->target.offset_align, end = io->req->out_done + len;
	u64 size =
		max_t(u64, block, min_t(u64, PEERDMA_BOUNCE_STEP, roundup_pow_of_two(len + block)));
	struct page *copy;
	ssize_t ret = 1;
	int err = 0;

	/* Slower rather than not at all. */
	if (peerdma_charge_host(size)) {
		size = max_t(u64, block, PAGE_SIZE);
		if (peerdma_charge_host(size))
			return peerdma_request_refuse(io, PEERDMA_REASON_MEMLOCK);
	}
	/* Aligned to itself. Not of the slab, whose pages have no references: NFS takes some. */
	copy = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_COMP | __GFP_NOWARN, get_order(size));
	if (!copy)
		err = -ENOMEM;
	while (!err && ret > 0 && io->req->out_done < end) {
		err = peerdma_request_interrupted(io);
		if (err)
			break;
		ret = move(io, copy, size, end - io->req->out_done);
	}
	if (copy)
		__free_pages(copy, get_order(size));
	peerdma_uncharge_host(size);
	return err ?: min_t(ssize_t, ret, 0);
}

int peerdma_bounce_read(struct peerdma_request *io, u64 len)
{
	return bounce_by_host_pages(io, len, bounce_read_host_step);
}

int peerdma_bounce_write(struct peerdma_request *io, u64 len)
{
	return bounce_by_host_pages(io, len, bounce_write_host_step);
}

/*
 * A partial block of a read. The device can only write it whole, so it goes somewhere else, and the
 * CPU moves just the bytes that were asked for from there to the buffer.
 */
int peerdma_bounce_read_block(struct peerdma_request *io, u64 len)
{
	struct peerdma_mem *mem;
	ssize_t ret = peerdma_request_interrupted(io);

	if (ret)
		return ret;
	if (io->wait_outside)
		return peerdma_bounce_read(io, len);
	/* Nobody sees more of this page than the device has just written. */
	mem = peerdma_mem_alloc_bounce(io->buffer->mem, PAGE_ALIGN(io->target.offset_align));
	if (IS_ERR(mem))
		return peerdma_bounce_read(io, len);
	ret = bounce_read_page(io, mem, len);
	peerdma_mem_release(mem, io->buffer);
	return ret < 0 ? ret : 0;
}
