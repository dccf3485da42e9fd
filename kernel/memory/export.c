// SPDX-License-Identifier: GPL-2.0
/*
 * A piece of a buffer as a dma-buf, for drivers of other devices: RDMA NICs, accelerators. Such a
 * driver attaches its device to the dma-buf, and has the pages mapped for it once; from then on its
 * device reads and writes the memory, and nothing of ours is in the way.
 *
 * Taken back. All that a buffer promises is that it can lose its memory at any moment. So only an
 * importer that can be told is let in. Revoking kills the buffer's usage reference, with which
 * everything is mapped, and then tells each importer, which stops its device and gives its mapping
 * back, now or soon. That is waited for, but not for long: each page that is mapped has a reference
 * of the mapping's, so that it is not given to anybody else before that is gone, busy.c names whose
 * memory it was, and unbinding waits for it. An importer that does not let go harms nobody but who
 * unbinds. Its fences are waited for to the end, as the kernel's own exporters do: until they are
 * signalled its device may write, whether or not the memory is mapped any more.
 *
 * Kept. A dma-buf is to a buffer what an mmap of it is. It holds the open file, so that closing the
 * file destroys its buffers only when the dma-buf is closed as well; destroying the buffer takes
 * the memory out of both. The open file pays for the memory as before.
 *
 * All dma-bufs of one buffer share a dma_resv, which is lock, fences and, being a lock that is held
 * when importers call us and when we call them, all the synchronisation there is. It is taken
 * without a usage reference by importers that map, who only try to get one, and with one by who
 * exports.
 */
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/checks.h"
#include "base/counters.h"
#include "base/dma.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"
#include "face/op.h"

/* As MODULE_IMPORT_NS(), whose argument was no string up to v6.12. */
MODULE_INFO(import_ns, "DMA_BUF");

#define LETTING_GO HZ /* what importers have to give back what is taken from them */

/*
 * Most drivers of NICs pin, and cannot be told. They do no harm, but keep what they have until its
 * user lets go of it, whatever is done to the buffer, and an unbind waits: root may want that.
 */
static bool pinned_importers;
module_param(pinned_importers, bool, 0644);
MODULE_PARM_DESC(pinned_importers, "let in who imports dma-bufs and cannot be told to let go");

/**
 * struct peerdma_export - a piece of a buffer as a dma-buf
 * @link: in the buffer's list; protected by its resv
 * @all: in the list of all; protected by its lock
 * @dmabuf: whose this is
 * @buffer: referenced
 * @file: the buffer's open file; referenced
 * @off: bytes from the buffer's start
 * @len: bytes
 */
struct peerdma_export {
	struct list_head link;
	struct list_head all;
	struct dma_buf *dmabuf; /* immutable */
	struct peerdma_buffer *buffer; /* immutable */
	struct file *file; /* immutable */
	u64 off; /* immutable */
	u64 len; /* immutable */
};

/**
 * struct export_attachment - what an importer has of it: an attachment's priv
 * @mappings: how many
 * @named: the log has that it did not let go
 *
 * Both are protected by the buffer's resv.
 */
struct export_attachment {
	unsigned int mappings;
	bool named;
};

static LIST_HEAD(exports_list);
static DEFINE_MUTEX(exports_mutex); /* protects exports_list */

bool peerdma_exports_supported(void)
{
	return PEERDMA_DMABUF_REVOCABLE || READ_ONCE(pinned_importers);
}

/*
 * Of a dma-buf itself, which there is to be given to importers. It is revoked with that one's lock
 * held, inside of which no other dma-buf's may be taken: import.c.
 */
static bool export_is_imported(const struct peerdma_buffer *buffer)
{
	return buffer->mem->pin && buffer->mem->pin->imported;
}

/* --- Importers. */

/* The errno for @reason, which is counted and logged: an importer's driver hears the errno only. */
static int export_refuse(struct peerdma_export *export, struct device *importer, u32 reason,
			 const char *why)
{
	struct peerdma_buffer *buffer = export->buffer;

	/* No request, but counted as one that was refused. */
	peerdma_count_failure(&buffer->provider->stats, reason);
	peerdma_count_failure(&buffer->opener->stats, reason);
	pci_info_ratelimited(buffer->provider->pdev, "%s may not have buffer %llu of pid %d: %s\n",
			     dev_name(importer), buffer->entry.id, buffer->opener->pid, why);
	return peerdma_reason_errno(reason);
}

