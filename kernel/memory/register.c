// SPDX-License-Identifier: GPL-2.0
/*
 * Registers external memory as a buffer. The words are those of pin.h. A module for the driver that
 * has allocated the memory (nvidia.c) pins it, and gets the addresses of its chunks.
 * external_prove.c proves that it can be used. Then mem_pages.c references the pages, and the
 * buffer is like any other.
 *
 * Unpinning by the registrant. Some drivers accept an unpin from the registrant only. A work item
 * does not run in that process, so the thread that destroys or closes the buffer unpins, as its
 * last step, when no other thread waits for it. The vendor's module handles the case that another
 * process destroys the buffer.
 */
#include <linux/device.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"
#include "memory/proxy.h"

#define TRIES HZ /* one each tick: the GPU's device lock is tried for a second */

static LIST_HEAD(vendors);
static DEFINE_MUTEX(vendors_mutex); /* protects vendors */

/**
 * peerdma_vendor_register - allow memory of this vendor to be registered
 * @ops: must stay until peerdma_vendor_unregister()
 * Return: 0 or -EBUSY.
 */
int peerdma_vendor_register(struct peerdma_vendor_ops *ops)
{
	struct peerdma_vendor_ops *other;
	int err = 0;

	mutex_lock(&vendors_mutex);
	list_for_each_entry(other, &vendors, link) {
		if (other->pci_vendor == ops->pci_vendor)
			err = -EBUSY;
	}
	if (!err)
		list_add_tail(&ops->link, &vendors);
	mutex_unlock(&vendors_mutex);
	return err;
}
EXPORT_SYMBOL_GPL(peerdma_vendor_register);

/* Called by the vendor module's exit: nothing is pinned, and no call of @ops is running. */
void peerdma_vendor_unregister(struct peerdma_vendor_ops *ops)
{
	mutex_lock(&vendors_mutex);
	list_del(&ops->link);
	mutex_unlock(&vendors_mutex);
}
EXPORT_SYMBOL_GPL(peerdma_vendor_unregister);

/* The operations for this vendor, with a reference of their module; or NULL. */
static const struct peerdma_vendor_ops *vendor_get(u32 pci_vendor)
{
	const struct peerdma_vendor_ops *ops, *found = NULL;

	mutex_lock(&vendors_mutex);
	list_for_each_entry(ops, &vendors, link) {
		if (ops->pci_vendor == pci_vendor && try_module_get(ops->owner))
			found = ops;
	}
	mutex_unlock(&vendors_mutex);
	return found;
}

/* The end of a pin that is quiet: unpins, and puts all references. */
static void pin_end(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, end);
	struct module *owner = pin->ops->owner;
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	buffer = pin->buffer;
	pin->buffer = NULL;
	mutex_unlock(&pin->lock);
	peerdma_pin_unwatch_mm(pin);
	pin->ops->unpin(pin);
	if (buffer)
		peerdma_buffer_put(buffer);
	if (pin->external) {
		if (atomic_dec_and_test(&pin->external->ending))
			wake_up_var(&pin->external->ending);
		peerdma_external_put(pin->external);
	}
	if (pin->pgmap)
		put_dev_pagemap(pin->pgmap);
	peerdma_pin_put(pin);
	module_put(owner);
}

void peerdma_pin_init(struct peerdma_pin *pin, const struct peerdma_vendor_ops *ops)
{
	pin->ops = ops;
	refcount_set(&pin->refs, 1);
	mutex_init(&pin->lock);
	init_completion(&pin->quiet);
	INIT_WORK(&pin->end, pin_end);
}
EXPORT_SYMBOL_GPL(peerdma_pin_init);

/*
 * Makes the buffer that of the pin: from here on it is revoked with the pin. False if the pin was
 * revoked before.
 */
static bool pin_attach(struct peerdma_pin *pin, struct peerdma_buffer *buffer)
{
	bool attached;

	mutex_lock(&pin->lock);
	attached = !pin->revoked;
	if (attached) {
		refcount_inc(&buffer->refs);
		pin->buffer = buffer;
		if (pin->ops->unpin_by_registrant) {
			peerdma_pin_hold(pin);
			buffer->pin = pin;
		}
	}
	mutex_unlock(&pin->lock);
	return attached;
}

