/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between peerdma.ko and a module for a vendor's driver: peerdma_nvidia.ko. The driver
 * has allocated the memory and tells where in the GPU's BAR it is. The core does not know any
 * vendor, and loads and works without that module. Imported dma-bufs use the same interface:
 * import.c.
 */
#ifndef PEERDMA_PIN_H
#define PEERDMA_PIN_H

#include <linux/completion.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct dev_pagemap;
struct peerdma_external;
struct module;
struct pci_dev;
struct peerdma_buf_register;
struct peerdma_buffer;
struct peerdma_ctx;
struct peerdma_pin;

#define PEERDMA_CHUNK_SHIFT 16
#define PEERDMA_CHUNK_LEN SZ_64K /* the memory is contiguous in units of this */

/**
 * struct peerdma_vendor_ops - operations of a module for a vendor's driver
 * @owner: that module
 * @pci_vendor: of the driver's devices
 * @link: in the list of vendors
 * @create: a pin for [@addr, @addr + @len) of the calling process's GPU memory, made with
 *	peerdma_pin_init(), that keeps nothing yet; or ERR_PTR. May set @reason, enum
 *	peerdma_reason. May sleep
 * @pin: keep that memory in place. May call peerdma_pin_revoke_wait() with locks of the driver
 *	held from here on, so the caller's thread must not want mmap_lock any more. Returns 0, or
 *	-errno if nothing is kept. May set @reason, also with 0: that pin is of no use and is
 *	undone. May sleep
 * @prove: further proofs, for memory that begins with @pin's first frame, of this function, whose
 *	device lock is held. Returns enum peerdma_reason. NULL: none
 * @unpin_as_owner: for a driver that checks the process that unpins; else NULL. The memory is not
 *	used any more. Called before, during or after @unpin, or never, by a thread that destroys or
 *	closes a buffer or whose registration failed, without a lock of this module. May wait for
 *	the driver's locks
 * @unpin: the end of a pin. May wait for the driver's locks: no lock of this module is held, and no
 *	thread inside the driver waits for this
 * @free: the last reference of a pin is gone
 */
struct peerdma_vendor_ops {
	struct module *owner;
	u32 pci_vendor;
	struct list_head link;
	struct peerdma_pin *(*create)(u64 addr, u64 len, u32 *reason);
	int (*pin)(struct peerdma_pin *pin, u32 *reason);
	u32 (*prove)(struct peerdma_pin *pin, struct pci_dev *pdev);
	void (*unpin_as_owner)(struct peerdma_pin *pin);
	void (*unpin)(struct peerdma_pin *pin);
	void (*free)(struct peerdma_pin *pin);
};

/**
 * struct peerdma_pin - memory that another driver keeps
 * @ops: of that driver; its module is referenced until the end
 * @refs: references of this struct
 * @lock: protects @taken and @buffer
 * @taken: the driver has taken the memory back, or is about to
 * @imported: of a dma-buf; its resv is held when the exporter takes the memory back
 * @buffer: of the memory, referenced; NULL: before and after the buffer
 * @quiet: completed when the memory is not used any more
 * @end: ends the pin after that
 * @owner: notifier for the exit of the process that registered it; mm NULL: not registered
 * @orphan: revokes the buffer at that exit
 * @external: the provider that it belongs to, or NULL
 * @pgmap: of the pages; referenced, or NULL
 * @nr: number of @chunks
 * @chunks: physical addresses of the frames, PEERDMA_CHUNK_LEN each
 */
struct peerdma_pin {
	const struct peerdma_vendor_ops *ops; /* immutable */
	refcount_t refs;
	struct mutex lock; /* protects taken and buffer */
	bool taken;
	bool imported; /* immutable */
	struct peerdma_buffer *buffer;
	struct completion quiet;
	struct work_struct end;
#ifdef CONFIG_MMU_NOTIFIER
	struct mmu_notifier owner;
	struct work_struct orphan;
#endif
	struct peerdma_external *external; /* immutable, once it is a buffer's */
	struct dev_pagemap *pgmap; /* immutable, once it is a buffer's */
	unsigned long nr; /* immutable */
	u64 *chunks; /* immutable, once pin() has returned */
};

/**
 * struct peerdma_external - a provider whose pages belong to another driver
 * @link: in the list of them, while it has pins
 * @provider: reserved by this
 * @pgmap: of its pages; each pin has a reference
 * @pins: number of them
 * @ending: number of pins that are reclaimed and have not ended
 *
 * Protected by externals_mutex, unless immutable or atomic.
 */
struct peerdma_external {
	struct list_head link;
	struct peerdma_provider *provider; /* immutable */
	const struct dev_pagemap *pgmap; /* immutable */
	unsigned int pins;
	atomic_t ending;
};

int peerdma_vendor_register(struct peerdma_vendor_ops *ops);
void peerdma_vendor_unregister(struct peerdma_vendor_ops *ops);
void peerdma_pin_init(struct peerdma_pin *pin, const struct peerdma_vendor_ops *ops);
void peerdma_pin_put(struct peerdma_pin *pin);
void peerdma_pin_revoke_wait(struct peerdma_pin *pin);
void peerdma_pin_release(struct peerdma_pin *pin);
void peerdma_pin_unpin_as_owner(struct peerdma_pin *pin);
void peerdma_pin_drop(struct peerdma_pin *pin);
int peerdma_pin_register(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			 struct peerdma_buf_register *req);

/* pin.c */
int peerdma_pins_init(void);
void peerdma_pins_exit(void);
void peerdma_pin_queue(struct work_struct *work);
void peerdma_pin_hold(struct peerdma_pin *pin);
void peerdma_pin_release_wait(struct peerdma_pin *pin);

/* pin_revoke.c */
void peerdma_pin_revoke(struct peerdma_pin *pin);
int peerdma_pin_watch_owner(struct peerdma_pin *pin);
void peerdma_pin_forget_owner(struct peerdma_pin *pin);

/* external.c */
int peerdma_externals_init(void);
void peerdma_externals_exit(void);
struct peerdma_external *peerdma_external_get(const struct peerdma_ctx *ctx, struct pci_dev *pdev,
					      int bar, const struct dev_pagemap *pgmap);
void peerdma_external_put(struct peerdma_external *external);

/* external_prove.c */
struct pci_dev *peerdma_pin_function(const struct peerdma_pin *pin, int *bar);
u32 peerdma_pin_prove(struct peerdma_pin *pin, struct pci_dev *pdev, int bar);

#endif /* PEERDMA_PIN_H */
