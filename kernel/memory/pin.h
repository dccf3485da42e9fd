/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between peerdma.ko and a module for a vendor's driver: peerdma_nvidia.ko. The core does
 * not know any vendor, and loads and works without that module. Imported dma-bufs use the same
 * interface: import.c.
 *
 * External memory is memory that another driver has allocated. A pin is external memory that its
 * driver keeps in place for this module. The driver tells its place in the GPU's BAR, as the
 * address of each chunk: 64 KiB that are contiguous. The registrant is the process that registered
 * the memory. An external is a provider of external memory: that of all pins of one page map.
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
#define PEERDMA_CHUNK_LEN SZ_64K

/**
 * struct peerdma_vendor_ops - operations of a module for a vendor's driver
 * @owner: that module
 * @pci_vendor: of the driver's devices
 * @link: in the list of vendors
 * @create: make a pin with peerdma_pin_init(), for [@addr, @addr + @len) of the calling process's
 *	GPU memory. Nothing is kept in place yet. Returns the pin or ERR_PTR. May set @reason, enum
 *	peerdma_reason. May sleep
 * @pin: have the driver keep that memory in place. From here on the driver may take the memory
 *	back: the module then calls peerdma_pin_revoke_wait() with the driver's locks held. So the
 *	calling thread must not take mmap_lock any more. Returns 0, or -errno if nothing is kept.
 *	May set @reason, also with 0: then the pin is of no use, and the caller ends it. May sleep
 * @prove: further proofs. @pdev is the function whose BAR has @pin's first chunk; its device lock
 *	is held. Returns enum peerdma_reason. NULL: none
 * @unpin_by_registrant: for a driver that accepts an unpin from the registrant only; else NULL. The
 *	memory is not used any more. Called before, during or after @unpin, or never, by a thread
 *	that destroys or closes a buffer or whose registration failed. Does nothing in another
 *	process. No lock of this module is held. May wait for the driver's locks
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
	void (*unpin_by_registrant)(struct peerdma_pin *pin);
	void (*unpin)(struct peerdma_pin *pin);
	void (*free)(struct peerdma_pin *pin);
};

/**
 * struct peerdma_pin - external memory that its driver keeps in place
 * @ops: of the module for that driver; the module is referenced until the end
 * @refs: references of this struct
 * @lock: protects @revoked and @buffer
 * @revoked: the driver takes the memory back, or the registrant's mm is torn down
 * @imported: of a dma-buf; its resv is held when the exporter takes the memory back
 * @buffer: of the memory, referenced; NULL: before and after the buffer
 * @quiet: completed when the memory is not used any more
 * @end: ends the pin after that
 * @mm_notifier: of the registrant's mm; its mm is NULL if that is not watched
 * @mm_gone: revokes the pin when that mm is torn down
 * @external: the external that it belongs to, or NULL
 * @pgmap: of the pages; referenced, or NULL
 * @nr_chunks: the length, in units of PEERDMA_CHUNK_LEN
 * @chunk_addrs: physical address of each chunk; freed when the pages are referenced
 */
struct peerdma_pin {
	const struct peerdma_vendor_ops *ops; /* immutable */
	refcount_t refs;
	struct mutex lock; /* protects revoked and buffer */
	bool revoked;
	bool imported; /* immutable */
	struct peerdma_buffer *buffer;
	struct completion quiet;
	struct work_struct end;
#ifdef CONFIG_MMU_NOTIFIER
	struct mmu_notifier mm_notifier;
	struct work_struct mm_gone;
#endif
	struct peerdma_external *external; /* immutable, once it is a buffer's */
	struct dev_pagemap *pgmap; /* immutable, once it is a buffer's */
	unsigned long nr_chunks; /* immutable */
	u64 *chunk_addrs; /* immutable, once pin() has returned */
};

/**
 * struct peerdma_external - a provider whose pages belong to another driver
 * @link: in the list of them, until its provider has been removed
 * @provider: reserved by this
 * @pgmap: of its pages; each pin has a reference
 * @pins: number of pins that have not ended
 * @removing: @pins was 1, and the provider, freed by that, may be gone
 * @ending: number of those whose memory is not used any more
 *
 * Protected by externals_mutex, unless immutable or atomic.
 */
struct peerdma_external {
	struct list_head link;
	struct peerdma_provider *provider; /* immutable */
	const struct dev_pagemap *pgmap; /* immutable */
	unsigned int pins;
	bool removing;
	atomic_t ending;
};

int peerdma_vendor_register(struct peerdma_vendor_ops *ops);
void peerdma_vendor_unregister(struct peerdma_vendor_ops *ops);
void peerdma_pin_init(struct peerdma_pin *pin, const struct peerdma_vendor_ops *ops);
void peerdma_pin_put(struct peerdma_pin *pin);
void peerdma_pin_revoke_wait(struct peerdma_pin *pin);
void peerdma_pin_release(struct peerdma_pin *pin);
void peerdma_pin_unpin_by_registrant(struct peerdma_pin *pin);
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
int peerdma_pin_watch_mm(struct peerdma_pin *pin);
void peerdma_pin_unwatch_mm(struct peerdma_pin *pin);

/* external.c */
int peerdma_externals_init(void);
void peerdma_externals_exit(void);
struct peerdma_external *peerdma_external_get(const struct peerdma_ctx *ctx, struct pci_dev *pdev,
					      int bar, const struct dev_pagemap *pgmap);
void peerdma_external_put(struct peerdma_external *external);

/* external_prove.c */
struct pci_dev *peerdma_pin_find_function(const struct peerdma_pin *pin, int *bar);
u32 peerdma_pin_prove(struct peerdma_pin *pin, struct pci_dev *pdev, int bar);

#endif /* PEERDMA_PIN_H */
