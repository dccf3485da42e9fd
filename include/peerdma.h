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
 * A provider is a PCI function whose memory is published. A buffer is a registered range of that memory. A route is how
 * bytes get between a file and a buffer. A backing device (leaf) is the real device that moves them. An explanation is
 * the reason why a route is what it is.
 *
 * Calls return 0 or a count on success and -errno on failure. They do not change errno. The meaning of each errno is
 * defined at the top of uapi/peerdma.h; where the library adds a meaning, the call says so. Offsets and lengths are
 * bytes.
 *
 * Every struct begins with its own size, which the caller sets to sizeof, so that it can grow. A library newer than the
 * caller fills in the members that the caller knows. An older library writes zeros to the members that it does not
 * know. A size shorter than the first released struct returns -EINVAL, an unknown flag -EOPNOTSUPP.
 *
 * Every call may be made from any thread, also on shared handles. The exception is a ring with PEERDMA_RING_ONE_THREAD.
 * No thread may use a handle while another closes or destroys it. A ring uses the files and buffers of its requests
 * until they are done. Otherwise handles may be closed in any order.
 */

/**
 * DOC: Fork
 *
 * Handles belong to the process that made them. After fork(2) the child shares the open /dev/peerdma with its parent
 * and could destroy the parent's buffers. Every call of the child on such a handle therefore returns -ECHILD and does
 * nothing. The child may close and destroy its copies: that frees its memory and closes its descriptors, and the
 * parent's objects stay. A child that runs C++ destructors at exit(3) thus does not affect its parent. Until the child
 * has closed its copies or called execve(2), the end of the parent does not free the buffers. A child opens its own
 * handle with peerdma_open(). Proxy addresses of peerdma_buf_map() stay valid in the child.
 */

/*
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
 * peerdma_version - report the library's version
 *
 * The version is that of the shared library that the program has loaded, which may be newer than the header that it was
 * compiled with.
 * Return: a static string, for example "0.2.0".
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
 * @out: the handle, for peerdma_close(); written on success only
 * @flags: 0 or PEERDMA_OPEN_REQUIRE_DIRECT
 *
 * Every other call needs a handle, or an object that was made from one. A process may open several. Buffers, files and
 * rings of different handles cannot be used together.
 *
 * If the environment variable PEERDMA_DEVICE is set and not empty, it names the only node that is tried. Programs with
 * more rights than the process that started them ignore it. Otherwise /dev/peerdma is opened, which reaches every
 * provider. If that returns ENOENT, EACCES or EPERM, the provider nodes (/dev/peerdmaN) are tried in ascending order;
 * the handle then has that provider only. If no node can be opened, the first error is returned.
 *
 * The rules of peerdma-rules(5) are read once, here. They hold for the handle until it is closed.
 * Return: 0 or -errno, also of open(2).
 *   -ENOENT the module is not loaded, or the named node does not exist
 *   -EACCES, -EPERM no permission on the node
 *   -ENXIO the provider of the named node has gone
 *   -ENOTTY PEERDMA_DEVICE names something else than such a node
 *   -EPROTONOSUPPORT the module speaks another version of the ABI
 *   -EOPNOTSUPP an unknown flag
 *   -EBADMSG /etc/peerdma/rules cannot be read or has a fault: peerdma-rules(5)
 * Example:
 *   struct peerdma_device *device;
 *   int rc = peerdma_open(&device, 0);
 *   if (rc < 0) {
 *           fprintf(stderr, "cannot open /dev/peerdma: %s\n", strerror(-rc));
 *           return rc;
 *   }
 * Since 0.1. Source: open(2); user/lib/device.cpp.
 */
PEERDMA_API int peerdma_open(struct peerdma_device **out, uint32_t flags);

/**
 * peerdma_close - close a handle
 * @p: from peerdma_open(); NULL does nothing
 *
 * Closes the handle. Buffers, files and rings that were made from it stay usable until they are destroyed or closed
 * themselves. The call does not wait for dma-bufs of peerdma_buf_export_dmabuf().
 * Since 0.1. Source: user/lib/device.cpp.
 */
PEERDMA_API void peerdma_close(struct peerdma_device *p);

/**
 * peerdma_fd - return the descriptor of /dev/peerdma behind a handle
 * @p: from peerdma_open()
 *
 * The descriptor is for poll(2) and for requests of peerdma_ioctl(2). It belongs to the handle: do not close it.
 *
 * The library identifies the descriptor by the inode of its node. If the program closes it and opens the same node
 * under that number, the library does not notice.
 * Return: the descriptor or -errno.
 *   -EBADF the program has closed it
 * Since 0.1. Source: user/lib/device.cpp.
 */
PEERDMA_API int peerdma_fd(const struct peerdma_device *p);

/**
 * peerdma_query - describe the loaded module
 * @p: from peerdma_open()
 * @info: filled in; set info->size
 *
 * Reports the module's ABI version and features, and the alignment that buffers and published ranges must have.
 * info->nproviders may change at any time.
 * Return: 0 or -errno.
 * Since 0.1. Source: ioctl(PEERDMA_INFO); user/lib/device.cpp.
 */
PEERDMA_API int peerdma_query(struct peerdma_device *p, struct peerdma_device_info *info);

/**
 * peerdma_provider_list - list the ids of all providers
 * @p: from peerdma_open()
 * @ids: room for @max ids, filled in ascending order; may be NULL if @max is 0
 * @max: number of ids, not bytes
 *
 * Providers may come and go between this call and the use of an id: peerdma_provider_get() then returns -ENOENT. An id
 * is used again only after all others.
 * Return: the number of providers, which may be more than @max, or -errno.
 * Example:
 *   uint32_t ids[16];
 *   int n = peerdma_provider_list(device, ids, 16);
 *   for (int i = 0; i < n && i < 16; i++) {
 *           struct peerdma_provider_info info = { .size = sizeof(info) };
 *           if (peerdma_provider_get(device, ids[i], &info) == 0)
 *                   printf("%u: %llu bytes available\n", info.id,
 *                          (unsigned long long)info.available);
 *   }
 * Since 0.1. Source: ioctl(PEERDMA_PROVIDER_QUERY); user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_list(struct peerdma_device *p, uint32_t *ids, size_t max);

/**
 * peerdma_provider_get - describe one provider
 * @p: from peerdma_open()
 * @provider_id: its id
 * @info: filled in; set info->size
 *
 * Reports the PCI function of the provider, the published range, and the memory that is available at this moment.
 * Return: 0 or -errno.
 *   -ENOENT no provider has this id
 * Since 0.1. Source: ioctl(PEERDMA_PROVIDER_QUERY); user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_get(struct peerdma_device *p, uint32_t provider_id,
				     struct peerdma_provider_info *info);

/**
 * peerdma_provider_find - find a provider by the name that a user types
 * @p: from peerdma_open()
 * @name: an id ("2"), a PCI address ("0000:01:00.0", "01:00.0"), or NULL or "" for any provider
 * @info: filled in as by peerdma_provider_get(); set info->size
 *
 * If a single provider matches, it is returned. Among several, those that a rule of peerdma-rules(5) denies to this
 * process are left out, and the one that the first rule prefers is returned.
 * Return: 0 or -errno.
 *   -ENOENT no such provider
 *   -ENOTUNIQ several providers match, and no rule decides between them or the rules deny all of them
 *   -EINVAL @name is neither an id nor a PCI address
 * Example:
 *   struct peerdma_provider_info provider = { .size = sizeof(provider) };
 *   int rc = peerdma_provider_find(device, "0000:01:00.0", &provider);
 *   if (rc < 0)
 *           fprintf(stderr, "0000:01:00.0: %s\n", strerror(-rc));
 * Since 0.1. Source: user/lib/provider.cpp.
 */
