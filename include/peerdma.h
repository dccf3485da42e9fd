/* SPDX-License-Identifier: MIT */
#ifndef _PEERDMA_H
#define _PEERDMA_H

#include <stddef.h>
#include <stdint.h>

#include "uapi/peerdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * DOC: libpeerdma, the C API
 *
 * Terms. A provider is a PCI function whose memory is published. A buffer is a registered range of that memory. A route
 * is how bytes get between a file and a buffer. A backing device (leaf) is the real device that moves them. An
 * explanation is the reason why a route is what it is.
 *
 * Calls return 0 or a count on success and -errno on failure. They do not change errno. The meaning of each errno is
 * defined at the top of uapi/peerdma.h; where the library adds a meaning, the call says so. Offsets and lengths are
 * bytes.
 *
 * Every struct begins with its own size, which the caller sets to sizeof. A library newer than the caller fills in the
 * members that the caller knows. An older library writes zeros to the members that it does not know. A size shorter
 * than the first released struct returns -EINVAL, an unknown flag -EOPNOTSUPP.
 *
 * Every call may be made from any thread, also on shared handles. The exception is a ring with PEERDMA_RING_ONE_THREAD.
 * No thread may use a handle while another closes or destroys it. A ring uses the files and buffers of its requests
 * until they are done. Otherwise handles may be closed in any order.
 *
 * Handles belong to the process that made them. After fork(2) the child shares the open /dev/peerdma with its parent
 * and could destroy the parent's buffers. Every call of the child on such a handle therefore returns -ECHILD and does
 * nothing. The child may close and destroy its copies: that frees its memory and closes its descriptors, and the
 * parent's objects stay. A child that runs C++ destructors at exit(3) thus does not affect its parent. Until the child
 * has closed its copies or called execve(2), the end of the parent does not free the buffers. A child opens its own
 * handle with peerdma_open(). Proxy addresses of peerdma_buf_map() stay valid in the child.
 *
 * Functions have other names than the kernel's structs (peerdma_buf_create(), struct peerdma_buf_alloc): in C++, one
 * name for both makes -Wshadow reject this header.
 */

#define PEERDMA_VERSION_MAJOR 0
#define PEERDMA_VERSION_MINOR 2
#define PEERDMA_VERSION_PATCH 0

#if defined(__GNUC__)
#define PEERDMA_API __attribute__((visibility("default")))
#else
#define PEERDMA_API
#endif

/** struct peerdma_device - an open /dev/peerdma; opaque */
struct peerdma_device;
/** struct peerdma_buf - a buffer in the memory of a provider; opaque */
struct peerdma_buf;
/** struct peerdma_file - a file that reads and writes buffers; opaque */
struct peerdma_file;
/** struct peerdma_ring - many reads and writes at once; opaque */
struct peerdma_ring;

/**
 * enum peerdma_route - how bytes get between a file and a buffer
 *
 * The numbers are stable, best route first. peerdma_route_name() returns the name of a route.
 */
enum peerdma_route {
	PEERDMA_ROUTE_NONE = 0,         /* no bytes were moved, or none can be */
	PEERDMA_ROUTE_DIRECT = 1,       /* the storage device reads or writes the buffer itself */
	PEERDMA_ROUTE_DIRECT_EDGES = 2, /* the same, but partial blocks at the edges are bounced */
	PEERDMA_ROUTE_NEAR = 3,         /* bounced through other memory of the same provider */
	PEERDMA_ROUTE_HOST = 4,         /* bounced through pinned host memory */
	PEERDMA_ROUTE_POSIX = 5,        /* plain read(2) or write(2), then a copy */
};

/**
 * struct peerdma_device_info - what peerdma_query() says about the module
 * @size: sizeof(struct peerdma_device_info), set by the caller
 * @abi: PEERDMA_ABI_VERSION of the loaded module
 * @page_size: bytes; buffers are multiples of it
 * @nproviders: providers at this moment
 * @publish_align: bytes; published ranges begin and end at multiples of it
 * @reserved: 0
 * @features: PEERDMA_FEATURE_* of the loaded module
 */
struct peerdma_device_info {
	uint32_t size;
	uint32_t abi;
	uint32_t page_size;
	uint32_t nproviders;
	uint32_t publish_align;
	uint32_t reserved;
	uint64_t features;
};

/**
 * struct peerdma_provider_info - a provider
 * @size: sizeof(struct peerdma_provider_info), set by the caller
 * @id: its handle, never 0
 * @pci_domain: PCI domain of the function
 * @pci_bdf: bus << 8 | device << 3 | function
 * @bar: BAR number
 * @numa_node: -1 if the kernel does not know it
 * @bar_offset: bytes from the BAR's start to the published range
 * @len: bytes published
 * @available: bytes not in any buffer at this moment
 * @pci_vendor: PCI vendor id
 * @pci_device: PCI device id
 */
struct peerdma_provider_info {
	uint32_t size;
	uint32_t id;
	uint32_t pci_domain;
	uint32_t pci_bdf;
	uint32_t bar;
	int32_t numa_node;
	uint64_t bar_offset;
	uint64_t len;
	uint64_t available;
	uint32_t pci_vendor;
	uint32_t pci_device;
};

/** PEERDMA_BAR_AUTO - the largest 64-bit prefetchable memory BAR of the device */
#define PEERDMA_BAR_AUTO (-1)

/** PEERDMA_PUBLISH_FORCE - take the device from the driver that is bound to it */
#define PEERDMA_PUBLISH_FORCE 1u

