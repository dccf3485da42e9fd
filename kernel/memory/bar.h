/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BARs of functions that are bound to this driver.
 */
#ifndef PEERDMA_BAR_H
#define PEERDMA_BAR_H

#include <linux/types.h>

struct pci_dev;

int peerdma_bar_register(void);
void peerdma_bar_unregister(void);
bool peerdma_bar_is_bound(struct pci_dev *pdev);

#endif /* PEERDMA_BAR_H */
