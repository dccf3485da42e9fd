// SPDX-License-Identifier: GPL-2.0
/*
 * Revokes a buffer's dma-bufs: notifies the importers and waits for them.
 */
#include <linux/device.h>
#include <linux/dma-resv.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/mem.h"
#include "memory/provider.h"

#define EXPORT_PATIENCE HZ /* ticks that importers have to unmap */

/* False if the log is rate-limited. */
static bool export_log_importer(struct peerdma_buffer *buffer, struct dma_buf_attachment *attach)
{
	static DEFINE_RATELIMIT_STATE(limit, 5 * HZ, 10);
	struct peerdma_export_attachment *import = attach->priv;

	if (!import->mappings || import->named)
		return true;
	if (!__ratelimit(&limit))
		return false;
	pci_warn(buffer->provider->pdev,
		 "%s has not unmapped buffer %llu of pid %d, which was revoked\n",
		 dev_name(attach->dev), buffer->entry.id, buffer->opener->pid);
	import->named = true;
	return true;
}

/**
 * peerdma_exports_log - log importers that were notified and have not unmapped
 * @buffer: revoked, or being revoked
 *
 * Only tries the buffer's resv, which such an importer may hold for long.
 *
 * Return: false: try again, some may not be logged.
 */
bool peerdma_exports_log(struct peerdma_buffer *buffer)
{
	struct dma_buf_attachment *attach;
	struct peerdma_export *export;
	bool all = true;

	if (!dma_resv_trylock(&buffer->exports.resv))
		return false;
	/* An export on the list holds its open file, and so the opener. */
	list_for_each_entry(export, &buffer->exports.list, link) {
		list_for_each_entry(attach, &export->dmabuf->attachments, node)
			all = export_log_importer(buffer, attach) && all;
	}
	dma_resv_unlock(&buffer->exports.resv);
	return all;
}

/*
 * The importers' fences at the time they are notified. Later fences are not waited for: no importer
 * can map any more, but any process with the dma-buf's descriptor may add fences without end.
 */
struct export_fences {
	struct dma_fence **all;
	unsigned int nr;
	bool known; /* false: there was no memory for the list */
};

static void export_get_fences(struct peerdma_exports *exports, struct export_fences *fences)
{
	dma_resv_assert_held(&exports->resv);
	*fences = (struct export_fences){};
	fences->known = !dma_resv_get_fences(&exports->resv, DMA_RESV_USAGE_BOOKKEEP, &fences->nr,
					     &fences->all);
}

/* False on timeout. */
static bool export_fences_signaled(struct peerdma_exports *exports,
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

/* By the kernel's rules fences are signaled in finite time. A violation is logged. */
static void export_wait_fences(struct peerdma_buffer *buffer, const struct export_fences *fences)
{
	if (export_fences_signaled(&buffer->exports, fences, EXPORT_PATIENCE))
		return;
	pci_warn(buffer->provider->pdev,
		 "importers of buffer %llu of pid %d have not signaled their fences: waiting\n",
		 buffer->entry.id, buffer->opener->pid);
	export_fences_signaled(&buffer->exports, fences, MAX_SCHEDULE_TIMEOUT);
}

/**
 * peerdma_exports_revoke - notify a buffer's importers, and wait for a limited time
 * @buffer: with its usage reference killed and drained: no importer can map any more
 *
 * By the kernel's rules an importer may use the memory until its fences are signaled, mapped or
 * not, and may still read it, with a result that it ignores, until it unmaps. Fences are waited for
 * without limit, unmapping for EXPORT_PATIENCE, because mapped pages stay referenced.
 */
void peerdma_exports_revoke(struct peerdma_buffer *buffer)
{
	struct peerdma_exports *exports = &buffer->exports;
	struct peerdma_export *export;
	struct export_fences fences;

	if (peerdma_mem_is_imported(buffer->mem))
		return;
	dma_resv_lock(&exports->resv, NULL);
	list_for_each_entry(export, &exports->list, link)
		dma_buf_invalidate_mappings(export->dmabuf);
	export_get_fences(exports, &fences);
	dma_resv_unlock(&exports->resv);
	export_wait_fences(buffer, &fences);
	export_put_fences(&fences);
	if (!wait_var_event_timeout(&exports->mapped, !READ_ONCE(exports->mapped), EXPORT_PATIENCE))
		peerdma_exports_log(buffer);
}
