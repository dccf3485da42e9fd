// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that another driver keeps in place. A pin ends in two steps. First it becomes quiet: none
 * of its pages is used any more. A driver that takes its memory back waits for that step only. Then
 * a work item tells the driver, and may wait for the driver's locks. It has a work queue of its
 * own. Only these wait for one of its items: an unload, an unbind of the GPU, and a registration,
 * before it asks the driver or after it failed.
 */
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "memory/pin.h"

static struct workqueue_struct *pin_wq;

/* Also references the module, so that the pin's operations stay. */
void peerdma_pin_hold(struct peerdma_pin *pin)
{
	__module_get(pin->ops->owner);
	refcount_inc(&pin->refs);
}

void peerdma_pin_drop(struct peerdma_pin *pin)
{
	struct module *owner = pin->ops->owner;

	peerdma_pin_put(pin);
	module_put(owner);
}

void peerdma_pin_put(struct peerdma_pin *pin)
{
	if (refcount_dec_and_test(&pin->refs))
		pin->ops->free(pin);
}
EXPORT_SYMBOL_GPL(peerdma_pin_put);

/* The memory is not used any more. Called once; does not wait: the end frees the pin. */
void peerdma_pin_release(struct peerdma_pin *pin)
{
	if (pin->external)
		atomic_inc(&pin->external->ending);
	complete_all(&pin->quiet);
	queue_work(pin_wq, &pin->end);
}

/**
 * peerdma_pin_unpin_as_owner - unpin, for a driver that accepts that from the owning process only
 * @pin: referenced by the caller; NULL: of another driver
 *
 * Called by that process, without a lock of this module. Does nothing if the memory is still used.
 */
void peerdma_pin_unpin_as_owner(struct peerdma_pin *pin)
{
	if (pin && pin->ops->unpin_as_owner && completion_done(&pin->quiet))
		pin->ops->unpin_as_owner(pin);
}

/* For a pin that has no buffer, referenced by the caller. Returns when the pin has ended. */
void peerdma_pin_release_wait(struct peerdma_pin *pin)
{
	peerdma_pin_release(pin);
	flush_work(&pin->end);
}

/* 0 or -ENOMEM. */
int peerdma_pins_init(void)
{
	pin_wq = alloc_workqueue("peerdma_vendor", WQ_UNBOUND, 0);
	return pin_wq ? 0 : -ENOMEM;
}

/*
 * Nothing is pinned. The last work may queue more on peerdma_revoke_wq, which is destroyed later.
 */
void peerdma_pins_exit(void)
{
	destroy_workqueue(pin_wq);
}

/* For a work item of a pin that others must not wait behind. */
void peerdma_pin_queue(struct work_struct *work)
{
	queue_work(pin_wq, work);
}
