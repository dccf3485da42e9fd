// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of a provider, referenced while anyone may use them.
 *
 * A consumer below us may take and drop a reference of its own on a page of a bio_vec (NFS does).
 * On a page with count 0 that drop would "free" it a second time, under its owner. So every page of
 * a live mem holds one reference of ours. How that is said differs:
 *
 * Where an idle P2PDMA page has count 0 (v6.15 on), pci_alloc_p2pmem() leaves it at 0 and takes one
 * pgmap reference for the allocation. The count is set to 1, and as every page that falls to 0
 * gives back one pgmap reference and its own 4 KiB of the pool, n - 1 more are taken. Letting go is
 * put_page() on each that nobody else holds. pci_free_p2pmem() is never called. One pgmap reference
 * too many and unbind waits for ever.
 *
 * Where it has count 1 (up to v6.14), a count that falls to 0 puts the page back into the pool
 * before the count is set to 1 again, so that a new owner's reference could be lost. There the
 * count must never fall to 0: ours is a second reference, and after it has been dropped the pages
 * go back by one pci_free_p2pmem() once each has count 1.
 *
 * Memory of a vendor's driver is of a page map that is not ours, and not out of its pool: a count
 * that falls to what an idle page has, by a put, would give the page to whom it does not belong. So
 * it is taken by a compare-and-exchange from idle to two, which proves that nobody else had it, and
 * let go by the same in the other direction, which proves that nobody else has. Two everywhere, and
 * until then: whoever finds one thinks that the page is to be had, which is said so up to v6.14,
 * and which nvidia-uvm looks for on later kernels too. What it has had keeps its mark in
 * zone_device_data, whatever the count.
 *
 * Either way the count of a page that we have let go, and that others hold, is ours and theirs, and
 * it does not go away before ours has been taken from it: busy.c.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/usage.h"
#include "memory/charge.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"

#define BUSY_COUNT_MAX 16384 /* pages that one look counts: 64 MiB */
#define ZERO_STEP SZ_1M /* bytes zeroed between two looks around */

void peerdma_mem_free(struct peerdma_mem *mem)
{
	struct peerdma_provider *provider = mem->provider;

	peerdma_uncharge(provider, &mem->charge);
	kvfree(mem->chunks);
	kfree(mem);
	peerdma_provider_put(provider);
}

#define EXTERNAL_COUNT 2 /* ours, of a page of a vendor's driver */

/* References of a page that are not ours, once we have let go of what was above the last one. */
static int page_others(const struct peerdma_mem *mem, struct page *page)
{
	return page_count(page) - (mem->pin ? EXTERNAL_COUNT : 1);
}

static bool page_count_swap(struct page *page, int from, int to)
{
	return atomic_cmpxchg(&page->_refcount, from, to) == from;
}

/* False: somebody else has it, or has got hold of it just now. */
static bool external_page_put(struct page *page)
{
	return page_count_swap(page, EXTERNAL_COUNT, PEERDMA_IDLE_PAGE_COUNT);
}

/* Who marks it does so before or after: so it is looked for after as well. */
static bool external_page_get(struct page *page)
{
	if (READ_ONCE(page->zone_device_data) ||
	    !page_count_swap(page, PEERDMA_IDLE_PAGE_COUNT, EXTERNAL_COUNT))
		return false;
	if (!READ_ONCE(page->zone_device_data))
		return true;
	page_ref_sub(page, EXTERNAL_COUNT - PEERDMA_IDLE_PAGE_COUNT);
	return false;
}

/* Of the first @n of its pages, which nobody else can have got hold of. */
static void external_pages_unget(struct peerdma_mem *mem, unsigned long n)
{
	while (n--) {
		page_ref_sub(peerdma_mem_page(mem, n), EXTERNAL_COUNT - PEERDMA_IDLE_PAGE_COUNT);
		cond_resched();
	}
}

static bool external_pages_get(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;

	for (i = 0; i < n; i++) {
		if (!external_page_get(peerdma_mem_page(mem, i))) {
			external_pages_unget(mem, i);
			return false;
		}
		cond_resched();
	}
	return true;
}

