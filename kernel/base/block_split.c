// SPDX-License-Identifier: GPL-2.0
/*
 * How a request is cut into whole and partial blocks. Numbers only: compiled and tested on the
 * host too.
 */
#include "base/block_split.h"

/* The length of the part of [file_off, file_off + len) before end. */
__u64 peerdma_block_split_clip(__u64 file_off, __u64 len, __u64 end)
{
	if (file_off >= end)
		return 0;
	return len < end - file_off ? len : end - file_off;
}

/*
 * A device moves whole blocks of a file, to or from addresses that are multiples of mem_align. The
 * partial blocks at both ends must be bounced: a direct read would change bytes of the buffer
 * outside of the range, and a direct write bytes of the file. Both alignments are powers of two.
 */
struct peerdma_block_split peerdma_block_split(__u64 file_off, __u64 buf_off, __u64 len,
					       __u32 mem_align, __u32 offset_align)
{
	__u64 begun = file_off & (offset_align - 1);
	struct peerdma_block_split split = { 0 };

	if (begun)
		split.head_len = len < offset_align - begun ? len : offset_align - begun;
	len -= split.head_len;
	if (len >= offset_align && ((buf_off + split.head_len) & (mem_align - 1))) {
		split.host_len = split.head_len + len;
		split.head_len = 0;
		return split;
	}
	split.tail_len = len & (offset_align - 1);
	split.direct_len = len - split.tail_len;
	return split;
}