/* With a usage reference of the buffer. */
static int export_check_importer(struct peerdma_export *export, struct dma_buf_attachment *attach)
{
	struct pci_dev *pdev = export->buffer->provider->pdev;

	if (!attach->importer_ops)
		return export_refuse(export, attach->dev, PEERDMA_REASON_IMPORTER,
				     "its driver imports statically: it cannot be told to let go");
	if (!attach->peer2peer)
		return export_refuse(export, attach->dev, PEERDMA_REASON_IMPORTER,
				     "its driver does not take the memory of another device");
	if (!dma_buf_attach_revocable(attach) && !READ_ONCE(pinned_importers))
		return export_refuse(export, attach->dev, PEERDMA_REASON_IMPORTER,
				     "its driver cannot be told to let go");
	if (pci_p2pdma_distance(pdev, attach->dev, false) < 0)
		return export_refuse(export, attach->dev, PEERDMA_REASON_DISTANCE,
				     "the kernel knows no PCI route between the two");
	return 0;
}

static int export_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct export_attachment *import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	struct peerdma_export *export = dmabuf->priv;
	int err = -ENODEV;

	if (!import)
		return -ENOMEM;
	if (peerdma_usage_tryget(&export->buffer->usage)) {
		err = export_check_importer(export, attach);
		peerdma_usage_put(&export->buffer->usage);
	}
	if (err)
		kfree(import);
	else
		attach->priv = import;
	return err;
}

static void export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	kfree(attach->priv);
}

/* It stays where it is anyway. The question is only whether the importer hears that it goes. */
static int export_pin(struct dma_buf_attachment *attach)
{
	struct peerdma_export *export = attach->dmabuf->priv;

	if (PEERDMA_DMABUF_PIN || READ_ONCE(pinned_importers))
		return 0;
	return export_refuse(export, attach->dev, PEERDMA_REASON_IMPORTER,
			     "its driver may not pin here, or might not let go when told");
}

static void export_unpin(struct dma_buf_attachment *attach)
{
}

/* --- Mapping. */

/*
 * The longest piece that a device takes, of which none crosses a multiple: a power of two, as its
 * limits are. A length in a scatterlist has 32 bits.
 */
static u64 export_sg_max_len(struct device *dev)
{
	u64 boundary = dma_get_seg_boundary(dev) + 1ULL; /* 0: it has none */
	u64 most = min_t(u64, dma_get_max_seg_size(dev), SZ_2G);

	return max_t(u64, rounddown_pow_of_two(min_not_zero(most, boundary)), PAGE_SIZE);
}

/* How much from @off on, of @len, is one piece. */
static u64 export_sg_len(const struct peerdma_mem *mem, u64 off, u64 len, u64 longest)
{
	u64 at = page_to_phys(peerdma_mem_page(mem, off >> PAGE_SHIFT));

	if (mem->chunks)
		len = min(len, PEERDMA_CHUNK_LEN - off % PEERDMA_CHUNK_LEN);
	return min(len, longest - (at & (longest - 1)));
}

static unsigned int export_sg_count(const struct peerdma_mem *mem, u64 off, u64 len, u64 longest)
{
	const u64 end = off + len;
	unsigned int n;

	for (n = 0; off < end; n++)
		off += export_sg_len(mem, off, end - off, longest);
	return n;
}

static struct sg_table *export_sg_alloc(const struct peerdma_mem *mem, u64 off, u64 len,
					u64 longest)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL_ACCOUNT);
	const u64 end = off + len;
	struct scatterlist *sg;
	unsigned int i;
	u64 piece;

	if (!sgt)
		return NULL;
	if (sg_alloc_table(sgt, export_sg_count(mem, off, len, longest), GFP_KERNEL_ACCOUNT)) {
		kfree(sgt);
		return NULL;
	}
	for_each_sgtable_sg(sgt, sg, i) {
		piece = export_sg_len(mem, off, end - off, longest);
		sg_set_page(sg, peerdma_mem_page(mem, off >> PAGE_SHIFT), piece, 0);
		off += piece;
	}
	return sgt;
}

static void export_sg_free(struct sg_table *sgt)
{
	sg_free_table(sgt);
	kfree(sgt);
}

/* What is mapped goes back to the pool only when it is no more, whatever happens to the buffer. */
static void export_get_pages(struct sg_table *sgt)
{
	struct sg_page_iter at;

	for_each_sgtable_page(sgt, &at, 0) {
		get_page(sg_page_iter_page(&at));
		cond_resched();
	}
}