#if PEERDMA_IDLE_PAGE_COUNT == 0

static bool mem_get_pages(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;
	struct page *page = virt_to_page(mem->kaddr);

	percpu_ref_get_many(&page_pgmap(page)->ref, n - 1);
	for (i = 0; i < n; i++) {
		set_page_count(page + i, 1);
		cond_resched();
	}
	return true;
}

static void mem_put_pages(struct peerdma_mem *mem)
{
}

/* The page goes back to the pool by itself. */
static void page_reclaim(struct peerdma_mem *mem, struct page *page)
{
	atomic64_sub(PAGE_SIZE, &mem->provider->used);
	put_page(page);
}

static void mem_reclaimed(struct peerdma_mem *mem)
{
}

#else /* PEERDMA_IDLE_PAGE_COUNT == 1 */

#define HOLD_TRIES 100

static bool mem_idle(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;
	struct page *page = virt_to_page(mem->kaddr);

	for (i = 0; i < n; i++) {
		if (page_count(page + i) != PEERDMA_IDLE_PAGE_COUNT)
			return false;
		cond_resched();
	}
	return true;
}

/*
 * A page that root had through p2pmem/allocate can be in the pool an instant before its count is 1
 * again: a reference taken in that instant would be lost. False if one stays like that.
 */
static bool mem_get_pages(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;
	struct page *page = virt_to_page(mem->kaddr);
	int tries;

	for (tries = 0; !mem_idle(mem); tries++) {
		if (tries == HOLD_TRIES)
			return false;
		usleep_range(10, 20);
	}
	for (i = 0; i < n; i++) {
		get_page(page + i);
		cond_resched();
	}
	return true;
}

static void mem_put_pages(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->pin ? 0 : mem->len >> PAGE_SHIFT;

	for (i = 0; i < n; i++) {
		put_page(peerdma_mem_page(mem, i));
		cond_resched();
	}
}

/* All of them go back to the pool together. */
static void page_reclaim(struct peerdma_mem *mem, struct page *page)
{
}

static void mem_reclaimed(struct peerdma_mem *mem)
{
	atomic64_sub(mem->len, &mem->provider->used);
	pci_free_p2pmem(mem->provider->pdev, mem->kaddr, mem->len);
}

#endif

/* Nobody of ours uses it any more: from now on it can be settled. */
void peerdma_mem_put_pages(struct peerdma_mem *mem)
{
	mem_put_pages(mem);
	mem->end = mem->len >> PAGE_SHIFT;
}

/* With the last page the provider may go, and its successor has the same name among cgroups. */
static bool mem_reclaim_page(struct peerdma_mem *mem, unsigned long index)
{
	struct page *page = peerdma_mem_page(mem, index);

	if (page_others(mem, page))
		return false;
	cond_resched();
	if (mem->pin)
		return external_page_put(page);
	if (mem->end - mem->first == 1)
		peerdma_uncharge(mem->provider, &mem->charge);
	page_reclaim(mem, page);
	return true;
}

/**
 * peerdma_mem_reclaim - take from a mem that was let go what nobody else holds
 * @mem: of which nobody of ours does anything any more; one caller at a time
 *
 * From both ends, so that nothing has to be remembered of each page, and so that looking again
 * costs next to nothing.
 *
 * Return: true if that was all. Its pages, and perhaps the provider's range, are gone then.
 */
bool peerdma_mem_reclaim(struct peerdma_mem *mem)
{
	while (mem->first < mem->end && mem_reclaim_page(mem, mem->first))
		mem->first++;
	while (mem->first < mem->end && mem_reclaim_page(mem, mem->end - 1))
		mem->end--;
	if (mem->first < mem->end)
		return false;
	if (mem->pin) {
		/* Before it is another's, who may be charged for it as well. */
		peerdma_uncharge(mem->provider, &mem->charge);
		peerdma_pin_release(mem->pin);
	} else {
		mem_reclaimed(mem);
	}
	return true;
}

