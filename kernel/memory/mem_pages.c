// SPDX-License-Identifier: GPL-2.0
/*
 * References of a mem's pages.
 *
 * A layer below this module may get and put a reference on a page of a bio_vec; NFS does. On a page
 * with count 0 that put would free the page a second time, while it has an owner. So this module
 * holds a reference of each page of a live mem. How it takes and puts that reference depends on the
 * kernel and on the kind of memory:
 *
 * Pool memory, if an idle P2PDMA page has count 0 (since v6.15). pci_alloc_p2pmem() leaves the
 * count at 0 and takes one pgmap reference for the allocation. Here the count is set to 1. Each
 * page that falls to 0 puts one pgmap reference and returns its own 4 KiB to the pool, so n - 1
 * more pgmap references are taken for n pages. Release is put_page() on each page that has no other
 * reference; pci_free_p2pmem() is never called. One pgmap reference too many would make an unbind
 * wait for ever.
 *
 * Pool memory, if an idle P2PDMA page has count 1 (up to v6.14). A count that falls to 0 returns
 * the page to the pool before it is set to 1 again, and a new owner's reference could be lost. So
 * the count must never fall to 0. This module's reference is a second one. After it is put, one
 * pci_free_p2pmem() returns all pages, as soon as each has count 1.
 *
 * External memory. Its page map is not this module's, and its pages are not in a pool: a put to the
 * idle count would free a page that its driver still owns. So a compare-and-exchange takes each
 * page from the idle count to 2, which proves that no one else had it. Another one takes it back,
 * which proves that no one else has it. Use a count of 2: up to v6.14 the core, and nvidia-uvm on
 * any kernel, treat a count of 1 as free. A page that nvidia-uvm has allocated has its mark in
 * zone_device_data, whatever its count.
 *
 * Hazard: nvidia-uvm and this module may both take one page. Up to version 590, nvidia-uvm tests
 * for count 1 and no mark, and then sets its mark. If the idle count is 1, this module may take the
 * page in between. From version 595 on, nvidia-uvm sets the count to 1 before that test. So it may
 * take a page of a live mem, on any kernel. In either case the count is wrong for both, and
 * unbinding the GPU may wait for ever.
 *
 * On a released page that others hold, the module's reference stays until theirs are gone: busy.c.
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

#define MEM_BUSY_MAX 16384 /* pages that one poll counts: 64 MiB */
#define MEM_EXTERNAL_COUNT 2 /* of a page of external memory that no one else holds */

/* The number of references that others have of a page of a released mem. */
static int mem_page_others(const struct peerdma_mem *mem, struct page *page)
{
	return page_count(page) - (mem->pin ? MEM_EXTERNAL_COUNT : 1);
}

static bool mem_page_count_swap(struct page *page, int from, int to)
{
	return atomic_cmpxchg(&page->_refcount, from, to) == from;
}

/* False if another reference exists. */
static bool mem_page_put_external(struct page *page)
{
	return mem_page_count_swap(page, MEM_EXTERNAL_COUNT, PEERDMA_IDLE_PAGE_COUNT);
}

/*
 * nvidia-uvm may mark the page before or after the exchange, so the mark is checked before and
 * after. A mark that comes still later is not seen: the hazard above.
 */
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

/*
 * Undoes mem_page_get_external() for the first @n pages, which this module has given to no one yet.
 */
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

/*
 * Four functions take and return pool memory. Each has two implementations, one per idle count.
 * - peerdma_mem_get_pool_pages() references all pages, right after pci_alloc_p2pmem().
 * - mem_pool_put_references() is called once, at the release, while others may hold pages.
 * - mem_pool_free_page() is called for each page when no one else holds it.
 * - mem_pool_free_all() is called once, after the last page.
 */
#if PEERDMA_IDLE_PAGE_COUNT == 0

bool peerdma_mem_get_pool_pages(struct peerdma_mem *mem)
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

/* Each reference is put with its page: mem_pool_free_page(). */
static void mem_pool_put_references(struct peerdma_mem *mem)
{
}

/* put_page() returns the page to the pool. */
static void mem_pool_free_page(struct peerdma_mem *mem, struct page *page)
{
	atomic64_sub(PAGE_SIZE, &mem->provider->used);
	put_page(page);
}

/* Each page has returned by itself. */
static void mem_pool_free_all(struct peerdma_mem *mem)
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
 * A page that root had allocated through p2pmem/allocate may be in the pool shortly before its
 * count is 1 again. A reference taken then would be lost. False if a page keeps another count.
 */
bool peerdma_mem_get_pool_pages(struct peerdma_mem *mem)
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

/* Does nothing for external memory: mem_page_put_external() puts each reference. */
static void mem_pool_put_references(struct peerdma_mem *mem)
{
	unsigned long i, n = mem->pin ? 0 : mem->len >> PAGE_SHIFT;

	for (i = 0; i < n; i++) {
		put_page(peerdma_mem_page(mem, i));
		cond_resched();
	}
}

/* All pages return together: mem_pool_free_all(). */
static void mem_pool_free_page(struct peerdma_mem *mem, struct page *page)
{
}

static void mem_pool_free_all(struct peerdma_mem *mem)
{
	atomic64_sub(mem->len, &mem->provider->used);
	pci_free_p2pmem(mem->provider->pdev, mem->kaddr, mem->len);
}

#endif

/* Called when this module does not use the memory any more. From now on it can be reclaimed. */
void peerdma_mem_start_reclaim(struct peerdma_mem *mem)
{
	mem_pool_put_references(mem);
	mem->end = mem->len >> PAGE_SHIFT;
}

/*
 * Frees a page, or returns false if others hold it. Uncharges before the last page of a pool is
 * freed: then the provider may go, and a new one has a dmem region of the same name.
 */
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
	mem_pool_free_page(mem, page);
	return true;
}

/**
 * peerdma_mem_reclaim - free the pages of a released mem that no one else holds
 * @mem: peerdma_mem_start_reclaim() has been called; one caller at a time
 *
 * Works from both ends up to the first page that others hold. So no state is kept for each page,
 * and a repeated call is cheap.
 *
 * Return: true if all pages are free. The provider's range may be gone then.
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
		/* Before another owner can have the memory, and be charged for it. */
		peerdma_uncharge(mem->provider, &mem->charge);
		peerdma_pin_release(mem->pin);
	} else {
		mem_pool_free_all(mem);
	}
	return true;
}

/**
 * peerdma_mem_count_busy - count what others hold of a released mem
 * @mem: as for peerdma_mem_reclaim()
 * @pages: number of pages that others hold
 * @most: the most references of others on one page
 *
 * Looks at MEM_BUSY_MAX pages at most.
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
