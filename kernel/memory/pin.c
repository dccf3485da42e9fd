// SPDX-License-Identifier: GPL-2.0
/*
 * Pins: external memory that another driver keeps in place. A pin ends in two steps. First it
 * becomes quiet: none of its pages is used any more. A driver that takes its memory back waits for
 * that step only. Then a work item unpins, for which it may wait for the driver's locks. So these
 * items have a work queue of their own. Only an unload, an unbind of the GPU or of an import's
 * device, and a registration wait for an item: the registration before it asks the driver, or after
 * it has failed.
 */
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "memory/pin.h"

static struct workqueue_struct *pin_wq;

/* References the pin and its module, so that the pin's operations stay. */
void peerdma_pin_hold(struct peerdma_pin *pin)
{
	__module_get(pin->ops->owner);
	refcount_inc(&pin->refs);
}

/* Undoes peerdma_pin_hold(). */
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

/*
 * Called once, when the memory is not used any more. Makes the pin quiet, and starts its end, which
 * puts the first reference. Does not wait.
 */
void peerdma_pin_release(struct peerdma_pin *pin)
{
	if (pin->external)
		atomic_inc(&pin->external->ending);
	complete_all(&pin->quiet);
	queue_work(pin_wq, &pin->end);
}

/**
 * peerdma_pin_unpin_by_registrant - unpin, if the driver accepts that from the registrant only
 * @pin: referenced by the caller; or NULL
 *
 * Called without a lock of this module. Does nothing in another process, for another driver, or
 * while the memory is used.
 */
void peerdma_pin_unpin_by_registrant(struct peerdma_pin *pin)
{
	if (pin && pin->ops->unpin_by_registrant && completion_done(&pin->quiet))
		pin->ops->unpin_by_registrant(pin);
}

/* Ends a pin that has no buffer, and waits for the end. The caller references the pin. */
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
 * Nothing is pinned. The last item may queue work on peerdma_revoke_wq, which is destroyed later.
 */
void peerdma_pins_exit(void)
{
	destroy_workqueue(pin_wq);
}

/* For work that may wait for a driver, as the end of a pin does. */
void peerdma_pin_queue(struct work_struct *work)
{
	queue_work(pin_wq, work);
}
