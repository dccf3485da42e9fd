// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers of memory that somebody else has allocated: a vendor's driver, for a process of its own.
 * A module that speaks with that driver (nvidia.c) has it keep the memory where it is, which is a
 * pin, and learns where in the GPU's BAR that is, which is frames. What the core needs is proven
 * here, of each frame: that it lies in a memory BAR of a PCI function that a driver is bound to,
 * that somebody has published that BAR as peer-to-peer memory, that the kernel does not have it
 * mapped write-combined, and that nobody else uses the pages. Then the pages are referenced as
 * those of any other mem are (mem.c), and all that is done with a buffer can be done with this one.
 *
 * Taken back. The driver may take the memory away at any moment, and says so by a call into the
 * module, made with locks of its own held. When that call returns the memory is gone. So it waits:
 * it revokes the buffer, which lets requests end, and then until the last page is let go, which
 * takes as long as the storage does. It never waits for anybody who may be waiting for the driver.
 * That is why a pin ends in two steps. First it is quiet: no page of it is used any more. Whoever
 * takes it back waits for that, and for nothing else. Then a work item tells the driver, which may
 * make it wait for its locks; it has a queue to itself and nobody waits for it but who unloads, who
 * unbinds the GPU, and who could not be given a buffer.
 *
 * Given back. Some drivers take memory back from the process that asked for it, and from nobody
 * else. No work item can be that, so it is asked of who destroys or closes a buffer, at the very
 * end, when nothing of ours waits for that one any more. What comes of that, and when somebody else
 * has destroyed it, is the vendor's module's to know.
 *
 * The provider of such memory is the part of a BAR that was published as one, as long as any pin is
 * of it. Nothing is allocated of it: it is there for routes, and to be asked about.
 *
 * Its process ends. The driver may keep the memory for us nevertheless, and yet wait for its pages
 * when the process closes the driver's own files. Ours may be closed after those, or be somebody
 * else's by then: so the buffer is revoked as soon as the process has lost its address space, which
 * comes before it closes files, unless another process shares that. Kernels without MMU notifiers
 * do not tell.
 *
 * A GPU that is unbound loses its page map, for which the kernel waits for every reference, and its
 * driver's remove() may count on having back what we keep of its memory, but for what others hold.
 * So the provider ends before, which revokes the buffers: consumer.c. Providers are made under the
 * function's device lock, and none while the function is being unbound. A second one who unbinds
 * waits in a bus notifier for the first to have ended the providers.
 */
#include <linux/device/bus.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/range.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "peerdma.h"

#define TRIES HZ /* ticks: so long another may hold the GPU's device lock */

/**
 * struct foreign - a provider whose pages are not ours
 * @link: in the list of them, while it has pins
 * @provider: reserved by this
 * @pgmap: its pages; each pin has a reference of it
 * @pins: how many are of it
 * @ending: how many of the pins are settled, and have not ended
 *
 * All protected by foreigns_lock, but what is immutable or atomic.
 */
struct foreign {
	struct list_head link;
	struct peerdma_provider *provider; /* immutable */
	const struct dev_pagemap *pgmap; /* immutable */
	unsigned int pins;
	atomic_t ending;
};

static LIST_HEAD(vendors);
static DEFINE_MUTEX(vendors_lock); /* protects vendors */
static LIST_HEAD(foreigns);
static DEFINE_MUTEX(foreigns_lock); /* protects foreigns, and each one's link and pins */
static struct workqueue_struct *end_wq;

/**
 * peerdma_vendor_register - from now on memory of this vendor can be registered
 * @ops: until peerdma_vendor_unregister()
 * Return: 0 or -EBUSY.
 */
int peerdma_vendor_register(struct peerdma_vendor_ops *ops)
{
	struct peerdma_vendor_ops *other;
	int err = 0;

	mutex_lock(&vendors_lock);
	list_for_each_entry(other, &vendors, link) {
		if (other->pci_vendor == ops->pci_vendor)
			err = -EBUSY;
	}
	if (!err)
		list_add_tail(&ops->link, &vendors);
	mutex_unlock(&vendors_lock);
	return err;
}
EXPORT_SYMBOL_GPL(peerdma_vendor_register);

