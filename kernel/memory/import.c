// SPDX-License-Identifier: GPL-2.0
/*
 * A range of another driver's dma-buf as a buffer.
 *
 * Finding the pages. A dma-buf gives DMA addresses for the attached device (the client), not pages.
 * An address that an IOMMU translates tells nothing, so the client must be a device without
 * translation. Then the address is one on the PCI bus, which lies in a BAR. external_prove.c proves
 * what it proves of all memory of other drivers. Then the kernel maps the first page for the
 * client: if the result is the exporter's own address, the page is the right one. All pages of a
 * range are mapped alike. The client is used for nothing else: which devices read and write the
 * buffer is decided for each file, as for any buffer.
 *
 * Lifetime. The dma-buf stays attached, pinned and mapped as long as its memory is a buffer. An
 * exporter with movable memory pins it; if it pins to host memory, or does not pin, the import is
 * refused. We attach without ->invalidate_mappings. An exporter that accepts this keeps the memory
 * until we detach. An exporter whose memory may go away, because its device is reset or closed,
 * refuses the attachment.
 *
 * Revoking. The parameter revocable_imports attaches with ->invalidate_mappings. The exporter calls
 * it with the dma-buf's resv held, and may reuse the memory when it returns. No request can be
 * recalled from a drive, so the call waits until the last one has ended: peerdma_pin_revoke_wait().
 * No thread that it waits for takes that resv, with one exception: a user may delay his own request
 * by a write(2) to the same file from memory whose page faults need the resv. That is why root has
 * to choose it. On kernels where every importer is notified, no exporter invalidates pinned memory.
 *
 * Imported memory is not exported again: revoking would nest the resv of one dma-buf inside that of
 * another, and importers may nest them the other way round.
 *
 * A call to ->invalidate_mappings during the attachment is remembered and returns at once, because
 * the memory is not used yet. An exporter may move it while it pins.
 *
 * If the client's driver is unbound, no mapping should remain. So its imports end before, outside
 * of the client's device lock: consumer.c. If two threads unbind the client at once, the second one
 * does not wait. Without translation by an IOMMU a late unmap does no harm.
 */
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/import.h"
#include "memory/pin.h"

static void import_unpin(struct peerdma_pin *pin)
{
	struct peerdma_import *import = peerdma_import_of(pin);

	peerdma_import_leave(import);
	peerdma_import_detach(import);
	dma_buf_put(import->dmabuf);
	complete_all(&import->gone);
}

static void import_free(struct peerdma_pin *pin)
{
	struct peerdma_import *import = peerdma_import_of(pin);

	pci_dev_put(import->client);
	kvfree(pin->chunk_addrs);
	kfree(import);
}

static const struct peerdma_vendor_ops import_ops = {
	.owner = THIS_MODULE,
	.prove = peerdma_import_prove,
	.unpin = import_unpin,
	.free = import_free,
};

/* Owns both references after a success. */
static struct peerdma_import *import_create(struct dma_buf *dmabuf, struct pci_dev *client,
					    const struct peerdma_buf_import *req)
{
	struct peerdma_import *import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);

	if (!import)
		return NULL;
	peerdma_pin_init(&import->pin, &import_ops);
	import->pin.imported = true;
	import->pin.nr_chunks = req->len >> PEERDMA_CHUNK_SHIFT;
	import->pin.chunk_addrs = kvmalloc_array(import->pin.nr_chunks,
						 sizeof(*import->pin.chunk_addrs),
						 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!import->pin.chunk_addrs) {
		kfree(import);
		return NULL;
	}
	INIT_LIST_HEAD(&import->link);
	init_completion(&import->gone);
	import->asking = true;
	import->off = req->off;
	import->dmabuf = dmabuf;
	import->client = client;
	__module_get(THIS_MODULE); /* put when it is unpinned */
	return import;
}

/* A buffer can be read and written, so the descriptor must allow both. */
static u32 import_check_dmabuf(const struct dma_buf *dmabuf, const struct peerdma_buf_import *req)
{
	const fmode_t both = FMODE_READ | FMODE_WRITE;
	u32 reason = peerdma_check_import(req->off, req->len, dmabuf->size, PAGE_SIZE,
					  PEERDMA_CHUNK_LEN);

	if (!reason && (dmabuf->file->f_mode & both) != both)
		reason = PEERDMA_REASON_FD_MODE;
	return reason;
}

/* Owns both references after a success. */
static struct peerdma_import *import_begin(struct dma_buf *dmabuf, struct pci_dev *client,
					   const struct peerdma_buf_import *req, u32 *reason)
{
	*reason = import_check_dmabuf(dmabuf, req);
	if (!*reason)
		*reason = client ? peerdma_import_check_client(client) :
				   PEERDMA_REASON_IMPORT_DEVICE;
	return *reason ? NULL : import_create(dmabuf, client, req);
}

static int buf_import(struct peerdma_ctx *ctx, struct dma_buf *dmabuf,
		      const struct peerdma_buf_import *req, struct peerdma_buf_register *made)
{
	const unsigned int bus = PCI_BUS_NUM(req->pci_bdf), devfn = req->pci_bdf & 0xff;
	struct pci_dev *client = pci_get_domain_bus_and_slot(req->pci_domain, bus, devfn);
	struct peerdma_import *import = import_begin(dmabuf, client, req, &made->out_reason);

	if (!import) {
		pci_dev_put(client);
		dma_buf_put(dmabuf);
		return peerdma_reason_errno(made->out_reason) ?: -ENOMEM;
	}
	made->out_reason = peerdma_import_attach(import);
	if (!made->out_reason)
		made->out_reason = peerdma_import_locate(import);
	return peerdma_pin_register(ctx, &import->pin, made);
}

int peerdma_buf_import_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_import *req = &arg->buf_import;
	struct peerdma_buf_register made = {};
	struct dma_buf *dmabuf;
	int err = -EINVAL;

	if (req->pci_bdf <= U16_MAX) {
		dmabuf = dma_buf_get(req->fd);
		if (dmabuf == ERR_PTR(-EINVAL))
			made.out_reason = PEERDMA_REASON_IMPORT_NOT_DMABUF;
		err = PTR_ERR_OR_ZERO(dmabuf) ?: buf_import(ctx, dmabuf, req, &made);
	}
	req->out_buf_id = made.out_buf_id;
	req->out_provider_id = made.out_provider_id;
	req->out_mmap_offset = made.out_mmap_offset;
	req->out_reason = made.out_reason;
	return err;
}

void peerdma_buf_import_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	peerdma_buffer_show_or_destroy(ctx, arg->buf_import.out_buf_id, err);
}