/**
 * struct peerdma_publish_args - arguments and results of peerdma_provider_publish()
 * @size: sizeof(struct peerdma_publish_args), set by the caller
 * @flags: PEERDMA_PUBLISH_FORCE; PEERDMA_PUBLISH_NONPREFETCHABLE of uapi/peerdma.h
 * @pci_domain: PCI domain of the function
 * @pci_bdf: bus << 8 | device << 3 | function
 * @bar: BAR number, or PEERDMA_BAR_AUTO
 * @out_reason: enum peerdma_reason
 * @bar_offset: bytes from the BAR's start, a multiple of publish_align
 * @len: bytes, a multiple of publish_align; 0 means to the end of the BAR
 * @out_provider_id: the new provider; after -EEXIST, the existing one
 * @out_bar: the BAR that was chosen
 * @out_driver: the driver that was bound before, NUL terminated; empty if there was no driver
 * @out_where: after a failure the file or device that refused, NUL terminated
 *
 * Members called out_* are written by the library, after a failure too.
 */
struct peerdma_publish_args {
	uint32_t size;
	uint32_t flags;
	uint32_t pci_domain;
	uint32_t pci_bdf;
	int32_t bar;
	uint32_t out_reason;
	uint64_t bar_offset;
	uint64_t len;
	uint32_t out_provider_id;
	int32_t out_bar;
	char out_driver[64];
	char out_where[128];
};

/**
 * struct peerdma_buf_info - a buffer
 * @size: sizeof(struct peerdma_buf_info), set by the caller
 * @provider_id: the provider whose memory it is
 * @len: bytes
 * @bar_offset: bytes from the BAR's start to the buffer
 * @buf_id: the kernel's handle, for callers of ioctl(2) on @device_fd
 * @device_fd: peerdma_fd() of the handle that it was made from; only files of the same handle read and write it
 */
struct peerdma_buf_info {
	uint32_t size;
	uint32_t provider_id;
	uint64_t len;
	uint64_t bar_offset;
	uint32_t buf_id;
	int32_t device_fd;
};

/**
 * struct peerdma_explanation - how a file would reach a provider, and why not directly
 * @size: sizeof(struct peerdma_explanation), set by the caller
 * @provider_id: the provider of the question
 * @route: enum peerdma_route
 * @reason: enum peerdma_reason
 * @error: 0, or the positive errno that peerdma_read() would return; 0 with PEERDMA_ROUTE_POSIX, where @reason says why
 *   the route is not direct
 * @map: enum peerdma_map
 * @distance: the kernel's PCI distance, -1 without a route
 * @dio_mem_align: bytes; whole blocks go direct if their offset in the buffer is a multiple of it
 * @dio_offset_align: bytes; the size of a block; partial blocks are bounced
 * @leaf_domain: PCI domain of the device that would move the bytes
 * @leaf_bdf: its bus << 8 | device << 3 | function
 * @leaf_major: major number of its disk; 0 for a network share, which has no disk
 * @leaf_minor: minor number of its disk
 * @reserved: 0
 * @leaf_name: the disk's name, for a network share the filesystem's, NUL terminated; without a backing device
 *   (@nr_leaves is 0) the name of the file's block device, and the other leaf members are not valid
 * @fs_name: the filesystem's name, "block" for a block device, NUL terminated
 * @leaf: set by the caller: index of the backing device to describe, 0 for the first; read only if @size covers it
 * @nr_leaves: number of disks of PCI functions below the file; all must be reachable
 * @leaf_reason: enum peerdma_reason of this backing device alone; @reason is of the whole
 * @leaf_map: enum peerdma_map of this backing device; @map is of the device that refuses, else of the most distant one
 * @leaf_distance: its PCI distance, -1 without a route
 * @reserved2: 0
 * @refused_name: the disk that refuses, a backing device or one stacked on it; with PEERDMA_REASON_RULE the rule that
 *   denies it, "/etc/peerdma/rules:LINE"; empty if none does
 */
struct peerdma_explanation {
	uint32_t size;
	uint32_t provider_id;
	uint32_t route;
	uint32_t reason;
	uint32_t error;
	uint32_t map;
	int32_t distance;
	uint32_t dio_mem_align;
	uint32_t dio_offset_align;
	uint32_t leaf_domain;
	uint32_t leaf_bdf;
	uint32_t leaf_major;
	uint32_t leaf_minor;
	uint32_t reserved;
	char leaf_name[32];
	char fs_name[32];
	uint32_t leaf;
	uint32_t nr_leaves;
	uint32_t leaf_reason;
	uint32_t leaf_map;
	int32_t leaf_distance;
	uint32_t reserved2;
	char refused_name[32];
};

/**
 * struct peerdma_io_result - which route the bytes of one read or write took
 * @size: sizeof(struct peerdma_io_result), set by the caller
 * @route: enum peerdma_route, from the counts below
 * @done: bytes moved, before an error too
 * @direct: of these, bytes that the storage device moved to or from the buffer itself
 * @near: of these, bytes that were bounced through other memory of the same provider
 * @host: of these, bytes that went through host memory
 * @reason: enum peerdma_reason. After an error, its reason, or NONE if the error is not the module's. Else with
 *   PEERDMA_ROUTE_POSIX, why the bytes, or those beyond @direct and @near, did not go direct. Else END_OF_FILE if the
 *   result is short. Else why bytes were bounced
 * @error: 0, or the positive errno that ended it (bytes may have moved before)
 */
struct peerdma_io_result {
	uint32_t size;
	uint32_t route;
	uint64_t done;
	uint64_t direct;
	uint64_t near;
	uint64_t host;
	uint32_t reason;
	uint32_t error;
};