/* From its module's exit: so nothing is pinned, and nobody is inside. */
void peerdma_vendor_unregister(struct peerdma_vendor_ops *ops)
{
	mutex_lock(&vendors_lock);
	list_del(&ops->link);
	mutex_unlock(&vendors_lock);
}
EXPORT_SYMBOL_GPL(peerdma_vendor_unregister);

/* Who speaks with this vendor's driver, with a reference of its module; or NULL. */
static const struct peerdma_vendor_ops *vendor_get(u32 pci_vendor)
{
	const struct peerdma_vendor_ops *ops, *found = NULL;

	mutex_lock(&vendors_lock);
	list_for_each_entry(ops, &vendors, link) {
		if (ops->pci_vendor == pci_vendor && try_module_get(ops->owner))
			found = ops;
	}
	mutex_unlock(&vendors_lock);
	return found;
}

/* --- Providers. */

/* Before remove() of the GPU's driver. Ends of other GPUs' memory are not waited for. */
static void foreign_ended(struct peerdma_provider *provider)
{
	struct foreign *foreign = provider->foreign;

	peerdma_held_look(provider);
	wait_var_event(&foreign->ending, !atomic_read(&foreign->ending));
}

static struct foreign *foreign_create(struct pci_dev *pdev, int bar,
				      const struct dev_pagemap *pgmap)
{
	const u64 off = pgmap->range.start - pci_resource_start(pdev, bar);
	struct foreign *foreign = kzalloc(sizeof(*foreign), GFP_KERNEL);
	struct peerdma_provider *provider;

	if (!foreign)
		return ERR_PTR(-ENOMEM);
	provider =
		peerdma_provider_reserve(pdev, bar, off, range_len(&pgmap->range), foreign_ended);
	if (IS_ERR(provider)) {
		kfree(foreign);
		return ERR_CAST(provider);
	}
	provider->foreign = foreign;
	atomic64_set(&provider->used, provider->len);
	foreign->provider = provider;
	foreign->pgmap = pgmap;
	list_add_tail(&foreign->link, &foreigns);
	peerdma_provider_announce(provider);
	return foreign;
}

/*
 * The provider of these pages, for one pin more; or ERR_PTR. A provider's node cannot begin
 * another: -ENOENT.
 */
static struct foreign *foreign_get(const struct peerdma_ctx *ctx, struct pci_dev *pdev, int bar,
				   const struct dev_pagemap *pgmap)
{
	struct foreign *foreign;

	mutex_lock(&foreigns_lock);
	list_for_each_entry(foreign, &foreigns, link) {
		if (foreign->pgmap == pgmap)
			goto found;
	}
	foreign = ctx->only ? ERR_PTR(-ENOENT) : foreign_create(pdev, bar, pgmap);
	if (IS_ERR(foreign))
		goto out;
found:
	if (!peerdma_reaches(ctx, foreign->provider))
		foreign = ERR_PTR(-ENOENT);
	else if (peerdma_gate_closed(&foreign->provider->gate))
		foreign = ERR_PTR(-ENODEV); /* who unbinds waits until it has no pins */
	else
		foreign->pins++;
out:
	mutex_unlock(&foreigns_lock);
	return foreign;
}

/* With the last pin the provider goes, unless it has ended with the GPU. */
static void foreign_put(struct foreign *foreign)
{
	bool last;

	mutex_lock(&foreigns_lock);
	last = !--foreign->pins;
	if (last)
		list_del(&foreign->link);
	mutex_unlock(&foreigns_lock);
	if (!last)
		return;
	peerdma_provider_remove(foreign->provider);
	kfree(foreign);
}

/* The consumer, referenced, of this function's provider with the next id after *id; or NULL. */
static struct platform_device *next_consumer(const struct pci_dev *pdev, u32 *id)
{
	struct peerdma_provider *provider, *found = NULL;
	struct platform_device *consumer = NULL;
	struct foreign *foreign;

	mutex_lock(&foreigns_lock);
	list_for_each_entry(foreign, &foreigns, link) {
		provider = foreign->provider;
		if (provider->pdev == pdev && provider->id > *id &&
		    (!found || provider->id < found->id))
			found = provider;
	}
	if (found) {
		*id = found->id;
		consumer = found->consumer.dev;
		get_device(&consumer->dev);
	}
	mutex_unlock(&foreigns_lock);
	return consumer;
}

