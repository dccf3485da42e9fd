// SPDX-License-Identifier: GPL-2.0
#include <linux/workqueue.h>

#include "base/work.h"

struct workqueue_struct *peerdma_wq;
struct workqueue_struct *peerdma_revoke_wq;

int peerdma_work_init(void)
{
	peerdma_wq = alloc_workqueue("peerdma", WQ_UNBOUND, 0);
	if (!peerdma_wq)
		return -ENOMEM;
	/*
	 * Not WQ_FREEZABLE, like all queues of this module: a suspend waits for the work
	 * (bar_suspend()).
	 */
	peerdma_revoke_wq = alloc_workqueue("peerdma_revoke", WQ_UNBOUND, 0);
	if (peerdma_revoke_wq)
		return 0;
	destroy_workqueue(peerdma_wq);
	return -ENOMEM;
}

/*
 * Nothing is queued there any more. The last work may queue more on peerdma_wq, which is destroyed
 * later.
 */
void peerdma_work_exit_revoke(void)
{
	destroy_workqueue(peerdma_revoke_wq);
}

void peerdma_work_exit(void)
{
	destroy_workqueue(peerdma_wq);
}
