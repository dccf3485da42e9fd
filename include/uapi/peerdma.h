/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef _UAPI_PEERDMA_H
#define _UAPI_PEERDMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: The ABI of /dev/peerdma and of the node of each provider
 *
 * A provider is a published range of a PCI function's memory. A buffer is a range of a provider's
 * memory. It belongs to one open file of a device node; its id is valid on that open file only.
 * Closing the file destroys its buffers.
 *
 * Every ioctl takes one struct. Its first member is its size. A struct may grow at its end. If a
 * caller passes a shorter struct, the kernel reads the missing members as zero. If a caller passes
 * a longer one, the members unknown to this kernel must be zero, else -E2BIG. flags must be 0 or
 * known. Members called out_* are written by the kernel, also on failure once the struct and its
 * flags were accepted. The kernel only reads all other members.
 *
 * /dev/peerdma reaches every provider. /dev/peerdmaN reaches the provider with id N only: other
 * providers do not exist there (-ENOENT), and publishing is refused (-EPERM). The node is removed
 * with its provider. A file of it that is still open never reaches another provider: its buffers
 * have lost their memory (-ENODEV). Memory of another driver is registered or imported on
 * /dev/peerdma, or on the node of its provider while that exists.
 *
 * The mode in which the device node was opened limits the requests (-EBADF otherwise). Opened for
 * writing: requests that create, fill or destroy a buffer (PEERDMA_BUF_ALLOC, PEERDMA_BUF_REGISTER,
 * PEERDMA_BUF_IMPORT, PEERDMA_READ, PEERDMA_URING_READ, PEERDMA_URING_READV, PEERDMA_DESTROY) and
 * PEERDMA_PUBLISH. Opened for reading: requests that write a buffer's bytes to a file
 * (PEERDMA_WRITE, PEERDMA_URING_WRITE, PEERDMA_URING_WRITEV). Opened for both: PEERDMA_BUF_EXPORT.
 * All other requests need neither. mmap() follows the rules of any shared file: -EACCES without
 * read mode, and without write mode if PROT_WRITE is requested.
 *
 * The errno values mean the same in every ioctl:
 *
 * ========== ====================================================================================
 * E2BIG      the struct is longer than this kernel knows, and the unknown part is not zero
 * EBADF      the target file descriptor, or the device node's, has the wrong open mode
 * EBUSY      another driver uses this part of the BAR; registering, importing: out_reason is
 *            VENDOR_BUSY
 * EDQUOT     a limit of the caller is reached: out_reason is USER_LIMIT, CGROUP_LIMIT or MEMLOCK;
 *            with any other reason, or NONE, it is the filesystem's quota
 * EEXIST     the device has published already
 * EFAULT     the struct is not wholly in readable and writable memory
 * EINVAL     a number is out of range, misaligned, zero or overflows: out_reason names which; or
 *            the struct is too short or a reserved member not 0: out_reason is PEERDMA_REASON_NONE
 * EINTR      the process is being killed
 * EIO        the storage reported an error; some errors have their own errno: ENODATA, EILSEQ ...
 * EISDIR     the target is a directory
 * EMFILE     exporting: the process has no descriptor left; registering a file: RLIMIT_NOFILE
 *            files are registered already
 * ENODEV     the provider, or the buffer's provider, has gone away
 * ENOENT     there is no such provider or buffer on this open file
 * ENOMEM     the provider has no room left, or the kernel has no memory
 * ENOSPC     the filesystem is full
 * ENOTTY     not an ioctl of PeerDMA
 * EOPNOTSUPP an unknown flag, or the reference counts of this kernel's P2PDMA pages are not those
 *            that the module was built for; exporting: out_reason is DMABUF or IMPORT_EXPORT;
 *            registering, importing, and allocating from a provider that only takes registered
 *            memory: out_reason is one of VENDOR_* or IMPORT_*
 * EPERM      publishing and PEERDMA_BUF_NO_ZERO need CAP_SYS_ADMIN in the initial user namespace;
 *            publishing needs /dev/peerdma
 * ESPIPE     the target is a pipe, a socket, a terminal or another file without offsets
 * EXDEV      there is no direct route between this file and this provider; out_reason says why
 * ========== ====================================================================================
 *
 * Any other value comes from the filesystem (EDQUOT, EFBIG, EROFS ...) and means the same as for
 * pwrite(2).
 */

#define PEERDMA_ABI_VERSION 1

/* Bits of out_features. */
#define PEERDMA_FEATURE_URING (1ULL << 0) /* PEERDMA_URING_READ and PEERDMA_URING_WRITE */
#define PEERDMA_FEATURE_URING_VEC (1ULL << 1) /* the V forms, and IORING_SETUP_IOPOLL */
#define PEERDMA_FEATURE_DMABUF (1ULL << 2) /* PEERDMA_BUF_EXPORT */
#define PEERDMA_FEATURE_ON_DEMAND (1ULL << 3) /* RDMA on demand works correctly */

