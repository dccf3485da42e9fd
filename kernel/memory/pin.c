// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that somebody else's driver keeps where it is. A pin ends in two steps. First it is quiet:
 * no page of it is used any more. Whoever takes it back waits for that, and for nothing else. Then
 * a work item tells the driver, which may make it wait for its locks; it has a queue to itself and
 * nobody waits for it but who unloads, who unbinds the GPU, and who could not be given a buffer.
 */
#include <linux/module.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "memory/pin.h"

static struct workqueue_struct *pin_wq;

/* With its module, so that whatever is called by way of it stays as well. */
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

/* Nobody uses the memory any more, nor will. Waits for nobody; call once: the end frees it. */
void peerdma_pin_release(struct peerdma_pin *pin)
{
	if (pin->external)
		atomic_inc(&pin->external->ending);
	complete_all(&pin->quiet);
	queue_work(pin_wq, &pin->end);
}

/**
 * peerdma_pin_unpin_as_owner - to a driver that looks at which process does
 * @pin: held by the caller; NULL: of no such driver
 *
 * By the process that is to do it, with nothing of ours held. If others use the memory still it is
 * not done: nobody waits for them.
 */
void peerdma_pin_unpin_as_owner(struct peerdma_pin *pin)
{
	if (pin && pin->ops->unpin_as_owner && completion_done(&pin->quiet))
		pin->ops->unpin_as_owner(pin);
}

/* One that is no buffer's, held by the caller: it has ended when this returns. */
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

/* Nothing is pinned. Its work may make some for peerdma_revoke_wq, which goes later. */
void peerdma_pins_exit(void)
{
	destroy_workqueue(pin_wq);
}

/* For a work item of a pin that others must not wait behind. */
void peerdma_pin_queue(struct work_struct *work)
{
	queue_work(pin_wq, work);
}