/* Before remove() of the GPU's driver. */
static int function_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct platform_device *consumer;
	u32 id = 0;

	if (event != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((consumer = next_consumer(to_pci_dev(data), &id))) {
		peerdma_consumer_wait(consumer);
		platform_device_put(consumer);
	}
	return NOTIFY_DONE;
}

static struct notifier_block functions = {
	.notifier_call = function_event,
};

int peerdma_vendors_init(void)
{
	int err;

	end_wq = alloc_workqueue("peerdma_vendor", WQ_UNBOUND, 0);
	if (!end_wq)
		return -ENOMEM;
	err = bus_register_notifier(&pci_bus_type, &functions);
	if (err)
		destroy_workqueue(end_wq);
	return err;
}

void peerdma_vendors_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &functions);
	destroy_workqueue(end_wq); /* its work may make some for peerdma_revoke_wq */
}

/* --- Pins. */

/* With its module, so that whatever is called by way of it stays as well. */
static void pin_hold(struct peerdma_pin *pin)
{
	__module_get(pin->ops->owner);
	refcount_inc(&pin->refs);
}

void peerdma_pin_drop(struct peerdma_pin *pin)
{
	struct module *owner = pin->ops->owner;

	peerdma_pin_put(pin);
	module_put(owner);
}

/* It is no buffer's when this returns, nor will be. */
static void pin_revoke(struct peerdma_pin *pin)
{
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	pin->taken = true;
	buffer = pin->buffer;
	if (buffer)
		refcount_inc(&buffer->refs);
	mutex_unlock(&pin->lock);
	if (buffer) {
		peerdma_buffer_revoke(buffer);
		peerdma_buffer_put(buffer);
	}
}

#ifdef CONFIG_MMU_NOTIFIER

static void pin_orphaned(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, orphan);

	pin_revoke(pin);
	peerdma_pin_drop(pin);
}

/*
 * May not wait: whoever else hears of such ends would wait as well. Called once more by who forgets
 * the process just then. The pin has not ended.
 */
static void owner_ended(struct mmu_notifier *owner, struct mm_struct *mm)
{
	struct peerdma_pin *pin = container_of(owner, struct peerdma_pin, owner);

	pin_hold(pin);
	if (!queue_work(peerdma_revoke_wq, &pin->orphan))
		peerdma_pin_drop(pin);
}

static const struct mmu_notifier_ops owner_ops = {
	.release = owner_ended,
};

struct watch {
	struct work_struct work;
	struct peerdma_pin *pin;
	struct mm_struct *mm;
	int err;
};

static void watch(struct work_struct *work)
{
	struct watch *watch = container_of(work, struct watch, work);

	watch->err = mmu_notifier_register(&watch->pin->owner, watch->mm);
	if (watch->err)
		watch->pin->owner.mm = NULL;
}

/* By somebody who gets no signals: with any pending the kernel gives up. */
static int owner_watch(struct peerdma_pin *pin)
{
	struct watch asked = { .pin = pin, .mm = current->mm };

	INIT_WORK(&pin->orphan, pin_orphaned);
	pin->owner.ops = &owner_ops;
	INIT_WORK_ONSTACK(&asked.work, watch);
	queue_work(end_wq, &asked.work);
	flush_work(&asked.work);
	destroy_work_on_stack(&asked.work);
	return asked.err;
}

/* The process is told to have ended, if it has not: nothing of it is left to be taken back. */
static void owner_forget(struct peerdma_pin *pin)
{
	if (pin->owner.mm)
		mmu_notifier_unregister(&pin->owner, pin->owner.mm);
}

#else

static int owner_watch(struct peerdma_pin *pin)
{
	return 0;
}

static void owner_forget(struct peerdma_pin *pin)
{
}

#endif