/**
 * enum peerdma_reason - why a request was refused, or why a route is what it is
 *
 * The numbers are stable. peerdma_reason_name() gives the name, peerdma_reason_advice() the remedy.
 */
enum peerdma_reason {
	PEERDMA_REASON_NONE = 0, /* no obstacle */
	/* the request: EINVAL */
	PEERDMA_REASON_LEN_ZERO = 1, /* len is 0 */
	PEERDMA_REASON_OVERFLOW = 2, /* offset + length does not fit in 63 bits */
	PEERDMA_REASON_BUF_RANGE = 3, /* the range is not inside the buffer */
	PEERDMA_REASON_FILE_ALIGN = 4, /* it begins or ends inside a block of dio_offset_align */
	PEERDMA_REASON_BUF_ALIGN = 5, /* buf_off is not a multiple of dio_mem_align */
	PEERDMA_REASON_PAGE_ALIGN = 6, /* a buffer, or an exported range, is not whole pages */
	PEERDMA_REASON_BAR_RANGE = 7, /* the range is not inside a memory BAR of the device */
	PEERDMA_REASON_NOT_BOUND = 8, /* the device is not bound to the peerdma driver */
	PEERDMA_REASON_RANGE_ALIGN = 9, /* the range is not a multiple of out_publish_align */
	PEERDMA_REASON_APPEND = 10, /* O_APPEND: only the filesystem knows the offset of a write */
	PEERDMA_REASON_NOT_PREFETCHABLE = 11, /* BAR not prefetchable: it may hold registers */
	/* the file: EBADF, EISDIR, ESPIPE, EXDEV */
	PEERDMA_REASON_FD_MODE = 16, /* the descriptor is not open for this direction */
	PEERDMA_REASON_FILE_TYPE = 17, /* not a regular file and not a block device */
	PEERDMA_REASON_FILESYSTEM = 18, /* not a filesystem whose direct I/O is known to be safe */
	PEERDMA_REASON_NO_DIO = 19, /* no direct I/O on this file: encrypted, verity, journalled */
	PEERDMA_REASON_END_OF_FILE = 20, /* the file ends before the requested range */
	PEERDMA_REASON_REALTIME = 21, /* a realtime file of xfs: it is on another device */
	PEERDMA_REASON_NFS_TRANSPORT = 22, /* NFS by a transport other than RDMA */
	PEERDMA_REASON_NFS_LOCAL = 23, /* NFS from a server on this machine: localio */
	PEERDMA_REASON_NFS_LAYOUT = 24, /* NFS with a pNFS layout: I/O takes other paths */
	PEERDMA_REASON_NFS_SECURITY = 25, /* NFS with krb5i or krb5p, which the CPU computes */
	PEERDMA_REASON_NFS_SERVERS = 26, /* NFS with transports to several addresses */
	PEERDMA_REASON_NFS_SIZE = 27, /* NFS with rsize or wsize below a page: the CPU copies */
	/* the pair of device and provider: EXDEV */
	PEERDMA_REASON_STACKED = 32, /* no disk of a PCI function is below, or too many are */
	PEERDMA_REASON_QUEUE = 33, /* the disk's driver does not announce BLK_FEAT_PCI_P2PDMA */
	PEERDMA_REASON_DISTANCE = 34, /* the kernel knows no PCI route between the two devices */
	PEERDMA_REASON_MAPPING = 35, /* a trial DMA mapping failed */
	PEERDMA_REASON_INTEGRITY = 36, /* the disk carries checksums that the CPU computes */
	PEERDMA_REASON_DM_TARGET = 37, /* a device-mapper target that may look at the data */
	PEERDMA_REASON_MD_LEVEL = 38, /* an md level that computes parity with the CPU */
	/* dma-bufs: EOPNOTSUPP */
	PEERDMA_REASON_DMABUF = 40, /* this kernel cannot revoke an exported dma-buf */
	PEERDMA_REASON_IMPORTER = 41, /* the device's driver cannot import with revocation */
	/* devices reached by a network: EXDEV */
	PEERDMA_REASON_FABRIC_TCP = 42, /* NVMe over TCP, which hands pages to a socket */
	PEERDMA_REASON_FABRIC_LOOP = 43, /* NVMe by nvme-loop, on this machine */
	PEERDMA_REASON_FABRIC_FC = 44, /* NVMe over Fibre Channel */
	PEERDMA_REASON_RDMA_MODULE = 45, /* NVMe over RDMA, and peerdma_rdma is not loaded */
	PEERDMA_REASON_RDMA_ROUTE = 46, /* no RDMA device leads to the target now */
	PEERDMA_REASON_RDMA_SOFTWARE = 47, /* the RDMA device is software: the CPU copies */
	/* lifetime: ENODEV */
	PEERDMA_REASON_REVOKED = 48, /* the provider was unpublished or removed */
	/* limits: EDQUOT */
	PEERDMA_REASON_USER_LIMIT = 56, /* the module's limit of provider memory for each user */
	PEERDMA_REASON_CGROUP_LIMIT = 57, /* dmem.max of the process's cgroup or of an ancestor */
	PEERDMA_REASON_MEMLOCK = 58, /* RLIMIT_MEMLOCK: bytes would pass through host memory */
	/* memory regions of verbs, reported by the library: EOPNOTSUPP */
	PEERDMA_REASON_VERBS_DEVICE = 60, /* no import of dma-bufs, no memory on demand */
	PEERDMA_REASON_VERBS_KERNEL = 61, /* on demand only, which this kernel does incorrectly */
	PEERDMA_REASON_VERBS_MTU = 62, /* on demand only, and the path MTU is less than a page */
	/* memory of a vendor's driver: EOPNOTSUPP unless another errno is named */
	PEERDMA_REASON_VENDOR_MODULE = 64, /* our module for this vendor is not loaded */
	PEERDMA_REASON_VENDOR_DRIVER = 65, /* the driver is not loaded or lacks functions */
	PEERDMA_REASON_VENDOR_REFUSED = 66, /* the driver does not pin this range */
	PEERDMA_REASON_VENDOR_TABLE = 67, /* the driver returned a page table that we cannot read */
	PEERDMA_REASON_VENDOR_NOT_BAR = 68, /* the memory is not in one BAR of one PCI function */
	PEERDMA_REASON_VENDOR_UNPUBLISHED = 69, /* that BAR is not published */
	PEERDMA_REASON_VENDOR_WC = 70, /* the kernel has that BAR mapped write-combined */
	PEERDMA_REASON_VENDOR_OURS = 71, /* the function is bound to the peerdma driver */
	PEERDMA_REASON_VENDOR_BUSY = 72, /* EBUSY: pages of the range are in use by another user */
	PEERDMA_REASON_VENDOR_FREED = 73, /* ENODEV: the memory was freed while it was registered */
	PEERDMA_REASON_VENDOR_ALIGN = 74, /* EINVAL: the range is not whole units of 64 KiB */
	PEERDMA_REASON_VENDOR_MEMORY = 75, /* this provider only takes registered memory */
	/* dma-bufs of other drivers, VENDOR_* too: EOPNOTSUPP unless another errno is named */
	PEERDMA_REASON_IMPORT_UNABLE = 76, /* this kernel has no dma-bufs */
	PEERDMA_REASON_IMPORT_NOT_DMABUF = 77, /* EINVAL: the descriptor is not a dma-buf */
	PEERDMA_REASON_IMPORT_REVOCABLE = 78, /* the exporter requires revocation */
	PEERDMA_REASON_IMPORT_DEVICE = 79, /* the device has no driver, or cannot import */
	PEERDMA_REASON_IMPORT_IOMMU = 80, /* an IOMMU translates the device's addresses */
	PEERDMA_REASON_IMPORT_REFUSED = 81, /* the exporter refuses to attach, pin or map */
	PEERDMA_REASON_IMPORT_TABLE = 82, /* the exporter's table is too short */
	PEERDMA_REASON_IMPORT_PIECES = 83, /* it is not contiguous in units of 64 KiB */
	PEERDMA_REASON_IMPORT_HOST = 84, /* it is in host memory */
	PEERDMA_REASON_IMPORT_ADDRESS = 85, /* the kernel's addresses for that memory differ */
	PEERDMA_REASON_IMPORT_EXPORT = 86, /* exporting: the memory is a dma-buf already */
	/* device memory given by address, reported by the library: EOPNOTSUPP */
	PEERDMA_REASON_IMPORT_UNKNOWN = 87, /* no vendor library knows the address */
	PEERDMA_REASON_IMPORT_HANDLE = 88, /* the vendor library returns no dma-buf for it */
	/* a rule of /etc/peerdma/rules, reported by the library: EACCES */
	PEERDMA_REASON_RULE = 96, /* denies this provider to the process or to the file */
};

