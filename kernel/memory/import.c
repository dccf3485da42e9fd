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
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/dmabuf.h"
#include "base/checks.h"
#include "base/dma.h"
#include "memory/buffer.h"
#include "memory/consumer.h"
#include "memory/ctx.h"
#include "memory/import.h"
#include "memory/pin.h"
#include "face/op.h"

#define PATIENCE HZ /* ticks, for what others have to do soon */

static bool revocable_imports;
module_param(revocable_imports, bool, 0644);
MODULE_PARM_DESC(revocable_imports,
		 "import what may be taken back: who does that waits for requests under way");

/**
 * struct client - a function that imports are attached with, until its driver goes
 * @consumer: its end is theirs
 * @pdev: referenced; immutable
 * @link: in the list of them
 * @imports: that have been proven, and have not ended
 * @ending: its driver is going: there are no more
 * @free: work, after the end
 *
 * Made under the device's lock; @link, @imports and @ending are protected by imports_mutex.
 */
struct client {
	struct peerdma_consumer consumer;
	struct pci_dev *pdev;
	struct list_head link;
	struct list_head imports;
	bool ending;
	struct work_struct free;
};

/**
 * struct peerdma_import - a range of a dma-buf, while it is kept
 * @pin: what register.c knows it by
 * @link: in its client's list, once it has been proven; protected by imports_mutex
 * @dmabuf: referenced
 * @client: the device that it is attached with; referenced
 * @attach: NULL if the exporter did not want it
 * @off: bytes from the dma-buf's start
 * @addr: of the first byte, for @client
 * @sgt: what is mapped, or NULL; this and all below is protected by the dma-buf's resv
 * @pinned: it has to be unpinned
 * @asking: the exporter has not said yet where it is
 * @told: it has called since it was pinned
 * @gone: completed when it is not attached any more
 */
struct peerdma_import {
	struct peerdma_pin pin;
	struct list_head link;
	struct dma_buf *dmabuf; /* immutable; these are as well: */
	struct pci_dev *client;
	struct dma_buf_attachment *attach; /* once it is registered, and so are these */
	u64 off;
	u64 addr;
	struct sg_table *sgt;
	bool pinned;
	bool asking;
	bool told;
	struct completion gone;
};

static LIST_HEAD(clients);
static DEFINE_MUTEX(imports_mutex); /* protects clients, and the imports of each */
static struct workqueue_struct *free_wq;

static struct peerdma_import *import_of_pin(struct peerdma_pin *pin)
{
	return container_of(pin, struct peerdma_import, pin);
}

/* --- The exporter. */

/* With the dma-buf's lock held. Its memory may be used for something else when this returns. */
static void import_invalidated(struct dma_buf_attachment *attach)
{
	struct peerdma_import *import = attach->importer_priv;

	if (import->asking)
		import->told = true;
	else
		peerdma_pin_revoke_wait(&import->pin);
}

static const struct dma_buf_attach_ops deaf_ops = {
	.allow_peer2peer = true,
};

static const struct dma_buf_attach_ops told_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = import_invalidated,
};

static u32 import_refuse(struct peerdma_import *import, const char *what, long err)
{
	pci_info_ratelimited(import->client, "exporter %s does not let it %s: %ld\n",
			     import->dmabuf->exp_name, what, err);
	return PEERDMA_REASON_IMPORT_REFUSED;
}