PEERDMA_API int peerdma_provider_find(struct peerdma_device *p, const char *name, struct peerdma_provider_info *info);

/**
 * peerdma_provider_publish - publish a range of a PCI function's memory
 * @p: from peerdma_open(), a handle of /dev/peerdma itself
 * @args: what to publish; out_* members are filled in
 *
 * Sets the device's driver_override, binds it to the peerdma driver and publishes the range. The function becomes a
 * provider, until peerdma_provider_unpublish() or its removal. A function publishes one range.
 *
 * Without PEERDMA_PUBLISH_FORCE a device that another driver uses stays with that driver. A BAR that is not
 * prefetchable may hold registers and is refused; PEERDMA_PUBLISH_NONPREFETCHABLE of uapi/peerdma.h permits it. The CPU
 * never zeroes such memory, so peerdma_buf_create() then requires PEERDMA_BUF_NO_ZERO. A failed call restores the old
 * override and the old driver.
 * Return: 0 or -errno, also of open(2) and write(2) of the file that args->out_where names.
 *   -ENODEV no such function
 *   -EBUSY args->out_driver is using the device, or another driver has claimed part of the range
 *   -EINVAL a number is not valid: see args->out_reason
 *   -EEXIST published already, as args->out_provider_id
 *   -EACCES, -EPERM publishing is for root; -EACCES with PEERDMA_REASON_RULE: the rule that args->out_where names
 *     denies it
 *   -EOPNOTSUPP an unknown flag, or a kernel that the module was not built for
 *   -E2BIG @args is longer than this library knows, and the unknown part is not zero
 * Example:
 *   struct peerdma_publish_args args = {
 *           .size = sizeof(args),
 *           .pci_bdf = 1 << 8,
 *           .bar = PEERDMA_BAR_AUTO,
 *   };
 *   int rc = peerdma_provider_publish(device, &args);
 *   if (rc == -EBUSY)
 *           fprintf(stderr, "01:00.0 is used by %s\n", args.out_driver);
 *   else if (rc < 0)
 *           fprintf(stderr, "%s: %s\n", args.out_where,
 *                   peerdma_reason_text(args.out_reason));
 * Since 0.1. Source: driver_override of sysfs, ioctl(PEERDMA_PUBLISH); user/lib/publish.cpp.
 */
PEERDMA_API int peerdma_provider_publish(struct peerdma_device *p, struct peerdma_publish_args *args);

/**
 * peerdma_provider_unpublish - unbind a device from the peerdma driver
 * @pci_domain: PCI domain of the function
 * @pci_bdf: bus << 8 | device << 3 | function
 * @flags: 0
 *
 * Withdraws what peerdma_provider_publish() published. New reads and writes of its buffers fail with -ENODEV at once.
 * The call returns when those under way have ended. It clears the driver_override that publishing has set, and binds no
 * other driver.
 * Return: 0 or -errno, also of open(2) and write(2) of the function's files in sysfs.
 *   -ENODEV no such function
 *   -EBUSY another driver is using it
 *   -EALREADY it was not published
 *   -EACCES, -EPERM unpublishing is for root
 *   -EOPNOTSUPP an unknown flag
 * Since 0.1. Source: unbind of sysfs; user/lib/publish.cpp.
 */
PEERDMA_API int peerdma_provider_unpublish(uint32_t pci_domain, uint32_t pci_bdf, uint32_t flags);

/**
 * peerdma_buf_create - allocate a buffer in the memory of a provider
 * @p: from peerdma_open()
 * @provider_id: the provider, from peerdma_provider_find() or peerdma_provider_list()
 * @len: bytes, a multiple of the page size, not 0
 * @flags: 0, or PEERDMA_BUF_NO_ZERO of uapi/peerdma.h, which leaves the memory as it is and is for root: the memory may
 *   hold data of other processes
 * @out: the buffer, for peerdma_buf_destroy(); zeroed without that flag; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * The buffer is charged to the caller's user, and to the caller's cgroup where the kernel has the dmem controller.
 * Return: 0 or -errno.
 *   -ENOENT no such provider
 *   -ENODEV the provider is going away
 *   -EINVAL @len is 0 or not whole pages, or the provider requires PEERDMA_BUF_NO_ZERO: see @reason
 *   -ENOMEM the provider has no room left
 *   -EDQUOT a limit of the caller is reached: see @reason
 *   -EPERM PEERDMA_BUF_NO_ZERO is for root
 *   -EACCES a rule denies it: peerdma-rules(5); then @reason is PEERDMA_REASON_RULE
 *   -EOPNOTSUPP an unknown flag; or the provider takes only registered memory: see @reason
 * Example:
 *   struct peerdma_buf *buf;
 *   uint32_t reason;
 *   int rc = peerdma_buf_create(device, provider_id, 1 << 20, 0, &buf, &reason);
 *   if (rc < 0)
 *           fprintf(stderr, "no buffer: %s\n",
 *                   reason ? peerdma_reason_text(reason) : strerror(-rc));
 * Since 0.1. Source: ioctl(PEERDMA_BUF_ALLOC); user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_create(struct peerdma_device *p, uint32_t provider_id, uint64_t len, uint32_t flags,
				   struct peerdma_buf **out, uint32_t *reason);

/**
 * peerdma_buf_from_gpu - register memory that a GPU's own driver has allocated, as a buffer
 * @p: from peerdma_open()
 * @pci_vendor: PCI vendor id of that driver: 0x10de for NVIDIA's
 * @addr: GPU virtual address in this process, as of cudaMalloc(), a multiple of 64 KiB
 * @len: bytes, a multiple of 64 KiB, not 0
 * @flags: 0
 * @out: the buffer, for peerdma_buf_destroy(); written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * The memory is registered where that can be proven safe; otherwise @reason says why not. It still belongs to its
 * allocator, and its contents are kept. peerdma_buf_destroy() only ends the registration. If the allocator frees it
 * before that, the driver waits for reads and writes under way, or keeps the memory until then. For this buffer
 * peerdma_buf_query() reports no position in the BAR.
 *
 * This function was never tried on a GPU.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP an unknown flag; or see @reason: Documentation/vendor.md lists the requirements
 *   -EINVAL a number is not valid: see @reason
 *   -EBUSY part of the memory is registered already, or is in use: see @reason
 *   -ENODEV the memory was freed meanwhile
 *   -EDQUOT a limit of the caller is reached: see @reason
 *   -ENOMEM the kernel has no memory
 *   -EACCES a rule denies it: peerdma-rules(5); then @reason is PEERDMA_REASON_RULE
 * Since 0.1. Source: ioctl(PEERDMA_BUF_REGISTER); user/lib/buffer.cpp, kernel/memory/register.c. Never tried on a GPU.
 */
PEERDMA_API int peerdma_buf_from_gpu(struct peerdma_device *p, uint32_t pci_vendor, uint64_t addr, uint64_t len,
				     uint32_t flags, struct peerdma_buf **out, uint32_t *reason);

