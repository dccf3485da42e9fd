/* SPDX-License-Identifier: MIT */
#ifndef _PEERDMA_CUFILE_EXTENSIONS_H
#define _PEERDMA_CUFILE_EXTENSIONS_H

#include <stddef.h>
#include <stdint.h>

#include "cufile.h"
#include "peerdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * DOC: Extensions of PeerDMA's libcufile.so.0 to the cuFile API
 *
 * They report which route the bytes take, and why. A program that may run on another libcufile looks them up with
 * dlsym(3). They return 0 or -errno and do not change errno.
 */

/** enum peerdma_cufile_why - why an I/O does not go directly; stable numbers */
enum peerdma_cufile_why {
	PEERDMA_CUFILE_WHY_NONE = 0,         /* nothing stands in the way */
	PEERDMA_CUFILE_WHY_HOST_MEMORY = 1,  /* the memory is the host's */
	PEERDMA_CUFILE_WHY_NO_LIBRARY = 2,   /* libpeerdma.so.0 could not be loaded */
	PEERDMA_CUFILE_WHY_NOT_A_BUFFER = 3, /* the device memory is in no buffer of libpeerdma's: @reason */
	PEERDMA_CUFILE_WHY_BUFFER_END = 4,   /* the range goes beyond the buffer of libpeerdma's */
	PEERDMA_CUFILE_WHY_USER_FILE = 5,    /* the file is one of a program's own making */
	PEERDMA_CUFILE_WHY_FORCED = 6,       /* force_compat_mode is set */
	PEERDMA_CUFILE_WHY_REFUSED = 7,      /* the kernel module refuses the file, or this place of it: @reason */
	PEERDMA_CUFILE_WHY_DENIED = 8, /* the file's mount, filesystem, device or driver is denied by cufile.json */
	PEERDMA_CUFILE_WHY_PINNED_LIMIT = 9, /* max_device_pinned_mem_size_kb has no room for this memory */
};
#define PEERDMA_CUFILE_NR_WHYS 16 /* reserves room for later values */

/**
 * struct peerdma_cufile_route - which route an I/O would take
 * @size: sizeof(struct peerdma_cufile_route), set by the caller
 * @route: enum peerdma_route: DIRECT, NEAR (through memory of a GPU that the file's device reaches, if
 *   rdma_dynamic_routing is set), HOST (bounced through pinned host memory) or POSIX (read(2) and write(2), into host
 *   memory or through a buffer's proxy address)
 * @why: enum peerdma_cufile_why
 * @reason: enum peerdma_reason: why the kernel refused the file if @why is PEERDMA_CUFILE_WHY_REFUSED; why it refused
 *   the memory given to cuFileBufRegister() if @why is PEERDMA_CUFILE_WHY_NOT_A_BUFFER or
 *   PEERDMA_CUFILE_WHY_PINNED_LIMIT; else 0
 */
struct peerdma_cufile_route {
	uint32_t size;
	uint32_t route;
	uint32_t why;
	uint32_t reason;
};

/**
 * peerdma_cufile_explain - report the route of an I/O, and why it is not direct
 * @fh: from cuFileHandleRegister()
 * @base: memory, as cuFileRead() takes it
 * @len: bytes
 * @file_off: bytes from the file's start
 * @buf_off: bytes from @base
 * @route: filled in; set route->size
 *
 * Reports what cuFileRead() with these arguments would do now, without doing it. For a file that is not open for
 * reading it reports what cuFileWrite() would do.
 * Return: 0 or -errno.
 *   -EBADF @fh is not registered
 *   -EINVAL a number is not valid, or @route is NULL or too short
 *   -ENOTCONN the driver is not open
 * Since 0.1. Source: user/cufile/path/router.cpp.
 */
PEERDMA_API int peerdma_cufile_explain(CUfileHandle_t fh, const void *base, size_t len, off_t file_off, off_t buf_off,
				       struct peerdma_cufile_route *route);

/**
 * struct peerdma_cufile_counts - I/Os and bytes since the library was loaded
 * @size: sizeof(struct peerdma_cufile_counts), set by the caller
 * @reserved: 0
 * @ios: I/Os by enum peerdma_cufile_why; element 0 counts direct I/Os
 * @bytes: their bytes
 * @near_ios: of the I/Os that were not direct, those that went through memory of a GPU that the file's device reaches
 * @near_bytes: their bytes
 */
struct peerdma_cufile_counts {
	uint32_t size;
	uint32_t reserved;
	uint64_t ios[PEERDMA_CUFILE_NR_WHYS];
	uint64_t bytes[PEERDMA_CUFILE_NR_WHYS];
	uint64_t near_ios;
	uint64_t near_bytes;
};

/**
 * peerdma_cufile_count - count I/Os and bytes by route
 * @counts: filled in; set counts->size
 *
 * Counts all I/Os of the process since it loaded the library.
 * Return: 0 or -errno.
 *   -EINVAL @counts is NULL or too short
 * Since 0.1. Source: user/cufile/path/accounting.cpp.
 */
PEERDMA_API int peerdma_cufile_count(struct peerdma_cufile_counts *counts);

/**
 * peerdma_cufile_stats - cuFileGetStatsL1(), L2() or L3() with the size of the struct
 * @level: 1, 2 or 3
 * @stats: CUfileStatsLevel1_t, CUfileStatsLevel2_t or CUfileStatsLevel3_t
 * @size: its sizeof()
 *
 * CUDA 13.4 made the structs longer. The original functions have no size argument and cannot tell the versions apart. A
 * program that gives the size of its struct gets the version that it was compiled for.
 * Return: 0 or -errno.
 *   -EINVAL @size is not that of this level's struct in CUDA 13.0 to 13.4, or @level is above the configured one
 *   -ENOTCONN the process is a child of a process whose driver was open
 * Since 0.1. Source: user/cufile/diag/stats.cpp.
 */
PEERDMA_API int peerdma_cufile_stats(int level, void *stats, size_t size);

/**
 * peerdma_cufile_why_text - return in words why an I/O does not go directly
 * @why: enum peerdma_cufile_why
 *
 * The text is one clause for people, without a full stop.
 * Return: a static string.
 * Since 0.1. Source: user/cufile/path/accounting.cpp.
 */
PEERDMA_API const char *peerdma_cufile_why_text(uint32_t why);

#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_CUFILE_EXTENSIONS_H */