/**
 * peerdma_version - the library's version, "0.2.0"
 * Return: a static string.
 * Since 0.1. Source: user/lib/version.cpp.
 */
PEERDMA_API const char *peerdma_version(void);

/**
 * PEERDMA_OPEN_REQUIRE_DIRECT - never fall back: a request without a direct route is refused with -EXDEV and the reason
 *
 * Without this flag peerdma_read(), peerdma_write() and their variants fall back to read(2) or write(2) through the
 * page cache and the buffer's proxy address. The fallback is reported: the route is PEERDMA_ROUTE_POSIX, the bytes are
 * counted in @host, and @reason gives the cause, both in peerdma_explain() and in the result. The CPU's stores are not
 * read back. A ring never falls back.
 */
#define PEERDMA_OPEN_REQUIRE_DIRECT 1u

/**
 * peerdma_open - open /dev/peerdma, or a provider's node
 * @out: the handle; written on success only      @flags: 0 or PEERDMA_OPEN_REQUIRE_DIRECT
 *
 * If the environment variable PEERDMA_DEVICE is set and not empty, it names the only node that is tried. Programs with
 * more rights than the process that started them ignore it. Otherwise /dev/peerdma is opened, which reaches every
 * provider. If that returns ENOENT, EACCES or EPERM, the provider nodes (/dev/peerdmaN) are tried in ascending order;
 * the handle then has that provider only. If no node can be opened, the first error is returned.
 * Return: 0 or -errno, also of open(2).
 *   -ENOENT the module is not loaded, or the named node does not exist   -EACCES, -EPERM no permission on the node
 *   -ENXIO the provider of the named node has gone   -ENOTTY PEERDMA_DEVICE names something else than such a node
 *   -EPROTONOSUPPORT the module speaks another version of the ABI   -EOPNOTSUPP an unknown flag
 *   -EBADMSG /etc/peerdma/rules cannot be read or has a fault: peerdma-rules(5)
 * Since 0.1. Source: open(2); user/lib/device.cpp.
 */
PEERDMA_API int peerdma_open(struct peerdma_device **out, uint32_t flags);

/**
 * peerdma_close - close a handle; NULL is allowed
 * @p: from peerdma_open(); buffers and files that were made from it stay usable until they are closed
 * Since 0.1. Source: user/lib/device.cpp.
 */
PEERDMA_API void peerdma_close(struct peerdma_device *p);

/**
 * peerdma_fd - the descriptor of /dev/peerdma behind a handle, for poll(2) and ioctl(2)
 * @p: from peerdma_open()
 *
 * The library identifies the descriptor by the inode of its node. If the program closes it and opens the same node
 * under that number, the library does not notice.
 * Return: the descriptor, which belongs to the handle: do not close it. -EINVAL if @p is NULL, -ECHILD in a child of
 *   the
 *   process that opened it, -EBADF if the program has closed it.
 * Since 0.1. Source: user/lib/device.cpp.
 */
PEERDMA_API int peerdma_fd(const struct peerdma_device *p);

/**
 * peerdma_query - describe the loaded module
 * @p: from peerdma_open()      @info: filled in; set info->size
 * Return: 0 or -errno.
 * Since 0.1. Source: ioctl(PEERDMA_INFO); user/lib/device.cpp.
 */
PEERDMA_API int peerdma_query(struct peerdma_device *p, struct peerdma_device_info *info);

/**
 * peerdma_provider_list - the ids of all providers, ascending
 * @p: from peerdma_open()      @ids: room for @max ids, may be NULL if @max is 0      @max: ids, not bytes
 * Return: the number of providers, which may be more than @max, or -errno.
 * Since 0.1. Source: ioctl(PEERDMA_PROVIDER_QUERY); user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_list(struct peerdma_device *p, uint32_t *ids, size_t max);

/**
 * peerdma_provider_get - describe one provider
 * @p: from peerdma_open()      @provider_id: its id      @info: filled in; set info->size
 * Return: 0 or -errno.
 *   -ENOENT no provider has this id
 * Since 0.1. Source: ioctl(PEERDMA_PROVIDER_QUERY); user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_get(struct peerdma_device *p, uint32_t provider_id,
				     struct peerdma_provider_info *info);

/**
 * peerdma_provider_find - find a provider by the name that a user types
 * @p: from peerdma_open()      @info: filled in; set info->size
 * @name: an id ("2"), a PCI address ("0000:01:00.0", "01:00.0"), or NULL or "" for the only provider; among several
 *   that the rules do not deny, for the one that the first rule prefers
 * Return: 0 or -errno.
 *   -ENOENT no such provider   -ENOTUNIQ no name was given and there are several   -EINVAL not a name
 * Since 0.1. Source: user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_find(struct peerdma_device *p, const char *name, struct peerdma_provider_info *info);

/**
 * peerdma_provider_publish - publish a range of a PCI function's memory
 * @p: from peerdma_open()      @args: what to publish; out_* members are filled in
 *
 * Sets the device's driver_override, binds it to the peerdma driver and publishes the range. Without
 * PEERDMA_PUBLISH_FORCE a device that another driver uses stays with that driver (-EBUSY). A failed call restores the
 * old override and the old driver.
 * Return: 0 or -errno.
 *   -ENODEV no such function   -EBUSY args->out_driver is using the device
 *   -EINVAL see args->out_reason   -EEXIST published already, as args->out_provider_id
 *   -EACCES, -EPERM publishing is for root; -EACCES with PEERDMA_REASON_RULE: the rule in args->out_where denies it
 * Since 0.1. Source: driver_override of sysfs, ioctl(PEERDMA_PUBLISH); user/lib/publish.cpp.
 */
