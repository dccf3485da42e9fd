// SPDX-License-Identifier: GPL-2.0
/*
 * Does to a PCI function's driver what the kernel does at an error, which the lab cannot: its
 * emulated bus reports no errors of others.
 */
#include <linux/module.h>
#include <linux/pci.h>

static char *bdf;
module_param(bdf, charp, 0444);

/* As a fatal error of a bridge above it. */
static int error(struct pci_dev *pdev)
{
	const struct pci_error_handlers *handlers = pdev->driver->err_handler;
	pci_ers_result_t found, reset;

	if (!handlers || !handlers->error_detected)
		return -EOPNOTSUPP;
	found = handlers->error_detected(pdev, pci_channel_io_frozen);
	if (found != PCI_ERS_RESULT_NEED_RESET)
		return -EPROTO;
	/* The bridge resets nothing here: what is restored is what is there. */
	pci_save_state(pdev);
	reset = handlers->slot_reset(pdev);
	if (reset != PCI_ERS_RESULT_RECOVERED)
		return -EPROTO;
	handlers->resume(pdev);
	return 0;
}

static int __init pcievent_init(void)
{
	unsigned int domain, bus, slot, func;
	struct pci_dev *pdev;
	int err = -ENODEV;

	if (sscanf(bdf, "%x:%x:%x.%x", &domain, &bus, &slot, &func) != 4)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, func));
	if (!pdev)
		return -ENODEV;
	device_lock(&pdev->dev);
	if (pdev->driver)
		err = error(pdev);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return err;
}

static void __exit pcievent_exit(void)
{
}

module_init(pcievent_init);
module_exit(pcievent_exit);
MODULE_DESCRIPTION("What the kernel tells a PCI driver");
MODULE_LICENSE("GPL");
