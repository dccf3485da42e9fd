// SPDX-License-Identifier: GPL-2.0
/*
 * Takes memory of a provider, and charges it: from the provider's pool, or external memory, which
 * another driver keeps in place. mem_pages.c references and frees the pages, mem_cpu.c has the
 * CPU's accesses.
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
	kvfree(mem->chunk_bvecs);
	kfree(mem);
	peerdma_provider_put(provider);
}

/* A mem without pages, or NULL without memory. */
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

static int mem_take_from_pool(struct peerdma_mem *mem)
{
	struct pci_dev *pdev = mem->provider->pdev;

	mem->kaddr = pci_alloc_p2pmem(pdev, mem->len);
	if (!mem->kaddr)
		return -ENOMEM;
	if (!peerdma_mem_get_pool_pages(mem)) {
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
	err = err ?: peerdma_charge(provider, len, &mem->charge, reason) ?: mem_take_from_pool(mem);
	if (!err)
		return mem;
	peerdma_mem_free(mem);
	return ERR_PTR(err);
}

/*
 * Bounce pages are taken from the provider's pool. External memory has no pool, and in a BAR that
 * may be registers only the bytes of requests are accessed.
 */
static bool mem_allows_bounce_pages(const struct peerdma_mem *mem)
{
	return !mem->pin && mem->provider->prefetchable;
}

/**
 * peerdma_mem_alloc_bounce - take bounce pages from a mem's provider, charged to the mem's user
 * @mem: of a buffer, of which the caller holds a usage reference
 * @len: bytes, whole pages
 * Return: uninitialized memory, or ERR_PTR.
 */
struct peerdma_mem *peerdma_mem_alloc_bounce(struct peerdma_mem *mem, u64 len)
{
	struct peerdma_mem *bounce;
	int err;

	bounce = mem_allows_bounce_pages(mem) ? mem_create(mem->provider, len) : NULL;
	if (!bounce)
		return ERR_PTR(-ENOMEM);
	err = peerdma_charge_more(mem->provider, len, &mem->charge, &bounce->charge);
	if (!err)
		err = mem_take_from_pool(bounce);
	if (!err)
		return bounce;
	peerdma_mem_free(bounce);
	return ERR_PTR(err);
}

/* Fills mem->chunk_bvecs, unless the memory is contiguous. */
static int mem_alloc_chunk_bvecs(struct peerdma_mem *mem, const struct peerdma_pin *pin)
{
	const u64 *addrs = pin->chunk_addrs;
	unsigned long i, n;

	for (n = 1; n < pin->nr_chunks && addrs[n] == addrs[n - 1] + PEERDMA_CHUNK_LEN; n++)
		;
	if (n == pin->nr_chunks)
		return 0;
	mem->chunk_bvecs = kvcalloc(pin->nr_chunks, sizeof(*mem->chunk_bvecs),
				    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mem->chunk_bvecs)
		return -ENOMEM;
	for (i = 0; i < pin->nr_chunks; i++)
		bvec_set_page(&mem->chunk_bvecs[i], pfn_to_page(PHYS_PFN(addrs[i])),
			      PEERDMA_CHUNK_LEN, 0);
	return 0;
}

/**
 * peerdma_mem_from_pin - make a mem of the memory of a pin
 * @provider: of its pages
 * @pin: after a success it ends with the last page of the mem
 * @reason: enum peerdma_reason, written with -EBUSY and -EDQUOT
 * Return: memory with every page referenced, charged to the caller; or ERR_PTR: -ENOMEM, -EDQUOT,
 * -EBUSY if a page is in use.
 */
struct peerdma_mem *peerdma_mem_from_pin(struct peerdma_provider *provider, struct peerdma_pin *pin,
					 u32 *reason)
{
	struct peerdma_mem *mem = mem_create(provider, (u64)pin->nr_chunks << PEERDMA_CHUNK_SHIFT);
	int err;

	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->page = pfn_to_page(PHYS_PFN(pin->chunk_addrs[0]));
	mem->kaddr = page_address(mem->page);
	err = peerdma_charge(provider, mem->len, &mem->charge, reason) ?:
		      mem_alloc_chunk_bvecs(mem, pin);
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

/* Iterates over the chunks as they are, without merging adjacent ones. */
static noinline void mem_iter_chunks(struct peerdma_mem *mem, struct iov_iter *iter, int direction,
				     u64 off, size_t len)
{
	const size_t skip = off % PEERDMA_CHUNK_LEN;

	iov_iter_bvec(iter, direction, mem->chunk_bvecs + (off >> PEERDMA_CHUNK_SHIFT),
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
	if (unlikely(mem->chunk_bvecs)) {
		mem_iter_chunks(mem, iter, direction, off, len);
		return;
	}
	bvec_set_page(bvec, mem->page + (off >> PAGE_SHIFT), len, offset_in_page(off));
	iov_iter_bvec(iter, direction, bvec, 1, len);
}