PEERDMA_API int peerdma_provider_publish(struct peerdma_device *p, struct peerdma_publish_args *args);

/**
 * peerdma_provider_unpublish - unbind a device from the peerdma driver
 * @pci_domain: PCI domain of the function      @pci_bdf: bus << 8 | device << 3 | function      @flags: 0
 *
 * New reads and writes of its buffers fail with -ENODEV at once. The call returns when those under way have ended. It
 * binds no other driver.
 * Return: 0 or -errno.
 *   -ENODEV no such function   -EBUSY another driver is using it   -EALREADY it was not published
 * Since 0.1. Source: unbind of sysfs; user/lib/publish.cpp.
 */
PEERDMA_API int peerdma_provider_unpublish(uint32_t pci_domain, uint32_t pci_bdf, uint32_t flags);

/**
 * peerdma_buf_create - allocate a buffer in the memory of a provider
 * @p: from peerdma_open()      @provider_id: whose memory      @len: bytes, a multiple of the page size
 * @flags: 0 or PEERDMA_BUF_NO_ZERO      @out: the buffer, zeroed without that flag; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 * Return: 0 or -errno.
 *   -ENOENT no such provider   -ENODEV it is going away   -EINVAL see @reason   -ENOMEM it has no room left
 *   -EDQUOT a limit of the caller is reached: see @reason   -EPERM PEERDMA_BUF_NO_ZERO is for root
 *   -EACCES a rule denies it: peerdma-rules(5); then @reason is PEERDMA_REASON_RULE
 * Since 0.1. Source: ioctl(PEERDMA_BUF_ALLOC); user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_create(struct peerdma_device *p, uint32_t provider_id, uint64_t len, uint32_t flags,
				   struct peerdma_buf **out, uint32_t *reason);

/**
 * peerdma_buf_from_gpu - register memory that a GPU's own driver has allocated, as a buffer
 * @p: from peerdma_open()      @pci_vendor: PCI vendor id of that driver: 0x10de for NVIDIA's
 * @addr: GPU virtual address in this process, as of cudaMalloc(), a multiple of 64 KiB
 * @len: bytes, a multiple of 64 KiB      @flags: 0      @out: the buffer; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * The memory still belongs to its allocator: peerdma_buf_destroy() only ends the registration. If the allocator frees
 * it before that, the driver waits for reads and writes under way, or keeps the memory until then. For this buffer
 * peerdma_buf_query() reports no position in the BAR.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP see @reason; Documentation/vendor.md lists the requirements   -EINVAL see @reason
 *   -EBUSY part of it is registered already   -ENODEV it was freed meanwhile   -ENOMEM
 *   -EACCES a rule denies it: PEERDMA_REASON_RULE
 * Since 0.1. Source: ioctl(PEERDMA_BUF_REGISTER); user/lib/buffer.cpp, kernel/memory/register.c. Never tried on a GPU.
 */
PEERDMA_API int peerdma_buf_from_gpu(struct peerdma_device *p, uint32_t pci_vendor, uint64_t addr, uint64_t len,
				     uint32_t flags, struct peerdma_buf **out, uint32_t *reason);

/**
 * peerdma_buf_from_dmabuf - import a range of a dma-buf that another driver has exported, as a buffer
 * @p: from peerdma_open()      @fd: the dma-buf; may be closed afterwards
 * @off: bytes from its start, a multiple of the page size      @len: bytes, a multiple of 64 KiB
 * @pci_domain, @pci_bdf: the PCI function that the dma-buf is attached for: a drive, as in leaf_domain and leaf_bdf of
 *   peerdma_explain(); bus << 8 | device << 3 | function
 * @flags: 0      @out: the buffer; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * The memory still belongs to its allocator. If the exporter revokes it, or that function loses its driver, reads and
 * writes under way end, and later ones return -ENODEV. For this buffer peerdma_buf_query() reports no position in the
 * BAR.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP see @reason; Documentation/import.md lists the requirements   -EINVAL see @reason   -EBADF
 *   -EBUSY part of it is a buffer already   -ENODEV it was revoked meanwhile   -ENOMEM
 * Since 0.1. Source: ioctl(PEERDMA_BUF_IMPORT); user/lib/buffer.cpp, kernel/memory/import.c. Never tried with a GPU's.
 */
PEERDMA_API int peerdma_buf_from_dmabuf(struct peerdma_device *p, int fd, uint64_t off, uint64_t len,
					uint32_t pci_domain, uint32_t pci_bdf, uint32_t flags, struct peerdma_buf **out,
					uint32_t *reason);

/** enum peerdma_memory - the vendor library that an address of device memory belongs to */
enum peerdma_memory {
	PEERDMA_MEMORY_UNKNOWN = 0,    /* no library that was asked knows it */
	PEERDMA_MEMORY_CUDA = 1,       /* libcuda.so.1 */
	PEERDMA_MEMORY_HSA = 2,        /* libhsa-runtime64.so.1, which HIP allocates from */
	PEERDMA_MEMORY_LEVEL_ZERO = 3, /* libze_loader.so.1 */
};