/**
 * enum peerdma_map - how a device reaches a provider's memory
 */
enum peerdma_map {
	PEERDMA_MAP_NONE = 0, /* it does not reach it */
	PEERDMA_MAP_BUS_ADDR = 1, /* inside the PCI fabric, by PCI bus address */
	PEERDMA_MAP_HOST_BRIDGE = 2, /* through the host bridge, by physical address */
	PEERDMA_MAP_IOVA = 3, /* through the host bridge, by an address that the IOMMU translates */
	PEERDMA_MAP_SOFTWARE = 4, /* the device does not reach it: the CPU copies */
};

/**
 * struct peerdma_info - ioctl(PEERDMA_INFO)
 * @size: sizeof(struct peerdma_info)
 * @flags: must be 0
 * @out_abi: PEERDMA_ABI_VERSION of the module
 * @out_page_size: bytes; buffers are multiples of it
 * @out_features: PEERDMA_FEATURE_*
 * @out_nproviders: providers at this moment
 * @out_publish_align: bytes; published ranges are multiples of it
 */
struct peerdma_info {
	__u32 size;
	__u32 flags;
	__u32 out_abi;
	__u32 out_page_size;
	__aligned_u64 out_features;
	__u32 out_nproviders;
	__u32 out_publish_align;
};