static void pin_end(struct work_struct *work)
{
	struct peerdma_pin *pin = container_of(work, struct peerdma_pin, end);
	struct module *owner = pin->ops->owner;
	struct peerdma_buffer *buffer;

	mutex_lock(&pin->lock);
	buffer = pin->buffer;
	pin->buffer = NULL;
	mutex_unlock(&pin->lock);
	owner_forget(pin);
	pin->ops->unpin(pin);
	if (buffer)
		peerdma_buffer_put(buffer);
	if (pin->foreign) {
		if (atomic_dec_and_test(&pin->foreign->ending))
			wake_up_var(&pin->foreign->ending);
		foreign_put(pin->foreign);
	}
	if (pin->pgmap)
		put_dev_pagemap(pin->pgmap);
	peerdma_pin_put(pin);
	module_put(owner);
}

void peerdma_pin_init(struct peerdma_pin *pin, const struct peerdma_vendor_ops *ops)
{
	pin->ops = ops;
	refcount_set(&pin->refs, 1);
	mutex_init(&pin->lock);
	init_completion(&pin->quiet);
	INIT_WORK(&pin->end, pin_end);
}
EXPORT_SYMBOL_GPL(peerdma_pin_init);

void peerdma_pin_put(struct peerdma_pin *pin)
{
	if (refcount_dec_and_test(&pin->refs))
		pin->ops->free(pin);
}
EXPORT_SYMBOL_GPL(peerdma_pin_put);

/* Nobody uses the memory any more, nor will. Waits for nobody; call once: the end frees it. */
void peerdma_pin_settled(struct peerdma_pin *pin)
{
	if (pin->foreign)
		atomic_inc(&pin->foreign->ending);
	complete_all(&pin->quiet);
	queue_work(end_wq, &pin->end);
}

/**
 * peerdma_pin_give_back - to a driver that looks at which process does
 * @pin: held by the caller; NULL: of no such driver
 *
 * By the process that is to do it, with nothing of ours held. If others use the memory still it is
 * not done: nobody waits for them.
 */
void peerdma_pin_give_back(struct peerdma_pin *pin)
{
	if (pin && pin->ops->give_back && completion_done(&pin->quiet))
		pin->ops->give_back(pin);
}

/**
 * peerdma_pin_take_back - the memory goes away when this returns
 * @pin: referenced by the caller
 *
 * Any number of callers, at any time. Sleeps until the memory is not used any more.
 */
void peerdma_pin_take_back(struct peerdma_pin *pin)
{
	pin_revoke(pin);
	wait_for_completion(&pin->quiet);
}
EXPORT_SYMBOL_GPL(peerdma_pin_take_back);

/* From here on it is revoked when it is taken back. False if it was already. */
static bool pin_attach(struct peerdma_pin *pin, struct peerdma_buffer *buffer)
{
	bool good;

	mutex_lock(&pin->lock);
	good = !pin->taken;
	if (good) {
		refcount_inc(&buffer->refs);
		pin->buffer = buffer;
		if (pin->ops->give_back) {
			pin_hold(pin);
			buffer->pin = pin;
		}
	}
	mutex_unlock(&pin->lock);
	return good;
}

/* One that is no buffer's, held by the caller: it has ended when this returns. */
static void pin_undo(struct peerdma_pin *pin)
{
	peerdma_pin_settled(pin);
	flush_work(&pin->end);
}

/* --- What has to be proven. */

/* What a kernel address is mapped as. Where that cannot be told it is what it was asked for. */
bool peerdma_is_write_combined(const void *kaddr)
{
#ifdef CONFIG_X86
	const pteval_t mask = _PAGE_PWT | _PAGE_PCD;
	unsigned int level;
	pte_t *pte = lookup_address((unsigned long)kaddr, &level);

	return pte && (pte_flags(*pte) & mask) == (cachemode2protval(_PAGE_CACHE_MODE_WC) & mask);
#else
	return false;
#endif
}

/* A new mapping is what older ones of the same memory are. */
static u32 why_unpublished(u64 at)
{
	void __iomem *probe = ioremap(at, PAGE_SIZE);
	u32 reason = PEERDMA_REASON_VENDOR_UNPUBLISHED;

	if (!probe)
		return reason;
	if (peerdma_is_write_combined((__force void *)probe))
		reason = PEERDMA_REASON_VENDOR_WC;
	iounmap(probe);
	return reason;
}

