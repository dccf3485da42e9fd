// SPDX-License-Identifier: GPL-2.0
/*
 * A pin's memory is taken back: by its driver, or because the process that registered it has ended.
 *
 * The driver may take the memory away at any moment, and says so by a call into the module, made
 * with locks of its own held. When that call returns the memory is gone. So it waits: it revokes
 * the buffer, which lets requests end, and then until the last page is let go, which takes as long
 * as the storage does. It never waits for anybody who may be waiting for the driver.
 *
 * Its process ends. The driver may keep the memory for us nevertheless, and yet wait for its pages
 * when the process closes the driver's own files. Ours may be closed after those, or be somebody
 * else's by then: so the buffer is revoked as soon as the process has lost its address space, which
 * comes before it closes files, unless another process shares that. Kernels without MMU notifiers
 * do not tell.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "base/work.h"
#include "memory/buffer.h"
#include "memory/pin.h"

/* It is no buffer's when this returns, nor will be. */
void peerdma_pin_revoke(struct peerdma_pin *pin)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	pin->taken = true;
	buffer = pin->buffer;
	if (buffer)
		refcount_inc(&buffer->refs);
	mutex_unlock(&pin->lock);
	if (buffer) {
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}

/**
 * peerdma_pin_revoke_wait - the memory goes away when this returns
 * @pin: referenced by the caller
 *
 * Any number of callers, at any time. Sleeps until the memory is not used any more.
 */
void peerdma_pin_revoke_wait(struct peerdma_pin *pin)
{
	peerdma_pin_revoke(pin);
	wait_for_completion(&pin->quiet);
}
EXPORT_SYMBOL_GPL(peerdma_pin_revoke_wait);

#ifdef CONFIG_MMU_NOTIFIER

static void pin_orphaned(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, orphan);

	peerdma_pin_revoke(pin);
	peerdma_pin_drop(pin);
}

/*
 * May not wait: whoever else hears of such ends would wait as well. Called once more by who forgets
 * the process just then. The pin has not ended.
 */
static void pin_owner_ended(struct mmu_notifier *owner, struct mm_struct *mm)
{
	struct peerdma_pin *pin = container_of(owner, struct peerdma_pin, owner);

	peerdma_pin_hold(pin);
	if (!queue_work(peerdma_revoke_wq, &pin->orphan))
		peerdma_pin_drop(pin);
}

static const struct mmu_notifier_ops owner_ops = {
	.release = pin_owner_ended,
};

struct pin_watch {
	struct work_struct work;
	struct peerdma_pin *pin;
	struct mm_struct *mm;
	int err;
};

static void pin_watch_work(struct work_struct *work)
{
	struct pin_watch *watch = container_of(work, struct pin_watch, work);

	watch->err = mmu_notifier_register(&watch->pin->owner, watch->mm);
	if (watch->err)
		watch->pin->owner.mm = NULL;
}

/* By somebody who gets no signals: with any pending the kernel gives up. */
int peerdma_pin_watch_owner(struct peerdma_pin *pin)
{
	struct pin_watch asked = { .pin = pin, .mm = current->mm };

	INIT_WORK(&pin->orphan, pin_orphaned);
	pin->owner.ops = &owner_ops;
	INIT_WORK_ONSTACK(&asked.work, pin_watch_work);
	peerdma_pin_queue(&asked.work);
	flush_work(&asked.work);
	destroy_work_on_stack(&asked.work);
	return asked.err;
}

/* The process is told to have ended, if it has not: nothing of it is left to be taken back. */
void peerdma_pin_forget_owner(struct peerdma_pin *pin)
{
	if (pin->owner.mm)
		mmu_notifier_unregister(&pin->owner, pin->owner.mm);
}

#else

int peerdma_pin_watch_owner(struct peerdma_pin *pin)
{
	return 0;
}

void peerdma_pin_forget_owner(struct peerdma_pin *pin)
{
}

#endif