/**
 * peerdma_buf_from_dmabuf - import a range of a dma-buf that another driver has exported, as a buffer
 * @p: from peerdma_open()
 * @fd: the dma-buf; may be closed afterwards
 * @off: bytes from its start, a multiple of the page size
 * @len: bytes, a multiple of 64 KiB, not 0
 * @pci_domain: PCI domain of the function that the dma-buf is attached for: a drive, as in leaf_domain of
 *   peerdma_explain()
 * @pci_bdf: its bus << 8 | device << 3 | function, as in leaf_bdf of peerdma_explain()
 * @flags: 0
 * @out: the buffer, for peerdma_buf_destroy(); written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * The memory still belongs to its allocator. If the exporter revokes it, or that function loses its driver, reads and
 * writes under way end, and later ones return -ENODEV. For this buffer peerdma_buf_query() reports no position in the
 * BAR.
 *
 * This function was never tried with a dma-buf of a GPU's driver.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP an unknown flag; or see @reason: Documentation/import.md lists the requirements
 *   -EINVAL a number is not valid, or @fd is not a dma-buf: see @reason
 *   -EBADF @fd is not open
 *   -EBUSY part of the memory is a buffer already
 *   -ENODEV the memory was revoked meanwhile
 *   -EDQUOT a limit of the caller is reached: see @reason
 *   -ENOMEM the kernel has no memory
 *   -EACCES a rule denies it: peerdma-rules(5); then @reason is PEERDMA_REASON_RULE
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
 * @p: from peerdma_open()
 * @args: the memory; out_* members are filled in
 * @out: the buffer, for peerdma_buf_destroy(); written on success only
 *
 * Asks the vendor libraries that the process has loaded (CUDA, HIP and Level Zero) whether they know the address. Gets
 * a dma-buf of the memory from the library that does, and continues as peerdma_buf_from_dmabuf(), with the same
 * requirements and the same lifetime. The buffer consists of the units of 64 KiB around the range: args->out_buf_off is
 * the position of the address in it.
 *
 * The call loads no vendor library, and none is needed to build or to run. It may be called wherever the vendor's own
 * calls may be called.
 *
 * That CUDA's driver returns a dma-buf was tried on a GPU. The rest was tried with stand-ins only, HIP and Level Zero
 * never on real hardware.
 * Return: 0 or -errno.
 *   -EOPNOTSUPP an unknown flag; or see args->out_reason: Documentation/import.md, "By address"
 *   -EINVAL a number is not valid: see args->out_reason
 *   -EBUSY part of the memory is a buffer already
 *   -ENODEV the memory was revoked meanwhile
 *   -EDQUOT a limit of the caller is reached: see args->out_reason
 *   -ENOMEM the kernel has no memory
 *   -EACCES a rule denies it: peerdma-rules(5); then args->out_reason is PEERDMA_REASON_RULE
 *   -E2BIG @args is longer than this library knows, and the unknown part is not zero
 * Since 0.1. Source: peerdma_buf_from_dmabuf(); user/lib/pointer.cpp.
 */
PEERDMA_API int peerdma_buf_from_pointer(struct peerdma_device *p, struct peerdma_pointer_args *args,
					 struct peerdma_buf **out);

/**
 * peerdma_buf_destroy - free a buffer
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*(); NULL does nothing
 *
 * Waits for reads and writes under way and unmaps the buffer's proxy address. Importers of its dma-bufs lose the
 * memory. Memory of a buffer of peerdma_buf_from_*() still belongs to its allocator.
 * Since 0.1. Source: ioctl(PEERDMA_DESTROY); user/lib/buffer.cpp.
 */
PEERDMA_API void peerdma_buf_destroy(struct peerdma_buf *buf);

/**
 * peerdma_buf_map - map a buffer for the CPU
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 * @addr: the address of its first byte, the buffer's proxy address; written on success only
 *
 * The first call maps the whole buffer; later calls return the same address. It is valid until peerdma_buf_destroy(),
 * which unmaps it. After the provider has gone away, an access raises SIGBUS. The memory is uncached: reading a few
 * bytes can take microseconds. After stores, read the last word back before you notify another device.
 *
 * WARNING: pread(2), pwrite(2) and io_uring with O_DIRECT accept the address too, but nothing checks the route then. On
 * md raid1 and raid10 some kernels silently skip a mirror that cannot reach the memory. Use peerdma_read() and
 * peerdma_write() instead. Documentation/io.md has the details.
 * Return: 0 or -errno.
 *   -ENODEV the provider has gone away
 *   -EOPNOTSUPP the module is too old
 *   -ENOMEM the process has no address space left
 * Since 0.1. Source: mmap(2) of /dev/peerdma; user/lib/buffer.cpp, kernel/memory/proxy.c.
 */
PEERDMA_API int peerdma_buf_map(struct peerdma_buf *buf, void **addr);

/**
 * peerdma_buf_map_on_demand - map a range of a buffer for RDMA devices that take memory on demand
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 * @off: bytes from the buffer's start, whole pages
 * @len: bytes, not 0
 * @addr: the address of the range's first byte; unmap @len bytes there with munmap(2); written on success only
 *
 * The address is for ibv_reg_mr(3) with IBV_ACCESS_ON_DEMAND. peerdma_mr_reg() of peerdma_verbs.h does all that: most
 * programs call it instead.
 *
 * Such a memory region is a range of addresses and covers any memory that is mapped there. The address of
 * peerdma_buf_map() is unmapped with the buffer, and other memory may be mapped at it later. This address stays
 * reserved and empty after the buffer is destroyed, until the caller unmaps it, after ibv_dereg_mr(3).
 * Return: 0 or -errno.
 *   -EOPNOTSUPP the kernel is older than 6.16, which maps peer memory incorrectly for such devices; or the module is
 *     too old
 *   -ENODEV the provider has gone away
 *   -EINVAL the range is not inside the buffer, or @off is inside a page
 *   -ENOMEM the process has no address space left
 * Since 0.1. Source: mmap(2) of /dev/peerdma, PEERDMA_FEATURE_ON_DEMAND; user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_map_on_demand(struct peerdma_buf *buf, uint64_t off, uint64_t len, void **addr);

/**
 * peerdma_buf_at - find the buffer of this process that is mapped at an address
 * @addr: any address
 * @buf: the buffer whose proxy address this is; written on success only
 * @buf_off: bytes from the buffer's start to @addr; written on success only
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
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 * @off: bytes from the buffer's start, whole pages
 * @len: bytes, whole pages, not 0
 * @fd: the dma-buf, close-on-exec, the caller's to close; written on success only
 * @reason: enum peerdma_reason, written on failure too; may be NULL
 *
 * For ibv_reg_dmabuf_mr(3) and other drivers that import dma-bufs dynamically and accept another device's memory. Their
 * device then reads and writes the memory itself. The importing call of any other driver returns -EOPNOTSUPP, or -EXDEV
 * without a PCI route; the kernel log names the cause.
 *
 * An importer keeps its mapping until peerdma_buf_destroy() or removal of the provider, which revoke it. Closing @fd
 * does not end it. peerdma_close() does not wait for dma-bufs. Buffers that were not destroyed are freed only after the
 * last dma-buf.
 * Return: 0 or -errno.
 *   -ENODEV the provider has gone away
 *   -EINVAL the range is not whole pages inside the buffer: see @reason
 *   -EOPNOTSUPP see @reason; without one the module is too old
 *   -EMFILE no descriptor is left
 *   -ENOMEM the kernel has no memory
 * Since 0.1. Source: ioctl(PEERDMA_BUF_EXPORT); user/lib/buffer.cpp, kernel/memory/export.c.
 */
PEERDMA_API int peerdma_buf_export_dmabuf(struct peerdma_buf *buf, uint64_t off, uint64_t len, int *fd,
					  uint32_t *reason);

