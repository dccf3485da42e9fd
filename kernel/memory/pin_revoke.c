// SPDX-License-Identifier: GPL-2.0
/*
 * Revokes a pin when its driver takes the memory back, or when the registrant exits or calls exec.
 *
 * The driver may take the memory back at any moment, by a call into this module with locks of its
 * own held. When the call returns, the memory is gone. So the call revokes the buffer and waits
 * until the last page is free, which takes as long as the storage takes. It never waits for a
 * thread that may be waiting for the driver.
 *
 * When the registrant closes the driver's own files, the driver may wait for the pages of its
 * memory, although it keeps that memory for the pin. Files of this module may be closed later, or
 * have been passed to another process. So the buffer is revoked as soon as the registrant's mm is
 * torn down, which is before its files are closed. This is not reported while another process
 * shares the mm, and never by a kernel without MMU notifiers.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "base/work.h"
#include "memory/buffer.h"
#include "memory/pin.h"

/* When this returns, the pin's buffer is revoked, or the pin never gets one. */
void peerdma_pin_revoke(struct peerdma_pin *pin)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	pin->revoked = true;
	buffer = pin->buffer;
	if (buffer)
		refcount_inc(&buffer->refs);
	mutex_unlock(&pin->lock);
	if (buffer) {
		WRITE_ONCE(buffer->recalled, true); /* first: another thread may wait already */
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}

/**
 * peerdma_pin_revoke_wait - revoke a pin, and wait until no one uses its memory any more
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

static void pin_mm_gone_work(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, mm_gone);

	peerdma_pin_revoke(pin);
	peerdma_pin_drop(pin);
}

/*
 * Called when the mm is torn down, and by mmu_notifier_unregister() before that, perhaps at the
 * same time. The pin has not ended. Must not wait: other notifiers of the mm would wait too.
 */
static void pin_mm_released(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct peerdma_pin *pin = container_of(notifier, struct peerdma_pin, mm_notifier);

	peerdma_pin_hold(pin);
	if (!queue_work(peerdma_revoke_wq, &pin->mm_gone))
		peerdma_pin_drop(pin);
}

static const struct mmu_notifier_ops pin_mm_ops = {
	.release = pin_mm_released,
};

/* Arguments of pin_watch_work(). */
struct pin_watch {
	struct work_struct work;
	struct peerdma_pin *pin;
	struct mm_struct *mm;
	int err;
};

static void pin_watch_work(struct work_struct *work)
{
	struct pin_watch *watch = container_of(work, struct pin_watch, work);

	watch->err = mmu_notifier_register(&watch->pin->mm_notifier, watch->mm);
	if (watch->err)
		watch->pin->mm_notifier.mm = NULL;
}

/* A work item registers the notifier: with a signal pending mmu_notifier_register() fails. */
int peerdma_pin_watch_mm(struct peerdma_pin *pin)
{
	struct pin_watch watch = { .pin = pin, .mm = current->mm };

	INIT_WORK(&pin->mm_gone, pin_mm_gone_work);
	pin->mm_notifier.ops = &pin_mm_ops;
	INIT_WORK_ONSTACK(&watch.work, pin_watch_work);
	peerdma_pin_queue(&watch.work);
	flush_work(&watch.work);
	destroy_work_on_stack(&watch.work);
	return watch.err;
}

/*
 * Called when nothing is left to revoke. Calls pin_mm_released(), unless the mm was torn down
 * before.
 */
void peerdma_pin_unwatch_mm(struct peerdma_pin *pin)
{
	if (pin->mm_notifier.mm)
		mmu_notifier_unregister(&pin->mm_notifier, pin->mm_notifier.mm);
}

#else

int peerdma_pin_watch_mm(struct peerdma_pin *pin)
{
	return 0;
}

void peerdma_pin_unwatch_mm(struct peerdma_pin *pin)
{
}

#endif
