/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a request is cut into whole blocks, which go directly, and partial blocks at its ends, which
 * are bounced. No kernel object is touched here: the source is compiled and tested on the host too.
 */
#ifndef PEERDMA_BLOCK_SPLIT_H
#define PEERDMA_BLOCK_SPLIT_H

#include <linux/types.h>

/**
 * struct peerdma_block_split - how a transfer of the file's bytes [off, off + len) is divided, in
 *	this order
 * @head_len: bytes of a block that the transfer begins inside of
 * @direct_len: whole blocks, which are moved directly
 * @tail_len: bytes of a block that the transfer or the file ends inside of
 * @host_len: instead of all these: bytes whose place in the buffer no device can address
 */
struct peerdma_block_split {
	__u64 head_len;
	__u64 direct_len;
	__u64 tail_len;
	__u64 host_len;
};

__u64 peerdma_block_split_clip(__u64 file_off, __u64 len, __u64 end);
struct peerdma_block_split peerdma_block_split(__u64 file_off, __u64 buf_off, __u64 len,
					       __u32 mem_align, __u32 offset_align);

#endif /* PEERDMA_BLOCK_SPLIT_H */
