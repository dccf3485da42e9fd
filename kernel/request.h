/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be said of a request by looking at its numbers alone. No kernel object is touched here,
 * so that the same source is compiled and tested on the host, under its sanitizers.
 */
#ifndef PEERDMA_REQUEST_H
#define PEERDMA_REQUEST_H

#include <linux/types.h>
#include <uapi/peerdma.h>

/**
 * struct peerdma_plan - how a transfer of the file's bytes [off, off + len) is cut
 * @direct_len: bytes that go straight to the buffer: whole blocks of the file
 * @tail_len: bytes of the partial block at the file's end, which the device can only write whole
 */
struct peerdma_plan {
	__u64 direct_len;
	__u64 tail_len;
};

int peerdma_reason_errno(__u32 reason);
__u32 peerdma_check_range(__u64 off, __u64 len, __u64 size);
__u32 peerdma_check_publish(__u64 bar_start, __u64 bar_len, __u64 bar_offset, __u64 len,
			    __u64 align);
__u32 peerdma_check_alloc(__u64 len, __u64 page_size);
__u32 peerdma_check_io(__u64 file_off, __u64 buf_off, __u64 len, __u64 buf_len);
__u32 peerdma_check_align(__u64 file_off, __u64 buf_off, __u64 len, __u32 mem_align,
			  __u32 offset_align);
struct peerdma_plan peerdma_plan_read(__u64 file_off, __u64 len, __u64 file_size,
				      __u32 offset_align);

#endif /* PEERDMA_REQUEST_H */
