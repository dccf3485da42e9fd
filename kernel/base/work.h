/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's work queues.
 */
#ifndef PEERDMA_WORK_H
#define PEERDMA_WORK_H

#include <linux/workqueue.h>

extern struct workqueue_struct *peerdma_wq; /* for work that waits for memory only */
extern struct workqueue_struct *peerdma_revoke_wq; /* for work that waits for storage */

int peerdma_work_init(void);
void peerdma_work_exit_revoke(void);
void peerdma_work_exit(void);

#endif /* PEERDMA_WORK_H */
