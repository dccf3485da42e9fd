/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between peerdma.ko and a module that speaks with a vendor's driver: peerdma_nvidia.ko. The driver
 * has allocated the memory and says where in the GPU's BAR it is; the core never mentions a vendor,
 * and loads and works without any. Memory of dma-bufs becomes buffers in the same way: import.c.
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
#define PEERDMA_CHUNK_LEN SZ_64K /* in such units the memory is contiguous */

/**
 * struct peerdma_vendor_ops - what a vendor's driver is asked
 * @owner: the module that asks it
 * @pci_vendor: whose driver
 * @link: in the list of them
 * @pin: keep [@addr, @addr + @len) of the calling process's GPU memory where it is. Returns what
 *	keeps it, made with peerdma_pin_init(), or ERR_PTR if nothing is kept; @reason: enum
 *	peerdma_reason, also with a pin that is of no use and has to be undone. May sleep
 * @prove: what else has to be true of memory that begins with @pin's first frame, of this function,
 *	whose device lock is held; returns enum peerdma_reason. NULL: nothing
 * @unpin_as_owner: for a driver that looks at which process gives back; else NULL. Of memory that
 *	nobody uses any more, nor will: before @unpin, after it, while it runs, or never. By who
 *	destroys or closes a buffer, or could not be given one, with nothing of ours held: it may
 *	wait for the driver's locks
 * @unpin: the end of that. May wait for the driver's locks: nothing of ours is held, and nobody who
 *	is inside the driver waits for this
 * @free: the last reference of a pin is gone
 */
struct peerdma_vendor_ops {
	struct module *owner;
	u32 pci_vendor;
	struct list_head link;
	struct peerdma_pin *(*pin)(u64 addr, u64 len, u32 *reason);
	u32 (*prove)(struct peerdma_pin *pin, struct pci_dev *pdev);
	void (*unpin_as_owner)(struct peerdma_pin *pin);
	void (*unpin)(struct peerdma_pin *pin);
	void (*free)(struct peerdma_pin *pin);
};

/**
 * struct peerdma_pin - memory of a vendor's driver, while it is kept
 * @ops: who keeps it; its module is referenced until the end
 * @refs: who holds this struct
 * @lock: protects @taken and @buffer
 * @taken: its driver has taken it back, or is about to
 * @imported: of a dma-buf: whoever takes it back holds that one's lock
 * @buffer: whose memory it is, referenced; NULL: of none yet, or no more
 * @quiet: completed when nobody uses the memory any more, nor will
 * @end: ends it after that
 * @owner: hears of the end of the process that registered it; its mm is NULL: it does not
 * @orphan: takes it back then
 * @external: the provider that it is of, or NULL
 * @pgmap: of the pages; referenced, or NULL
 * @nr: number of @chunks
 * @chunks: physical addresses of PEERDMA_CHUNK_LEN each
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
	struct dev_pagemap *pgmap; /* the same */
	unsigned long nr; /* immutable */
	u64 *chunks; /* immutable, once pin() has returned */
};

/**
 * struct peerdma_external - a provider whose pages are not ours
 * @link: in the list of them, while it has pins
 * @provider: reserved by this
 * @pgmap: its pages; each pin has a reference of it
 * @pins: how many are of it
 * @ending: how many of the pins are settled, and have not ended
 *
 * All protected by externals_mutex, but what is immutable or atomic.
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
