/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Checks that need only the numbers of a request. They use no kernel object, so the same source is
 * compiled and tested on the host, with sanitizers.
 */
#ifndef PEERDMA_CHECKS_H
#define PEERDMA_CHECKS_H

#include <linux/types.h>
#include <uapi/peerdma.h>

/**
 * struct peerdma_plan - how a transfer of the file's bytes [off, off + len) is divided, in this
 *	order
 * @head_len: bytes of a block that the transfer begins inside of
 * @direct_len: whole blocks, which are moved directly
 * @tail_len: bytes of a block that the transfer or the file ends inside of
 * @host_len: instead of all these: bytes whose place in the buffer no device can address
 */
struct peerdma_plan {
	__u64 head_len;
	__u64 direct_len;
	__u64 tail_len;
	__u64 host_len;
};

int peerdma_reason_errno(__u32 reason);
__u32 peerdma_check_range(__u64 off, __u64 len, __u64 size);
__u32 peerdma_check_publish(__u64 bar_start, __u64 bar_len, __u64 bar_offset, __u64 len,
			    __u64 align);
__u32 peerdma_check_alloc(__u64 len, __u64 page_size);
__u32 peerdma_check_register(__u64 addr, __u64 len, __u64 chunk_len);
__u32 peerdma_check_import(__u64 off, __u64 len, __u64 size, __u64 page_size, __u64 chunk_len);
__u32 peerdma_check_export(__u64 off, __u64 len, __u64 buf_len, __u64 page_size);
__u32 peerdma_check_io(__u64 file_off, __u64 buf_off, __u64 len, __u64 buf_len);
__u32 peerdma_check_align(__u64 file_off, __u64 buf_off, __u64 len, __u32 mem_align,
			  __u32 offset_align);
__u64 peerdma_io_clip(__u64 file_off, __u64 len, __u64 end);
struct peerdma_plan peerdma_plan(__u64 file_off, __u64 buf_off, __u64 len, __u32 mem_align,
				 __u32 offset_align);

#endif /* PEERDMA_CHECKS_H */