/**
 * peerdma_mem_count_busy - what others hold of a mem that is not settled
 * @mem: as for peerdma_mem_reclaim()
 * @pages: how many pages
 * @most: how many references of the page that has most
 *
 * Of a large mem only the first pages that are not settled are looked at.
 */
void peerdma_mem_count_busy(struct peerdma_mem *mem, unsigned long *pages, unsigned int *most)
{
	unsigned long i;
	int theirs;

	*pages = 0;
	*most = 0;
	for (i = mem->first; i < min(mem->end, mem->first + BUSY_COUNT_MAX); i++) {
		theirs = page_others(mem, peerdma_mem_page(mem, i));
		*pages += theirs > 0;
		*most = max_t(int, *most, theirs);
		cond_resched();
	}
}

/*
 * What the CPU stores in a BAR is posted: it may still be on its way when another device, coming
 * from another port, reads or writes the same bytes. Reading the last word back pushes all of it
 * out.
 */
static void mem_flush(void __iomem *last_word)
{
	mb(); /* the stores are issued before the load that pushes them */
	(void)__raw_readl(last_word);
}

/*
 * Memory of another owner must not be read by a new one. The mapping is uncached: this is slow.
 * With a usage reference of the provider. 0, -EINTR or -ENODEV.
 */
int peerdma_mem_zero(struct peerdma_mem *mem)
{
	void __iomem *start = (void __iomem *)mem->kaddr;
	u64 off;

	for (off = 0; off < mem->len; off += sizeof(u64)) {
		__raw_writeq(0, start + off);
		if ((off + sizeof(u64)) % ZERO_STEP)
			continue;
		if (fatal_signal_pending(current))
			return -EINTR;
		if (peerdma_usage_killed(&mem->provider->usage) || READ_ONCE(mem->provider->halted))
			return -ENODEV;
		cond_resched();
	}
	mem_flush(start + mem->len - sizeof(u32));
	return 0;
}

/* A mem without pages yet, or NULL. */
static struct peerdma_mem *mem_create(struct peerdma_provider *provider, u64 len)
{
	struct peerdma_mem *mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);

	if (!mem)
		return NULL;
	mem->len = len;
	mem->halts = READ_ONCE(provider->halts);
	refcount_inc(&provider->refs);
	mem->provider = provider;
	return mem;
}

static int mem_fill(struct peerdma_mem *mem)
{
	struct pci_dev *pdev = mem->provider->pdev;

	mem->kaddr = pci_alloc_p2pmem(pdev, mem->len);
	if (!mem->kaddr)
		return -ENOMEM;
	if (!mem_get_pages(mem)) {
		pci_free_p2pmem(pdev, mem->kaddr, mem->len);
		return -ENOMEM;
	}
	atomic64_add(mem->len, &mem->provider->used);
	mem->page = virt_to_page(mem->kaddr);
	return 0;
}

/**
 * peerdma_mem_alloc - take a contiguous range out of a provider, for which the current process pays
 * @provider: the caller holds a usage reference
 * @len: bytes, whole pages
 * @reason: enum peerdma_reason, written with -EDQUOT
 * Return: memory with every page referenced, that holds anything; or ERR_PTR: -ENOMEM, -ENODEV,
 * -EDQUOT.
 */
struct peerdma_mem *peerdma_mem_alloc(struct peerdma_provider *provider, u64 len, u32 *reason)
{
	struct peerdma_mem *mem;
	int err;

	if (len > provider->len)
		return ERR_PTR(-ENOMEM);
	mem = mem_create(provider, len);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	smp_rmb(); /* who has counted the latest halt sees it: pairs with peerdma_provider_halt() */
	err = READ_ONCE(provider->halted) ? -ENODEV : 0;
	err = err ?: peerdma_charge(provider, len, &mem->charge, reason) ?: mem_fill(mem);
	if (!err)
		return mem;
	peerdma_mem_free(mem);
	return ERR_PTR(err);
}