/**
 * struct peerdma_provider_query - ioctl(PEERDMA_PROVIDER_QUERY)
 * @size: sizeof(struct peerdma_provider_query)
 * @flags: must be 0
 * @provider_id: returns the provider with the smallest id >= this; -ENOENT after the last one
 * @out_provider_id: its id, never 0
 * @out_pci_domain: PCI domain of the function
 * @out_pci_bdf: bus << 8 | device << 3 | function
 * @out_bar: BAR number
 * @out_numa_node: -1 if the kernel does not know it
 * @out_bar_offset: bytes from the BAR's start to the published range
 * @out_len: bytes published
 * @out_available: bytes not in any buffer at this moment
 * @out_pci_vendor: PCI vendor id
 * @out_pci_device: PCI device id
 */
struct peerdma_provider_query {
	__u32 size;
	__u32 flags;
	__u32 provider_id;
	__u32 out_provider_id;
	__u32 out_pci_domain;
	__u32 out_pci_bdf;
	__u32 out_bar;
	__s32 out_numa_node;
	__aligned_u64 out_bar_offset;
	__aligned_u64 out_len;
	__aligned_u64 out_available;
	__u32 out_pci_vendor;
	__u32 out_pci_device;
};

/*
 * Flags of struct peerdma_publish. (1U << 0) is the library's PEERDMA_PUBLISH_FORCE.
 *
 * PEERDMA_PUBLISH_NONPREFETCHABLE: accept a BAR that is not prefetchable. Such a BAR may hold
 * registers, where a read or a write has effects. The kernel therefore touches only the bytes of a
 * request: it never zeroes a buffer of this BAR, and PEERDMA_BUF_ALLOC requires
 * PEERDMA_BUF_NO_ZERO.
 */
#define PEERDMA_PUBLISH_NONPREFETCHABLE (1U << 1)

/**
 * struct peerdma_publish - ioctl(PEERDMA_PUBLISH)
 * @size: sizeof(struct peerdma_publish)
 * @flags: 0 or PEERDMA_PUBLISH_NONPREFETCHABLE
 * @pci_domain: PCI domain of a function that is bound to the peerdma driver (by driver_override)
 * @pci_bdf: bus << 8 | device << 3 | function
 * @bar: number of a prefetchable memory BAR; with the flag, of any memory BAR
 * @out_provider_id: handle of the new provider; with -EEXIST, of the existing one
 * @bar_offset: bytes, a multiple of out_publish_align of PEERDMA_INFO
 * @len: bytes, a multiple of out_publish_align; 0 means to the end of the BAR
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * A device publishes one range, once. To unpublish it, unbind it from the peerdma driver.
 *
 * Errors: -EPERM without CAP_SYS_ADMIN, not on /dev/peerdma, or in a kernel that is locked down;
 * -ENODEV no such function; -EINVAL see out_reason; -EEXIST; -EBUSY another driver has claimed the
 * range, the function's MSI-X table or pending bits are in it, or it is mapped write-combined;
 * -EOPNOTSUPP this kernel counts page references differently; -ENOMEM; -EINTR a signal came while
 * the function was busy. If the log names write-combining or the page count, unbind the function
 * before the next attempt: its pages stay until then.
 */
struct peerdma_publish {
	__u32 size;
	__u32 flags;
	__u32 pci_domain;
	__u32 pci_bdf;
	__u32 bar;
	__u32 out_provider_id;
	__aligned_u64 bar_offset;
	__aligned_u64 len;
	__u32 out_reason;
	__u32 __reserved;
};

/*
 * Flags of struct peerdma_buf_alloc.
 *
 * PEERDMA_BUF_NO_ZERO: do not zero the memory. It may hold data of other processes and users, so
 * this needs CAP_SYS_ADMIN in the initial user namespace (-EPERM otherwise).
 */
#define PEERDMA_BUF_NO_ZERO (1U << 0)
#define PEERDMA_BUF_FLAGS PEERDMA_BUF_NO_ZERO

