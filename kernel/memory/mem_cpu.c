// SPDX-License-Identifier: GPL-2.0
/*
 * Loads and stores of the CPU in a provider's memory, which is mapped uncached.
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
 * Stores to a BAR are posted: they may not have arrived when another device, on another port,
 * accesses the same bytes. Reading the last word back flushes them.
 */
static void mem_flush(void __iomem *last_word)
{
	mb(); /* the stores are issued before the load that flushes them */
	(void)__raw_readl(last_word);
}

/*
 * Zeroes memory, so that a new owner cannot read the last one's data. Slow, as the mapping is
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
 * Copies inside one provider, through the CPU's registers, so that no byte reaches host memory. For
 * less than a block. In words if both offsets are aligned alike, else in bytes: wider accesses are
 * not safe for all device memory.
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

/* Copies from host memory. */
void peerdma_mem_write(struct peerdma_mem *to, u64 to_off, const void *from, u64 len)
{
	if (to->chunks)
		mem_write_frames(to, to_off, from, len);
	else
		mem_write_at((void __iomem *)to->kaddr + to_off, from, len);
}

/**
 * peerdma_mem_read_back - flush stores that the kernel has made in the memory during a read
 * @mem: must stay
 * @off: any byte of it: the load is ordered behind all earlier stores to the device
 */
noinline void peerdma_mem_read_back(struct peerdma_mem *mem, u64 off)
{
	void *at = mem->kaddr + off;

	if (unlikely(mem->chunks))
		at = page_address(mem->chunks[off >> PEERDMA_CHUNK_SHIFT].bv_page) +
		     off % PEERDMA_CHUNK_LEN;
	mem_flush((void __iomem *)PTR_ALIGN_DOWN(at, sizeof(u32)));
}

/* Copies to host memory. */
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
