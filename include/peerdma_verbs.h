/* SPDX-License-Identifier: MIT */
#ifndef _PEERDMA_VERBS_H
#define _PEERDMA_VERBS_H

#include "peerdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * DOC: libpeerdma-verbs, buffers as memory regions of RDMA verbs
 *
 * This library is separate from libpeerdma because it needs libibverbs: programs that do not use verbs need libibverbs
 * neither to build nor to load. It uses only the public interfaces of libpeerdma and libibverbs.
 *
 * Calls return as those of peerdma.h do, and may be made from any thread.
 */

struct ibv_pd;
struct ibv_mr;

/**
 * enum peerdma_mr_way - how an RDMA device reaches a buffer
 *
 * soft-RoCE needs no opt-in here: it gives PEERDMA_MR_ON_DEMAND. The CPU then copies the bytes, which is neither logged
 * nor counted.
 */
enum peerdma_mr_way {
	PEERDMA_MR_NONE = 0,      /* it does not reach it */
	PEERDMA_MR_DMABUF = 1,    /* it imports a dma-buf: ibv_reg_dmabuf_mr() */
	PEERDMA_MR_ON_DEMAND = 2, /* page by page, on access: ibv_reg_mr() with IBV_ACCESS_ON_DEMAND */
};

/**
 * struct peerdma_mr_info - how a memory region was made, and its restrictions
 * @size: sizeof(struct peerdma_mr_info), set by the caller
 * @way: enum peerdma_mr_way
 * @reason: enum peerdma_reason: why there is no region, else PEERDMA_REASON_NONE
 * @align: bytes; the addr of an ibv_sge and the remote_addr of a work request must be @addr plus a multiple of it. 1:
 *   any. Lengths may be any
 * @path_mtu: the enum ibv_mtu that queue pairs must have on both sides, 0: any
 * @reserved: 0
 * @addr: the address of the region's first byte, for ibv_sge and remote_addr. Only the device may access it
 *
 * On demand, @align is the page size and each packet must be a page. soft-RoCE otherwise stores bytes in the wrong
 * place without an error (Linux 7.2, Documentation/upstream/rxe-odp-copy). It is the only device today that takes
 * memory on demand and does not import dma-bufs.
 */
struct peerdma_mr_info {
	uint32_t size;
	uint32_t way;
	uint32_t reason;
	uint32_t align;
	uint32_t path_mtu;
	uint32_t reserved;
	uint64_t addr;
};

/**
 * peerdma_mr_reg - register a buffer, or a range of it, as a memory region of an RDMA device
 * @pd: a protection domain of the device, from ibv_alloc_pd(3)
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 * @off: bytes from the buffer's start; on demand whole pages
 * @len: bytes, not 0
 * @access: as for ibv_reg_mr(3), without IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ZERO_BASED and IBV_ACCESS_HUGETLB
 * @info: filled in, after a failure too; set info->size
 * @mr: the region, for peerdma_mr_dereg(); written on success only
 *
 * Tries two ways and uses the first that the device supports: importing a dma-buf; then, on kernels from 6.16 on,
 * taking the buffer's mapping on demand. info->way says which. After a failure nothing is registered.
 *
 * A region does not prevent the destruction of its buffer. It holds the open device of the buffer: a buffer that is
 * never destroyed stays, and stays charged, until the region is gone as well. When the buffer is destroyed, or its
 * provider goes away, the device loses the memory. Work requests on the region then end with an error, also those under
 * way: IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR or another; soft-RoCE reports IBV_WC_WR_FLUSH_ERR for requests that
 * it could not send. The region's keys never reach memory that is allocated later. A region on demand ends with the
 * process that made it, and is not inherited by a child of fork(2).
 * Return: 0 or -errno, also of ibv_reg_dmabuf_mr(3) and ibv_reg_mr(3).
 *   -EOPNOTSUPP there is no way. info->reason is PEERDMA_REASON_VERBS_DEVICE, PEERDMA_REASON_VERBS_KERNEL or
 *     PEERDMA_REASON_VERBS_MTU, or says why the module does not export the buffer: PEERDMA_REASON_DMABUF,
 *     PEERDMA_REASON_IMPORT_EXPORT
 *   -EINVAL a number is not valid: see info->reason; PEERDMA_REASON_NONE if it is @access
 *   -EXDEV the kernel knows no PCI route between the two devices, or, more rarely, cannot map the memory for this one; its
 *     log says which. info->reason is PEERDMA_REASON_DISTANCE in both cases
 *   -ECHILD the buffer belongs to the parent process
 *   -ENODEV the provider has gone away: PEERDMA_REASON_REVOKED
 *   -ENOMEM no memory or address space is left
 * Since 0.1. Source: ibv_reg_dmabuf_mr(3), ibv_reg_mr(3); user/verbs/mr.cpp.
 */
PEERDMA_API int peerdma_mr_reg(struct ibv_pd *pd, struct peerdma_buf *buf, uint64_t off, uint64_t len, int access,
			       struct peerdma_mr_info *info, struct ibv_mr **mr);

/**
 * peerdma_mr_dereg - deregister a memory region
 * @mr: from peerdma_mr_reg(); NULL does nothing
 *
 * Ends the region, before or after its buffer is destroyed. ibv_dereg_mr(3) alone would leak the resources behind it.
 * Return: 0 or -errno, also of ibv_dereg_mr(3), which leaves the region unchanged.
 *   -ECHILD the parent made it before fork(2), and it still belongs to the parent
 * Since 0.1. Source: ibv_dereg_mr(3); user/verbs/mr.cpp.
 */
PEERDMA_API int peerdma_mr_dereg(struct ibv_mr *mr);

/**
 * peerdma_mr_way_name - return in words how an RDMA device reaches a buffer
 * @way: enum peerdma_mr_way
 *
 * For the way member of struct peerdma_mr_info.
 * Return: a static string: "none", "dma-buf", "on demand" or "unknown".
 * Since 0.1. Source: user/verbs/mr.cpp.
 */
PEERDMA_API const char *peerdma_mr_way_name(uint32_t way);

#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_VERBS_H */