static bool import_is_host_memory(u64 addr)
{
	return region_intersects(addr, PAGE_SIZE, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	       REGION_DISJOINT;
}

/* [@at, @at + @len) of the range is at @addr. False: it does not go on where its frame does. */
static bool import_add_chunks(struct peerdma_pin *pin, u64 at, u64 addr, u64 len)
{
	u64 skip, step, *frame;

	for (; len; at += step, addr += step, len -= step) {
		frame = &pin->chunks[at >> PEERDMA_CHUNK_SHIFT];
		skip = at % PEERDMA_CHUNK_LEN;
		step = min_t(u64, len, PEERDMA_CHUNK_LEN - skip);
		if (!skip)
			*frame = addr;
		else if (addr != *frame + skip)
			return false;
		cond_resched();
	}
	return true;
}

/* Addresses and lengths only: there may be no pages. */
static u32 import_read_table(struct peerdma_import *import)
{
	const u64 end = (u64)import->pin.nr << PEERDMA_CHUNK_SHIFT;
	u64 at = 0, skip = import->off, addr, len;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(import->sgt, sg, i) {
		if (skip >= sg_dma_len(sg)) {
			skip -= sg_dma_len(sg);
			continue;
		}
		addr = sg_dma_address(sg) + skip;
		len = min_t(u64, end - at, sg_dma_len(sg) - skip);
		skip = 0;
		if (!at && import_is_host_memory(addr))
			return PEERDMA_REASON_IMPORT_HOST;
		if (!import_add_chunks(&import->pin, at, addr, len))
			return PEERDMA_REASON_IMPORT_PIECES;
		at += len;
		if (at == end)
			return PEERDMA_REASON_NONE;
	}
	return PEERDMA_REASON_IMPORT_TABLE;
}

/* With the dma-buf's lock held. */
static u32 import_map(struct peerdma_import *import)
{
	struct dma_buf_attachment *attach = import->attach;
	struct sg_table *sgt;
	long ret = dma_buf_pin(attach);

	if (ret)
		return import_refuse(import, "pin", ret);
	import->pinned = true;
	import->told = false;
	sgt = dma_buf_map_attachment(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR_OR_NULL(sgt))
		return import_refuse(import, "map", PTR_ERR(sgt));
	import->sgt = sgt;
	/* Before that it may still be on its way. */
	ret = dma_resv_wait_timeout(import->dmabuf->resv, DMA_RESV_USAGE_KERNEL, false, PATIENCE);
	if (ret <= 0)
		return PEERDMA_REASON_VENDOR_BUSY;
	if (import->told)
		return PEERDMA_REASON_VENDOR_FREED;
	return import_read_table(import);
}

static struct dma_buf_attachment *import_attach_with(struct peerdma_import *import,
						     const struct dma_buf_attach_ops *ops)
{
	return dma_buf_dynamic_attach(import->dmabuf, &import->client->dev, ops, import);
}

/* Would it, if we could be told? */
static u32 import_attach_reason(struct peerdma_import *import, bool revocable, long err)
{
	struct dma_buf_attachment *attach = revocable ? ERR_PTR(err) :
							import_attach_with(import, &told_ops);

	if (IS_ERR(attach))
		return import_refuse(import, "attach", err);
	dma_buf_detach(import->dmabuf, attach);
	return PEERDMA_REASON_IMPORT_REVOCABLE;
}

static u32 import_attach(struct peerdma_import *import)
{
	const bool revocable = !PEERDMA_DMABUF_DEAF || READ_ONCE(revocable_imports);
	struct dma_buf *dmabuf = import->dmabuf;
	struct dma_buf_attachment *attach =
		import_attach_with(import, revocable ? &told_ops : &deaf_ops);
	u32 reason;

	if (IS_ERR(attach))
		return import_attach_reason(import, revocable, PTR_ERR(attach));
	import->attach = attach;
	dma_resv_lock(dmabuf->resv, NULL);
	reason = import_map(import);
	import->asking = false;
	dma_resv_unlock(dmabuf->resv);
	return reason;
}

static void import_detach(struct peerdma_import *import)
{
	struct dma_buf *dmabuf = import->dmabuf;

	if (!import->attach)
		return;
	dma_resv_lock(dmabuf->resv, NULL);
	if (import->sgt)
		dma_buf_unmap_attachment(import->attach, import->sgt, DMA_BIDIRECTIONAL);
	if (import->pinned)
		dma_buf_unpin(import->attach);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_detach(dmabuf, import->attach);
}

static void import_unpin(struct peerdma_pin *pin)
{
	struct peerdma_import *import = import_of_pin(pin);

	mutex_lock(&imports_mutex);
	list_del_init(&import->link);
	mutex_unlock(&imports_mutex);
	import_detach(import);
	dma_buf_put(import->dmabuf);
	complete_all(&import->gone);
}

static void import_free(struct peerdma_pin *pin)
{
	struct peerdma_import *import = import_of_pin(pin);

	pci_dev_put(import->client);
	kvfree(pin->chunks);
	kfree(import);
}

/* --- From an address of the client to a place in a BAR. */

/* Where a BAR's @len bytes at @start go on for a frame. */
static bool bar_holds_chunk(u64 start, u64 len, u64 addr)
{
	return addr >= start && addr - start < len && len - (addr - start) >= PEERDMA_CHUNK_LEN;
}

/* The function, and its BAR, that is at this address of the client's bus; referenced, or NULL. */
static struct pci_dev *import_find_bar(struct pci_dev *client, u64 addr, int *bar)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		if (pci_domain_nr(pdev->bus) != pci_domain_nr(client->bus))
			continue;
		for (*bar = 0; *bar < PCI_STD_NUM_BARS; (*bar)++) {
			if (pci_resource_flags(pdev, *bar) & IORESOURCE_MEM &&
			    bar_holds_chunk(pci_bus_address(pdev, *bar),
					    pci_resource_len(pdev, *bar), addr))
				return pdev;
		}
	}
	return NULL;
}

