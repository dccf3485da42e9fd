// SPDX-License-Identifier: GPL-2.0
/*
 * Makes any PCI function a provider: bind the function to this driver with driver_override, then
 * publish a range of one of its memory BARs. No device id is compiled in.
 */
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/security.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/dma.h"
#include "base/handlers.h"
#include "base/usage.h"
#include "memory/bar.h"
#include "memory/ctx.h"
#include "memory/provider.h"

static int bar_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err;

	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return -ENODEV;
	/* The function's memory must respond. Bus mastering is not needed. */
	err = pcim_enable_device(pdev);
	if (!err)
		pci_save_state(pdev); /* for bar_slot_reset() */
	return err;
}

/* The consumer ended before, and with it all requests: consumer.c. */
static void bar_remove(struct pci_dev *pdev)
{
	struct peerdma_provider *provider = pci_get_drvdata(pdev);

	if (!provider)
		return;
	pci_set_drvdata(pdev, NULL);
	peerdma_provider_remove(provider);
}

/*
 * --- Resets, errors, shutdown and suspend of a bound function. The PCI core holds its device lock.
 */

#define PATIENCE 10 /* seconds that a reset or shutdown waits for requests */

/* Called before the memory is lost. False: a device may still move bytes of it. */
static bool bar_halt(struct pci_dev *pdev)
{
	struct peerdma_provider *provider = pci_get_drvdata(pdev);

	if (!provider)
		return true;
	peerdma_provider_halt(provider);
	return peerdma_provider_wait_unused(provider, PATIENCE);
}

/* Also called after a failed reset. */
static bool bar_answers(struct pci_dev *pdev)
{
	u16 command;

	pci_read_config_word(pdev, PCI_COMMAND, &command);
	return command != U16_MAX && command & PCI_COMMAND_MEMORY;
}

static void bar_restart(struct pci_dev *pdev)
{
	struct peerdma_provider *provider = pci_get_drvdata(pdev);

	if (!provider)
		return;
	if (bar_answers(pdev))
		peerdma_provider_restart(provider);
	else
		pci_err(pdev, "memory does not respond: nothing is allocated from it\n");
}

/* Called for a reset through sysfs, or of a bridge above. A reset cannot be refused. */
static void bar_reset_prepare(struct pci_dev *pdev)
{
	if (!bar_halt(pdev))
		pci_warn(pdev, "reset while requests are moving bytes of its memory\n");
}

/*
 * Called for error recovery of this function, or of a bridge above. Must not wait for requests:
 * they may be waiting for the recovery of their drive.
 */
static pci_ers_result_t bar_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct peerdma_provider *provider = pci_get_drvdata(pdev);

	if (provider)
		peerdma_provider_halt(provider);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;
	return state == pci_channel_io_normal ? PCI_ERS_RESULT_CAN_RECOVER :
						PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t bar_slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	pci_save_state(pdev); /* up to v6.18 a restore clears the saved state */
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers bar_error_handlers = {
	.error_detected = bar_error_detected,
	.slot_reset = bar_slot_reset,
	.resume = bar_restart,
	.reset_prepare = bar_reset_prepare,
	.reset_done = bar_restart,
};

static void bar_shutdown(struct pci_dev *pdev)
{
	if (!bar_halt(pdev))
		pci_warn(pdev, "shut down while requests are moving bytes of its memory\n");
}

/* Suspend is refused while a drive moves bytes: the system can try again. */
static int bar_suspend(struct device *dev)
{
	if (bar_halt(to_pci_dev(dev)))
		return 0;
	pci_warn(to_pci_dev(dev), "cannot be suspended: requests are moving bytes of its memory\n");
	bar_restart(to_pci_dev(dev));
	return -EBUSY;
}

