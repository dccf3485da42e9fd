/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between peerdma.ko and a module that knows a network: peerdma_rdma.ko. The core reads where a
 * controller of NVMe over Fabrics is; which device of this machine moves its bytes is answered by
 * that module. The core loads and works without it.
 */
#ifndef PEERDMA_FABRIC_H
#define PEERDMA_FABRIC_H

#include <linux/pci.h>
#include <linux/types.h>

/**
 * struct peerdma_fabric_end - what moves the bytes of a controller, in this machine
 * @pdev: the function that does so by DMA; referenced, or NULL
 * @software: the CPU does
 */
struct peerdma_fabric_end {
	struct pci_dev *pdev;
	bool software;
};

/**
 * struct peerdma_fabric_ops - answers of a module that knows RDMA
 * @resolve: @address: as the controller's attribute of that name; @end: zeroed, to be filled;
 *	returns enum peerdma_reason. May sleep, but must give up on its own.
 */
struct peerdma_fabric_ops {
	u32 (*resolve)(const char *address, struct peerdma_fabric_end *end);
};

int peerdma_fabric_register(const struct peerdma_fabric_ops *ops);
void peerdma_fabric_unregister(void);
void peerdma_fabric_changed(void);

#endif /* PEERDMA_FABRIC_H */