/* Another driver has the rest of its memory; what may be registers is not written unasked. */
static bool mem_has_spare_pages(const struct peerdma_mem *mem)
{
	return !mem->pin && mem->provider->prefetchable;
}

/**
 * peerdma_mem_alloc_bounce - take a little more of the same provider, for which the same user pays
 * @mem: of a buffer, of which the caller holds a usage reference
 * @len: bytes, whole pages
 * Return: memory that holds anything, or ERR_PTR of an errno.
 */
struct peerdma_mem *peerdma_mem_alloc_bounce(struct peerdma_mem *mem, u64 len)
{
	struct peerdma_mem *near = mem_has_spare_pages(mem) ? mem_create(mem->provider, len) : NULL;
	int err;

	if (!near)
		return ERR_PTR(-ENOMEM);
	err = peerdma_charge_more(mem->provider, len, &mem->charge, &near->charge);
	if (!err)
		err = mem_fill(near);
	if (!err)
		return near;
	peerdma_mem_free(near);
	return ERR_PTR(err);
}

/* Where each frame is, for iterators; nothing if all of it is contiguous. */
static int mem_fill_frames(struct peerdma_mem *mem, const struct peerdma_pin *pin)
{
	unsigned long i, n;

	for (n = 1; n < pin->nr && pin->chunks[n] == pin->chunks[n - 1] + PEERDMA_CHUNK_LEN; n++)
		;
	if (n == pin->nr)
		return 0;
	mem->chunks = kvcalloc(pin->nr, sizeof(*mem->chunks), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mem->chunks)
		return -ENOMEM;
	for (i = 0; i < pin->nr; i++)
		bvec_set_page(&mem->chunks[i], pfn_to_page(PHYS_PFN(pin->chunks[i])),
			      PEERDMA_CHUNK_LEN, 0);
	return 0;
}

/**
 * peerdma_mem_import - take memory that a vendor's driver keeps
 * @provider: of its pages
 * @pin: what keeps it; after a success it is ended when the last page of the memory is let go
 * @reason: enum peerdma_reason, written with -EBUSY and -EDQUOT
 * Return: memory with every page referenced, charged to the caller; or ERR_PTR: -ENOMEM, -EDQUOT,
 * -EBUSY somebody else uses it.
 */
struct peerdma_mem *peerdma_mem_import(struct peerdma_provider *provider, struct peerdma_pin *pin,
				       u32 *reason)
{
	struct peerdma_mem *mem = mem_create(provider, (u64)pin->nr << PEERDMA_CHUNK_SHIFT);
	int err;

	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->page = pfn_to_page(PHYS_PFN(pin->chunks[0]));
	mem->kaddr = page_address(mem->page);
	err = peerdma_charge(provider, mem->len, &mem->charge, reason) ?: mem_fill_frames(mem, pin);
	if (!err && !external_pages_get(mem)) {
		*reason = PEERDMA_REASON_VENDOR_BUSY;
		err = -EBUSY;
	}
	if (err) {
		peerdma_mem_free(mem);
		return ERR_PTR(err);
	}
	mem->pin = pin;
	return mem;
}

/* The frames that hold it, as they are. */
static noinline void mem_iter_frames(struct peerdma_mem *mem, struct iov_iter *iter, int direction,
				     u64 off, size_t len)
{
	const size_t skip = off % PEERDMA_CHUNK_LEN;

	iov_iter_bvec(iter, direction, mem->chunks + (off >> PEERDMA_CHUNK_SHIFT),
		      DIV_ROUND_UP(skip + len, PEERDMA_CHUNK_LEN), skip + len);
	iov_iter_advance(iter, skip);
}

/**
 * peerdma_mem_iter - an iterator over [off, off + len) of the memory
 * @mem: stays as long as @iter and what is submitted with it
 * @iter: filled
 * @bvec: filled, for @iter; lives as long. It ends where the range does: the block layer looks for
 * a place to split a bio whose bio_vec goes on.
 * @direction: ITER_SOURCE or ITER_DEST
 * @off: bytes
 * @len: bytes, MAX_RW_COUNT at most
 */