/**
 * struct peerdma_buf_alloc - ioctl(PEERDMA_BUF_ALLOC)
 * @size: sizeof(struct peerdma_buf_alloc)
 * @flags: PEERDMA_BUF_*
 * @provider_id: from PEERDMA_PROVIDER_QUERY
 * @out_buf_id: handle, valid on this open file until PEERDMA_DESTROY or close
 * @len: bytes, a multiple of the page size, not 0
 * @out_bar_offset: bytes from the BAR's start to the buffer
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 * @out_mmap_offset: offset for mmap() on this open file; 0 from a module that cannot map
 *
 * The memory is zeroed first unless PEERDMA_BUF_NO_ZERO is set. A BAR that is not prefetchable is
 * never zeroed; without the flag the request is refused. The buffer is charged to the caller's
 * user, and to the caller's cgroup where the kernel has the dmem controller, until its pages are
 * back in the pool.
 *
 * mmap() of the whole buffer, or of a range of its pages (at out_mmap_offset plus whole pages),
 * returns its proxy address. Through it the CPU accesses the device's memory uncached: reading a
 * cache line can take microseconds. After stores, read the last word back before you notify another
 * device. MAP_SHARED only, no PROT_EXEC. Forked children share the mapping, mremap() can move but
 * not grow it, and core dumps omit it. Closing the file does not end a mapping. PEERDMA_DESTROY and
 * removal of the provider do: from then on an access raises SIGBUS and a system call returns
 * -EFAULT. Errors of mmap(): -EINVAL no such buffer, pages outside of it, private or executable;
 * -ENODEV the provider has gone away.
 *
 * WARNING: read(2), write(2) and io_uring with O_DIRECT accept a proxy address on kernels that pass
 * P2PDMA pages through. Such I/O bypasses the checks of PEERDMA_READ and PEERDMA_WRITE: no reason
 * is reported, errors differ between kernels, and on md raid1 or raid10 some kernels silently skip
 * a leg that cannot reach the memory. See Documentation/io.md.
 *
 * Errors: -ENOENT no such provider; -ENODEV it is going away; -EINVAL, -EDQUOT see out_reason;
 * -ENOMEM the provider is full; -EPERM.
 */
struct peerdma_buf_alloc {
	__u32 size;
	__u32 flags;
	__u32 provider_id;
	__u32 out_buf_id;
	__aligned_u64 len;
	__aligned_u64 out_bar_offset;
	__u32 out_reason;
	__u32 __reserved;
	__aligned_u64 out_mmap_offset;
};

/**
 * struct peerdma_destroy - ioctl(PEERDMA_DESTROY)
 * @size: sizeof(struct peerdma_destroy)
 * @flags: must be 0
 * @id: a buffer's handle
 * @__reserved: must be 0
 *
 * Waits for the reads and writes on the buffer that are under way. An io_uring command that
 * io_uring has not begun, or has deferred to its worker, ends with -ENOENT. The same holds for each
 * piece of a command that the drive or the filesystem did not accept at once, if no worker has
 * begun it. Errors: -ENOENT.
 */
struct peerdma_destroy {
	__u32 size;
	__u32 flags;
	__u32 id;
	__u32 __reserved;
};

/**
 * struct peerdma_file_query - ioctl(PEERDMA_FILE_QUERY): can this file reach this provider, and why
 * not
 * @size: sizeof(struct peerdma_file_query)
 * @flags: must be 0
 * @fd: an open file
 * @provider_id: a provider
 * @out_errno: 0 if a read would go direct, else the positive errno it would return; the open
 *	mode of @fd does not count
 * @out_reason: enum peerdma_reason
 * @out_map: enum peerdma_map of the leaf that refuses, else of the most distant leaf
 * @out_distance: the kernel's PCI distance of the same leaf, -1 without a route
 * @out_dio_mem_align: bytes; whole blocks go direct if their offset in the buffer is a multiple
 * @out_dio_offset_align: bytes; the size of a block; partial blocks are bounced
 * @out_leaf_domain: PCI domain of the device of the leaf @leaf, which would move the bytes
 * @out_leaf_bdf: its bus << 8 | device << 3 | function
 * @out_leaf_major: major number of its disk, 0 if it has no disk
 * @out_leaf_minor: minor number of its disk
 * @out_leaf_name: the disk's name, NUL terminated; without a leaf, the file's block device
 * @out_fs_name: the filesystem's name, "block" for a block device, NUL terminated
 * @leaf: index of the leaf to describe, from 0; a stacked device has several leaves
 * @out_nr_leaves: number of leaves; if @leaf is not below it, the leaf members are zero
 * @out_leaf_reason: enum peerdma_reason of this leaf
 * @out_leaf_map: enum peerdma_map of this leaf
 * @out_leaf_distance: the kernel's PCI distance of this leaf, -1 without a route
 * @__reserved: must be 0
 * @out_refused_name: the disk that refuses, at any level of the stack; empty if none does
 *
 * A refusal is an answer, not an error: the ioctl fails only with -EBADF, -ENOENT, -ENODEV and the
 * errno values of an invalid struct.
 */
struct peerdma_file_query {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 provider_id;
	__u32 out_errno;
	__u32 out_reason;
	__u32 out_map;
	__s32 out_distance;
	__u32 out_dio_mem_align;
	__u32 out_dio_offset_align;
	__u32 out_leaf_domain;
	__u32 out_leaf_bdf;
	__u32 out_leaf_major;
	__u32 out_leaf_minor;
	char out_leaf_name[32];
	char out_fs_name[32];
	__u32 leaf;
	__u32 out_nr_leaves;
	__u32 out_leaf_reason;
	__u32 out_leaf_map;
	__s32 out_leaf_distance;
	__u32 __reserved;
	char out_refused_name[32];
};