static u32 import_no_bar_reason(u64 addr)
{
	return import_is_host_memory(addr) ? PEERDMA_REASON_IMPORT_HOST :
					     PEERDMA_REASON_VENDOR_NOT_BAR;
}

/* From addresses on the bus to physical ones. */
static u32 import_translate(struct peerdma_import *import, struct pci_dev *pdev, int bar)
{
	const u64 start = pci_bus_address(pdev, bar), len = pci_resource_len(pdev, bar);
	u64 *frames = import->pin.chunks;
	unsigned long i;

	for (i = 0; i < import->pin.nr; i++) {
		if (!bar_holds_chunk(start, len, frames[i]))
			return import_no_bar_reason(frames[i]);
		frames[i] = pci_resource_start(pdev, bar) + (frames[i] - start);
		cond_resched();
	}
	return PEERDMA_REASON_NONE;
}

static u32 import_locate(struct peerdma_import *import)
{
	struct pci_dev *pdev;
	u32 reason;
	int bar;

	import->addr = import->pin.chunks[0];
	pdev = import_find_bar(import->client, import->addr, &bar);
	if (!pdev)
		return import_no_bar_reason(import->addr);
	reason = import_translate(import, pdev, bar);
	pci_dev_put(pdev);
	return reason;
}

/* --- The device. */

/* Under its lock: its driver and its IOMMU domain stay. */
static u32 import_client_reason(struct pci_dev *client)
{
	if (!client->dev.driver)
		return PEERDMA_REASON_IMPORT_DEVICE;
	return peerdma_dma_is_translated(&client->dev) ? PEERDMA_REASON_IMPORT_IOMMU :
							 PEERDMA_REASON_NONE;
}

/* Who has it may wait for somebody who waits for us: so it is only tried. */
static bool import_lock_client(struct pci_dev *client)
{
	const unsigned long end = jiffies + PATIENCE;

	while (!device_trylock(&client->dev)) {
		if (fatal_signal_pending(current) || time_after(jiffies, end))
			return false;
		schedule_timeout_killable(1);
	}
	return true;
}

/* Before the exporter maps anything for it. */
static u32 import_check_client(struct pci_dev *client)
{
	u32 reason;

	if (!import_lock_client(client))
		return PEERDMA_REASON_VENDOR_BUSY;
	reason = import_client_reason(client);
	device_unlock(&client->dev);
	return reason;
}

/* From here on who unbinds the client ends the import. False: there is no such client. */
static bool join(struct peerdma_import *import)
{
	struct client *client;
	bool found = false;

	mutex_lock(&imports_mutex);
	list_for_each_entry(client, &clients, link) {
		if (client->pdev != import->client || client->ending)
			continue;
		list_add_tail(&import->link, &client->imports);
		found = true;
		break;
	}
	mutex_unlock(&imports_mutex);
	return found;
}

/* One that is not ended yet, referenced; or NULL. */
static struct peerdma_import *imports_take_one(struct client *client)
{
	struct peerdma_import *import;

	mutex_lock(&imports_mutex);
	client->ending = true;
	import = list_first_entry_or_null(&client->imports, struct peerdma_import, link);
	if (import) {
		refcount_inc(&import->pin.refs);
		list_del_init(&import->link);
	}
	mutex_unlock(&imports_mutex);
	return import;
}