static void export_put_pages(struct sg_table *sgt)
{
	struct sg_page_iter at;

	for_each_sgtable_page(sgt, &at, 0) {
		put_page(sg_page_iter_page(&at));
		cond_resched();
	}
}

/* A piece of it would be a copy in host memory, which nobody brings back. */
static bool export_is_bounced(struct device *importer, struct sg_table *sgt)
{
	struct scatterlist *sg;
	int i;

	/* Pieces are put together by an IOMMU only, and that does not bounce whole pages. */
	if (peerdma_dma_is_translated(importer))
		return false;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		if (peerdma_dma_is_bounced(importer, sg))
			return true;
		cond_resched();
	}
	return false;
}

/* With a usage reference of the buffer. */
static struct sg_table *export_dma_map(struct peerdma_export *export, struct device *importer,
				       enum dma_data_direction dir)
{
	struct sg_table *sgt = export_sg_alloc(export->buffer->mem, export->off, export->len,
					       export_sg_max_len(importer));
	const char *why = "it cannot be mapped";
	int err;

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	export_get_pages(sgt);
	err = dma_map_sgtable(importer, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	if (!err) {
		if (!export_is_bounced(importer, sgt))
			return sgt;
		dma_unmap_sgtable(importer, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
		why = "it would have a copy in host memory";
	}
	export_put_pages(sgt);
	export_sg_free(sgt);
	if (err == -ENOMEM)
		return ERR_PTR(err);
	return ERR_PTR(export_refuse(export, importer, PEERDMA_REASON_MAPPING, why));
}

/* One mapping more, or less: 1 or -1. */
static void export_count_mapping(struct peerdma_export *export, struct dma_buf_attachment *attach,
				 int mappings)
{
	struct peerdma_exports *exports = &export->buffer->exports;
	const s64 len = export->len;
	struct export_attachment *import = attach->priv;

	dma_resv_assert_held(&exports->resv);
	import->mappings += mappings;
	WRITE_ONCE(exports->mapped, exports->mapped + len * mappings);
	atomic64_add(len * mappings, &export->buffer->opener->exported);
}

static struct sg_table *export_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct peerdma_export *export = attach->dmabuf->priv;
	struct sg_table *sgt;

	if (!peerdma_usage_tryget(&export->buffer->usage))
		return ERR_PTR(-ENODEV);
	sgt = export_dma_map(export, attach->dev, dir);
	if (!IS_ERR(sgt))
		export_count_mapping(export, attach, 1);
	peerdma_usage_put(&export->buffer->usage);
	return sgt;
}

/* The buffer may have lost its memory; these pages of it are kept by the mapping. */
static void export_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			 enum dma_data_direction dir)
{
	struct peerdma_export *export = attach->dmabuf->priv;

	dma_unmap_sgtable(attach->dev, sgt, dir, DMA_ATTR_SKIP_CPU_SYNC);
	export_put_pages(sgt);
	export_sg_free(sgt);
	export_count_mapping(export, attach, -1);
	if (export->buffer->exports.mapped)
		return;
	smp_mb(); /* wake_up_var() looks for sleepers, who have looked at it: see there */
	wake_up_var(&export->buffer->exports.mapped);
}

/* --- Taking back. */

/* False: not now, the log would be flooded. */
static bool export_log_importer(struct peerdma_buffer *buffer, struct dma_buf_attachment *attach)
{
	static DEFINE_RATELIMIT_STATE(limit, 5 * HZ, 10);
	struct export_attachment *import = attach->priv;

	if (!import->mappings || import->named)
		return true;
	if (!__ratelimit(&limit))
		return false;
	pci_warn(buffer->provider->pdev,
		 "%s was told to let go of buffer %llu of pid %d and has not\n",
		 dev_name(attach->dev), buffer->entry.id, buffer->opener->pid);
	import->named = true;
	return true;
}

/**
 * peerdma_exports_log - name who was told and has not let go
 * @buffer: revoked, or about to be
 *
 * Does not wait for its lock, which such an importer may hold for long.
 *
 * Return: false: not all, try again.
 */
bool peerdma_exports_log(struct peerdma_buffer *buffer)
{
	struct dma_buf_attachment *attach;
	struct peerdma_export *export;
	bool all = true;

	if (!dma_resv_trylock(&buffer->exports.resv))
		return false;
	/* What is on the list has its open file, and so the opener. */
	list_for_each_entry(export, &buffer->exports.list, link) {
		list_for_each_entry(attach, &export->dmabuf->attachments, node)
			all = export_log_importer(buffer, attach) && all;
	}
	dma_resv_unlock(&buffer->exports.resv);
	return all;
}

