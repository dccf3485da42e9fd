/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of a provider whose pages this module has referenced. It is of one of two kinds. Pool
 * memory is allocated from a range that this module has published. External memory belongs to
 * another driver, which keeps it in place for a pin: pin.h.
 */
#ifndef PEERDMA_MEM_H
#define PEERDMA_MEM_H

#include <linux/bvec.h>
#include <linux/mm.h>

#include "memory/busy.h"
#include "memory/charge.h"
#include "memory/pin.h"

struct iov_iter;
struct peerdma_provider;

/**
 * struct peerdma_mem - memory of a provider whose pages this module has referenced
 * @provider: referenced
 * @kaddr: kernel mapping of @page, uncached
 * @len: bytes
 * @page: the first page
 * @chunk_bvecs: of external memory that is not contiguous, one bio_vec for each chunk; NULL: all
 *	pages follow @page
 * @pin: keeps external memory in place, and ends with its last page; NULL: pool memory
 * @charge: uncharged when all pages are free
 * @halts: the provider's, read before the memory was taken
 * @first: after the release, index of the first page that is not free yet
 * @end: after the release, index behind the last such page
 * @busy: its entry in the list of released memory that others hold
 */
struct peerdma_mem {
	struct peerdma_provider *provider;
	void *kaddr;
	u64 len;
	struct page *page; /* immutable */
	struct bio_vec *chunk_bvecs; /* immutable */
	struct peerdma_pin *pin; /* immutable */
	struct peerdma_charge charge;
	unsigned int halts; /* immutable */
	unsigned long first;
	unsigned long end;
	struct peerdma_busy busy;
};

struct peerdma_mem *peerdma_mem_alloc(struct peerdma_provider *provider, u64 len, u32 *reason);
struct peerdma_mem *peerdma_mem_alloc_bounce(struct peerdma_mem *mem, u64 len);
struct peerdma_mem *peerdma_mem_from_pin(struct peerdma_provider *provider, struct peerdma_pin *pin,
					 u32 *reason);
void peerdma_mem_free(struct peerdma_mem *mem);
void peerdma_mem_iter(struct peerdma_mem *mem, struct iov_iter *iter, struct bio_vec *bvec,
		      int direction, u64 off, size_t len);

/* mem_pages.c */
bool peerdma_mem_get_pool_pages(struct peerdma_mem *mem);
bool peerdma_mem_get_external_pages(struct peerdma_mem *mem);
void peerdma_mem_start_reclaim(struct peerdma_mem *mem);
bool peerdma_mem_reclaim(struct peerdma_mem *mem);
void peerdma_mem_count_busy(struct peerdma_mem *mem, unsigned long *pages, unsigned int *most);

/* mem_cpu.c */
int peerdma_mem_zero(struct peerdma_mem *mem);
void peerdma_mem_copy(struct peerdma_mem *to, u64 to_off, struct peerdma_mem *from, u64 from_off,
		      u64 len);
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len);
void peerdma_mem_read_back(struct peerdma_mem *mem, u64 off);

/* The page that has byte @index << PAGE_SHIFT. */
static inline struct page *peerdma_mem_page(const struct peerdma_mem *mem, unsigned long index)
{
	const unsigned int shift = PEERDMA_CHUNK_SHIFT - PAGE_SHIFT;

	if (likely(!mem->chunk_bvecs))
		return mem->page + index;
	return mem->chunk_bvecs[index >> shift].bv_page + (index & (BIT(shift) - 1));
}

/* True for memory of a dma-buf. */
static inline bool peerdma_mem_is_imported(const struct peerdma_mem *mem)
{
	return mem->pin && mem->pin->imported;
}

#endif /* PEERDMA_MEM_H */