void peerdma_mem_iter(struct peerdma_mem *mem, struct iov_iter *iter, struct bio_vec *bvec,
		      int direction, u64 off, size_t len)
{
	if (unlikely(mem->chunks)) {
		mem_iter_frames(mem, iter, direction, off, len);
		return;
	}
	bvec_set_page(bvec, mem->page + (off >> PAGE_SHIFT), len, offset_in_page(off));
	iov_iter_bvec(iter, direction, bvec, 1, len);
}

/*
 * Inside one provider, through the CPU's registers, so that no byte of it is ever in host memory.
 * For less than a block of a file. Words where both ends are aligned alike, else bytes: device
 * memory takes nothing else everywhere.
 */
void peerdma_mem_copy(struct peerdma_mem *to, u64 to_off, struct peerdma_mem *from, u64 from_off,
		      u64 len)
{
	void __iomem *dst = (void __iomem *)to->kaddr + to_off;
	void __iomem *src = (void __iomem *)from->kaddr + from_off;
	u64 words = (to_off ^ from_off) % sizeof(u32) ? 0 : sizeof(u32);

	while (len) {
		if (words && len >= words && IS_ALIGNED(from_off, sizeof(u32))) {
			__raw_writel(__raw_readl(src), dst);
			src += words, dst += words, from_off += words, len -= words;
		} else {
			__raw_writeb(__raw_readb(src), dst);
			src++, dst++, from_off++, len--;
		}
	}
	mem_flush((void __iomem *)PTR_ALIGN_DOWN(dst - 1, sizeof(u32)));
}

static void mem_write_at(void __iomem *dst, const void *from, u64 len)
{
	memcpy_toio(dst, from, len);
	mem_flush((void __iomem *)PTR_ALIGN_DOWN(dst + len - 1, sizeof(u32)));
}

static void mem_write_frames(struct peerdma_mem *to, u64 to_off, const void *from, u64 len)
{
	const struct bio_vec *frame;
	u64 skip, step;

	for (; len; to_off += step, from += step, len -= step) {
		frame = &to->chunks[to_off >> PEERDMA_CHUNK_SHIFT];
		skip = to_off % PEERDMA_CHUNK_LEN;
		step = min_t(u64, len, PEERDMA_CHUNK_LEN - skip);
		mem_write_at((void __iomem *)page_address(frame->bv_page) + skip, from, step);
	}
}

/* The same from host memory. */
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len)
{
	if (to->chunks)
		mem_write_frames(to, to_off, from, len);
	else
		mem_write_at((void __iomem *)to->kaddr + to_off, from, len);
}

/**
 * peerdma_mem_read_back - push out what the kernel has the CPU store in the memory during a read
 * @mem: stays meanwhile
 * @off: any byte of it: all stores to a device are before the load
 */
noinline void peerdma_mem_read_back(struct peerdma_mem *mem, u64 off)
{
	void *at = mem->kaddr + off;

	if (unlikely(mem->chunks))
		at = page_address(mem->chunks[off >> PEERDMA_CHUNK_SHIFT].bv_page) +
		     off % PEERDMA_CHUNK_LEN;
	mem_flush((void __iomem *)PTR_ALIGN_DOWN(at, sizeof(u32)));
}

/* And the other way. */
void peerdma_mem_read(struct peerdma_mem *from, u64 from_off, void *to, u64 len)
{
	u64 skip, step = len;
	const void *src;

	for (; len; from_off += step, to += step, len -= step) {
		src = from->kaddr + from_off;
		if (from->chunks) {
			skip = from_off % PEERDMA_CHUNK_LEN;
			step = min_t(u64, len, PEERDMA_CHUNK_LEN - skip);
			src = page_address(from->chunks[from_off >> PEERDMA_CHUNK_SHIFT].bv_page) +
			      skip;
		}
		memcpy_fromio(to, (const void __iomem *)src, step);
	}
}