/* Its driver is going, or this module. May take as long as the storage and the exporters. */
static void client_end(struct peerdma_consumer *consumer)
{
	struct client *client = container_of(consumer, struct client, consumer);
	struct peerdma_import *import;

	while ((import = imports_take_one(client))) {
		peerdma_pin_revoke_wait(&import->pin);
		wait_for_completion(&import->gone);
		peerdma_pin_put(&import->pin);
	}
	mutex_lock(&imports_mutex);
	list_del(&client->link);
	queue_work(free_wq, &client->free); /* who unloads finds no client, and then drains it */
	mutex_unlock(&imports_mutex);
}

/* A consumer cannot be removed by its own end. */
static void client_free(struct work_struct *work)
{
	struct client *client = container_of(work, struct client, free);

	peerdma_consumer_remove(&client->consumer);
	pci_dev_put(client->pdev);
	kfree(client);
}

/* Under its lock. */
static int client_create(struct pci_dev *pdev)
{
	static atomic_t last_id;
	struct client *client = kzalloc(sizeof(*client), GFP_KERNEL);
	int err;

	if (!client)
		return -ENOMEM;
	client->consumer.end = client_end;
	client->pdev = pci_dev_get(pdev);
	INIT_LIST_HEAD(&client->imports);
	INIT_WORK(&client->free, client_free);
	err = peerdma_consumer_add(&client->consumer, &pdev->dev, PEERDMA_CONSUMER_IMPORTER,
				   (u32)atomic_inc_return(&last_id) & INT_MAX);
	if (err) {
		pci_dev_put(pdev);
		kfree(client);
		return err;
	}
	mutex_lock(&imports_mutex);
	list_add_tail(&client->link, &clients);
	mutex_unlock(&imports_mutex);
	return 0;
}

/* Under the client's lock. */
static u32 import_prove_page(struct peerdma_import *import, struct page *page)
{
	u32 map, reason = import_client_reason(import->client);
	u64 addr;

	if (reason)
		return reason;
	if (peerdma_dma_trial_map(&import->client->dev, page, &map, &addr) || addr != import->addr)
		return PEERDMA_REASON_IMPORT_ADDRESS;
	if (join(import))
		return PEERDMA_REASON_NONE;
	if (client_create(import->client) == -ENOMEM)
		return PEERDMA_REASON_VENDOR_BUSY;
	return join(import) ? PEERDMA_REASON_NONE : PEERDMA_REASON_IMPORT_DEVICE;
}

/* Under the lock of the function whose memory it is. */
static u32 import_prove(struct peerdma_pin *pin, struct pci_dev *pdev)
{
	struct peerdma_import *import = import_of_pin(pin);
	u32 reason;

	if (import->client == pdev)
		return PEERDMA_REASON_IMPORT_DEVICE;
	if (!import_lock_client(import->client))
		return PEERDMA_REASON_VENDOR_BUSY;
	reason = import_prove_page(import, pfn_to_page(PHYS_PFN(pin->chunks[0])));
	device_unlock(&import->client->dev);
	return reason;
}

int peerdma_imports_init(void)
{
	free_wq = alloc_workqueue("peerdma_import", WQ_UNBOUND, 0);
	return free_wq ? 0 : -ENOMEM;
}

/* One that has not ended, referenced; or NULL. */
static struct platform_device *any_consumer(void)
{
	struct platform_device *dev = NULL;
	struct client *client;

	mutex_lock(&imports_mutex);
	client = list_first_entry_or_null(&clients, struct client, link);
	if (client) {
		dev = client->consumer.dev;
		get_device(&dev->dev);
	}
	mutex_unlock(&imports_mutex);
	return dev;
}

/* There are no imports. */
void peerdma_imports_exit(void)
{
	struct platform_device *dev;

	while ((dev = any_consumer())) {
		device_release_driver(&dev->dev);
		platform_device_put(dev);
	}
	destroy_workqueue(free_wq);
}

/* --- Importing. */

static const struct peerdma_vendor_ops import_ops = {
	.owner = THIS_MODULE,
	.prove = import_prove,
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
		*reason = client ? import_check_client(client) : PEERDMA_REASON_IMPORT_DEVICE;
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
	made->out_reason = import_attach(import);
	if (!made->out_reason)
		made->out_reason = import_locate(import);
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
