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
 * A library of its own, and not a part of libpeerdma, because it needs libibverbs: who moves no bytes by verbs needs it
 * neither to build nor to load. It calls what libpeerdma and libibverbs offer to everybody and knows nothing besides.
 *
 * Calls return as those of peerdma.h do, and may be made from any thread.
 */

struct ibv_pd;
struct ibv_mr;

/**
 * enum peerdma_mr_way - how an RDMA device reaches a buffer
 *
 * soft-RoCE asks for no parameter here: it gives PEERDMA_MR_ON_DEMAND, the CPU copies, and nobody logs or counts it.
 */
enum peerdma_mr_way {
	PEERDMA_MR_NONE = 0,      /* it does not */
	PEERDMA_MR_DMABUF = 1,    /* it imports a dma-buf: ibv_reg_dmabuf_mr() */
	PEERDMA_MR_ON_DEMAND = 2, /* page by page, when it comes to it: ibv_reg_mr() with IBV_ACCESS_ON_DEMAND */
};

/**
 * struct peerdma_mr_info - which way a memory region was made, and what it takes
 * @size: sizeof(struct peerdma_mr_info), set by the caller
 * @way: enum peerdma_mr_way
 * @reason: enum peerdma_reason: why there is none, else PEERDMA_REASON_NONE
 * @align: bytes; the addr of an ibv_sge, and the remote_addr of a work request, have to be @addr plus a multiple of it.
 *   1: any. Lengths may be any
 * @path_mtu: enum ibv_mtu that queue pairs have to have on both sides, 0: any
 * @reserved: 0
 * @addr: the address of the region's first byte, for ibv_sge and remote_addr. It is the device's: do not touch it
 *
 * On demand @align is the page size, and a packet has to be a page: soft-RoCE, which is the only device today that takes
 * memory on demand and imports no dma-bufs, otherwise puts bytes in the wrong place, and says nothing (Linux 7.2,
 * Documentation/upstream/rxe-odp-copy).
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
 * peerdma_mr_reg - a buffer, or a piece of it, as a memory region of an RDMA device
 * @pd: a protection domain of the device, from ibv_alloc_pd()      @buf: from peerdma_buf_create()
 * @off: bytes from the buffer's start; on demand whole pages      @len: bytes, not 0
 * @access: of ibv_reg_mr(), without IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ZERO_BASED and IBV_ACCESS_HUGETLB
 * @info: filled in, after a failure too; set info->size      @mr: for peerdma_mr_dereg(); written on success only
 *
 * The device is asked, in this order, and what it can do first is taken: to import a dma-buf; to take the buffer's mapping
 * on demand, on kernels from 6.16 on. After a failure nothing is registered.
 *
 * A region does not keep its buffer from being destroyed. It keeps the device open that the buffer was made by: one that
 * nobody destroys stays, and is charged, until the region is gone as well. When the buffer is destroyed, or its provider
 * goes away, the device loses the memory: work requests on it end with an error, also those under way (IBV_WC_REM_ACCESS_ERR,
 * IBV_WC_LOC_PROT_ERR or another: soft-RoCE says IBV_WC_WR_FLUSH_ERR of those it could not send), and nothing that is
 * allocated later comes under the region's keys. A region on demand ends with the process that made it, and a child after
 * fork(2) has no part in it.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP there is no way: see info->reason   -EINVAL a number is wrong: see info->reason; NONE if it is @access
 *   -EXDEV the kernel knows no PCI route between the two devices; its log says more
 *   -ECHILD the buffer is of the process that this one is a child of
 *   -ENODEV the provider has gone away: REVOKED   -ENOMEM   other errnos of ibv_reg_dmabuf_mr() and ibv_reg_mr()
 * Since 0.1. Source: ibv_reg_dmabuf_mr(3), ibv_reg_mr(3); user/verbs/mr.cpp.
 */
PEERDMA_API int peerdma_mr_reg(struct ibv_pd *pd, struct peerdma_buf *buf, uint64_t off, uint64_t len, int access,
			       struct peerdma_mr_info *info, struct ibv_mr **mr);

/**
 * peerdma_mr_dereg - end a memory region; NULL is allowed
 * @mr: from peerdma_mr_reg(): ibv_dereg_mr() alone would leave what belongs to it. The buffer may be gone
 * Return: 0 or -errno of ibv_dereg_mr(), after which the region is what it was.
 *   -ECHILD it was made before fork(2), by the parent, whose region it stays
 * Since 0.1. Source: ibv_dereg_mr(3); user/verbs/mr.cpp.
 */
PEERDMA_API int peerdma_mr_dereg(struct ibv_mr *mr);

/**
 * peerdma_mr_way_name - how an RDMA device reaches a buffer, in words
 * @way: enum peerdma_mr_way
 * Return: a string that lives for ever: "none", "dma-buf", "on demand" or "unknown".
 * Since 0.1. Source: user/verbs/mr.cpp.
 */
PEERDMA_API const char *peerdma_mr_way_name(uint32_t way);

#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_VERBS_H */
