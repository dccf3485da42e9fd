// SPDX-License-Identifier: GPL-2.0
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "compat/compat.h"
#include "base/work.h"
#include "memory/bar.h"
#include "memory/import.h"
#include "memory/pin.h"
#include "memory/provider.h"
#include "memory/proxy.h"
#include "routing/queue.h"
#include "routing/route.h"
#include "routing/stack.h"
#include "io/uring.h"
#include "face/debugfs.h"
#include "face/ioctl.h"
#include "face/node.h"

static struct miscdevice peerdma_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "peerdma",
	.mode = 0660,
	.fops = &peerdma_fops,
};

static const struct peerdma_provider_events provider_events = {
	.reserved = peerdma_routes_init,
	.announced = peerdma_node_add,
	.withdrawn = peerdma_node_remove,
	.ended = peerdma_routes_release,
};

static int __init peerdma_init(void)
{
	int err;

	err = peerdma_work_init();
	if (err)
		return err;
	err = peerdma_queues_init();
	if (err)
		goto err_work;
	err = peerdma_uring_init();
	if (err)
		goto err_queues;
	peerdma_debugfs_register();
	err = peerdma_proxy_init();
	if (err)
		goto err_debugfs;
	err = peerdma_lifecycle_init(&provider_events);
	if (err)
		goto err_proxy;
	err = peerdma_pins_init();
	if (err)
		goto err_lifecycle;
	err = peerdma_externals_init();
	if (err)
		goto err_pins;
	err = peerdma_imports_init();
	if (err)
		goto err_externals;
	err = peerdma_nodes_init(&peerdma_fops);
	if (err)
		goto err_imports;
	err = peerdma_bar_register();
	if (err)
		goto err_nodes;
	err = misc_register(&peerdma_misc);
	if (err)
		goto err_bar;
	return 0;

err_bar:
	peerdma_bar_unregister();
err_nodes:
	peerdma_nodes_exit();
err_imports:
	peerdma_imports_exit();
err_externals:
	peerdma_externals_exit();
err_pins:
	peerdma_pins_exit();
err_lifecycle:
	peerdma_lifecycle_exit();
err_proxy:
	peerdma_proxy_exit();
err_debugfs:
	peerdma_debugfs_unregister();
	peerdma_uring_exit();
err_queues:
	peerdma_queues_exit();
err_work:
	peerdma_work_exit_revoke();
	peerdma_work_exit();
	return err;
}

/*
 * No file is open, or the module would be in use. Unbinding waits for each mem, but the work item
 * that freed the last one may not have returned, so its queue is destroyed later. Routes are freed
 * by work that a grace period queues there.
 */
static void __exit peerdma_exit(void)
{
	misc_deregister(&peerdma_misc);
	peerdma_debugfs_unregister();
	peerdma_bar_unregister();
	peerdma_imports_exit();
	peerdma_externals_exit();
	peerdma_pins_exit();
	peerdma_work_exit_revoke();
	peerdma_lifecycle_exit();
	peerdma_nodes_exit();
	/* The end of a per-CPU count is such a callback, which may queue another one. */
	rcu_barrier();
	rcu_barrier();
	peerdma_proxy_exit();
	peerdma_work_exit();
	peerdma_queues_exit();
	peerdma_stack_exit();
	peerdma_uring_exit();
}

module_init(peerdma_init);
module_exit(peerdma_exit);

MODULE_DESCRIPTION("Storage straight to and from the memory of a PCI function");
MODULE_AUTHOR("The PeerDMA authors");
MODULE_LICENSE("GPL");