/**
 * struct peerdma_pointer_args - arguments and results of peerdma_buf_from_pointer()
 * @size: sizeof(struct peerdma_pointer_args), set by the caller
 * @flags: 0
 * @addr: device address in this process, as of cudaMalloc(), cuMemMap(), hipMalloc() or zeMemAllocDevice(); any
 *   alignment. Host memory that these libraries have allocated is not device memory
 * @len: bytes, any but 0
 * @pci_domain: PCI domain of the function that the dma-buf is attached for: a drive, as in leaf_domain and leaf_bdf of
 *   peerdma_explain()
 * @pci_bdf: its bus << 8 | device << 3 | function
 * @ze_context: Level Zero: the ze_context_handle_t of the allocation, or NULL for the driver's default context if it
 *   has one. The other libraries ignore it
 * @out_buf_off: bytes from the buffer's start to @addr: a buffer covers whole units of 64 KiB, all of them in the
 *   allocation
 * @out_memory: enum peerdma_memory: the library that knows the address
 * @out_result: result of that library's call (CUresult, hsa_status_t or ze_result_t) if it returned no dma-buf; else 0
 * @out_reason: enum peerdma_reason
 * @reserved: 0
 *
 * Members called out_* are written by the library, after a failure too.
 */
struct peerdma_pointer_args {
	uint32_t size;
	uint32_t flags;
	uint64_t addr;
	uint64_t len;
	uint32_t pci_domain;
	uint32_t pci_bdf;
	void *ze_context;
	uint64_t out_buf_off;
	uint32_t out_memory;
	int32_t out_result;
	uint32_t out_reason;
	uint32_t reserved;
};

/**
 * peerdma_buf_from_pointer - make a buffer of device memory given by its address
 * @p: from peerdma_open()      @args: the memory; out_* members are filled in
 * @out: the buffer; written on success only
 *
 * Asks the vendor libraries that the process has loaded whether they know the address. Gets a dma-buf of the memory
 * from the library that does, and continues as peerdma_buf_from_dmabuf(), with the same requirements and the same
 * lifetime. The call loads no vendor library, and none is needed to build or to run. It may be called wherever the
 * vendor's own calls may be called.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP see args->out_reason: Documentation/import.md, "By address"   -EINVAL see args->out_reason
 *   -EBUSY part of it is a buffer already   -ENODEV it was revoked meanwhile   -ENOMEM
 * Since 0.1. Source: user/lib/pointer.cpp, peerdma_buf_from_dmabuf(). The dma-buf was tried with CUDA's driver on a
 * GPU, the rest with stand-ins only.
 */
PEERDMA_API int peerdma_buf_from_pointer(struct peerdma_device *p, struct peerdma_pointer_args *args,
					 struct peerdma_buf **out);

/**
 * peerdma_buf_destroy - free a buffer; NULL is allowed
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 *
 * Waits for reads and writes under way and unmaps the buffer's proxy address.
 * Since 0.1. Source: ioctl(PEERDMA_DESTROY); user/lib/buffer.cpp.
 */
PEERDMA_API void peerdma_buf_destroy(struct peerdma_buf *buf);

/**
 * peerdma_buf_map - map a buffer for the CPU: its proxy address
 * @buf: from peerdma_buf_create()      @addr: the address of its first byte; written on success only
 *
 * The first call maps the whole buffer; later calls return the same address. It is valid until peerdma_buf_destroy(),
 * which unmaps it. After the provider has gone away, an access raises SIGBUS. The memory is uncached: reading a few
 * bytes can take microseconds. After stores, read the last word back before you notify another device.
 *
 * WARNING: pread(2), pwrite(2) and io_uring with O_DIRECT accept the address too. Unlike peerdma_read() and
 * peerdma_write() they do not check the route: see Documentation/limits.md.
 * Return: 0 or -errno.
 *   -ENODEV the provider has gone away   -EOPNOTSUPP the module is too old   -ENOMEM no address space
 * Since 0.1. Source: mmap(2) of /dev/peerdma; user/lib/buffer.cpp, kernel/memory/proxy.c.
 */
PEERDMA_API int peerdma_buf_map(struct peerdma_buf *buf, void **addr);

/**
 * peerdma_buf_map_on_demand - map a range of a buffer for RDMA devices that take memory on demand
 * @buf: from peerdma_buf_create()      @off: bytes from the buffer's start, whole pages
 * @len: bytes, not 0      @addr: its first byte, the caller's to munmap(2), @len bytes; written on success only
 *
 * For ibv_reg_mr() with IBV_ACCESS_ON_DEMAND, which peerdma_mr_reg() of peerdma_verbs.h calls. Such a memory region is
 * a range of addresses and covers any memory that is mapped there. The address of peerdma_buf_map() is unmapped with
 * the buffer, and other memory may be mapped at it later. This address stays reserved and empty until the caller unmaps
 * it, after ibv_dereg_mr().
 * Return: 0 or -errno.
 *   -EOPNOTSUPP before 6.16 the kernel maps peer memory incorrectly for such devices; or the module is too old
 *   -ENODEV the provider has gone away   -EINVAL not inside the buffer, or @off is inside a page   -ENOMEM no address
 *   space
 * Since 0.1. Source: mmap(2) of /dev/peerdma, PEERDMA_FEATURE_ON_DEMAND; user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_map_on_demand(struct peerdma_buf *buf, uint64_t off, uint64_t len, void **addr);

/**
 * peerdma_buf_at - find the buffer of this process that is mapped at an address
 * @addr: any address      @buf: the buffer whose proxy address this is      @buf_off: bytes from its start
 *
 * For libraries that are given addresses, such as libcufile. Finds only buffers that peerdma_buf_map() of this library
 * has mapped. The buffer still belongs to its owner.
 * Return: 0 or -errno.
 *   -ENOENT no buffer is mapped there
 * Since 0.1. Source: user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_at(const void *addr, struct peerdma_buf **buf, uint64_t *buf_off);

/**
 * peerdma_buf_export_dmabuf - export a range of a buffer as a dma-buf, for the driver of another device
 * @buf: from peerdma_buf_create()      @off: bytes from the buffer's start      @len: bytes; both whole pages
 * @fd: the dma-buf, close-on-exec, the caller's to close; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * For ibv_reg_dmabuf_mr() and other drivers that import dma-bufs dynamically and accept another device's memory. The
 * importing call of any other driver returns -EOPNOTSUPP, or -EXDEV without a PCI route; the kernel log names the
 * cause. An importer keeps its mapping until peerdma_buf_destroy() or removal of the provider; closing @fd does not end
 * it. peerdma_close() does not wait for dma-bufs. Buffers that were not destroyed are freed only after the last
 * dma-buf.
 * Return: 0 or -errno.
 *   -ENODEV the provider has gone away   -EINVAL, -EOPNOTSUPP see @reason; -EOPNOTSUPP without one: the module is too
 *   old
 *   -EMFILE no descriptor is left   -ENOMEM the kernel has no memory
 * Since 0.1. Source: ioctl(PEERDMA_BUF_EXPORT); user/lib/buffer.cpp, kernel/memory/export.c.
 */
