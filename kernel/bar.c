// SPDX-License-Identifier: GPL-2.0
/*
 * Any PCI function as a provider: bind it here with driver_override, then publish a range of one of
 * its memory BARs. No device id is compiled in; who binds a device to this driver says what it is
 * for.
 */
#include <linux/capability.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci-p2pdma.h>

#include "peerdma.h"

static int bar_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return -ENODEV;
	/* Its memory must answer; it need not be able to master the bus. */
	return pcim_enable_device(pdev);
}

static void bar_remove(struct pci_dev *pdev)
{
	struct peerdma_provider *provider = pci_get_drvdata(pdev);

	if (!provider)
		return;
	pci_set_drvdata(pdev, NULL);
	peerdma_provider_remove(provider);
}

/* An empty table: only driver_override brings a device here. */
static const struct pci_device_id bar_ids[] = { {} };

static struct pci_driver bar_driver = {
	.name = "peerdma",
	.id_table = bar_ids,
	.probe = bar_probe,
	.remove = bar_remove,
};

int peerdma_bar_register(void)
{
	return pci_register_driver(&bar_driver);
}

void peerdma_bar_unregister(void)
{
	pci_unregister_driver(&bar_driver);
}

/* Is the function bound to this driver, and so not to its vendor's? Under the device's lock. */
bool peerdma_bar_drives(struct pci_dev *pdev)
{
	device_lock_assert(&pdev->dev);
	return pdev->dev.driver == &bar_driver.driver;
}

/* Claim the range and have its pages made. What is made stays until the device is unbound. */
static int make_pages(struct peerdma_provider *provider)
{
	phys_addr_t start = peerdma_provider_start(provider);
	struct pci_dev *pdev = provider->pdev;
	int err;

	if (!devm_request_mem_region(&pdev->dev, start, provider->len, "peerdma"))
		return -EBUSY;
	err = pci_p2pdma_add_resource(pdev, provider->bar, provider->len, provider->bar_offset);
	if (err) {
		devm_release_mem_region(&pdev->dev, start, provider->len);
		return err;
	}
	/* A header told how this kernel counts (compat.h); a backport may have made that wrong. */
	if (page_count(pfn_to_page(PHYS_PFN(start))) != PEERDMA_IDLE_PAGE_COUNT) {
		pci_err(pdev, "idle P2PDMA pages do not have reference count %d on this kernel\n",
			PEERDMA_IDLE_PAGE_COUNT);
		return -EOPNOTSUPP;
	}
	return 0;
}

/* Under the device's lock, so that it stays bound and only one publishes. */
static int publish_locked(struct pci_dev *pdev, struct peerdma_publish *req)
{
	struct peerdma_provider *provider;
	u64 bar_len, len;
	int err;

	if (!peerdma_bar_drives(pdev)) {
		req->out_reason = PEERDMA_REASON_NOT_BOUND;
		return -EINVAL;
	}
	provider = pci_get_drvdata(pdev);
	if (provider) {
		req->out_provider_id = provider->id;
		return -EEXIST;
	}
	if (req->bar >= PCI_STD_NUM_BARS ||
	    !(pci_resource_flags(pdev, req->bar) & IORESOURCE_MEM)) {
		req->out_reason = PEERDMA_REASON_BAR_RANGE;
		return -EINVAL;
	}
	bar_len = pci_resource_len(pdev, req->bar);
	req->out_reason = peerdma_check_publish(pci_resource_start(pdev, req->bar), bar_len,
						req->bar_offset, req->len, memremap_compat_align());
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	len = req->len ?: bar_len - req->bar_offset;

	provider = peerdma_provider_reserve(pdev, req->bar, req->bar_offset, len);
	if (IS_ERR(provider))
		return PTR_ERR(provider);
	err = make_pages(provider);
	if (err) {
		peerdma_provider_unreserve(provider);
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
	if (req->__reserved || req->pci_bdf > U16_MAX)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(req->pci_domain, PCI_BUS_NUM(req->pci_bdf),
					   req->pci_bdf & 0xff);
	if (!pdev)
		return -ENODEV;
	device_lock(&pdev->dev);
	err = publish_locked(pdev, req);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return err;
}