/*
 * What importers still have under way when they have been told. Later ones are none of theirs:
 * they can map nothing any more, and whoever has the dma-buf's descriptor may add fences of
 * anybody's to it, without end.
 */
struct export_fences {
	struct dma_fence **all;
	unsigned int nr;
	bool known; /* false: there was no memory to write them down */
};

static void export_get_fences(struct peerdma_exports *exports, struct export_fences *fences)
{
	dma_resv_assert_held(&exports->resv);
	*fences = (struct export_fences){};
	fences->known = !dma_resv_get_fences(&exports->resv, DMA_RESV_USAGE_BOOKKEEP, &fences->nr,
					     &fences->all);
}

/* False: it took longer. */
static bool export_fences_signalled(struct peerdma_exports *exports,
				    const struct export_fences *fences, long time)
{
	unsigned int i;

	if (!fences->known)
		time = dma_resv_wait_timeout(&exports->resv, DMA_RESV_USAGE_BOOKKEEP, false, time);
	for (i = 0; i < fences->nr && time > 0; i++)
		time = dma_fence_wait_timeout(fences->all[i], false, time);
	return time > 0;
}

static void export_put_fences(struct export_fences *fences)
{
	while (fences->nr)
		dma_fence_put(fences->all[--fences->nr]);
	kfree(fences->all);
}

/* The kernel's rule is that they are signalled in time: if not, somebody should hear of it. */
static void export_wait_fences(struct peerdma_buffer *buffer, const struct export_fences *fences)
{
	if (export_fences_signalled(&buffer->exports, fences, LETTING_GO))
		return;
	pci_warn(buffer->provider->pdev,
		 "who imports buffer %llu of pid %d has not signalled its fences: waiting\n",
		 buffer->entry.id, buffer->opener->pid);
	export_fences_signalled(&buffer->exports, fences, MAX_SCHEDULE_TIMEOUT);
}

/**
 * peerdma_exports_revoke - tell who has mapped a buffer, and wait a while
 * @buffer: with its usage reference killed and drained: nobody can map any more
 *
 * The kernel's rules allow an importer to use the memory until its fences are signalled, whether it
 * has unmapped or not, and to read what it does not want until it has unmapped. The first is waited
 * for to the end, the second for LETTING_GO: what is mapped keeps its pages.
 */
void peerdma_exports_revoke(struct peerdma_buffer *buffer)
{
	struct peerdma_exports *exports = &buffer->exports;
	struct peerdma_export *export;
	struct export_fences fences;

	if (export_is_imported(buffer))
		return;
	dma_resv_lock(&exports->resv, NULL);
	list_for_each_entry(export, &exports->list, link)
		dma_buf_invalidate_mappings(export->dmabuf);
	export_get_fences(exports, &fences);
	dma_resv_unlock(&exports->resv);
	export_wait_fences(buffer, &fences);
	export_put_fences(&fences);
	if (!wait_var_event_timeout(&exports->mapped, !READ_ONCE(exports->mapped), LETTING_GO))
		peerdma_exports_log(buffer);
}

/* --- Exporting. */

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

/* No mmap: the buffer has one. No vmap: the CPU's way to this memory is uncached and slow. */
static const struct dma_buf_ops export_ops = {
	.attach = export_attach,
	.detach = export_detach,
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

/* With a usage reference of the buffer. @file: the buffer's, which the caller holds. */
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
	/* Nobody else can put it yet. From here on that undoes all this. */
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
	if (!req->out_reason && export_is_imported(buffer))
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

/* The descriptor comes into being last, when the process has been told of it. */
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

/* --- Seeing. */

static void export_show_importer(struct seq_file *seq, struct peerdma_export *export,
				 struct dma_buf_attachment *attach)
{
	struct peerdma_buffer *buffer = export->buffer;
	struct export_attachment *import = attach->priv;

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
	/* An importer may hold it for long: whoever looks does not wait. */
	if (!dma_resv_trylock(&buffer->exports.resv))
		return;
	list_for_each_entry(attach, &export->dmabuf->attachments, node)
		export_show_importer(seq, export, attach);
	dma_resv_unlock(&buffer->exports.resv);
}

/* All of them, one a line, and a line for each importer of one. */
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