/*
 * Flags of struct peerdma_io.
 *
 * PEERDMA_IO_NO_BOUNCE: do not bounce partial blocks. A request that cannot go direct as a whole is
 * refused with -EINVAL and a reason; if the CPU would move all of it (PEERDMA_MAP_SOFTWARE), with
 * -EXDEV and RDMA_SOFTWARE. The partial block at the end of a file is bounced even so.
 */
#define PEERDMA_IO_NO_BOUNCE (1U << 0)
#define PEERDMA_IO_FILE_ID (1U << 1) /* fd is an id of PEERDMA_FILE_ADD */
#define PEERDMA_IO_FLAGS (PEERDMA_IO_NO_BOUNCE | PEERDMA_IO_FILE_ID)

/**
 * struct peerdma_io - ioctl(PEERDMA_READ), ioctl(PEERDMA_WRITE): move bytes between a file and a
 * buffer
 * @size: sizeof(struct peerdma_io)
 * @flags: PEERDMA_IO_*
 * @fd: a regular file or a block device, with or without O_DIRECT; or the id of a registered file
 * @buf_id: a buffer of this open file
 * @file_off: bytes; ignored by a write to a file that is open with O_APPEND
 * @buf_off: bytes from the buffer's start
 * @len: bytes, not 0
 * @out_done: bytes moved; short only at the end of the file or after an error
 * @out_direct: of these, bytes that the storage device moved to or from the buffer itself,
 *	or zeros for a hole without blocks
 * @out_near: of these, bytes of partial blocks of a read: the device moved them to another
 *	page of the same provider, and the CPU copied them to the buffer
 * @out_host: of these, bytes that went through host memory
 * @out_reason: enum peerdma_reason; after a success, why bytes were bounced (FILE_ALIGN,
 *	BUF_ALIGN, APPEND, RDMA_SOFTWARE) or why the request ended short (END_OF_FILE, MEMLOCK)
 * @__reserved: must be 0
 *
 * Whole blocks of dio_offset_align bytes (PEERDMA_FILE_QUERY) go direct. The partial blocks before
 * and after them are bounced. If the first whole block's offset in the buffer is not a multiple of
 * dio_mem_align, the whole request is bounced through host memory.
 *
 * A partial block of a write goes through the page cache. It is on the storage when the call
 * returns, as with a direct write. Bytes that other writers store into the same block at the same
 * time are kept, unless they use direct I/O of their own.
 *
 * Bytes of the buffer outside [buf_off, buf_off + out_done) do not change, with two exceptions: if
 * the storage reports an error, or if the file is truncated during the read, any byte of [buf_off,
 * buf_off + len) may have changed. Reaching the end of the file is not an error: out_done is the
 * number of bytes before it, 0 if the read began there, and out_reason is
 * PEERDMA_REASON_END_OF_FILE.
 *
 * Errors: see the top of this file. If bytes were moved before an error, the ioctl succeeds with
 * out_done set to their number, and the next ioctl reports the error.
 */
struct peerdma_io {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 buf_id;
	__aligned_u64 file_off;
	__aligned_u64 buf_off;
	__aligned_u64 len;
	__aligned_u64 out_done;
	__aligned_u64 out_direct;
	__aligned_u64 out_near;
	__aligned_u64 out_host;
	__u32 out_reason;
	__u32 __reserved;
};

/**
 * struct peerdma_file_add - ioctl(PEERDMA_FILE_ADD): register a file for many requests
 * @size: sizeof(struct peerdma_file_add)
 * @flags: must be 0
 * @fd: a regular file or a block device; its open mode and flags apply to the requests
 * @out_file_id: handle, valid on this open file of /dev/peerdma until PEERDMA_FILE_REMOVE or close
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * The file stays open until it is removed and the last request on it has ended; @fd may be closed.
 *
 * Errors: -EBADF, -EISDIR, -ESPIPE; -EMFILE RLIMIT_NOFILE files are registered on this open file.
 */
struct peerdma_file_add {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 out_file_id;
	__u32 out_reason;
	__u32 __reserved;
};