PEERDMA_API int peerdma_buf_export_dmabuf(struct peerdma_buf *buf, uint64_t off, uint64_t len, int *fd,
					  uint32_t *reason);

/**
 * peerdma_buf_query - describe a buffer
 * @buf: from peerdma_buf_create()      @info: filled in; set info->size
 * Return: 0 or -errno.
 * Since 0.1. Source: user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_query(const struct peerdma_buf *buf, struct peerdma_buf_info *info);

/**
 * peerdma_file_open - open a file for reads and writes of buffers
 * @p: from peerdma_open()      @path: a regular file or a block device
 * @open_flags: of open(2): O_RDONLY, O_WRONLY or O_RDWR, never O_CREAT; O_DIRECT is not needed
 * @out: the file; written on success only
 *
 * Never waits for the other end of a FIFO. A file that cannot be read directly can be opened too: ask
 * peerdma_explain().
 *
 * The file is registered with the module. Direct reads and writes therefore use this file until peerdma_file_close(),
 * even if the program closes the library's descriptor (closefrom(3)) and opens another file under its number. Calls
 * that need the descriptor then return -EBADF: reads and writes that fall back, peerdma_file_size(), peerdma_explain(),
 * and the first use with a provider that rules may apply to. The library recognizes its descriptor of a regular file by
 * a unique file position. Other descriptors, and those of peerdma_file_from_fd(), it recognizes by inode: it does not
 * notice if the program opens the same file under that number, for example with other flags.
 * Return: 0 or -errno of open(2).
 *   -EMFILE no descriptor is left, or RLIMIT_NOFILE files are registered by this peerdma_open() already
 *   -ENOMEM the kernel has no memory   -EOPNOTSUPP the module is too old
 * Since 0.1. Source: open(2), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_open(struct peerdma_device *p, const char *path, int open_flags,
				  struct peerdma_file **out);

/**
 * peerdma_file_from_fd - use an open descriptor
 * @p: from peerdma_open()      @fd: duplicated; the caller may close its own at any time
 * @out: the file; written on success only
 * Return: 0 or -errno.
 *   -EBADF @fd is not open, or with O_PATH   -EMFILE, -ENOMEM, -EOPNOTSUPP as peerdma_file_open()
 * Since 0.1. Source: fcntl(F_DUPFD_CLOEXEC), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_from_fd(struct peerdma_device *p, int fd, struct peerdma_file **out);

/**
 * peerdma_file_for_buf - peerdma_file_from_fd() for a caller that has a buffer but not its device handle
 * @buf: a buffer; the file belongs to its peerdma_open()      @fd: duplicated; the caller may close its own at any time
 * @out: the file; written on success only
 * Return: as peerdma_file_from_fd().
 * Since 0.1. Source: fcntl(F_DUPFD_CLOEXEC), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_for_buf(struct peerdma_buf *buf, int fd, struct peerdma_file **out);

/**
 * peerdma_file_close - close a file; NULL is allowed
 * @file: from peerdma_file_open(), peerdma_file_from_fd() or peerdma_file_for_buf()
 *
 * As any close(2), this releases all fcntl(F_SETLK) locks of this process on the file, whichever descriptor took them.
 * Use F_OFD_SETLK or flock(2) instead.
 * Since 0.1. Source: close(2); user/lib/file.cpp.
 */
PEERDMA_API void peerdma_file_close(struct peerdma_file *file);

/**
 * peerdma_file_size - a file's size at this moment
 * @file: a regular file or a block device      @bytes: written on success only
 * Return: 0 or -errno.
 *   -EISDIR a directory   -ESPIPE a file without offsets
 * Since 0.1. Source: fstat(2), ioctl(BLKGETSIZE64); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_size(struct peerdma_file *file, uint64_t *bytes);

/**
 * peerdma_explain - report how this file's bytes would reach this provider, and why not directly
 * @file: a file      @provider_id: a provider      @explanation: filled in; set explanation->size
 *
 * A refusal is an answer, not an error: the call succeeds for a file that cannot be read directly. The answer holds at
 * this moment; the read checks again.
 * Return: 0 or -errno.
 *   -ENOENT no such provider   -ENODEV it is going away
 * Since 0.1. Source: ioctl(PEERDMA_FILE_QUERY); user/lib/explain.cpp.
 */
PEERDMA_API int peerdma_explain(struct peerdma_file *file, uint32_t provider_id,
				struct peerdma_explanation *explanation);