static bool holds_frame(u64 start, u64 end, u64 at)
{
	return at >= start && at < end && end - at >= PEERDMA_FRAME_LEN;
}

static bool all_inside(const struct peerdma_pin *pin, u64 start, u64 end)
{
	unsigned long i;

	for (i = 0; i < pin->nr; i++) {
		if (!holds_frame(start, end, pin->frames[i]) || !PAGE_ALIGNED(pin->frames[i]))
			return false;
		cond_resched();
	}
	return true;
}

/* The function and its BAR that the first frame is in; referenced, or NULL. */
static struct pci_dev *find_function(const struct peerdma_pin *pin, int *bar)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		for (*bar = 0; *bar < PCI_STD_NUM_BARS; (*bar)++) {
			if (pci_resource_flags(pdev, *bar) & IORESOURCE_MEM &&
			    holds_frame(pci_resource_start(pdev, *bar),
					pci_resource_end(pdev, *bar) + 1ULL, pin->frames[0]))
				return pdev;
		}
	}
	return NULL;
}

/* Its page map is the pin's from then on, whatever is found. */
static u32 judge_pages(struct peerdma_pin *pin)
{
	struct dev_pagemap *pgmap = get_dev_pagemap(PHYS_PFN(pin->frames[0]));

	pin->pgmap = pgmap;
	if (!pgmap || pgmap->type != MEMORY_DEVICE_PCI_P2PDMA || pgmap->nr_range != 1 ||
	    !all_inside(pin, pgmap->range.start, pgmap->range.end + 1))
		return why_unpublished(pin->frames[0]);
	if (peerdma_is_write_combined(page_address(pfn_to_page(PHYS_PFN(pin->frames[0])))))
		return PEERDMA_REASON_VENDOR_WC;
	return PEERDMA_REASON_NONE;
}

static u32 judge(struct peerdma_pin *pin, struct pci_dev *pdev, int bar)
{
	u32 reason;

	if (!pdev->dev.driver)
		return PEERDMA_REASON_VENDOR_FREED;
	if (peerdma_bar_drives(pdev))
		return PEERDMA_REASON_VENDOR_OURS;
	if (!all_inside(pin, pci_resource_start(pdev, bar), pci_resource_end(pdev, bar) + 1ULL))
		return PEERDMA_REASON_VENDOR_NOT_BAR;
	reason = judge_pages(pin);
	if (!reason && pin->ops->prove)
		reason = pin->ops->prove(pin, pdev);
	return reason;
}

/* --- Registering. */

static int refuse(struct peerdma_buf_register *req, u32 reason)
{
	req->out_reason = reason;
	return peerdma_reason_errno(reason);
}

/* Under the device's lock. After a success the pin belongs to the pages. */
/* *inside: the provider whose gate is the caller's to leave, also if this fails; NULL: none. */
static struct peerdma_mem *adopt(const struct peerdma_ctx *ctx, struct pci_dev *pdev, int bar,
				 struct peerdma_pin *pin, struct peerdma_buf_register *req,
				 struct peerdma_provider **inside)
{
	int err = refuse(req, judge(pin, pdev, bar));
	struct foreign *foreign;
	struct peerdma_mem *mem;

	*inside = NULL;
	foreign = err ? ERR_PTR(err) : foreign_get(ctx, pdev, bar, pin->pgmap);
	if (!err && foreign == ERR_PTR(-ENODEV))
		return ERR_PTR(refuse(req, PEERDMA_REASON_REVOKED));
	if (IS_ERR(foreign))
		return ERR_CAST(foreign);
	pin->foreign = foreign;
	if (!peerdma_gate_enter(&foreign->provider->gate))
		return ERR_PTR(refuse(req, PEERDMA_REASON_REVOKED));
	*inside = foreign->provider;
	mem = peerdma_mem_adopt(foreign->provider, pin, &req->out_reason);
	if (!IS_ERR(mem)) {
		kvfree(pin->frames);
		pin->frames = NULL;
	}
	return mem;
}

/*
 * The same. The provider stays without anybody being inside its gate: it has a pin, and it is not
 * being unbound.
 */
