// SPDX-License-Identifier: GPL-2.0
/*
 * A part of a buffer as a dma-buf, for drivers of other devices: RDMA NICs, accelerators. A driver
 * attaches its device to the dma-buf and maps the pages once. From then on its device reads and
 * writes the memory without calls to this module.
 *
 * Revoking. A buffer can be revoked at any time, so an importer that cannot be notified is refused.
 * A revoke kills the buffer's usage reference, which every mapping takes, and then notifies each
 * importer, which stops its device and unmaps. The revoke waits for that for a limited time only,
 * because each mapped page has a reference of the mapping: the page is not reused before the
 * importer unmaps, busy.c logs its owner, and unbinding waits for it. So an importer that does not
 * unmap delays only an unbind. The revoke waits without limit for the importers' fences, as other
 * exporters in the kernel do: until they are signaled the device may write, even after an unmap.
 *
 * Lifetime. A dma-buf is like an mmap of the buffer. It holds the open file, so closing the file
 * destroys its buffers only after the dma-buf is closed too. Destroying the buffer takes the memory
 * from both. The open file stays charged for the memory.
 *
 * Locking. All dma-bufs of a buffer share one dma_resv. It is held for calls of importers and for
 * calls to importers, and serializes them all. Importers take it without a usage reference and then
 * only try to get one. The exporting thread takes it with a usage reference.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/provider.h"

/* Instead of MODULE_IMPORT_NS(), whose argument was not a string up to v6.12. */
MODULE_INFO(import_ns, "DMA_BUF");

static LIST_HEAD(exports_list);
static DEFINE_MUTEX(exports_mutex); /* protects exports_list */

static void export_release(struct dma_buf *dmabuf)
{
	struct peerdma_export *export = dmabuf->priv;
	struct peerdma_exports *exports = &export->buffer->exports;

	mutex_lock(&exports_mutex);
	list_del(&export->all);
	mutex_unlock(&exports_mutex);
	dma_resv_lock(&exports->resv, NULL);
	list_del(&export->link);
	dma_resv_unlock(&exports->resv);
	atomic_dec(&export->buffer->opener->exports);
	peerdma_buffer_put(export->buffer);
	fput(export->file);
	kfree(export);
}

/* No mmap: the buffer has one. No vmap: this memory is uncached and slow for the CPU. */
static const struct dma_buf_ops export_ops = {
	.attach = peerdma_export_attach,
	.detach = peerdma_export_detach,
	.pin = peerdma_export_pin,
	.unpin = peerdma_export_unpin,
	.map_dma_buf = peerdma_export_map,
	.unmap_dma_buf = peerdma_export_unmap,
	.release = export_release,
};

/* The caller holds a usage reference of the buffer, and @file, which is the buffer's. */
static struct dma_buf *export_create(struct peerdma_buffer *buffer, struct file *file, u64 off,
				     u64 len)
{
	struct peerdma_export *export = kzalloc(sizeof(*export), GFP_KERNEL_ACCOUNT);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	if (!export)
		return ERR_PTR(-ENOMEM);
	export->buffer = buffer;
	export->file = file;
	export->off = off;
	export->len = len;
	info.ops = &export_ops;
	info.size = len;
	info.flags = O_RDWR;
	info.resv = &buffer->exports.resv;
	info.priv = export;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kfree(export);
		return dmabuf;
	}
	/*
	 * No other thread can put the dma-buf yet. From here on dma_buf_put() undoes all of this.
	 */
	export->dmabuf = dmabuf;
	refcount_inc(&buffer->refs);
	get_file(file);
	atomic_inc(&buffer->opener->exports);
	dma_resv_lock(&buffer->exports.resv, NULL);
	list_add_tail(&export->link, &buffer->exports.list);
	dma_resv_unlock(&buffer->exports.resv);
	mutex_lock(&exports_mutex);
	list_add_tail(&export->all, &exports_list);
	mutex_unlock(&exports_mutex);
	return dmabuf;
}

static int buf_export(struct peerdma_ctx *ctx, struct peerdma_buffer *buffer,
		      struct peerdma_buf_export *req, struct dma_buf **made)
{
	struct dma_buf *dmabuf;
	int fd;

	req->out_reason = peerdma_check_export(req->off, req->len, buffer->mem->len, PAGE_SIZE);
	if (!req->out_reason && peerdma_mem_is_imported(buffer->mem))
		req->out_reason = PEERDMA_REASON_IMPORT_EXPORT;
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	dmabuf = export_create(buffer, ctx->file, req->off, req->len);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		return fd;
	}
	req->out_fd = fd;
	*made = dmabuf;
	return 0;
}

int peerdma_buf_export_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_export *req = &arg->buf_export.req;
	struct peerdma_buffer *buffer;
	int err;

	arg->buf_export.made = NULL;
	req->out_fd = -1;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	if (!peerdma_exports_supported()) {
		req->out_reason = PEERDMA_REASON_DMABUF;
		return peerdma_reason_errno(req->out_reason);
	}
	buffer = peerdma_buffer_enter(ctx, req->buf_id);
	if (IS_ERR(buffer)) {
		if (PTR_ERR(buffer) == -ENODEV)
			req->out_reason = PEERDMA_REASON_REVOKED;
		return PTR_ERR(buffer);
	}
	err = buf_export(ctx, buffer, req, &arg->buf_export.made);
	peerdma_usage_put(&buffer->usage);
	return err;
}

/* Installs the descriptor last, after its number was copied to the process. */
void peerdma_buf_export_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	struct dma_buf *made = arg->buf_export.made;
	int fd = arg->buf_export.req.out_fd;

	if (!made)
		return;
	if (err) {
		put_unused_fd(fd);
		dma_buf_put(made);
	} else {
		fd_install(fd, made->file);
	}
}

static void export_show_importer(struct seq_file *seq, struct peerdma_export *export,
				 struct dma_buf_attachment *attach)
{
	struct peerdma_buffer *buffer = export->buffer;
	struct peerdma_export_attachment *import = attach->priv;

	seq_printf(seq, "importer provider=%u buffer=%llu file=%llu offset=%llu device=%s",
		   buffer->provider->id, buffer->entry.id, buffer->opener->id, export->off,
		   dev_name(attach->dev));
	seq_printf(seq, " mapped=%llu\n", import->mappings * export->len);
}

static void export_show(struct seq_file *seq, struct peerdma_export *export)
{
	struct peerdma_buffer *buffer = export->buffer;
	struct dma_buf_attachment *attach;

	seq_printf(seq, "export provider=%u pci=%s buffer=%llu file=%llu pid=%d",
		   buffer->provider->id, pci_name(buffer->provider->pdev), buffer->entry.id,
		   buffer->opener->id, buffer->opener->pid);
	seq_printf(seq, " offset=%llu bytes=%llu revoked=%d\n", export->off, export->len,
		   peerdma_usage_killed(&buffer->usage));
	/* Not waited for: an importer may hold it for long. */
	if (!dma_resv_trylock(&buffer->exports.resv))
		return;
	list_for_each_entry(attach, &export->dmabuf->attachments, node)
		export_show_importer(seq, export, attach);
	dma_resv_unlock(&buffer->exports.resv);
}

/* One line for each export, followed by one for each of its importers. */
void peerdma_exports_show(struct seq_file *seq)
{
	struct peerdma_export *export;

	mutex_lock(&exports_mutex);
	list_for_each_entry(export, &exports_list, all) {
		export_show(seq, export);
		cond_resched();
	}
	mutex_unlock(&exports_mutex);
}