/**
 * peerdma_buf_query - describe a buffer
 * @buf: from peerdma_buf_create() or one of peerdma_buf_from_*()
 * @info: filled in; set info->size
 *
 * Reports the provider, the length and the position of a buffer, and its handle for requests of peerdma_ioctl(2).
 * Return: 0 or -errno.
 * Since 0.1. Source: user/lib/buffer.cpp.
 */
PEERDMA_API int peerdma_buf_query(const struct peerdma_buf *buf, struct peerdma_buf_info *info);

/**
 * peerdma_file_open - open a file for reads and writes of buffers
 * @p: from peerdma_open()
 * @path: a regular file or a block device
 * @open_flags: of open(2): O_RDONLY, O_WRONLY or O_RDWR, never O_CREAT or O_TMPFILE; O_DIRECT is not needed
 * @out: the file, for peerdma_file_close(); written on success only
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
 * Return: 0 or -errno, also of open(2).
 *   -EMFILE no descriptor is left, or RLIMIT_NOFILE files are registered by this peerdma_open() already
 *   -EINVAL @open_flags has O_CREAT or O_TMPFILE
 *   -ENOMEM the kernel has no memory
 *   -EOPNOTSUPP the module is too old
 * Since 0.1. Source: open(2), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_open(struct peerdma_device *p, const char *path, int open_flags,
				  struct peerdma_file **out);

/**
 * peerdma_file_from_fd - use an open descriptor for reads and writes of buffers
 * @p: from peerdma_open()
 * @fd: duplicated; the caller may close its own at any time
 * @out: the file, for peerdma_file_close(); written on success only
 *
 * As peerdma_file_open(), for a descriptor that the program has already. The open mode and the flags of the descriptor
 * apply.
 * Return: 0 or -errno, also of fcntl(2).
 *   -EBADF @fd is not open, or was opened with O_PATH
 *   -EMFILE as peerdma_file_open()
 *   -ENOMEM as peerdma_file_open()
 *   -EOPNOTSUPP as peerdma_file_open()
 * Since 0.1. Source: fcntl(F_DUPFD_CLOEXEC), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_from_fd(struct peerdma_device *p, int fd, struct peerdma_file **out);

/**
 * peerdma_file_for_buf - use an open descriptor with the handle of a buffer
 * @buf: a buffer; the file belongs to its peerdma_open()
 * @fd: as peerdma_file_from_fd()
 * @out: as peerdma_file_from_fd()
 *
 * This is peerdma_file_from_fd() for a caller that has a buffer but not its device handle, for example from
 * peerdma_buf_at().
 * Return: as peerdma_file_from_fd().
 * Since 0.1. Source: fcntl(F_DUPFD_CLOEXEC), ioctl(PEERDMA_FILE_ADD); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_for_buf(struct peerdma_buf *buf, int fd, struct peerdma_file **out);

/**
 * peerdma_file_close - close a file
 * @file: from peerdma_file_open(), peerdma_file_from_fd() or peerdma_file_for_buf(); NULL does nothing
 *
 * Ends the registration with the module and closes the library's descriptor. A descriptor that was given to
 * peerdma_file_from_fd() stays open.
 *
 * WARNING: as any close(2), this releases all fcntl(2) locks (F_SETLK) of this process on the file, whichever
 * descriptor took them. Locks of F_OFD_SETLK and flock(2) stay: use these instead.
 * Since 0.1. Source: close(2); user/lib/file.cpp.
 */
PEERDMA_API void peerdma_file_close(struct peerdma_file *file);

/**
 * peerdma_file_size - report a file's size
 * @file: a regular file or a block device
 * @bytes: the size at this moment; written on success only
 *
 * Works for block devices as well, of which fstat(2) reports no size.
 * Return: 0 or -errno.
 *   -EISDIR a directory
 *   -ESPIPE a file without offsets
 *   -EBADF the program has closed the library's descriptor
 * Since 0.1. Source: fstat(2), ioctl(BLKGETSIZE64); user/lib/file.cpp.
 */
PEERDMA_API int peerdma_file_size(struct peerdma_file *file, uint64_t *bytes);

/**
 * peerdma_explain - report how a file's bytes would reach a provider, and why not directly
 * @file: a file
 * @provider_id: a provider
 * @explanation: filled in; set explanation->size, and explanation->leaf for another backing device than the first
 *
 * A refusal is an answer, not an error: the call succeeds for a file that cannot be read directly. The answer holds at
 * this moment; peerdma_read() and peerdma_write() check again. The open mode of the file does not count.
 * Return: 0 or -errno.
 *   -ENOENT no such provider
 *   -ENODEV the provider is going away
 *   -EBADF the program has closed the library's descriptor
 * Example:
 *   struct peerdma_explanation why = { .size = sizeof(why) };
 *   if (peerdma_explain(file, provider_id, &why) == 0 &&
 *       why.route != PEERDMA_ROUTE_DIRECT)
 *           printf("%s: %s: %s\n", why.leaf_name,
 *                  peerdma_route_name(why.route),
 *                  peerdma_reason_text(why.reason));
 * Since 0.1. Source: ioctl(PEERDMA_FILE_QUERY); user/lib/explain.cpp.
 */
PEERDMA_API int peerdma_explain(struct peerdma_file *file, uint32_t provider_id,
				struct peerdma_explanation *explanation);

