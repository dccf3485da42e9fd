// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers of memory that another driver has allocated for a process. A module for that driver
 * (nvidia.c) makes the driver keep the memory in place, which is a pin, and learns its place in the
 * GPU's BAR, which is a list of frames. external_prove.c proves what the core needs. Then the pages
 * are referenced like those of any mem (mem_pages.c), and the buffer is like any other.
 *
 * Unpinning as owner. Some drivers accept an unpin only from the process that pinned. A work item
 * is not that process, so the thread that destroys or closes the buffer does it, as its last step,
 * when no other thread waits for it. The vendor's module handles the case that another process
 * destroys the buffer.
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
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"
#include "memory/proxy.h"
#include "face/op.h"

#define TRIES HZ /* ticks to wait for the GPU's device lock */

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

/* Called by the module's exit: nothing is pinned, and no call is running. */
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

static void pin_end(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, end);
	struct module *owner = pin->ops->owner;
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	buffer = pin->buffer;
	pin->buffer = NULL;
	mutex_unlock(&pin->lock);
	peerdma_pin_forget_owner(pin);
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

/* From here on the buffer is revoked when the memory is taken back. False if it was already. */
static bool pin_attach(struct peerdma_pin *pin, struct peerdma_buffer *buffer)
{
	bool good;

	mutex_lock(&pin->lock);
	good = !pin->taken;
	if (good) {
		refcount_inc(&buffer->refs);
		pin->buffer = buffer;
		if (pin->ops->unpin_as_owner) {
			peerdma_pin_hold(pin);
			buffer->pin = pin;
		}
	}
	mutex_unlock(&pin->lock);
	return good;
}

static int register_refuse(struct peerdma_buf_register *req, u32 reason)
{
	req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

/*
 * The caller holds the device lock. After a success the pages own the pin. *used: a provider whose
 * usage reference the caller must put, also after an error; or NULL.
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
	mem = peerdma_mem_import(external->provider, pin, &req->out_reason);
	if (!IS_ERR(mem)) {
		kvfree(pin->chunks);
		pin->chunks = NULL;
	}
	return mem;
}

/*
 * The caller holds the device lock. The provider stays without a usage reference: it has a pin, and
 * is not being unbound.
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

/* Only tried: an unbind holds the device lock and may wait for memory that is pinned here. */
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
 * Unpins without the device lock. An unbind waits for the end of a pin that has an external. It
 * does not know a pin without one, which is of a registration that comes too late: the driver's
 * remove() may find that memory pinned for a moment more.
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
		peerdma_pin_release(pin); /* counted before an unbind can look */
	err = IS_ERR(mem) ? PTR_ERR(mem) : register_buffer(ctx, mem, req);
	if (used)
		peerdma_usage_put(&used->usage);
	device_unlock(&pdev->dev);
	if (IS_ERR(mem))
		flush_work(&pin->end);
	return err;
}

/* The caller holds a reference of the pin. */
static int register_pin(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			struct peerdma_buf_register *req)
{
	struct pci_dev *pdev;
	int bar, err;

	pdev = req->out_reason ? NULL : peerdma_pin_function(pin, &bar);
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
 * @ctx: its owner
 * @pin: ends with the buffer, or now
 * @req: its out_reason tells whether the pin is of use; all out_* are written
 * Return: 0 or the errno of the reason; -ENOMEM, -EINTR.
 */
int peerdma_pin_register(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			 struct peerdma_buf_register *req)
{
	int err;

	peerdma_pin_hold(pin); /* it may end before this returns */
	err = register_pin(ctx, pin, req);
	if (err)
		peerdma_pin_unpin_as_owner(pin);
	peerdma_pin_drop(pin);
	return err;
}

/*
 * Watches the process first. That takes mmap_lock, whose holder may wait for the driver. The driver
 * may call back as soon as it is asked, and then waits for this thread with its locks held.
 */
static int register_ask(struct peerdma_pin *pin, u32 *reason)
{
	int err = peerdma_pin_watch_owner(pin);

	if (err)
		return err;
	err = pin->ops->pin(pin, reason);
	if (err)
		peerdma_pin_forget_owner(pin);
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
