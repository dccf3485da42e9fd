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
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "memory/charge.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"

#define MEM_BUSY_MAX 16384 /* pages that one look counts: 64 MiB */
#define MEM_EXTERNAL_COUNT 2 /* ours, of a page of a vendor's driver */

/* References of a page that are not ours, once we have let go of what was above the last one. */
static int mem_page_others(const struct peerdma_mem *mem, struct page *page)
{
	return page_count(page) - (mem->pin ? MEM_EXTERNAL_COUNT : 1);
}

static bool mem_page_count_swap(struct page *page, int from, int to)
{
	return atomic_cmpxchg(&page->_refcount, from, to) == from;
}

/* False: somebody else has it, or has got hold of it just now. */
static bool mem_page_put_external(struct page *page)
{
	return mem_page_count_swap(page, MEM_EXTERNAL_COUNT, PEERDMA_IDLE_PAGE_COUNT);
}

/* Who marks it does so before or after: so it is looked for after as well. */
static bool mem_page_get_external(struct page *page)
{
	if (READ_ONCE(page->zone_device_data) ||
	    !mem_page_count_swap(page, PEERDMA_IDLE_PAGE_COUNT, MEM_EXTERNAL_COUNT))
		return false;
	if (!READ_ONCE(page->zone_device_data))
		return true;
	page_ref_sub(page, MEM_EXTERNAL_COUNT - PEERDMA_IDLE_PAGE_COUNT);
	return false;
}

/* Of the first @n of its pages, which nobody else can have got hold of. */
static void mem_pages_unget_external(struct peerdma_mem *mem, unsigned long n)
{
	while (n--) {
		page_ref_sub(peerdma_mem_page(mem, n),
			     MEM_EXTERNAL_COUNT - PEERDMA_IDLE_PAGE_COUNT);
		cond_resched();
	}
}

bool peerdma_mem_get_external_pages(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;

	for (i = 0; i < n; i++) {
		if (!mem_page_get_external(peerdma_mem_page(mem, i))) {
			mem_pages_unget_external(mem, i);
			return false;
		}
		cond_resched();
	}
	return true;
}

#if PEERDMA_IDLE_PAGE_COUNT == 0

bool peerdma_mem_get_pages(struct peerdma_mem *mem)
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

static void mem_pages_put(struct peerdma_mem *mem)
{
}

/* The page goes back to the pool by itself. */
static void mem_page_return(struct peerdma_mem *mem, struct page *page)
{
	atomic64_sub(PAGE_SIZE, &mem->provider->used);
	put_page(page);
}

static void mem_pages_returned(struct peerdma_mem *mem)
{
}

#else /* PEERDMA_IDLE_PAGE_COUNT == 1 */

#define MEM_GET_TRIES 100

static bool mem_pages_are_idle(struct peerdma_mem *mem)
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
bool peerdma_mem_get_pages(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->len >> PAGE_SHIFT;
	struct page *page = virt_to_page(mem->kaddr);
	int tries;

	for (tries = 0; !mem_pages_are_idle(mem); tries++) {
		if (tries == MEM_GET_TRIES)
			return false;
		usleep_range(10, 20);
	}
	for (i = 0; i < n; i++) {
		get_page(page + i);
		cond_resched();
	}
	return true;
}

static void mem_pages_put(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->pin ? 0 : mem->len >> PAGE_SHIFT;

	for (i = 0; i < n; i++) {
		put_page(peerdma_mem_page(mem, i));
		cond_resched();
	}
}

/* All of them go back to the pool together. */
static void mem_page_return(struct peerdma_mem *mem, struct page *page)
{
}

static void mem_pages_returned(struct peerdma_mem *mem)
{
	atomic64_sub(mem->len, &mem->provider->used);
	pci_free_p2pmem(mem->provider->pdev, mem->kaddr, mem->len);
}

#endif

/* Nobody of ours uses it any more: from now on it can be settled. */
void peerdma_mem_put_pages(struct peerdma_mem *mem)
{
	mem_pages_put(mem);
	mem->end = mem->len >> PAGE_SHIFT;
}

/* With the last page the provider may go, and its successor has the same name among cgroups. */
static bool mem_page_reclaim(struct peerdma_mem *mem, unsigned long index)
{
	struct page *page = peerdma_mem_page(mem, index);

	if (mem_page_others(mem, page))
		return false;
	cond_resched();
	if (mem->pin)
		return mem_page_put_external(page);
	if (mem->end - mem->first == 1)
		peerdma_uncharge(mem->provider, &mem->charge);
	mem_page_return(mem, page);
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
	while (mem->first < mem->end && mem_page_reclaim(mem, mem->first))
		mem->first++;
	while (mem->first < mem->end && mem_page_reclaim(mem, mem->end - 1))
		mem->end--;
	if (mem->first < mem->end)
		return false;
	if (mem->pin) {
		/* Before it is another's, who may be charged for it as well. */
		peerdma_uncharge(mem->provider, &mem->charge);
		peerdma_pin_release(mem->pin);
	} else {
		mem_pages_returned(mem);
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
	for (i = mem->first; i < min(mem->end, mem->first + MEM_BUSY_MAX); i++) {
		theirs = mem_page_others(mem, peerdma_mem_page(mem, i));
		*pages += theirs > 0;
		*most = max_t(int, *most, theirs);
		cond_resched();
	}
}
