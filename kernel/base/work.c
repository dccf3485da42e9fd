// SPDX-License-Identifier: GPL-2.0
#include <linux/workqueue.h>

#include "base/work.h"

struct workqueue_struct *peerdma_wq;
struct workqueue_struct *peerdma_revoke_wq;

/* 0 or -ENOMEM. */
int peerdma_work_init(void)
{
	peerdma_wq = alloc_workqueue("peerdma", WQ_UNBOUND, 0);
	if (!peerdma_wq)
		return -ENOMEM;
	/* Like all of ours not WQ_FREEZABLE: a suspend waits for what it does. bar_suspend() */
	peerdma_revoke_wq = alloc_workqueue("peerdma_revoke", WQ_UNBOUND, 0);
	if (peerdma_revoke_wq)
		return 0;
	destroy_workqueue(peerdma_wq);
	return -ENOMEM;
}

/* Nothing is put there any more. Its work may make some for peerdma_wq, which goes later. */
void peerdma_work_exit_revoke(void)
{
	destroy_workqueue(peerdma_revoke_wq);
}

void peerdma_work_exit(void)
{
	destroy_workqueue(peerdma_wq);
}