static int add_buffer(struct peerdma_ctx *ctx, struct peerdma_mem *mem,
		      struct peerdma_buf_register *req)
{
	struct peerdma_buffer *buffer = peerdma_buffer_add(ctx, mem);

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	if (!pin_attach(mem->pin, buffer)) {
		peerdma_buffer_destroy(ctx, buffer->entry.id, false);
		return refuse(req, PEERDMA_REASON_VENDOR_FREED);
	}
	req->out_buf_id = buffer->entry.id;
	req->out_provider_id = buffer->provider->id;
	req->out_mmap_offset = peerdma_proxy_offset(buffer);
	return 0;
}

/* Who unbinds it holds its lock, and may wait for what we keep of it: so it is only tried. */
static int lock_function(struct pci_dev *pdev, struct peerdma_buf_register *req)
{
	unsigned int tries;

	for (tries = 0; !device_trylock(&pdev->dev); tries++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (tries == TRIES)
			return refuse(req, PEERDMA_REASON_VENDOR_BUSY);
		schedule_timeout_killable(1);
	}
	return 0;
}

/* The driver is told outside of the device's lock. */
static int register_at(struct peerdma_ctx *ctx, struct pci_dev *pdev, int bar,
		       struct peerdma_pin *pin, struct peerdma_buf_register *req)
{
	struct peerdma_provider *inside;
	struct peerdma_mem *mem;
	int err = lock_function(pdev, req);

	if (err) {
		pin_undo(pin);
		return err;
	}
	mem = adopt(ctx, pdev, bar, pin, req, &inside);
	if (IS_ERR(mem))
		peerdma_pin_settled(pin); /* before anybody unbinds it, who waits for the end */
	err = IS_ERR(mem) ? PTR_ERR(mem) : add_buffer(ctx, mem, req);
	if (inside)
		peerdma_gate_exit(&inside->gate);
	device_unlock(&pdev->dev);
	if (IS_ERR(mem))
		flush_work(&pin->end);
	return err;
}

/* The pin is held by the caller. */
static int register_pin(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			struct peerdma_buf_register *req)
{
	struct pci_dev *pdev;
	int bar, err;

	pdev = req->out_reason ? NULL : find_function(pin, &bar);
	if (!pdev) {
		pin_undo(pin);
		return refuse(req, req->out_reason ?: PEERDMA_REASON_VENDOR_NOT_BAR);
	}
	err = register_at(ctx, pdev, bar, pin, req);
	pci_dev_put(pdev);
	return err;
}

/**
 * peerdma_pin_register - make a buffer of memory that is kept
 * @ctx: whose
 * @pin: its end comes with the buffer's, or now
 * @req: its out_reason says whether the pin is of any use; all out_* are written
 * Return: 0 or the errno of the reason; -ENOMEM, -EINTR.
 */
int peerdma_pin_register(struct peerdma_ctx *ctx, struct peerdma_pin *pin,
			 struct peerdma_buf_register *req)
{
	int err;

	pin_hold(pin); /* it may end before this does */
	err = pin->imported ? 0 : owner_watch(pin);
	if (err)
		pin_undo(pin);
	else
		err = register_pin(ctx, pin, req);
	if (err)
		peerdma_pin_give_back(pin);
	peerdma_pin_drop(pin);
	return err;
}

int peerdma_buf_register_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_register *req = &arg->buf_register;
	const struct peerdma_vendor_ops *ops;
	struct peerdma_pin *pin;
	int err;

	req->out_buf_id = 0;
	req->out_provider_id = 0;
	req->out_mmap_offset = 0;
	err = refuse(req, peerdma_check_register(req->addr, req->len, PEERDMA_FRAME_LEN));
	if (err)
		return err;
	ops = vendor_get(req->pci_vendor);
	if (!ops)
		return refuse(req, PEERDMA_REASON_VENDOR_MODULE);
	pin = ops->pin(req->addr, req->len, &req->out_reason);
	if (IS_ERR(pin)) {
		module_put(ops->owner);
		return peerdma_reason_errno(req->out_reason) ?: PTR_ERR(pin);
	}
	return peerdma_pin_register(ctx, pin, req);
}

void peerdma_buf_register_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	peerdma_buffer_finish(ctx, arg->buf_register.out_buf_id, err);
}