/**
 * peerdma_read - read file bytes into a buffer
 * @file: open for reading; may be shared by threads
 * @buf: of the same peerdma_open()
 * @buf_off: bytes from the buffer's start, of any value
 * @len: bytes, not 0
 * @file_off: bytes from the file's start, of any value
 *
 * Whole blocks of dio_offset_align bytes move directly, if their position in the buffer is a multiple of dio_mem_align:
 * peerdma_explain() reports both. Partial blocks at the edges are bounced.
 *
 * Bytes outside [@buf_off, @buf_off + return) are untouched, with two exceptions: after an error, or if the file is
 * truncated meanwhile, any byte of [@buf_off, @buf_off + @len) may have changed.
 *
 * Without a direct route the call falls back to read(2) through the page cache: the route is then PEERDMA_ROUTE_POSIX.
 * PEERDMA_OPEN_REQUIRE_DIRECT of peerdma_open() refuses instead. A file that is open with O_DIRECT is opened once more
 * for the fallback, through /proc.
 *
 * peerdma_read_result() also reports the route of the bytes. After an error it reports how many were moved before.
 * Return: bytes read, or -errno, also if bytes were read before the error. The count is short only at the end of the
 *   file. Other errors are those of pread(2).
 *   -EINVAL a number is not valid; peerdma_read_result() says which
 *   -EBADF the file is not open for reading, or the program has closed the library's descriptor
 *   -ENOENT @file and @buf are of different peerdma_open() calls
 *   -EISDIR the file is a directory
 *   -ESPIPE the file has no offsets
 *   -ENODEV the provider has gone away, or the buffer's memory was revoked
 *   -EDQUOT bytes must pass through host memory, and RLIMIT_MEMLOCK leaves no room for it
 *   -EACCES a rule denies it: peerdma-rules(5); there is no fallback then
 *   -EXDEV there is no direct route, and PEERDMA_OPEN_REQUIRE_DIRECT was given, or the file is open with O_DIRECT and
 *     cannot be opened again through /proc; peerdma_explain() says why there is none
 *   -EIO the storage reported an error; some errors have an errno of their own, such as ENODATA and EILSEQ
 *   -EMFILE the fallback has no descriptor left
 *   -ENOMEM no memory or address space is left
 * Example:
 *   int64_t n = peerdma_read(file, buf, 0, 1 << 20, 0);
 *   if (n < 0)
 *           fprintf(stderr, "read: %s\n", strerror((int)-n));
 * Since 0.1. Source: pread(2), cuFileRead(); ioctl(PEERDMA_READ); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_read(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
				 uint64_t file_off);

/**
 * peerdma_write - write a buffer's bytes into a file
 * @file: open for writing; may be shared by threads
 * @buf: of the same peerdma_open()
 * @buf_off: bytes from the buffer's start, of any value
 * @len: bytes, not 0
 * @file_off: bytes from the file's start, of any value; ignored if the file is open with O_APPEND
 *
 * Whole blocks of dio_offset_align bytes move directly, if their position in the buffer is a multiple of dio_mem_align:
 * peerdma_explain() reports both. Partial blocks at the edges are bounced through the page cache. They keep the bytes
 * that other writers store into them at the same time, except by direct I/O.
 *
 * Data reaches stable storage as with pwrite(2): call fsync(2) for that.
 *
 * Without a direct route the call falls back to write(2) through the page cache: the route is then PEERDMA_ROUTE_POSIX.
 * PEERDMA_OPEN_REQUIRE_DIRECT of peerdma_open() refuses instead. A file that is open with O_DIRECT is opened once more
 * for the fallback, through /proc.
 *
 * peerdma_write_result() also reports the route of the bytes. After an error it reports how many were moved before.
 * Return: bytes written, or -errno, also if bytes were written before the error. The count is short only if there is no
 *   room for the rest: the next call then returns -ENOSPC, -EDQUOT or -EFBIG, as write(2) does. Other errors are those
 *   of pwrite(2).
 *   -EINVAL a number is not valid; peerdma_write_result() says which
 *   -EBADF the file is not open for writing, or the program has closed the library's descriptor
 *   -ENOENT as peerdma_read()
 *   -EISDIR as peerdma_read()
 *   -ESPIPE as peerdma_read()
 *   -ENODEV as peerdma_read()
 *   -ENOSPC the filesystem is full
 *   -EFBIG the file would exceed RLIMIT_FSIZE or the filesystem's largest file
 *   -EDQUOT bytes must pass through host memory, and RLIMIT_MEMLOCK leaves no room for it: the reason is then
 *     PEERDMA_REASON_MEMLOCK. Otherwise it is the filesystem's quota
 *   -EACCES as peerdma_read()
 *   -EXDEV as peerdma_read()
 *   -EIO as peerdma_read()
 *   -EMFILE as peerdma_read()
 *   -ENOMEM as peerdma_read()
 * Since 0.1. Source: pwrite(2), cuFileWrite(); ioctl(PEERDMA_WRITE); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_write(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len,
				  uint64_t file_off);

/**
 * peerdma_read_result - read file bytes into a buffer, and report their route
 * @file: as peerdma_read()
 * @buf: as peerdma_read()
 * @buf_off: as peerdma_read()
 * @len: as peerdma_read()
 * @file_off: as peerdma_read()
 * @result: filled in, after a failure too; set result->size
 *
 * This is peerdma_read() with a result that says which route the bytes took, why they were not direct, and how many
 * were moved before an error.
 * Return: as peerdma_read().
 *   -EINVAL a number is not valid: see result->reason
 * Example:
 *   struct peerdma_io_result result = { .size = sizeof(result) };
 *   int64_t n = peerdma_read_result(file, buf, 0, 1 << 20, 0, &result);
 *   if (n < 0)
 *           fprintf(stderr, "read: %s after %llu bytes: %s\n",
 *                   strerror((int)-n), (unsigned long long)result.done,
 *                   peerdma_reason_text(result.reason));
 *   else if (result.route != PEERDMA_ROUTE_DIRECT)
 *           printf("%s: %s\n", peerdma_route_name(result.route),
 *                  peerdma_reason_text(result.reason));
 * Since 0.1. Source: ioctl(PEERDMA_READ); user/lib/io.cpp.
 */
PEERDMA_API int64_t peerdma_read_result(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off,
					uint64_t len, uint64_t file_off, struct peerdma_io_result *result);

/**
 * peerdma_write_result - write a buffer's bytes into a file, and report their route
 * @file: as peerdma_write()
 * @buf: as peerdma_write()
 * @buf_off: as peerdma_write()
 * @len: as peerdma_write()
 * @file_off: as peerdma_write()
 * @result: filled in, after a failure too; set result->size
 *
 * This is peerdma_write() with a result that says which route the bytes took, why they were not direct, and how many
 * were moved before an error.
 * Return: as peerdma_write().
 *   -EINVAL a number is not valid: see result->reason
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
 * peerdma_readv - read several ranges of one file into one buffer
 * @file: as peerdma_read()
 * @buf: as peerdma_read()
 * @segs: the segments; the result of each is written
 * @n: their number, not 0
 *
 * Reads the segments one after the other, each as peerdma_read() would. A segment that fails does not stop the
 * following ones. For many small segments a ring with PEERDMA_RING_VECTORS is much cheaper: peerdma_ring_create().
 * Return: the number of segments that were moved whole, or -errno before the first. The results of the segments are
 *   those of peerdma_read().
 *   -EINVAL a pointer is NULL, or @n is 0 or beyond 2^31 - 1
 * Since 0.1. Source: user/lib/io.cpp.
 */
PEERDMA_API int peerdma_readv(struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_seg *segs, uint32_t n);

/**
 * peerdma_writev - write several ranges of one buffer into one file
 * @file: as peerdma_write()
 * @buf: as peerdma_write()
 * @segs: as peerdma_readv()
 * @n: as peerdma_readv()
 *
 * Writes the segments one after the other, each as peerdma_write() would. A segment that fails does not stop the
 * following ones. For many small segments a ring with PEERDMA_RING_VECTORS is much cheaper: peerdma_ring_create().
 * Return: the number of segments that were moved whole, or -errno before the first. The results of the segments are
 *   those of peerdma_write().
 *   -EINVAL as peerdma_readv()
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
 * @p: from peerdma_open()
 * @depth: maximum number of commands in the kernel at a time, 1 to 4096
 * @capacity: maximum number of requests that are queued, under way or not fetched yet; not below @depth
 * @flags: 0 or a combination of PEERDMA_RING_*
 * @out: the ring, for peerdma_ring_destroy(); written on success only
 *
 * A ring carries requests by io_uring(7). peerdma_ring_queue() adds requests. peerdma_ring_submit() submits as many as
 * the depth allows. peerdma_ring_wait() submits the rest as there is room, and fetches results. A ring uses only direct
 * routes: a request without one ends with -EXDEV.
 *
 * Threads may share a ring without PEERDMA_RING_ONE_THREAD: each call waits until the others have returned.
 * peerdma_ring_wait() holds the ring while it sleeps. A program whose other threads queue requests meanwhile therefore
 * gives it a short timeout.
 * Return: 0 or -errno, also of io_uring_setup(2).
 *   -EINVAL @depth or @capacity is not valid
 *   -EOPNOTSUPP an unknown flag, or the kernel or the module is too old
 *   -ENOSYS the kernel has no io_uring
 *   -EPERM io_uring is disabled
 *   -EBADF the program has closed the descriptor of /dev/peerdma
 *   -EMFILE no descriptor is left
 *   -ENOMEM no memory is left
 * Example:
 *   struct peerdma_ring *many;
 *   struct peerdma_op op = {
 *           .kind = PEERDMA_OP_READ,
 *           .file = file,
 *           .buf = buf,
 *           .len = 4096,
 *   };
 *   struct peerdma_done done[64];
 *   int left = 0;
 *
 *   if (peerdma_ring_create(device, 64, 512, PEERDMA_RING_VECTORS, &many))
 *           return -1;
 *   for (op.tag = 0; op.tag < 256; op.tag++) {
 *           op.buf_off = op.file_off = op.tag * op.len;
 *           left += peerdma_ring_queue(many, &op, 1) == 1;
 *   }
 *   while (left > 0) {
 *           int n = peerdma_ring_wait(many, done, 64, 1, -1);
 *           for (int i = 0; i < n; i++)
 *                   if (done[i].result != 4096)
 *                           fprintf(stderr, "%d: %d\n", (int)done[i].tag,
 *                                   (int)done[i].result);
 *           if (n < 0 && n != -EINTR)
 *                   break;
 *           left -= n > 0 ? n : 0;
 *   }
 *   peerdma_ring_destroy(many);
 * Since 0.1. Source: io_uring_setup(2); user/lib/ring.cpp, kernel/io/uring.c.
 */
