// SPDX-License-Identifier: GPL-2.0
/*
 * Accesses of the CPU to a provider's memory, which is mapped uncached.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>

#include "base/usage.h"
#include "memory/mem.h"
#include "memory/provider.h"

#define MEM_ZERO_STEP SZ_1M /* bytes between two checks for a signal or a halt */

/*
 * Stores to a BAR are posted. They may not have arrived when another device, on another port,
 * accesses the same bytes. A load from the BAR flushes them.
 */
static void mem_flush(void __iomem *last_word)
{
	mb(); /* the stores are issued before the load that flushes them */
	(void)__raw_readl(last_word);
}

/*
 * Zeroes pool memory, so that a new owner cannot read the last one's data. Slow, as the mapping is
 * uncached. The caller holds a usage reference of the provider. Returns 0, -EINTR or -ENODEV.
 */
int peerdma_mem_zero(struct peerdma_mem *mem)
{
	void __iomem *start = (void __iomem *)mem->kaddr;
	u64 off;

	for (off = 0; off < mem->len; off += sizeof(u64)) {
		__raw_writeq(0, start + off);
		if ((off + sizeof(u64)) % MEM_ZERO_STEP)
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

/*
 * Copies less than a block inside a provider's pool. The bytes pass through the CPU's registers, so
 * none reaches host memory. Copies words where both offsets have the same alignment, else bytes.
 * Wider accesses are not safe for all device memory.
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

static void mem_write_chunks(struct peerdma_mem *to, u64 to_off, const void *from, u64 len)
{
	const struct bio_vec *chunk;
	u64 skip, step;

	for (; len; to_off += step, from += step, len -= step) {
		chunk = &to->chunk_bvecs[to_off >> PEERDMA_CHUNK_SHIFT];
		skip = to_off % PEERDMA_CHUNK_LEN;
		step = min_t(u64, len, PEERDMA_CHUNK_LEN - skip);
		mem_write_at((void __iomem *)page_address(chunk->bv_page) + skip, from, step);
	}
}

/* Copies from host memory. */
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len)
{
	if (to->chunk_bvecs)
		mem_write_chunks(to, to_off, from, len);
	else
		mem_write_at((void __iomem *)to->kaddr + to_off, from, len);
}

/**
 * peerdma_mem_read_back - flush stores of the kernel to the memory during a read
 * @mem: the caller keeps it
 * @off: of any byte: the load is ordered behind all earlier stores to the device
 */
noinline void peerdma_mem_read_back(struct peerdma_mem *mem, u64 off)
{
	void *at = mem->kaddr + off;

	if (unlikely(mem->chunk_bvecs))
		at = page_address(mem->chunk_bvecs[off >> PEERDMA_CHUNK_SHIFT].bv_page) +
		     off % PEERDMA_CHUNK_LEN;
	mem_flush((void __iomem *)PTR_ALIGN_DOWN(at, sizeof(u32)));
}