/**
 * peerdma_read - read file bytes into a buffer
 * @file: may be shared by threads      @buf: of the same peerdma_open()
 * @buf_off: bytes from the buffer's start      @file_off: bytes
 * @len: bytes, not 0; whole blocks of dio_offset_align (peerdma_explain()) move directly, the edges are bounced
 * Return: bytes read (short only at the end of the file) or -errno, also if bytes were read before the error:
 *   peerdma_read_result() returns their number.
 *   Bytes outside [buf_off, buf_off + return) are untouched, with two exceptions: after an error, or if the file is
 *   truncated meanwhile, any byte of [buf_off, buf_off + len) may have changed.
 *   -ENODEV the buffer was revoked   -EINVAL a number is not valid (peerdma_read_result() says which)
 *   -EDQUOT bytes must pass through host memory, and RLIMIT_MEMLOCK leaves no room for it
 *   -EACCES a rule denies it (ask peerdma_explain()), and fallback is denied too: peerdma-rules(5)
 *   -EXDEV no direct route (ask peerdma_explain()), and PEERDMA_OPEN_REQUIRE_DIRECT was given or the file is
 *   open with O_DIRECT and cannot be opened again through /proc
 * Since 0.1. Source: pread(2), cuFileRead(); ioctl(PEERDMA_READ); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_read(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
				 uint64_t file_off);

/**
 * peerdma_write - write a buffer's bytes into a file
 * @file: open for writing; may be shared by threads      @buf: of the same peerdma_open()
 * @buf_off: bytes, as peerdma_read()      @len: bytes, as peerdma_read()      @file_off: bytes, as peerdma_read()
 * Return: bytes written or -errno, as peerdma_read(). The count is short only if there is no room for the rest; the
 *   next
 *   call then returns ENOSPC, EDQUOT or EFBIG, as write(2). Data reaches stable storage as with pwrite(2).
 * Since 0.1. Source: pwrite(2), cuFileWrite(); ioctl(PEERDMA_WRITE); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_write(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
				  uint64_t file_off);

/**
 * peerdma_read_result - peerdma_read() that also reports the route of the bytes
 * @file, @buf, @buf_off, @len, @file_off: as peerdma_read()
 * @result: filled in, after a failure too; set result->size
 * Return: as peerdma_read().
 * Since 0.1. Source: ioctl(PEERDMA_READ); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_read_result(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off,
					uint64_t len, uint64_t file_off, struct peerdma_io_result *result);

/**
 * peerdma_write_result - peerdma_write() that also reports the route of the bytes
 * @file, @buf, @buf_off, @len, @file_off: as peerdma_write()
 * @result: filled in, after a failure too; set result->size
 * Return: as peerdma_write().
 * Since 0.1. Source: ioctl(PEERDMA_WRITE); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_write_result(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off,
					 uint64_t len, uint64_t file_off, struct peerdma_io_result *result);

/**
 * struct peerdma_seg - one part of peerdma_readv() or peerdma_writev()
 * @buf_off: bytes from the buffer's start
 * @len: bytes, not 0
 * @file_off: bytes
 * @result: written by the library: the return value of the same call made alone
 */
struct peerdma_seg {
	uint64_t buf_off;
	uint64_t len;
	uint64_t file_off;
	int64_t result;
};

/**
 * peerdma_readv - several reads of one file into one buffer, one after the other
 * @file, @buf: as peerdma_read()      @segs: the segments; the result of each is written      @n: their number, not 0
 *
 * A segment that fails does not stop the following ones. For many small segments a ring with PEERDMA_RING_VECTORS is
 * much cheaper.
 * Return: the number of segments that were moved whole, or -EINVAL: a pointer is NULL, or @n is 0 or beyond 2^31 - 1.
 * Since 0.1. Source: user/lib/io.cpp.
 */
PEERDMA_API int peerdma_readv(struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs, uint32_t n);

/**
 * peerdma_writev - several writes of one buffer into one file, one after the other
 * @file, @buf, @segs, @n: as peerdma_readv()
 * Return: as peerdma_readv().
 * Since 0.1. Source: user/lib/io.cpp.
 */
PEERDMA_API int peerdma_writev(struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs,
			       uint32_t n);

/** enum peerdma_op_kind - what a request of a ring does */
enum peerdma_op_kind {
	PEERDMA_OP_READ = 0,  /* from the file into the buffer */
	PEERDMA_OP_WRITE = 1, /* from the buffer into the file */
};

/**
 * struct peerdma_op - one request of a ring
 * @kind: enum peerdma_op_kind
 * @flags: 0
 * @file: must stay open, and @buf must exist, until the request is done
 * @buf: of the same peerdma_open() as the ring and the file
 * @buf_off: bytes, as peerdma_read()
 * @len: bytes, 1 to 0x7ffff000
 * @file_off: bytes
 * @tag: returned with the result; the library uses it only for peerdma_ring_cancel()
 */
struct peerdma_op {
	uint32_t kind;
	uint32_t flags;
	struct peerdma_file *file;
	struct peerdma_buf *buf;
	uint64_t buf_off;
	uint64_t len;
	uint64_t file_off;
	uint64_t tag;
};

/**
 * struct peerdma_done - how one request of a ring ended
 * @tag: the request's
 * @result: as peerdma_read() or peerdma_write() returns; -ECANCELED: it was cancelled before it began
 */
struct peerdma_done {
	uint64_t tag;
	int64_t result;
};

/**
 * PEERDMA_RING_ONE_THREAD - one thread only submits to, waits for and destroys the ring, which is cheaper
 *
 * It is the thread that first calls peerdma_ring_submit() or peerdma_ring_wait().
 */