PEERDMA_API int peerdma_ring_create(struct peerdma_device *p, uint32_t depth, uint32_t capacity, uint32_t flags,
				    struct peerdma_ring **out);

/**
 * peerdma_ring_destroy - destroy a ring
 * @ring: from peerdma_ring_create(); NULL does nothing
 *
 * Drops queued requests and waits for requests under way. Results that were not fetched are lost.
 *
 * The thread of a ring with PEERDMA_RING_ONE_THREAD should destroy it as well: the kernel does not let another thread
 * wait. If another thread destroys it, requests under way may continue until peerdma_buf_destroy() of their buffer
 * returns.
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API void peerdma_ring_destroy(struct peerdma_ring *ring);

/**
 * peerdma_ring_queue - queue requests without submitting them
 * @ring: from peerdma_ring_create()
 * @ops: the requests, which are copied
 * @n: their number, at most 2^31 - 1
 *
 * The files and the buffers of the requests must exist until the requests are done. Queued requests begin with the next
 * peerdma_ring_submit() or peerdma_ring_wait().
 * Return: the number of requests queued, from the first on, or -errno if the first was not.
 *   -EAGAIN the ring is at its capacity: fetch results with peerdma_ring_wait()
 *   -EINVAL a pointer is NULL, the kind is unknown, the flags are not 0, or the length is 0 or too long
 *   -ENOENT file or buffer belong to another peerdma_open() than the ring
 *   -EISDIR the file is a directory
 *   -ESPIPE the file has no offsets
 *   -EBADF the program has closed the library's descriptor, which a rule has to be checked for
 *   -ENOMEM no memory is left
 *   -EACCES as peerdma_read()
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_queue(struct peerdma_ring *ring, const struct peerdma_op *ops, uint32_t n);

/**
 * peerdma_ring_submit - submit queued requests of a ring
 * @ring: from peerdma_ring_create()
 *
 * Submits up to the ring's depth. peerdma_ring_wait() submits the rest as there is room. With PEERDMA_RING_VECTORS
 * several requests may become one command.
 * Return: the number of commands submitted and not completed, or -errno of io_uring_enter(2): nothing is lost, call
 *   again.
 *   -EAGAIN the kernel accepts nothing at the moment
 *   -EEXIST another thread owns the ring: PEERDMA_RING_ONE_THREAD
 *   -EBADF the program has closed the ring's descriptor
 * Since 0.1. Source: io_uring_enter(2); user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_submit(struct peerdma_ring *ring);

/**
 * peerdma_ring_wait - submit queued requests and fetch results
 * @ring: from peerdma_ring_create()
 * @done: room for @max results
 * @max: number of results, 1 to 2^31 - 1
 * @min: number of results to wait for, at most @max; 0 does not wait
 * @timeout_ms: milliseconds, negative for no limit
 *
 * Each request's result is fetched exactly once. If no request is left to wait for, the call returns at once with the
 * results there are. A signal handler ends the wait as the timeout does. The call holds the ring while it sleeps: calls
 * of other threads on the ring wait for it.
 * Return: the number of results, below @min only after the timeout, after a signal or if there are no more requests; or
 *   -errno, also of io_uring_enter(2): nothing is lost, call again.
 *   -EINVAL @done is NULL, or @max or @min is not valid
 *   -EINTR a signal handler ran while there was no result to fetch, as in io_uring_wait_cqe(3)
 *   -EAGAIN as peerdma_ring_submit()
 *   -EEXIST as peerdma_ring_submit()
 *   -EBADF as peerdma_ring_submit()
 * Since 0.1. Source: io_uring_enter(2); user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_wait(struct peerdma_ring *ring, struct peerdma_done *done, uint32_t max, uint32_t min,
				  int32_t timeout_ms);

/**
 * peerdma_ring_cancel - cancel a request that has not been submitted
 * @ring: from peerdma_ring_create()
 * @tag: of the request; the first of several with the same tag
 *
 * The request ends with -ECANCELED, fetched like any result. A submitted request cannot be cancelled.
 * peerdma_ring_submit() and peerdma_ring_wait() submit as much as the depth allows, even if they then fail.
 * Return: 0 or -errno.
 *   -EALREADY it has been submitted
 *   -ENOENT no such request, or it is done
 * Since 0.1. Source: user/lib/ring.cpp.
 */
PEERDMA_API int peerdma_ring_cancel(struct peerdma_ring *ring, uint64_t tag);

/**
 * DOC: Views
 *
 * A view is a read-only image of files whose elements are reduced: integers to a fixed number of bits, floats to bf16.
 * A storage node serves it as a block device (peerdma-viewd). A client opens the device, or a copy of it in a regular
 * file, and reads elements instead of bytes. The library widens them: in the memory of a CUDA device by a kernel on
 * that device, elsewhere by the CPU.
 *
 * The same calls read plain files. With a codec the host's CPU reduces the elements on their way, so that fewer bytes
 * cross the bus to the device. Without a codec, or with one that ends with none, nothing is reduced.
 * peerdma_view_info() says which of the three it is.
 *
 * A codec is named ELEMENT:REDUCED. ELEMENT is the element type of the file: u32, i64, f32 or byte, little endian.
 * REDUCED is u16, u24, u32, a number of bits (1 to 31), bf16 for f32, or none. Integers are exact: an element that
 * does not fit is an error. bf16 is rounded to the nearest, ties to even.
 */

/** struct peerdma_view - typed elements of a view or of a plain file; opaque */
struct peerdma_view;

/** enum peerdma_view_where - what reduces the elements of a view */
enum peerdma_view_where {
	PEERDMA_VIEW_WHERE_NONE = 0,    /* nothing: a plain file without a codec, or with one of none */
	PEERDMA_VIEW_WHERE_STORAGE = 1, /* the storage: a view's device, or a copy of it in a file */
	PEERDMA_VIEW_WHERE_HOST = 2,    /* this host's CPU: a plain file with a codec that reduces */
};

/** enum peerdma_view_element - element type of the file */
enum peerdma_view_element {
	PEERDMA_VIEW_ELEMENT_U32 = 1,  /* unsigned integer of 32 bits */
	PEERDMA_VIEW_ELEMENT_I64 = 2,  /* signed integer of 64 bits */
	PEERDMA_VIEW_ELEMENT_F32 = 3,  /* float */
	PEERDMA_VIEW_ELEMENT_BYTE = 4, /* a plain file without a codec, or data of any other type */
};