/**
 * struct peerdma_buf_export - ioctl(PEERDMA_BUF_EXPORT): export a range of a buffer as a dma-buf,
 * for
 * the driver of another device
 * @size: sizeof(struct peerdma_buf_export)
 * @flags: must be 0
 * @buf_id: a buffer of this open file
 * @out_fd: the dma-buf, close-on-exec; -1 after an error
 * @off: bytes from the buffer's start, whole pages
 * @len: bytes, whole pages, not 0
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * The descriptor is for drivers that import dma-bufs, for example through ibv_reg_dmabuf_mr().
 * After the import that driver's device reads and writes the provider's memory at any time, without
 * further permission checks.
 *
 * An importer must accept another device's memory, must have a PCI route to the provider, and must
 * support invalidation. Static importers are refused with -EOPNOTSUPP, importers without a route
 * with -EXDEV. The kernel log names the cause, and peerdma-refused-N of /proc/PID/fdinfo counts
 * refusals. Destroying the buffer and removal of the provider invalidate the mappings; mapping
 * again returns -ENODEV. Pages that an importer does not release are never reused.
 *
 * A dma-buf holds the open file of /dev/peerdma, as a mapping does: after close(2) the buffers are
 * destroyed only when the last dma-buf of any of them is closed. PEERDMA_DESTROY destroys a buffer
 * at once. The dma-buf does not support mmap(2); the buffer does.
 *
 * Errors: -ENOENT no such buffer; -ENODEV; -EINVAL, -EOPNOTSUPP see out_reason; -EMFILE; -ENOMEM.
 */
struct peerdma_buf_export {
	__u32 size;
	__u32 flags;
	__u32 buf_id;
	__s32 out_fd;
	__aligned_u64 off;
	__aligned_u64 len;
	__u32 out_reason;
	__u32 __reserved;
};

/**
 * struct peerdma_buf_register - ioctl(PEERDMA_BUF_REGISTER): register memory that a vendor's driver
 * has allocated as a buffer
 * @size: sizeof(struct peerdma_buf_register)
 * @flags: must be 0
 * @pci_vendor: PCI vendor id of the driver: 0x10de
 * @out_buf_id: handle, valid on this open file until PEERDMA_DESTROY or close
 * @addr: GPU virtual address in the calling process, a multiple of 64 KiB
 * @len: bytes, a multiple of 64 KiB, not 0
 * @out_provider_id: the provider: the GPU, for as long as memory of it is registered
 * @out_reason: enum peerdma_reason
 * @out_mmap_offset: as in PEERDMA_BUF_ALLOC
 *
 * The buffer behaves like one of PEERDMA_BUF_ALLOC, but its contents are kept: nothing is zeroed.
 * The caller is charged until the last user of its pages has released them. When the driver revokes
 * the memory, because it was freed or the GPU is removed, the driver waits for the requests under
 * way. From then on the buffer has no memory: -ENODEV. If any 64 KiB of the range are part of a
 * registered buffer already, the request is refused with -EBUSY.
 *
 * Errors: -EINVAL, -EOPNOTSUPP, -EBUSY, -EDQUOT, -ENODEV see out_reason; -ENOENT the node is
 * another provider's; -ENOMEM; -EINTR.
 */
struct peerdma_buf_register {
	__u32 size;
	__u32 flags;
	__u32 pci_vendor;
	__u32 out_buf_id;
	__aligned_u64 addr;
	__aligned_u64 len;
	__u32 out_provider_id;
	__u32 out_reason;
	__aligned_u64 out_mmap_offset;
};

/**
 * struct peerdma_buf_import - ioctl(PEERDMA_BUF_IMPORT): import a range of another driver's dma-buf
 * as
 * a buffer
 * @size: sizeof(struct peerdma_buf_import)
 * @flags: must be 0
 * @fd: the dma-buf; may be closed afterwards
 * @pci_domain: PCI domain of the function that the dma-buf is attached for: a storage device
 * @pci_bdf: its bus << 8 | device << 3 | function
 * @out_buf_id: handle, valid on this open file until PEERDMA_DESTROY or close
 * @off: bytes from the dma-buf's start, whole pages
 * @len: bytes, a multiple of 64 KiB, not 0
 * @out_provider_id: the provider, for as long as memory of it is a buffer
 * @out_reason: enum peerdma_reason
 * @out_mmap_offset: as in PEERDMA_BUF_ALLOC
 *
 * The dma-buf is attached for that function, pinned and mapped until the buffer is destroyed. The
 * buffer behaves like one of PEERDMA_BUF_REGISTER: for each file it is decided separately which
 * devices may access it. If the exporter revokes the memory, or that function loses its driver, the
 * requests under way end and the buffer has no memory any more: -ENODEV. An imported buffer cannot
 * be exported: pass the original dma-buf on.
 *
 * Errors: -EBADF; -EINVAL, -EOPNOTSUPP, -EBUSY, -EDQUOT, -ENODEV see out_reason; -ENOENT the node
 * is another provider's; -ENOMEM; -EINTR.
 */
struct peerdma_buf_import {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 pci_domain;
	__u32 pci_bdf;
	__u32 out_buf_id;
	__aligned_u64 off;
	__aligned_u64 len;
	__u32 out_provider_id;
	__u32 out_reason;
	__aligned_u64 out_mmap_offset;
};

