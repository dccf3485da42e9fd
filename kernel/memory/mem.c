// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of a provider with its charge: taken from the provider's pool, or kept by a vendor's
 * driver. mem_pages.c manages the references of its pages, mem_cpu.c has the CPU's accesses.
 */
#include <linux/mm.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "memory/charge.h"
#include "memory/mem.h"
#include "memory/pin.h"
#include "memory/provider.h"

void peerdma_mem_free(struct peerdma_mem *mem)
{
	struct peerdma_provider *provider = mem->provider;

	peerdma_uncharge(provider, &mem->charge);
	kvfree(mem->chunks);
	kfree(mem);
	peerdma_provider_put(provider);
}

/* A mem without pages, or NULL. */
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
	if (!peerdma_mem_get_pages(mem)) {
		pci_free_p2pmem(pdev, mem->kaddr, mem->len);
		return -ENOMEM;
	}
	atomic64_add(mem->len, &mem->provider->used);
	mem->page = virt_to_page(mem->kaddr);
	return 0;
}

/**
 * peerdma_mem_alloc - take a contiguous range of a provider's pool, charged to the current process
 * @provider: the caller holds a usage reference
 * @len: bytes, whole pages
 * @reason: enum peerdma_reason, written with -EDQUOT
 * Return: uninitialized memory with every page referenced; or ERR_PTR: -ENOMEM, -ENODEV, -EDQUOT.
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
	smp_rmb(); /* pairs with peerdma_provider_halt(): mem->halts was read before halted */
	err = READ_ONCE(provider->halted) ? -ENODEV : 0;
	err = err ?: peerdma_charge(provider, len, &mem->charge, reason) ?: mem_fill(mem);
	if (!err)
		return mem;
	peerdma_mem_free(mem);
	return ERR_PTR(err);
}

/*
 * Not in vendor memory, whose other pages the driver uses, and not where the BAR may be registers.
 */
static bool mem_has_spare_pages(const struct peerdma_mem *mem)
{
	return !mem->pin && mem->provider->prefetchable;
}

/**
 * peerdma_mem_alloc_bounce - take a few more pages of a mem's provider, charged to the same user
 * @mem: of a buffer, of which the caller holds a usage reference
 * @len: bytes, whole pages
 * Return: uninitialized memory, or ERR_PTR.
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

/* Stores the frames for iterators, unless all of them are contiguous. */
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
 * @pin: keeps it; after a success it ends with the last page of the mem
 * @reason: enum peerdma_reason, written with -EBUSY and -EDQUOT
 * Return: memory with every page referenced, charged to the caller; or ERR_PTR: -ENOMEM, -EDQUOT,
 * -EBUSY if a page is in use.
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
	if (!err && !peerdma_mem_get_external_pages(mem)) {
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

/* Iterates over the frames, without merging them. */
static noinline void mem_iter_frames(struct peerdma_mem *mem, struct iov_iter *iter, int direction,
				     u64 off, size_t len)
{
	const size_t skip = off % PEERDMA_CHUNK_LEN;

	iov_iter_bvec(iter, direction, mem->chunks + (off >> PEERDMA_CHUNK_SHIFT),
		      DIV_ROUND_UP(skip + len, PEERDMA_CHUNK_LEN), skip + len);
	iov_iter_advance(iter, skip);
}

/**
 * peerdma_mem_iter - fill an iterator over [off, off + len) of the memory
 * @mem: must stay as long as @iter and what is submitted with it
 * @iter: filled
 * @bvec: filled, for @iter; lives as long. It ends where the range ends: the block layer searches
 *	for a place to split a bio whose bio_vec goes on
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
