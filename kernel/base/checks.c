// SPDX-License-Identifier: GPL-2.0
#include <linux/errno.h>
#include <uapi/peerdma.h>
#include "base/checks.h"

#define MAX_OFFSET 0x7fffffffffffffffULL /* loff_t is signed */

/**
 * peerdma_reason_errno - the errno for a reason
 * @reason: enum peerdma_reason
 * Return: a negative errno, 0 for reasons that are not failures.
 */
int peerdma_reason_errno(__u32 reason)
{
	switch (reason) {
	case PEERDMA_REASON_NONE:
	case PEERDMA_REASON_END_OF_FILE:
		return 0;
	case PEERDMA_REASON_LEN_ZERO:
	case PEERDMA_REASON_OVERFLOW:
	case PEERDMA_REASON_BUF_RANGE:
	case PEERDMA_REASON_FILE_ALIGN:
	case PEERDMA_REASON_BUF_ALIGN:
	case PEERDMA_REASON_PAGE_ALIGN:
	case PEERDMA_REASON_BAR_RANGE:
	case PEERDMA_REASON_NOT_BOUND:
	case PEERDMA_REASON_RANGE_ALIGN:
	case PEERDMA_REASON_APPEND:
	case PEERDMA_REASON_NOT_PREFETCHABLE:
	case PEERDMA_REASON_VENDOR_ALIGN:
	case PEERDMA_REASON_IMPORT_NOT_DMABUF:
		return -EINVAL;
	case PEERDMA_REASON_FD_MODE:
		return -EBADF;
	case PEERDMA_REASON_FILE_TYPE:
		return -ESPIPE;
	case PEERDMA_REASON_REVOKED:
	case PEERDMA_REASON_VENDOR_FREED:
		return -ENODEV;
	case PEERDMA_REASON_VENDOR_BUSY:
		return -EBUSY;
	case PEERDMA_REASON_USER_LIMIT:
	case PEERDMA_REASON_CGROUP_LIMIT:
	case PEERDMA_REASON_MEMLOCK:
		return -EDQUOT;
	case PEERDMA_REASON_DMABUF:
	case PEERDMA_REASON_IMPORTER:
	case PEERDMA_REASON_VERBS_DEVICE:
	case PEERDMA_REASON_VERBS_KERNEL:
	case PEERDMA_REASON_VERBS_MTU:
	case PEERDMA_REASON_VENDOR_MODULE:
	case PEERDMA_REASON_VENDOR_DRIVER:
	case PEERDMA_REASON_VENDOR_REFUSED:
	case PEERDMA_REASON_VENDOR_TABLE:
	case PEERDMA_REASON_VENDOR_NOT_BAR:
	case PEERDMA_REASON_VENDOR_UNPUBLISHED:
	case PEERDMA_REASON_VENDOR_WC:
	case PEERDMA_REASON_VENDOR_OURS:
	case PEERDMA_REASON_VENDOR_MEMORY:
	case PEERDMA_REASON_IMPORT_UNABLE:
	case PEERDMA_REASON_IMPORT_REVOCABLE:
	case PEERDMA_REASON_IMPORT_DEVICE:
	case PEERDMA_REASON_IMPORT_IOMMU:
	case PEERDMA_REASON_IMPORT_REFUSED:
	case PEERDMA_REASON_IMPORT_TABLE:
	case PEERDMA_REASON_IMPORT_PIECES:
	case PEERDMA_REASON_IMPORT_HOST:
	case PEERDMA_REASON_IMPORT_ADDRESS:
	case PEERDMA_REASON_IMPORT_EXPORT:
	case PEERDMA_REASON_IMPORT_UNKNOWN:
	case PEERDMA_REASON_IMPORT_HANDLE:
		return -EOPNOTSUPP;
	default:
		return -EXDEV;
	}
}

/* Checks a range of a GPU's virtual addresses before its driver is asked. */
__u32 peerdma_check_register(__u64 addr, __u64 len, __u64 chunk_len)
{
	if (!len)
		return PEERDMA_REASON_LEN_ZERO;
	if (addr > MAX_OFFSET || len > MAX_OFFSET - addr)
		return PEERDMA_REASON_OVERFLOW;
	return (addr | len) % chunk_len ? PEERDMA_REASON_VENDOR_ALIGN : PEERDMA_REASON_NONE;
}

/* Checks a range of a dma-buf: whole chunks of 64 KiB, which may begin at any page. */
__u32 peerdma_check_import(__u64 off, __u64 len, __u64 size, __u64 page_size, __u64 chunk_len)
{
	__u32 reason = peerdma_check_range(off, len, size);

	if (reason)
		return reason;
	return off % page_size || len % chunk_len ? PEERDMA_REASON_VENDOR_ALIGN :
						    PEERDMA_REASON_NONE;
}

/* Checks that [off, off + len) is inside [0, size). */
__u32 peerdma_check_range(__u64 off, __u64 len, __u64 size)
{
	if (!len)
		return PEERDMA_REASON_LEN_ZERO;
	if (off > MAX_OFFSET || len > MAX_OFFSET - off)
		return PEERDMA_REASON_OVERFLOW;
	if (off > size || len > size - off)
		return PEERDMA_REASON_BUF_RANGE;
	return PEERDMA_REASON_NONE;
}

/*
 * Checks a range of a BAR to be published. A len of 0 reaches to the end of the BAR. The kernel
 * creates pages for multiples of align bytes of physical memory only.
 */
__u32 peerdma_check_publish(__u64 bar_start, __u64 bar_len, __u64 bar_offset, __u64 len,
			    __u64 align)
{
	if (bar_offset >= bar_len)
		return PEERDMA_REASON_BAR_RANGE;
	if (!len)
		len = bar_len - bar_offset;
	if (peerdma_check_range(bar_offset, len, bar_len))
		return PEERDMA_REASON_BAR_RANGE;
	if ((bar_start + bar_offset) % align || len % align)
		return PEERDMA_REASON_RANGE_ALIGN;
	return PEERDMA_REASON_NONE;
}

__u32 peerdma_check_alloc(__u64 len, __u64 page_size)
{
	if (!len)
		return PEERDMA_REASON_LEN_ZERO;
	if (len > MAX_OFFSET)
		return PEERDMA_REASON_OVERFLOW;
	return len % page_size ? PEERDMA_REASON_PAGE_ALIGN : PEERDMA_REASON_NONE;
}

/* Checks a range of a buffer to be exported: devices map whole pages. */
__u32 peerdma_check_export(__u64 off, __u64 len, __u64 buf_len, __u64 page_size)
{
	__u32 reason = peerdma_check_range(off, len, buf_len);

	if (reason)
		return reason;
	return (off | len) % page_size ? PEERDMA_REASON_PAGE_ALIGN : PEERDMA_REASON_NONE;
}

/* Checks that hold for any file. */
__u32 peerdma_check_io_range(__u64 file_off, __u64 buf_off, __u64 len, __u64 buf_len)
{
	if (len && (file_off > MAX_OFFSET || len > MAX_OFFSET - file_off))
		return PEERDMA_REASON_OVERFLOW;
	return peerdma_check_range(buf_off, len, buf_len);
}

__u32 peerdma_check_align(__u64 file_off, __u64 buf_off, __u64 len, __u32 mem_align,
			  __u32 offset_align)
{
	if (file_off % offset_align || len % offset_align)
		return PEERDMA_REASON_FILE_ALIGN;
	if (buf_off % mem_align)
		return PEERDMA_REASON_BUF_ALIGN;
	return PEERDMA_REASON_NONE;
}
