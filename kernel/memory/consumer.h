/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Devices that end before a function loses its driver: consumer.c.
 */
#ifndef PEERDMA_CONSUMER_H
#define PEERDMA_CONSUMER_H

#include <linux/types.h>

struct device;
struct platform_device;

#define PEERDMA_CONSUMER_PROVIDER "peerdma_provider"
#define PEERDMA_CONSUMER_IMPORTER "peerdma_importer"

/**
 * struct peerdma_consumer - a device that ends before a function loses its driver: consumer.c
 * @dev: linked to the function; immutable once it is added
 * @end: called once; immutable
 */
struct peerdma_consumer {
	struct platform_device *dev;
	void (*end)(struct peerdma_consumer *consumer);
};

int peerdma_consumers_init(void);
void peerdma_consumers_exit(void);
int peerdma_consumer_add(struct peerdma_consumer *consumer, struct device *supplier,
			 const char *name, u32 id);
void peerdma_consumer_remove(struct peerdma_consumer *consumer);
void peerdma_consumer_wait(struct platform_device *dev);

#endif /* PEERDMA_CONSUMER_H */