/**
 * enum peerdma_view_as - how peerdma_view_read() delivers elements
 *
 * An integer type is accepted if every value that the reduced form can hold fits into it: i32 needs at most 31 bits.
 */
enum peerdma_view_as {
	PEERDMA_VIEW_AS_FILE = 0,   /* the element type of the file */
	PEERDMA_VIEW_AS_PACKED = 1, /* the reduced form: element i has the bits [i * bits, (i + 1) * bits) */
	PEERDMA_VIEW_AS_U32 = 2,    /* 4 bytes each */
	PEERDMA_VIEW_AS_I32 = 3,    /* 4 bytes each */
	PEERDMA_VIEW_AS_I64 = 4,    /* 8 bytes each */
	PEERDMA_VIEW_AS_F32 = 5,    /* 4 bytes each */
};

/** enum peerdma_view_by - what has widened elements */
enum peerdma_view_by {
	PEERDMA_VIEW_BY_NONE = 0, /* nothing: they were delivered in the form in which they were read */
	PEERDMA_VIEW_BY_CPU = 1,  /* the host's CPU */
	PEERDMA_VIEW_BY_GPU = 2,  /* a kernel on the CUDA device */
};

/**
 * PEERDMA_VIEW_OPEN_MAP - reduce out of a mapping of the file instead of a copy of its bytes
 *
 * Ignored unless the view is one of PEERDMA_VIEW_WHERE_HOST. The CPU then reads each byte of the page cache once, which
 * is faster. The caller guarantees that the file is not truncated and has no unreadable block while the view is open.
 * Otherwise the process can get SIGBUS. Without this flag the library reads with pread(2), which returns an error.
 */
#define PEERDMA_VIEW_OPEN_MAP 1u

/**
 * PEERDMA_VIEW_OPEN_VERIFY - compare what is read with the checksums in the view's header
 *
 * The header has a CRC32C of each MiB of the data: a chunk. Every element that a read delivers is then of chunks whose
 * checksum was right; otherwise the read fails with -EBADMSG. A read of a part of a chunk reads all of it. The CPU has
 * to see every byte, so none is moved directly: reads for a GPU go through host memory, and with a handle that has
 * PEERDMA_OPEN_REQUIRE_DIRECT they are refused. A plain file has no checksums and is not opened with this flag.
 */
#define PEERDMA_VIEW_OPEN_VERIFY 2u

/**
 * struct peerdma_view_args - arguments and results of peerdma_view_open()
 * @size: sizeof(struct peerdma_view_args), set by the caller
 * @flags: 0, or any of PEERDMA_VIEW_OPEN_MAP and PEERDMA_VIEW_OPEN_VERIFY
 * @codec: for a plain file, the name of a codec ("u32:17"), or NULL. Of a view only the element type is compared
 * @out_why: after a failure the cause in words, NUL terminated; empty if the errno says it
 */
struct peerdma_view_args {
	uint32_t size;
	uint32_t flags;
	const char *codec;
	char out_why[128];
};

/**
 * struct peerdma_view_description - a view
 * @size: sizeof(struct peerdma_view_description), set by the caller
 * @where: enum peerdma_view_where
 * @element: enum peerdma_view_element
 * @bits: of one element in its reduced form
 * @elements: their number
 * @data_offset: bytes from the start of the device or file to the data
 * @data_bytes: bytes of all elements in the form in which they are read from the storage
 * @files: number of files of which the view consists; 1 for a plain file
 * @element_bytes: bytes of one element of the file
 * @codec: its name, NUL terminated
 * @text: in words: elements, codec, what reduces them and why, NUL terminated
 */
struct peerdma_view_description {
	uint32_t size;
	uint32_t where;
	uint32_t element;
	uint32_t bits;
	uint64_t elements;
	uint64_t data_offset;
	uint64_t data_bytes;
	uint64_t files;
	uint32_t element_bytes;
	char codec[20];
	char text[160];
};

/**
 * PEERDMA_VIEW_READ_IN_PLACE - widen elements inside of the destination
 *
 * Packed elements are copied to the end of the destination's own range and widened from there. Without this flag they
 * are copied to other memory of the device first: up to 8 MiB for each read under way, and 128 MiB for all. For CUDA
 * device memory only; such a read passes through host memory. A few elements at the end may still use other memory.
 */
#define PEERDMA_VIEW_READ_IN_PLACE 1u

/**
 * struct peerdma_view_read_args - a range of elements and its destination
 * @size: sizeof(struct peerdma_view_read_args), set by the caller
 * @flags: 0 or PEERDMA_VIEW_READ_IN_PLACE
 * @first: index of the first element
 * @count: elements, not 0
 * @as: enum peerdma_view_as. PEERDMA_VIEW_AS_PACKED needs a first element that begins with a byte: @first * bits is a
 *   multiple of 8
 * @reserved: 0
 * @to: host memory or CUDA device memory, a multiple of the delivered type's size; NULL with @buf
 * @buf: a buffer of the same peerdma_open() as the view; NULL with @to
 * @buf_off: bytes from the buffer's start; 0 without @buf
 * @stream: the CUstream in whose order the elements are written to CUDA device memory. NULL: the call returns when
 *   they are there
 */
struct peerdma_view_read_args {
	uint32_t size;
	uint32_t flags;
	uint64_t first;
	uint64_t count;
	uint32_t as;
	uint32_t reserved;
	void *to;
	struct peerdma_buf *buf;
	uint64_t buf_off;
	void *stream;
};

/**
 * struct peerdma_view_result - what one peerdma_view_read() has done
 * @size: sizeof(struct peerdma_view_result), set by the caller
 * @route: enum peerdma_route of the bytes from the storage to the destination's device
 * @done: elements delivered, before an error too
 * @read: bytes read from the storage
 * @moved: bytes in the form in which they reached the destination's device, or host memory. Less than @read if this
 *   host's CPU has reduced them
 * @direct: of @read, bytes that the storage device moved into the memory of the destination's device
 * @host: of @read, bytes that went through host memory
 * @misfit: after -ERANGE the index of the element that does not fit; after -EBADMSG that of the first element of which
 *   the chunk has a part
 * @by: enum peerdma_view_by
 * @reason: enum peerdma_reason: why bytes went through host memory, if the module knows it; after an error its reason
 * @error: 0, or the positive errno that ended it
 * @reserved: 0
 * @out_why: after -EBADMSG the chunk, its elements and the file that the first of them is of, in words; NUL terminated
 */
struct peerdma_view_result {
	uint32_t size;
	uint32_t route;
	uint64_t done;
	uint64_t read;
	uint64_t moved;
	uint64_t direct;
	uint64_t host;
	uint64_t misfit;
	uint32_t by;
	uint32_t reason;
	uint32_t error;
	uint32_t reserved;
	char out_why[256];
};