#define PEERDMA_RING_ONE_THREAD 1u
/**
 * PEERDMA_RING_VECTORS - successive requests on the same file and buffer in the same direction become one command
 *
 * This is much cheaper per request. All requests of a command complete together, with the last one.
 */
#define PEERDMA_RING_VECTORS 2u

/**
 * peerdma_ring_create - create a ring for many reads and writes at once
 * @p: from peerdma_open()      @depth: maximum number of commands in the kernel at a time, 1 to 4096
 * @capacity: maximum number of requests that are queued, under way or not fetched yet; not below @depth
 * @flags: PEERDMA_RING_*      @out: the ring; written on success only
 *
 * Threads may share a ring without PEERDMA_RING_ONE_THREAD: each call waits until the others have returned.
 * peerdma_ring_wait() holds the ring while it sleeps; a thread that queues meanwhile makes it wake up after a short
 * timeout. A ring uses io_uring and only direct routes: a request without one ends with -EXDEV.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP an unknown flag, or the kernel or the module is too old   -ENOSYS, -EPERM io_uring is disabled
 *   -EBADF the program has closed the descriptor of /dev/peerdma   -EMFILE, -ENOMEM no descriptor or memory is left
 * Since 0.1. Source: io_uring_setup(2); user/lib/ring.cpp, kernel/io/uring.c.
 */
PEERDMA_API int peerdma_ring_create(struct peerdma_device *p, uint32_t depth, uint32_t capacity, uint32_t flags,
				    struct peerdma_ring **out);

/**
 * peerdma_ring_destroy - destroy a ring; NULL is allowed
 * @ring: queued requests are dropped; requests under way are waited for
 *
 * A ring with PEERDMA_RING_ONE_THREAD is different if another thread destroys it: the kernel does not let that thread
 * wait. Requests under way may then continue until peerdma_buf_destroy() of their buffer returns.
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API void peerdma_ring_destroy(struct peerdma_ring *ring);

/**
 * peerdma_ring_queue - queue requests without submitting them
 * @ring: from peerdma_ring_create()      @ops: the requests, which are copied      @n: their number
 * Return: the number of requests queued, from the first on, or -errno if the first was not.
 *   -EAGAIN the ring is at its capacity: peerdma_ring_wait()   -EINVAL a number or handle is not valid
 *   -ENOENT file or buffer belong to another peerdma_open()   -EISDIR, -ESPIPE not a file with offsets
 *   -ENOMEM no memory   -EACCES a rule denies it, as peerdma_read()
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_queue(struct peerdma_ring *ring, const struct peerdma_op *ops, uint32_t n);

/**
 * peerdma_ring_submit - submit queued requests, up to the ring's depth; peerdma_ring_wait() submits the rest
 * @ring: from peerdma_ring_create()
 * Return: the number of commands submitted and not completed, or -errno: nothing is lost, call again.
 * Since 0.1. Source: io_uring_enter(2); user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_submit(struct peerdma_ring *ring);

/**
 * peerdma_ring_wait - submit queued requests and fetch results
 * @ring: from peerdma_ring_create()      @done: room for @max results      @max: at least 1
 * @min: number of results to wait for, at most @max; 0 does not wait
 * @timeout_ms: milliseconds, negative for no limit
 *
 * Each request's result is fetched exactly once. If no request is left to wait for, the call returns at once with the
 * results there are. A signal handler ends the wait as the timeout does.
 * Return: the number of results, below @min after the timeout, after a signal or if there are no more requests; or
 *   -errno: nothing is lost, call again.
 *   -EINTR a signal handler ran while there was no result to fetch, as io_uring_wait_cqe(3)
 * Since 0.1. Source: io_uring_enter(2); user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_wait(struct peerdma_ring *ring, struct peerdma_done *done, uint32_t max, uint32_t min,
				  int32_t timeout_ms);

/**
 * peerdma_ring_cancel - cancel a request that has not been submitted
 * @ring: from peerdma_ring_create()      @tag: of the request; the first of several with the same tag
 *
 * The request ends with -ECANCELED, fetched like any result. A submitted request cannot be cancelled.
 * peerdma_ring_submit() and peerdma_ring_wait() submit as much as the depth allows, even if they then fail.
 * Return: 0 or -errno.
 *   -EALREADY it has been submitted   -ENOENT no such request, or it is done
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_cancel(struct peerdma_ring *ring, uint64_t tag);

/**
 * peerdma_reason_name - a reason's stable name for programs, "QUEUE" for PEERDMA_REASON_QUEUE
 * @reason: enum peerdma_reason
 * Return: a static string, "UNKNOWN" for a number that this library does not know.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_name(uint32_t reason);

/**
 * peerdma_reason_text - a reason in words, one clause without a full stop
 * @reason: enum peerdma_reason
 * Return: a static string.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_text(uint32_t reason);

/**
 * peerdma_reason_advice - the remedy for a reason, one sentence
 * @reason: enum peerdma_reason
 * Return: a static string, empty if there is no remedy.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_advice(uint32_t reason);

/**
 * peerdma_map_name - how a device reaches a provider's memory, in words
 * @map: enum peerdma_map
 * Return: a static string: "none", "bus address", "host bridge", "iova" or "unknown".
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_map_name(uint32_t map);

/**
 * peerdma_route_name - a route in words
 * @route: enum peerdma_route
 * Return: a static string: "none", "direct", "direct, edges bounced", "bounced near the
 *   provider", "bounced through host memory", "posix" or "unknown".
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_route_name(uint32_t route);

#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_H */
