/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Checks that need only the numbers of a request. They use no kernel object, so the same source is
 * compiled and tested on the host, with sanitizers.
 */
#ifndef PEERDMA_CHECKS_H
#define PEERDMA_CHECKS_H

#include <linux/types.h>
#include <uapi/peerdma.h>

int peerdma_reason_errno(__u32 reason);
__u32 peerdma_check_range(__u64 off, __u64 len, __u64 size);
__u32 peerdma_check_publish(__u64 bar_start, __u64 bar_len, __u64 bar_offset, __u64 len,
			    __u64 align);
__u32 peerdma_check_alloc(__u64 len, __u64 page_size);
__u32 peerdma_check_register(__u64 addr, __u64 len, __u64 chunk_len);
__u32 peerdma_check_import(__u64 off, __u64 len, __u64 size, __u64 page_size, __u64 chunk_len);
__u32 peerdma_check_export(__u64 off, __u64 len, __u64 buf_len, __u64 page_size);
__u32 peerdma_check_io_range(__u64 file_off, __u64 buf_off, __u64 len, __u64 buf_len);
__u32 peerdma_check_align(__u64 file_off, __u64 buf_off, __u64 len, __u32 mem_align,
			  __u32 offset_align);

#endif /* PEERDMA_CHECKS_H */