/**
 * peerdma_view_open - open a view, or a plain file as typed elements
 * @p: from peerdma_open(), for direct reads; NULL: every byte goes through host memory, and no module is needed
 * @path: a view's block device, a regular file with a copy of one, or a plain file
 * @args: codec and flags; out_why is filled in; NULL for none
 * @out: the view, for peerdma_view_close(); written on success only
 *
 * A device or file that begins with the header of a view is a view. The header is checked: sizes, offsets, its
 * CRC32C, and that the device or file is large enough. Anything else is a plain file: a codec makes the host's CPU
 * reduce it, and trailing bytes that are not a whole element are refused. Without a codec its elements are bytes.
 *
 * Elements that are added to a plain file later are not seen.
 * Return: 0 or -errno, also of open(2).
 *   -EINVAL @path or @out is NULL; there is no such codec; the file does not consist of whole elements
 *   -EBADMSG the header of the view is damaged, or of another version
 *   -EMEDIUMTYPE the view has elements of another type than @args names
 *   -EISDIR, -ESPIPE a directory; a file without offsets
 *   -EOPNOTSUPP an unknown flag; PEERDMA_VIEW_OPEN_VERIFY of a plain file
 *   -EFBIG the header is larger than the library accepts
 *   -ENOMEM no memory is left
 *   -E2BIG @args is longer than this library knows, and the unknown part is not zero
 * Example:
 *   struct peerdma_view *tokens;
 *   struct peerdma_view_args how = { .size = sizeof(how), .codec = "u32:17" };
 *   struct peerdma_view_description info = { .size = sizeof(info) };
 *
 *   if (peerdma_view_open(NULL, "/dev/disk/by-id/tokens", &how, &tokens))
 *           return -1;
 *   if (peerdma_view_info(tokens, &info) == 0)
 *           printf("%s\n", info.text);
 *   peerdma_view_close(tokens);
 * Since 0.2. Source: open(2); user/lib/view/open.cpp.
 */
PEERDMA_API int peerdma_view_open(struct peerdma_device *p, const char *path, struct peerdma_view_args *args,
				  struct peerdma_view **out);

/**
 * peerdma_view_info - describe a view
 * @view: from peerdma_view_open()
 * @info: filled in; set info->size
 *
 * Nothing of it changes while the view is open.
 * Return: 0 or -errno.
 * Since 0.2. Source: user/lib/view/open.cpp.
 */
PEERDMA_API int peerdma_view_info(const struct peerdma_view *view, struct peerdma_view_description *info);

/**
 * peerdma_view_read - read elements
 * @view: from peerdma_view_open(); may be shared by threads
 * @args: which elements, in which form, and their destination
 * @result: filled in, after a failure too; set result->size; may be NULL
 *
 * Elements beyond the last one are left out: the result is then short. Bytes of the destination outside of the
 * returned elements are not written, except that with PEERDMA_VIEW_READ_IN_PLACE or after an error any byte of the
 * requested range may have changed. Unused bits of the last byte of PEERDMA_VIEW_AS_PACKED are not specified.
 *
 * The destination is CUDA device memory if the process has loaded libcuda.so.1 and that knows the address. If the view
 * has a device handle and the storage can reach that memory, packed elements are read into the device directly.
 * Otherwise they go through pinned host memory, which threads share: several threads reading at once overlap reading,
 * copying and widening. With a stream the call may return before the elements are there: later work of the stream
 * finds them. What was written before an error is in the stream's order too. The device waits for earlier work of the
 * stream before it writes; so does the call, if the read is long. A read waits for the stream of another one only if
 * the memory for reads under way is used up. The stream must not be capturing. A default stream (legacy,
 * per thread) is that of the thread's current context, which must then be that of the memory. Any other address is host
 * memory.
 *
 * In a buffer (@buf) packed elements are read directly where that is possible. The CPU widens others and stores them
 * through the buffer's proxy address.
 *
 * Needs a CUDA driver 12.0 or newer to widen on the device. The memory that threads share is freed when the last view
 * of the process is closed.
 * Return: elements delivered, 0 if @first is the number of elements, or -errno.
 *   -EINVAL a range, an address or @as is not valid for this view
 *   -ERANGE an element of a plain file does not fit the codec: result->misfit is its index
 *   -ENODATA the device or file has become shorter than its elements: then the reason is PEERDMA_REASON_END_OF_FILE; or
 *     the device's medium reports an error
 *   -EBADMSG with PEERDMA_VIEW_OPEN_VERIFY: bytes of the view do not have the header's checksum
 *   -EFAULT the range is not all in one CUDA device's memory
 *   -EBUSY the stream is capturing
 *   -EOPNOTSUPP an unknown flag; a stream or PEERDMA_VIEW_READ_IN_PLACE without CUDA device memory; the CUDA driver
 *     is too old
 *   -ENODEV the buffer was revoked; or the CUDA device is gone
 *   -ENOENT the buffer belongs to another peerdma_open()
 *   -EXDEV the bytes cannot move directly, and the device handle has PEERDMA_OPEN_REQUIRE_DIRECT
 *   -EIO the storage or the CUDA device reported an error
 *   -EBADF the program has closed the library's descriptor
 *   -ENOMEM no host or device memory is left
 *   -EACCES a rule denies it: peerdma-rules(5). Not of what goes to CUDA memory through host memory because of how it is
 *     read: in place, verified, or reduced by this host
 *   -E2BIG @args is longer than this library knows, and the unknown part is not zero
 * Example:
 *   struct peerdma_view_read_args range = {
 *           .size = sizeof(range),
 *           .first = 0,
 *           .count = 1 << 20,
 *           .as = PEERDMA_VIEW_AS_FILE,
 *           .to = memory,
 *   };
 *   struct peerdma_view_result result = { .size = sizeof(result) };
 *   int64_t n = peerdma_view_read(view, &range, &result);
 *   if (n == -ERANGE)
 *           fprintf(stderr, "element %llu does not fit\n",
 *                   (unsigned long long)result.misfit);
 * Since 0.2. Source: pread(2), peerdma_read(); user/lib/view/read.cpp.
 */
PEERDMA_API int64_t peerdma_view_read(struct peerdma_view *view, const struct peerdma_view_read_args *args,
				      struct peerdma_view_result *result);

/**
 * peerdma_view_close - close a view
 * @view: from peerdma_view_open(); NULL does nothing
 *
 * Elements that reads with a stream have not delivered yet still come. The call waits for those that come directly, and
 * for all if this is the last view of the process. No other thread may be in a call with @view.
 * Since 0.2. Source: user/lib/view/open.cpp.
 */
PEERDMA_API void peerdma_view_close(struct peerdma_view *view);

/**
 * peerdma_reason_name - return a reason's stable name for programs
 * @reason: enum peerdma_reason
 *
 * The name is that of the constant without PEERDMA_REASON_: "QUEUE" for PEERDMA_REASON_QUEUE. Names are stable, the
 * words of peerdma_reason_text() and peerdma_reason_advice() are not.
 * Return: a static string, "UNKNOWN" for a number that this library does not know.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_name(uint32_t reason);

/**
 * peerdma_reason_text - return a reason in words
 * @reason: enum peerdma_reason
 *
 * The text is one clause for people, without a full stop, to be put behind "what:".
 * Return: a static string.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_text(uint32_t reason);

/**
 * peerdma_reason_advice - return the remedy for a reason
 * @reason: enum peerdma_reason
 *
 * The advice is one sentence for people.
 * Return: a static string, empty if there is no remedy.
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_reason_advice(uint32_t reason);

/**
 * peerdma_map_name - return in words how a device reaches a provider's memory
 * @map: enum peerdma_map
 *
 * For the map members of struct peerdma_explanation.
 * Return: a static string: "none", "bus address", "host bridge", "iova" or "unknown".
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_map_name(uint32_t map);

/**
 * peerdma_route_name - return a route in words
 * @route: enum peerdma_route
 *
 * For the route members of struct peerdma_explanation and struct peerdma_io_result.
 * Return: a static string: "none", "direct", "direct, edges bounced", "bounced near the provider", "bounced through
 *   host memory", "posix" or "unknown".
 * Since 0.1. Source: user/lib/reason.cpp.
 */
PEERDMA_API const char *peerdma_route_name(uint32_t route);

#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_H */
