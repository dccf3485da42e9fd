/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Duration and CPU time of the last call from a driver into ours, to show that waiting sleeps.
 * debugfs, in ms: waited, ran. The CPU time is counted in ticks.
 */
#ifndef WATCH_H
#define WATCH_H

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/sched.h>

static atomic_t watch_waited = ATOMIC_INIT(0);
static atomic_t watch_ran = ATOMIC_INIT(0);

struct watch {
	u64 began;
	u64 ran;
};

static inline struct watch watch_begin(void)
{
	return (struct watch){ ktime_get_ns(), current->se.sum_exec_runtime };
}

static inline void watch_end(const struct watch *watch)
{
	const u64 took = ktime_get_ns() - watch->began;
	const u64 ran = current->se.sum_exec_runtime - watch->ran;

	atomic_set(&watch_waited, div_u64(took, NSEC_PER_MSEC));
	atomic_set(&watch_ran, div_u64(ran, NSEC_PER_MSEC));
}

static inline void watch_show(struct dentry *folder)
{
	debugfs_create_atomic_t("waited", 0444, folder, &watch_waited);
	debugfs_create_atomic_t("ran", 0444, folder, &watch_ran);
}

#endif /* WATCH_H */
