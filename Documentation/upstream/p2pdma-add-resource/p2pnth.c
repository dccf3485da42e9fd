// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the nth allocation inside pci_p2pdma_add_resource() fail while a device is probed, as any
 * driver may meet it; then the probe fails, and the driver core undoes what the function has left
 * on the device. Needs CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC, CONFIG_FAULT_INJECTION_DEBUG_FS,
 * CONFIG_FAULT_INJECTION_STACKTRACE_FILTER, CONFIG_KASAN. run.sh runs it.
 */
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/sizes.h>

static unsigned int nth;
module_param(nth, uint, 0644);

static bool reached; /* was there an nth allocation */
module_param(reached, bool, 0444);

static int bar = 2;
module_param(bar, int, 0644);

static int p2pnth_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	current->fail_nth = nth;
	err = pci_p2pdma_add_resource(pdev, bar, SZ_2M, 0);
	reached = !current->fail_nth;
	current->fail_nth = 0;
	pci_info(pdev, "p2pnth: allocation %u %s, result %d\n", nth,
		 reached ? "failed" : "was not reached", err);
	return err;
}

/* Empty: only driver_override brings a device here. */
static const struct pci_device_id p2pnth_ids[] = { {} };

static struct pci_driver p2pnth_driver = {
	.name = "p2pnth",
	.id_table = p2pnth_ids,
	.probe = p2pnth_probe,
};
module_pci_driver(p2pnth_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Fails the nth allocation inside pci_p2pdma_add_resource()");