/**
 * struct peerdma_uring_io - cmd[] of an SQE with opcode IORING_OP_URING_CMD on /dev/peerdma and
 * cmd_op PEERDMA_URING_READ or PEERDMA_URING_WRITE
 * @file_off: bytes
 * @buf_off: bytes from the buffer's start
 *
 * Other members of the SQE: fd is /dev/peerdma's descriptor or fixed index. addr is the buffer's
 * id, with PEERDMA_IO_* flags in its upper 32 bits; PEERDMA_IO_FILE_ID must be set. len is in
 * bytes, at most 0x7ffff000. file_index is the target file's id. A target descriptor is refused
 * with -EINVAL: it would bypass ring restrictions that list the permitted files. All other members
 * must be 0, including the second half of a large SQE; non-zero uring_cmd_flags return -EOPNOTSUPP.
 *
 * The completion's res is what out_done of struct peerdma_io is, or -errno. It does not say which
 * route the bytes took: use PEERDMA_IO_NO_BOUNCE to refuse bounces, and issue the same request by
 * ioctl(2) to learn the reason. A started request cannot be cancelled. A request that the drive or
 * the filesystem does not accept at once is started later and ends like an ioctl(2) issued at that
 * time: -ENOENT after PEERDMA_DESTROY, -ENODEV after removal of the provider. A ring with
 * IORING_SETUP_IOPOLL polls the drive's poll queues if its driver has any; otherwise it checks
 * repeatedly until the interrupt has come.
 */
struct peerdma_uring_io {
	__aligned_u64 file_off;
	__aligned_u64 buf_off;
};

#define PEERDMA_URING_SEGS 256 /* at most, in one command */

/**
 * struct peerdma_uring_seg - one segment of PEERDMA_URING_READV or PEERDMA_URING_WRITEV
 * @file_off: bytes
 * @buf_off: bytes from the buffer's start
 * @len: bytes, not 0, at most 0x7ffff000
 * @out_res: bytes moved, or -errno: see struct peerdma_uring_vec
 */
struct peerdma_uring_seg {
	__aligned_u64 file_off;
	__aligned_u64 buf_off;
	__u32 len;
	__s32 out_res;
};

/**
 * struct peerdma_uring_vec - cmd[] of an SQE with cmd_op PEERDMA_URING_READV or
 * PEERDMA_URING_WRITEV: many segments between one file and one buffer
 * @segs: address of an array of struct peerdma_uring_seg; it must stay valid and unchanged
 *	until the completion
 * @__reserved: must be 0
 *
 * The SQE's len is the number of segments, 1 to PEERDMA_URING_SEGS; all else is as in struct
 * peerdma_uring_io. The segments are independent and unordered. Where their target ranges overlap,
 * any of them may win.
 *
 * The completion's res is the number of segments that were moved whole. If all were, out_res is not
 * written. Otherwise out_res of every segment is written before the completion is posted: the res
 * that the segment alone would have had. A negative res means that nothing was submitted (-EINVAL
 * also if the numbers of one segment are invalid). The exception is -EFAULT: segments may have been
 * moved whose out_res could not be written.
 */
struct peerdma_uring_vec {
	__aligned_u64 segs;
	__aligned_u64 __reserved;
};

#define PEERDMA_IOC_TYPE 0xbc

#define PEERDMA_INFO _IO(PEERDMA_IOC_TYPE, 0)
#define PEERDMA_PROVIDER_QUERY _IO(PEERDMA_IOC_TYPE, 1)
#define PEERDMA_PUBLISH _IO(PEERDMA_IOC_TYPE, 2)
#define PEERDMA_BUF_ALLOC _IO(PEERDMA_IOC_TYPE, 3)
#define PEERDMA_DESTROY _IO(PEERDMA_IOC_TYPE, 4)
#define PEERDMA_FILE_QUERY _IO(PEERDMA_IOC_TYPE, 5)
#define PEERDMA_READ _IO(PEERDMA_IOC_TYPE, 6)
#define PEERDMA_WRITE _IO(PEERDMA_IOC_TYPE, 7)
#define PEERDMA_FILE_ADD _IO(PEERDMA_IOC_TYPE, 8)
#define PEERDMA_FILE_REMOVE _IO(PEERDMA_IOC_TYPE, 9) /* struct peerdma_destroy */
#define PEERDMA_BUF_EXPORT _IO(PEERDMA_IOC_TYPE, 10)
#define PEERDMA_BUF_REGISTER _IO(PEERDMA_IOC_TYPE, 11)
#define PEERDMA_BUF_IMPORT _IO(PEERDMA_IOC_TYPE, 12)

#define PEERDMA_URING_READ _IO(PEERDMA_IOC_TYPE, 64)
#define PEERDMA_URING_WRITE _IO(PEERDMA_IOC_TYPE, 65)
#define PEERDMA_URING_READV _IO(PEERDMA_IOC_TYPE, 66)
#define PEERDMA_URING_WRITEV _IO(PEERDMA_IOC_TYPE, 67)

#endif /* _UAPI_PEERDMA_H */