static int register_refuse(struct peerdma_buf_register *req, u32 reason)
{
	req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

/*
 * Proves the pin and makes a mem of it. The caller holds the device lock. After a success the pin
 * ends with the mem. *used: a provider whose usage reference the caller must put, also after an
 * error; or NULL.
 */
static struct peerdma_mem *register_mem(const struct peerdma_ctx *ctx, struct pci_dev *pdev,
					int bar, struct peerdma_pin *pin,
					struct peerdma_buf_register *req,
					struct peerdma_provider **used)
{
	int err = register_refuse(req, peerdma_pin_prove(pin, pdev, bar));
	struct peerdma_external *external;
	struct peerdma_mem *mem;

	*used = NULL;
	external = err ? ERR_PTR(err) : peerdma_external_get(ctx, pdev, bar, pin->pgmap);
	if (!err && external == ERR_PTR(-ENODEV))
		return ERR_PTR(register_refuse(req, PEERDMA_REASON_REVOKED));
	if (IS_ERR(external))
		return ERR_CAST(external);
	pin->external = external;
	if (!peerdma_usage_tryget(&external->provider->usage))
		return ERR_PTR(register_refuse(req, PEERDMA_REASON_REVOKED));
	*used = external->provider;
	mem = peerdma_mem_from_pin(external->provider, pin, &req->out_reason);
	if (!IS_ERR(mem)) {
		kvfree(pin->chunk_addrs);
		pin->chunk_addrs = NULL;
	}
	return mem;
}

/*
 * Makes a buffer of the mem. The caller holds the device lock and a usage reference of the
 * provider. If this fails, the mem is released.
 */
static int register_buffer(struct peerdma_ctx *ctx, struct peerdma_mem *mem,
			   struct peerdma_buf_register *req)
{
	struct peerdma_buffer *buffer = peerdma_buffer_add(ctx, mem);

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	if (!pin_attach(mem->pin, buffer)) {
		peerdma_buffer_destroy(ctx, buffer->entry.id, false);
		return register_refuse(req, PEERDMA_REASON_VENDOR_FREED);
	}
	req->out_buf_id = buffer->entry.id;
	req->out_provider_id = buffer->provider->id;
	req->out_mmap_offset = peerdma_proxy_offset(buffer);
	return 0;
}

/* The lock is only tried: an unbind may hold it while it waits for memory that is pinned here. */
static int register_lock_function(struct pci_dev *pdev, struct peerdma_buf_register *req)
{
	unsigned int tries;

	for (tries = 0; !device_trylock(&pdev->dev); tries++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (tries == TRIES)
			return register_refuse(req, PEERDMA_REASON_VENDOR_BUSY);
		schedule_timeout_killable(1);
	}
	return 0;
}

/*
 * Makes a buffer of the pin, under the function's device lock. If the memory is refused, waits for
 * the end of the pin without that lock. An unbind, too, waits for the end of a pin that has an
 * external. It does not know a pin without one, which is of a registration that comes too late: the
 * driver's remove() may find that memory pinned for a moment more.
 */
static int register_on_function(struct peerdma_ctx *ctx, struct pci_dev *pdev, int bar,
				struct peerdma_pin *pin, struct peerdma_buf_register *req)
{
	struct peerdma_provider *used;
	struct peerdma_mem *mem;
	int err = register_lock_function(pdev, req);

	if (err) {
		peerdma_pin_release_wait(pin);
		return err;
	}
	mem = register_mem(ctx, pdev, bar, pin, req, &used);
	if (IS_ERR(mem))
		peerdma_pin_release(pin); /* under the lock: an unbind counts it as ending */
	err = IS_ERR(mem) ? PTR_ERR(mem) : register_buffer(ctx, mem, req);
	if (used)
		peerdma_usage_put(&used->usage);
	device_unlock(&pdev->dev);
	if (IS_ERR(mem))
		flush_work(&pin->end);
	return err;
}

/* Makes a buffer of the pin, or ends it. The caller references the pin. */
static int register_pin(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			struct peerdma_buf_register *req)
{
	struct pci_dev *pdev;
	int bar, err;

	pdev = req->out_reason ? NULL : peerdma_pin_find_function(pin, &bar);
	if (!pdev) {
		peerdma_pin_release_wait(pin);
		return register_refuse(req, req->out_reason ?: PEERDMA_REASON_VENDOR_NOT_BAR);
	}
	err = register_on_function(ctx, pdev, bar, pin, req);
	pci_dev_put(pdev);
	return err;
}

/**
 * peerdma_pin_register - make a buffer of pinned memory
 * @ctx: the buffer's open file
 * @pin: ends with the buffer's memory, or now if this fails
 * @req: if its out_reason is not 0 already, the pin is of no use, and this fails; all out_* are
 *	written
 * Return: 0 or -errno; that of the reason, if there is one.
 */
int peerdma_pin_register(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			 struct peerdma_buf_register *req)
{
	int err;

	peerdma_pin_hold(pin); /* the pin may end before this returns */
	err = register_pin(ctx, pin, req);
	if (err)
		peerdma_pin_unpin_by_registrant(pin);
	peerdma_pin_drop(pin);
	return err;
}

/*
 * Watches the mm before it asks the driver to pin. Watching takes mmap_lock, whose holder may wait
 * for the driver. Once the driver has answered, it may call back, and then it waits for this thread
 * with its locks held.
 */
static int register_ask(struct peerdma_pin *pin, u32 *reason)
{
	int err = peerdma_pin_watch_mm(pin);

	if (err)
		return err;
	err = pin->ops->pin(pin, reason);
	if (err)
		peerdma_pin_unwatch_mm(pin);
	return err;
}

int peerdma_buf_register_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_register *req = &arg->buf_register;
	const struct peerdma_vendor_ops *ops;
	struct peerdma_pin *pin;
	int err;

	req->out_buf_id = 0;
	req->out_provider_id = 0;
	req->out_mmap_offset = 0;
	err = register_refuse(req, peerdma_check_register(req->addr, req->len, PEERDMA_CHUNK_LEN));
	if (err)
		return err;
	ops = vendor_get(req->pci_vendor);
	if (!ops)
		return register_refuse(req, PEERDMA_REASON_VENDOR_MODULE);
	pin = ops->create(req->addr, req->len, &req->out_reason);
	err = PTR_ERR_OR_ZERO(pin);
	if (!err) {
		err = register_ask(pin, &req->out_reason);
		if (!err)
			return peerdma_pin_register(ctx, pin, req);
		peerdma_pin_put(pin);
	}
	module_put(ops->owner);
	return peerdma_reason_errno(req->out_reason) ?: err;
}

void peerdma_buf_register_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	peerdma_buffer_show_or_destroy(ctx, arg->buf_register.out_buf_id, err);
}
