/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between peerdma.ko and a module that knows a network: peerdma_rdma.ko. The core reads
 * the address of an NVMe over Fabrics controller; the module tells which device of this machine
 * moves its bytes. The core loads and works without the module.
 */
#ifndef PEERDMA_FABRIC_H
#define PEERDMA_FABRIC_H

#include <linux/pci.h>
#include <linux/types.h>

struct gendisk;
struct peerdma_disk;
struct peerdma_provider;

/**
 * struct peerdma_fabric_end - what moves a controller's bytes in this machine
 * @pdev: the function that does DMA; referenced, or NULL
 * @software: the CPU moves them
 */
struct peerdma_fabric_end {
	struct pci_dev *pdev;
	bool software;
};

/**
 * struct peerdma_fabric_ops - operations of a module that knows RDMA
 * @resolve: @address is the controller's attribute; @end is zeroed, to be filled; returns enum
 *	peerdma_reason. May sleep, but must give up on its own
 */
struct peerdma_fabric_ops {
	u32 (*resolve)(const char *address, struct peerdma_fabric_end *end);
};

int peerdma_fabric_register(const struct peerdma_fabric_ops *ops);
void peerdma_fabric_unregister(void);
void peerdma_fabric_changed(void);

struct peerdma_lookup;
extern atomic_long_t peerdma_fabric_count;

/* Read before a controller's device is resolved. If the value differs later, so may the device. */
static inline unsigned long peerdma_fabric_changes(void)
{
	return atomic_long_read(&peerdma_fabric_count);
}

struct peerdma_lookup *peerdma_fabric_lookup(const char *address);
int peerdma_fabric_probe(struct gendisk *gendisk, struct peerdma_disk *disk);
u32 peerdma_fabric_resolve(struct peerdma_provider *provider, struct peerdma_lookup *lookup,
			   struct peerdma_fabric_end *end);
void peerdma_fabric_put(struct peerdma_lookup *lookup);

#endif /* PEERDMA_FABRIC_H */
