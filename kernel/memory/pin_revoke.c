// SPDX-License-Identifier: GPL-2.0
/*
 * Revokes a pin, when its driver takes the memory back or the process that registered it exits.
 *
 * By the driver. It may take the memory back at any moment, by a call into this module with locks
 * of its own held. When the call returns, the memory is gone. So the call revokes the buffer and
 * waits until the last page is free, which takes as long as the storage takes. It never waits for a
 * thread that may be waiting for the driver.
 *
 * By exit. The driver may keep the memory for the pin and yet wait for its pages when the process
 * closes the driver's own files. Files of this module may be closed later, or have been passed to
 * another process. So the buffer is revoked as soon as the process's mm is torn down, which comes
 * before it closes files, unless another process shares the mm. Kernels without MMU notifiers do
 * not report that.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "base/work.h"
#include "memory/buffer.h"
#include "memory/pin.h"

/* When this returns, the pin has no buffer and will get none. */
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
 * peerdma_pin_revoke_wait - revoke a pin and wait until its memory is not used any more
 * @pin: referenced by the caller
 *
 * Any number of callers, at any time.
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
 * Must not wait: other notifiers of the mm would wait too. Also called by
 * peerdma_pin_forget_owner(), at the same time perhaps. The pin has not ended.
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

/* Called by a work item, which gets no signals: mmu_notifier_register() fails with one pending. */
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

/* Calls pin_owner_ended() if the process has not exited: by then it has nothing to revoke. */
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
