// SPDX-License-Identifier: GPL-2.0
/*
 * Calls the error handlers of a PCI function's driver as the kernel does after an error. The lab's
 * emulated bus cannot report the errors of a bridge. With event=shutdown calls its shutdown handler
 * instead, and then resumes the function. With event=pull takes the function from its driver as if
 * it had been pulled out: config space cannot be read, and its interrupts are lost.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *bdf;
module_param(bdf, charp, 0444);

static char *event = "error";
module_param(event, charp, 0444);

/* As after a fatal error of an upstream bridge. */
static int error(struct pci_dev *pdev)
{
	const struct pci_error_handlers *handlers = pdev->driver->err_handler;
	pci_ers_result_t found, reset;

	if (!handlers || !handlers->error_detected)
		return -EOPNOTSUPP;
	found = handlers->error_detected(pdev, pci_channel_io_frozen);
	if (found != PCI_ERS_RESULT_NEED_RESET)
		return -EPROTO;
	/* The bridge resets nothing here, so the current state is saved to be restored. */
	pci_save_state(pdev);
	reset = handlers->slot_reset(pdev);
	if (reset != PCI_ERS_RESULT_RECOVERED)
		return -EPROTO;
	handlers->resume(pdev);
	return 0;
}

static int go_down(struct pci_dev *pdev)
{
	if (!pdev->driver->shutdown || !pdev->driver->err_handler)
		return -EOPNOTSUPP;
	pdev->driver->shutdown(pdev);
	pdev->driver->err_handler->resume(pdev);
	return 0;
}

/* Of a function with one interrupt. */
static void pull(struct pci_dev *pdev)
{
	pdev->error_state = pci_channel_io_perm_failure;
	disable_irq(pci_irq_vector(pdev, 0));
	/*
	 * QEMU ends what it has begun: it may crash if the driver resets the function before.
	 * dmacard ends its copies after 5 to 6 s (ABSENT_POLLS).
	 */
	msleep(7000);
	device_release_driver(&pdev->dev);
	pdev->error_state = pci_channel_io_normal;
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
	if (!strcmp(event, "pull")) {
		pull(pdev);
		pci_dev_put(pdev);
		return 0;
	}
	device_lock(&pdev->dev);
	if (pdev->driver)
		err = strcmp(event, "shutdown") ? error(pdev) : go_down(pdev);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return err;
}

static void __exit pcievent_exit(void)
{
}

module_init(pcievent_init);
module_exit(pcievent_exit);
MODULE_DESCRIPTION("Calls the error handlers of a PCI driver");
MODULE_LICENSE("GPL");
