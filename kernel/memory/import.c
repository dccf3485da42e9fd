// SPDX-License-Identifier: GPL-2.0
/*
 * A range of somebody else's dma-buf as a buffer. A dma-buf gives addresses, for the device that it
 * was attached with, and not pages. Of an address that an IOMMU translates nothing can be learnt,
 * so the device must be one for which none does: then it is an address on the PCI bus, which the
 * BARs tell to be this place of that BAR. register.c proves all that it proves of a vendor's
 * memory, and then the kernel is asked to map the first page for that very device: if it answers
 * with the exporter's own address, the page is what the exporter means. All of a range of pages is
 * mapped alike, so the others are as well.
 *
 * The device is the one that the exporter is asked with, and no more. By which devices a buffer is
 * read and written is decided for each file, as for any other buffer, by its pages.
 *
 * Kept. The dma-buf stays attached, pinned and mapped for as long as the memory is a buffer. An
 * exporter whose memory may move pins it, and where that leaves it in host memory, or where it does
 * not pin, it is refused. Who attaches says whether it can be told that memory goes away all the
 * same, because its device is reset or closed. We say no. Who lets us in then keeps the memory
 * until we give it back; whose memory may go refuses, and is refused.
 *
 * Taken back. If root says so we can be told. That call comes with the dma-buf's lock held, and the
 * memory may be used for something else when it returns. No request can be called back from a
 * drive, so the call waits until the last one has ended, as peerdma_pin_revoke_wait() does. Nobody
 * who is waited for there takes the dma-buf's lock, but for who holds up a request of his own: he
 * may write(2) to the same file out of memory whose pages only come with that lock. That is why
 * root has to say so. On kernels where everybody can be told, no exporter does it to who has
 * pinned. What is of a dma-buf is not exported again: revoking would take the lock of one dma-buf
 * inside that of the other, which importers may do in the other order.
 *
 * A call that comes while the exporter is still being asked is remembered, and returns: nothing of
 * the memory is used yet. An exporter may well move it on its way to where it is pinned.
 *
 * The device may lose its driver, which should leave no mapping behind. So its imports end before,
 * when nobody holds the device's lock: consumer.c. If two unbind it at once the second does not
 * wait. Where no IOMMU translates, a mapping that goes late does no harm.
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
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/import.h"
#include "memory/pin.h"
#include "face/op.h"

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
	kvfree(pin->chunks);
	kfree(import);
}

static const struct peerdma_vendor_ops import_ops = {
	.owner = THIS_MODULE,
	.prove = peerdma_import_prove,
	.unpin = import_unpin,
	.free = import_free,
};

/* After a success both references are its. */
static struct peerdma_import *import_create(struct dma_buf *dmabuf, struct pci_dev *client,
					    const struct peerdma_buf_import *req)
{
	struct peerdma_import *import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);

	if (!import)
		return NULL;
	peerdma_pin_init(&import->pin, &import_ops);
	import->pin.imported = true;
	import->pin.nr = req->len >> PEERDMA_CHUNK_SHIFT;
	import->pin.chunks = kvmalloc_array(import->pin.nr, sizeof(*import->pin.chunks),
					    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!import->pin.chunks) {
		kfree(import);
		return NULL;
	}
	INIT_LIST_HEAD(&import->link);
	init_completion(&import->gone);
	import->asking = true;
	import->off = req->off;
	import->dmabuf = dmabuf;
	import->client = client;
	__module_get(THIS_MODULE); /* until it is unpinned */
	return import;
}

/* A buffer is read and written: so may be the dma-buf, by who has it. */
static u32 import_check_dmabuf(const struct dma_buf *dmabuf, const struct peerdma_buf_import *req)
{
	const fmode_t both = FMODE_READ | FMODE_WRITE;
	u32 reason = peerdma_check_import(req->off, req->len, dmabuf->size, PAGE_SIZE,
					  PEERDMA_CHUNK_LEN);

	if (!reason && (dmabuf->file->f_mode & both) != both)
		reason = PEERDMA_REASON_FD_MODE;
	return reason;
}

/* Both are referenced, and the import's after a success. */
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
	peerdma_buffer_publish(ctx, arg->buf_import.out_buf_id, err);
}