static int bar_resume(struct device *dev)
{
	bar_restart(to_pci_dev(dev));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(bar_pm, bar_suspend, bar_resume);

/* Empty: only driver_override binds a function to this driver. */
static const struct pci_device_id bar_ids[] = { {} };

static struct pci_driver bar_driver = {
	.name = "peerdma",
	.id_table = bar_ids,
	.probe = bar_probe,
	.remove = bar_remove,
	.shutdown = bar_shutdown,
	.err_handler = &bar_error_handlers,
	.driver.pm = pm_sleep_ptr(&bar_pm),
};

int peerdma_bar_register(void)
{
	return pci_register_driver(&bar_driver);
}

void peerdma_bar_unregister(void)
{
	pci_unregister_driver(&bar_driver);
}

/* True if the function is bound to this driver. The caller holds the device lock. */
bool peerdma_bar_is_bound(struct pci_dev *pdev)
{
	device_lock_assert(&pdev->dev);
	return pdev->dev.driver == &bar_driver.driver;
}

/* True if the range contains the function's MSI-X table or pending bits. */
static bool bar_has_msix(struct pci_dev *pdev, int bar, u64 off, u64 len)
{
	const int cap = pci_find_capability(pdev, PCI_CAP_ID_MSIX);
	u32 at[2];
	u16 control;
	int i;

	if (!cap)
		return false;
	pci_read_config_word(pdev, cap + PCI_MSIX_FLAGS, &control);
	pci_read_config_dword(pdev, cap + PCI_MSIX_TABLE, &at[0]);
	pci_read_config_dword(pdev, cap + PCI_MSIX_PBA, &at[1]);
	for (i = 0; i < 2; i++) {
		u64 begin = at[i] & PCI_MSIX_TABLE_OFFSET;
		u64 entries = (control & PCI_MSIX_FLAGS_QSIZE) + 1;
		u64 end =
			begin + (i ? DIV_ROUND_UP(entries, 64) * 8 : entries * PCI_MSIX_ENTRY_SIZE);

		if ((at[i] & PCI_MSIX_TABLE_BIR) == bar && begin < off + len && end > off)
			return true;
	}
	return false;
}

/* Claims the range and creates its pages. devres frees them when the function is unbound. */
static int bar_make_pages(struct peerdma_provider *provider)
{
	phys_addr_t start = peerdma_provider_start(provider);
	struct pci_dev *pdev = provider->pdev;
	struct page *page;
	int err;

	if (!devm_request_mem_region(&pdev->dev, start, provider->len, "peerdma"))
		return -EBUSY;
	err = pci_p2pdma_add_resource(pdev, provider->bar, provider->len, provider->bar_offset);
	if (err) {
		devm_release_mem_region(&pdev->dev, start, provider->len);
		return err;
	}
	/*
	 * compat.h derives the count of an idle page from a header. A backport may have changed it.
	 */
	page = pfn_to_page(PHYS_PFN(start));
	if (page_count(page) != PEERDMA_IDLE_PAGE_COUNT) {
		pci_err(pdev, "idle P2PDMA pages do not have reference count %d on this kernel\n",
			PEERDMA_IDLE_PAGE_COUNT);
		return -EOPNOTSUPP;
	}
	/* Then an older mapping has that type, and proxy addresses would have another: proxy.c. */
	if (peerdma_dma_is_write_combined(page_address(page))) {
		pci_err(pdev, "not published: the range is mapped write-combined elsewhere\n");
		return -EBUSY;
	}
	return 0;
}

/* Why this range cannot be published, or none. */
static u32 bar_range_reason(struct pci_dev *pdev, const struct peerdma_publish *req)
{
	unsigned long flags;

	if (req->bar >= PCI_STD_NUM_BARS)
		return PEERDMA_REASON_BAR_RANGE;
	flags = pci_resource_flags(pdev, req->bar);
	if (!(flags & IORESOURCE_MEM))
		return PEERDMA_REASON_BAR_RANGE;
	if (!(flags & IORESOURCE_PREFETCH) && !(req->flags & PEERDMA_PUBLISH_NONPREFETCHABLE))
		return PEERDMA_REASON_NOT_PREFETCHABLE;
	return peerdma_check_publish(pci_resource_start(pdev, req->bar),
				     pci_resource_len(pdev, req->bar), req->bar_offset, req->len,
				     memremap_compat_align());
}

/* The caller holds the device lock: the function stays bound, and publishing is serialized. */
static int bar_publish_locked(struct pci_dev *pdev, struct peerdma_publish *req)
{
	struct peerdma_provider *provider;
	u64 len;
	int err;

	if (!peerdma_bar_is_bound(pdev)) {
		req->out_reason = PEERDMA_REASON_NOT_BOUND;
		return -EINVAL;
	}
	provider = pci_get_drvdata(pdev);
	if (provider && peerdma_usage_killed(&provider->usage))
		return -ENODEV;
	if (provider) {
		req->out_provider_id = provider->id;
		return -EEXIST;
	}
	req->out_reason = bar_range_reason(pdev, req);
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	len = req->len ?: pci_resource_len(pdev, req->bar) - req->bar_offset;
	if (bar_has_msix(pdev, req->bar, req->bar_offset, len)) {
		pci_err(pdev, "not published: its MSI-X table or pending bits are in the range\n");
		return -EBUSY;
	}

	provider = peerdma_provider_reserve(pdev, req->bar, req->bar_offset, len, NULL);
	if (IS_ERR(provider))
		return PTR_ERR(provider);
	err = bar_make_pages(provider);
	if (err) {
		peerdma_provider_remove(provider);
		return err;
	}
	pci_set_drvdata(pdev, provider);
	req->out_provider_id = provider->id;
	peerdma_provider_announce(provider);
	return 0;
}

int peerdma_publish_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_publish *req = &arg->publish;
	struct pci_dev *pdev;
	int err;

	req->out_provider_id = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (ctx->only || !capable(CAP_SYS_ADMIN))
		return -EPERM;
	/* As for mapping a BAR through sysfs: processes can access it from here on. */
	err = security_locked_down(LOCKDOWN_PCI_ACCESS);
	if (err)
		return err;
	if (req->__reserved || req->pci_bdf > U16_MAX)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(req->pci_domain, PCI_BUS_NUM(req->pci_bdf),
					   req->pci_bdf & 0xff);
	if (!pdev)
		return -ENODEV;
	err = device_lock_interruptible(&pdev->dev);
	if (!err) {
		err = bar_publish_locked(pdev, req);
		device_unlock(&pdev->dev);
	}
	pci_dev_put(pdev);
	return err;
}
