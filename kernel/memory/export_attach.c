// SPDX-License-Identifier: GPL-2.0
/*
 * Attachments of importers to a buffer's dma-bufs: which importers may attach, and pin.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/checks.h"
#include "base/counters.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/provider.h"

/*
 * Most drivers of NICs pin, and cannot be notified. They keep their pages until their user releases
 * them, whatever happens to the buffer, and an unbind waits for that. This is safe, but root has to
 * choose it.
 */
static bool pinned_importers;
module_param(pinned_importers, bool, 0644);
MODULE_PARM_DESC(pinned_importers, "accept importers of dma-bufs that cannot be revoked");

bool peerdma_exports_supported(void)
{
	return PEERDMA_DMABUF_REVOCABLE || READ_ONCE(pinned_importers);
}

/* Counts and logs a refusal. The importer's driver only gets the returned errno. */
int peerdma_export_refuse(struct peerdma_export *export, struct device *importer, u32 reason,
			  const char *why)
{
	struct peerdma_buffer *buffer = export->buffer;

	/* Counted like a refused request. */
	peerdma_count_failure(&buffer->provider->stats, reason);
	peerdma_count_failure(&buffer->opener->stats, reason);
	pci_info_ratelimited(buffer->provider->pdev, "%s cannot import buffer %llu of pid %d: %s\n",
			     dev_name(importer), buffer->entry.id, buffer->opener->pid, why);
	return peerdma_reason_errno(reason);
}

/* The caller holds a usage reference of the buffer. */
static int export_check_importer(struct peerdma_export *export, struct dma_buf_attachment *attach)
{
	struct pci_dev *pdev = export->buffer->provider->pdev;
	struct device *importer = attach->dev;

	if (!attach->importer_ops)
		return peerdma_export_refuse(export, importer, PEERDMA_REASON_IMPORTER,
					     "its driver imports statically and cannot be revoked");
	if (!attach->peer2peer)
		return peerdma_export_refuse(export, importer, PEERDMA_REASON_IMPORTER,
					     "its driver does not take memory of another device");
	if (!dma_buf_attach_revocable(attach) && !READ_ONCE(pinned_importers))
		return peerdma_export_refuse(export, importer, PEERDMA_REASON_IMPORTER,
					     "its driver cannot be revoked");
	if (pci_p2pdma_distance(pdev, importer, false) < 0)
		return peerdma_export_refuse(export, importer, PEERDMA_REASON_DISTANCE,
					     "the kernel knows no PCI route between the two");
	return 0;
}

int peerdma_export_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct peerdma_export_attachment *import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
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

void peerdma_export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	kfree(attach->priv);
}

/* The memory never moves. An importer that pins must still accept to be revoked. */
int peerdma_export_pin(struct dma_buf_attachment *attach)
{
	struct peerdma_export *export = attach->dmabuf->priv;

	if (PEERDMA_DMABUF_PIN || READ_ONCE(pinned_importers))
		return 0;
	return peerdma_export_refuse(export, attach->dev, PEERDMA_REASON_IMPORTER,
				     "its driver pins, and may not unmap when revoked");
}

void peerdma_export_unpin(struct dma_buf_attachment *attach)
{
}
