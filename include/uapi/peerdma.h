/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef _UAPI_PEERDMA_H
#define _UAPI_PEERDMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: The ABI of /dev/peerdma, and of the node of each provider
 *
 * Every ioctl takes one struct whose first member is its own size. A struct may grow at its end: a
 * caller built for a shorter one is served with zeros for what it does not know, and a longer one
 * is accepted if what this kernel does not know is zero (-E2BIG otherwise). Members called out_*
 * are written by the kernel, on failure too once the struct itself and its flags were accepted; all
 * others are read. flags must be 0 or known.
 *
 * A provider is a range of a PCI function's memory that was published. A buffer is a range of it
 * that belongs to one open file of a device node: its id means nothing on another. Closing the file
 * destroys its buffers.
 *
 * /dev/peerdma reaches every provider. /dev/peerdmaN reaches the provider with id N only: others do
 * not exist there (-ENOENT), and nothing is published there (-EPERM). The node goes with its
 * provider. An open file of it stays, its buffers have lost their memory (-ENODEV), and it never
 * reaches another provider. Memory of another driver is registered and imported on /dev/peerdma, or
 * on the node of its provider while there is one.
 *
 * Requests need the mode that the device node was opened with, -EBADF else. For writing: making,
 * filling and destroying a buffer (PEERDMA_BUF_ALLOC, PEERDMA_BUF_REGISTER, PEERDMA_BUF_IMPORT,
 * PEERDMA_READ, PEERDMA_URING_READ, PEERDMA_URING_READV, PEERDMA_DESTROY) and PEERDMA_PUBLISH. For
 * reading: writing a buffer's bytes to a file (PEERDMA_WRITE, PEERDMA_URING_WRITE,
 * PEERDMA_URING_WRITEV). For both: PEERDMA_BUF_EXPORT. All others need neither. mmap() is as of any
 * shared file: -EACCES without reading, and without writing if PROT_WRITE is asked for.
 *
 * What an errno means, in every ioctl:
 *
 * ========== ====================================================================================
 * E2BIG      the struct is longer than this kernel knows and what it does not know is not zero
 * EBADF      the target file descriptor, or the device node's, is not open for what was asked
 * EBUSY      another driver uses this part of the BAR; registering, importing: out_reason is
 *            VENDOR_BUSY; reading, writing: FILE_WAIT
 * EDQUOT     it would be more than the caller may have: out_reason is USER_LIMIT, CGROUP_LIMIT or
 *            MEMLOCK; with any other, or none, it is the filesystem's
 * EEXIST     the device has published already
 * EFAULT     the struct is not wholly in readable and writable memory
 * EINVAL     a number is out of range, misaligned, zero or overflows: out_reason names which; or
 *            the struct is too short or a reserved member not 0: out_reason is PEERDMA_REASON_NONE
 * EINTR      the process is being killed
 * EIO        the storage reported an error; some have errnos of their own: ENODATA, EILSEQ ...
 * EISDIR     the target is a directory
 * EMFILE     the process has no descriptor left for what was exported, or as many files registered
 *            as it may have descriptors
 * ENODEV     the provider, or the buffer's provider, has gone away
 * ENOENT     no such provider or buffer on this open file
 * ENOMEM     the provider has no room left, or the kernel has no memory
 * ENOSPC     the filesystem is full
 * ENOTTY     not an ioctl of PeerDMA
 * EOPNOTSUPP an unknown flag, or a kernel whose P2PDMA pages are not what this module was built
 *            for; exporting: out_reason is DMABUF or IMPORT_EXPORT; registering, importing, and
 *            allocating of a provider whose memory is only registered: out_reason is one of
 *            VENDOR_* or IMPORT_*
 * EPERM      publishing, and memory that is not zeroed, need CAP_SYS_ADMIN in the first user
 *            namespace; publishing needs /dev/peerdma
 * ESPIPE     the target is a pipe, a socket, a terminal or another thing without offsets
 * EXDEV      there is no direct route between this file and this provider; out_reason says why
 * ========== ====================================================================================
 *
 * Other values are the filesystem's own (EDQUOT, EFBIG, EROFS ...) and mean what they mean for
 * pwrite(2).
 */

#define PEERDMA_ABI_VERSION 1

/* Bits of out_features. */
#define PEERDMA_FEATURE_URING (1ULL << 0) /* PEERDMA_URING_READ and PEERDMA_URING_WRITE */
#define PEERDMA_FEATURE_URING_VEC (1ULL << 1) /* their V forms, and rings that poll */
#define PEERDMA_FEATURE_DMABUF (1ULL << 2) /* PEERDMA_BUF_EXPORT */
#define PEERDMA_FEATURE_ON_DEMAND (1ULL << 3) /* RDMA drivers take a mapping on demand, rightly */

/**
 * enum peerdma_reason - why a request was refused, or why a route is what it is
 *
 * Stable numbers; names and advice for people are peerdma_reason_name() and
 * peerdma_reason_advice().
 */
enum peerdma_reason {
	PEERDMA_REASON_NONE = 0, /* nothing stands in the way */
	/* the request: EINVAL */
	PEERDMA_REASON_LEN_ZERO = 1, /* len is 0 */
	PEERDMA_REASON_OVERFLOW = 2, /* offset + length does not fit in 63 bits */
	PEERDMA_REASON_BUF_RANGE = 3, /* the range is not inside the buffer */
	PEERDMA_REASON_FILE_ALIGN = 4, /* it begins or ends inside a block of dio_offset_align */
	PEERDMA_REASON_BUF_ALIGN = 5, /* its place in the buffer is no multiple of dio_mem_align */
	PEERDMA_REASON_PAGE_ALIGN = 6, /* a buffer, or a piece to export, is not whole pages */
	PEERDMA_REASON_BAR_RANGE = 7, /* the range is not inside a memory BAR of the device */
	PEERDMA_REASON_NOT_BOUND = 8, /* the device is not bound to the peerdma driver */
	PEERDMA_REASON_RANGE_ALIGN = 9, /* a range is not in steps of out_publish_align */
	PEERDMA_REASON_APPEND = 10, /* O_APPEND: only the filesystem knows where a write goes */
	PEERDMA_REASON_NOT_PREFETCHABLE = 11, /* the BAR is not prefetchable: it may be registers */
	/* the file: EBADF, EISDIR, ESPIPE, EXDEV */
	PEERDMA_REASON_FD_MODE = 16, /* the descriptor is not open for this direction */
	PEERDMA_REASON_FILE_TYPE = 17, /* not a regular file and not a block device */
	PEERDMA_REASON_FILESYSTEM = 18, /* not a filesystem whose direct I/O is known to be safe */
	PEERDMA_REASON_NO_DIO = 19, /* no direct I/O on this file: encrypted, verity, journalled */
	PEERDMA_REASON_END_OF_FILE = 20, /* the file ends before the range that was asked for */
	PEERDMA_REASON_REALTIME = 21, /* a realtime file of xfs: it is on another device */
	PEERDMA_REASON_NFS_TRANSPORT = 22, /* NFS by something else than RDMA, as by TCP */
	PEERDMA_REASON_NFS_LOCAL = 23, /* NFS from a server in this very machine: localio */
	PEERDMA_REASON_NFS_LAYOUT = 24, /* NFS with a layout of pNFS: it goes by ways of its own */
	PEERDMA_REASON_NFS_SECURITY = 25, /* NFS with krb5i or krb5p, which the CPU computes */
	PEERDMA_REASON_NFS_SERVERS = 26, /* NFS by transports to several addresses */
	PEERDMA_REASON_NFS_SIZE = 27, /* NFS with calls of less than a page, which the CPU makes */
	/* EBUSY, and only under the module's parameter wait_outside */
	PEERDMA_REASON_FILE_WAIT = 28, /* the filesystem does not take it without waiting */
	/* the pair of device and provider: EXDEV */
	PEERDMA_REASON_STACKED = 32, /* below is no PCI function's own disk, or too many of them */
	PEERDMA_REASON_QUEUE = 33, /* the disk's driver does not announce BLK_FEAT_PCI_P2PDMA */
	PEERDMA_REASON_DISTANCE = 34, /* the kernel knows no PCI route between the two devices */
	PEERDMA_REASON_MAPPING = 35, /* a trial DMA mapping failed */
	PEERDMA_REASON_INTEGRITY = 36, /* the disk carries checksums that the CPU computes */
	PEERDMA_REASON_DM_TARGET = 37, /* a device-mapper target that may look at the data */
	PEERDMA_REASON_MD_LEVEL = 38, /* an md level that computes parity with the CPU */
	/* dma-bufs: EOPNOTSUPP */
	PEERDMA_REASON_DMABUF = 40, /* on this kernel what was exported could not be taken back */
	PEERDMA_REASON_IMPORTER = 41, /* a device's driver cannot import so that it can be told */
	/* and if it is reached by a network: EXDEV */
	PEERDMA_REASON_FABRIC_TCP = 42, /* NVMe over TCP, which hands pages to a socket */
	PEERDMA_REASON_FABRIC_LOOP = 43, /* NVMe by nvme-loop, in this very machine */
	PEERDMA_REASON_FABRIC_FC = 44, /* NVMe over Fibre Channel */
	PEERDMA_REASON_RDMA_MODULE = 45, /* over RDMA, and no module knows it */
	PEERDMA_REASON_RDMA_ROUTE = 46, /* no RDMA device leads to the other end now */
	PEERDMA_REASON_RDMA_SOFTWARE = 47, /* the RDMA device is software: the CPU copies */
	/* lifetime: ENODEV */
	PEERDMA_REASON_REVOKED = 48, /* the provider was unpublished or removed */
	/* limits: EDQUOT */
	PEERDMA_REASON_USER_LIMIT = 56, /* the module's limit of provider memory for each user */
	PEERDMA_REASON_CGROUP_LIMIT = 57, /* dmem.max of the process's cgroup, or of one above it */
	PEERDMA_REASON_MEMLOCK = 58, /* RLIMIT_MEMLOCK: bytes would pass through host memory */
	/* memory regions of verbs, by the library: EOPNOTSUPP */
	PEERDMA_REASON_VERBS_DEVICE = 60, /* it imports no dma-buf and takes no memory on demand */
	PEERDMA_REASON_VERBS_KERNEL = 61, /* on demand only, which this kernel does wrongly */
	PEERDMA_REASON_VERBS_MTU = 62, /* on demand only, and a packet is less than a page */
	/* memory of a vendor's driver: EOPNOTSUPP, if nothing else is said */
	PEERDMA_REASON_VENDOR_MODULE = 64, /* the module that speaks with it is not loaded */
	PEERDMA_REASON_VENDOR_DRIVER = 65, /* it is not loaded, or does not offer what is needed */
	PEERDMA_REASON_VENDOR_REFUSED = 66, /* it does not give out this range */
	PEERDMA_REASON_VENDOR_TABLE = 67, /* it gave out a table that is not understood */
	PEERDMA_REASON_VENDOR_NOT_BAR = 68, /* the memory is not in one BAR of one PCI function */
	PEERDMA_REASON_VENDOR_UNPUBLISHED = 69, /* nobody has published that BAR */
	PEERDMA_REASON_VENDOR_WC = 70, /* the kernel has that BAR mapped write-combined */
	PEERDMA_REASON_VENDOR_OURS = 71, /* that function is bound to the peerdma driver */
	PEERDMA_REASON_VENDOR_BUSY = 72, /* EBUSY: pages of it are in use by somebody else */
	PEERDMA_REASON_VENDOR_FREED = 73, /* ENODEV: it was freed while it was being registered */
	PEERDMA_REASON_VENDOR_ALIGN = 74, /* EINVAL: the range is not whole units of 64 KiB */
	PEERDMA_REASON_VENDOR_MEMORY = 75, /* of this provider buffers are only registered */
	/* dma-bufs of others, for which VENDOR_* is said as well: EOPNOTSUPP, if nothing else is */
	PEERDMA_REASON_IMPORT_UNABLE = 76, /* this kernel has no dma-bufs */
	PEERDMA_REASON_IMPORT_NOT_DMABUF = 77, /* EINVAL: the descriptor is something else */
	PEERDMA_REASON_IMPORT_REVOCABLE = 78, /* its exporter wants to be able to take it back */
	PEERDMA_REASON_IMPORT_DEVICE = 79, /* the device has no driver, or is none to import for */
	PEERDMA_REASON_IMPORT_IOMMU = 80, /* an IOMMU translates what the device uses */
	PEERDMA_REASON_IMPORT_REFUSED = 81, /* the exporter does not attach, pin or map it */
	PEERDMA_REASON_IMPORT_TABLE = 82, /* the exporter's table is too short */
	PEERDMA_REASON_IMPORT_PIECES = 83, /* 64 KiB of it are not contiguous */
	PEERDMA_REASON_IMPORT_HOST = 84, /* it is in host memory */
	PEERDMA_REASON_IMPORT_ADDRESS = 85, /* the kernel has other addresses for that memory */
	PEERDMA_REASON_IMPORT_EXPORT = 86, /* exporting: it is a dma-buf already */
	/* device memory by its address, by the library: EOPNOTSUPP */
	PEERDMA_REASON_IMPORT_UNKNOWN = 87, /* no vendor's library here knows the address */
	PEERDMA_REASON_IMPORT_HANDLE = 88, /* the vendor's library gives no dma-buf of it */
	/* a rule of /etc/peerdma/rules, by the library: EACCES */
	PEERDMA_REASON_RULE = 96, /* it denies the process this provider, or the file its memory */
};

/**
 * enum peerdma_map - how a device reaches a provider's memory
 */
enum peerdma_map {
	PEERDMA_MAP_NONE = 0, /* it does not */
	PEERDMA_MAP_BUS_ADDR = 1, /* inside the PCI fabric, by PCI bus address */
	PEERDMA_MAP_HOST_BRIDGE = 2, /* through the host bridge, by physical address */
	PEERDMA_MAP_IOVA = 3, /* through the host bridge, by an address that the IOMMU translates */
	PEERDMA_MAP_SOFTWARE = 4, /* not at all: the CPU copies for it */
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
 * @provider_id: describe the provider with the smallest id >= this; -ENOENT ends a walk
 * @out_provider_id: its id, never 0
 * @out_pci_domain: PCI domain of the function
 * @out_pci_bdf: bus << 8 | device << 3 | function
 * @out_bar: BAR number
 * @out_numa_node: -1 where the kernel knows none
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
 * PEERDMA_PUBLISH_NONPREFETCHABLE: take a BAR that is not prefetchable, too. It may be registers:
 * what is read or written there may have effects. So the kernel touches nothing of it but the
 * bytes of a request: no buffer of it is zeroed, and PEERDMA_BUF_ALLOC takes none without
 * PEERDMA_BUF_NO_ZERO.
 */
#define PEERDMA_PUBLISH_NONPREFETCHABLE (1U << 1)

/**
 * struct peerdma_publish - ioctl(PEERDMA_PUBLISH)
 * @size: sizeof(struct peerdma_publish)
 * @flags: 0 or PEERDMA_PUBLISH_NONPREFETCHABLE
 * @pci_domain: PCI domain of a function that is bound to the peerdma driver (by driver_override)
 * @pci_bdf: bus << 8 | device << 3 | function
 * @bar: number of a memory BAR that is prefetchable; of any with the flag
 * @out_provider_id: handle of the new provider; with -EEXIST of the one that is there
 * @bar_offset: bytes, a multiple of out_publish_align of PEERDMA_INFO
 * @len: bytes, a multiple of out_publish_align; 0 means to the end of the BAR
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * A device publishes one range, once. The way back is to unbind it from the peerdma driver.
 *
 * Errors: -EPERM without CAP_SYS_ADMIN, not on /dev/peerdma, or in a kernel that is locked down;
 * -ENODEV no such function; -EINVAL see out_reason; -EEXIST; -EBUSY another driver has claimed the
 * range, the function's MSI-X table or pending bits are in it, or it is mapped write-combined;
 * -EOPNOTSUPP this kernel counts pages in another way; -ENOMEM; -EINTR a signal came while the
 * function was busy. After the log has named write-combining, or the pages' count, unbind the
 * function before the next try: the pages stay until then.
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
 * PEERDMA_BUF_NO_ZERO: do not zero the memory. It may hold what other processes and users left
 * there, so this needs CAP_SYS_ADMIN in the first user namespace; -EPERM without.
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
 * The memory is zeroed before it is handed out, unless PEERDMA_BUF_NO_ZERO says otherwise. That of
 * a BAR that is not prefetchable is never zeroed: without the flag it is refused. Who
 * calls pays for it until its pages are back in the pool: its user, and its cgroup where the kernel
 * has the dmem controller.
 *
 * mmap() of the whole buffer, or of pages of it (at out_mmap_offset plus whole pages), gives its
 * proxy address. The CPU reaches the device's memory through it, uncached: a read of a cache line
 * can take microseconds. Read the last word back before telling another device of what was stored.
 * MAP_SHARED only, no PROT_EXEC. Forked children share it, mremap() moves it but does not let it
 * grow, core dumps leave it out. Closing the file does not end a mapping; PEERDMA_DESTROY and the
 * provider's going away do: from then on touching it is SIGBUS and a system call on it -EFAULT.
 * Errors of mmap(): -EINVAL no such buffer, pages outside of it, private or executable; -ENODEV
 * the provider has gone away.
 *
 * WARNING: read(2), write(2) and io_uring with O_DIRECT take a proxy address where the kernel lets
 * P2PDMA pages through. Such I/O passes none of the checks that PEERDMA_READ and PEERDMA_WRITE
 * make: there is no reason why not, errors differ between kernels, and on md raid1 or raid10 of
 * some kernels a leg that cannot reach the memory is left behind silently. See
 * Documentation/limits.md.
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
 * Waits for reads and writes on the buffer that are under way. An io_uring command that io_uring
 * has not begun yet, or has put off to its worker, finds the buffer gone: -ENOENT. So does each
 * piece of a command that the drive or the filesystem could not take at once and that no worker has
 * begun yet. Errors: -ENOENT.
 */
struct peerdma_destroy {
	__u32 size;
	__u32 flags;
	__u32 id;
	__u32 __reserved;
};

/**
 * struct peerdma_file_query - ioctl(PEERDMA_FILE_QUERY): may this file reach this provider, and why
 * not
 * @size: sizeof(struct peerdma_file_query)
 * @flags: must be 0
 * @fd: an open file
 * @provider_id: a provider
 * @out_errno: 0 if a read would go direct, else the positive errno that it would end with; how @fd
 *	was opened is not looked at
 * @out_reason: enum peerdma_reason
 * @out_map: enum peerdma_map: of the leaf that refuses, else of the one that is farthest away
 * @out_distance: the kernel's PCI distance, -1 where there is none; of the same leaf
 * @out_dio_mem_align: bytes; whole blocks go direct if their place in the buffer is a multiple
 * @out_dio_offset_align: bytes; a block: what is less than one is bounced
 * @out_leaf_domain: PCI domain of the device that would move the bytes; of the leaf @leaf
 * @out_leaf_bdf: its bus << 8 | device << 3 | function
 * @out_leaf_major: major number of its disk, 0 if there is none
 * @out_leaf_minor: minor number of its disk
 * @out_leaf_name: the disk's name, NUL terminated; where there is no leaf, the file's block device
 * @out_fs_name: the filesystem's name, "block" for a block device, NUL terminated
 * @leaf: which leaf to describe, from 0; a device that is made of others has several
 * @out_nr_leaves: how many there are; a @leaf beyond them is described by zeros
 * @out_leaf_reason: enum peerdma_reason of this leaf
 * @out_leaf_map: enum peerdma_map of this leaf
 * @out_leaf_distance: the kernel's PCI distance of this leaf, -1 where there is none
 * @__reserved: must be 0
 * @out_refused_name: the disk, top, between or leaf, that refuses; empty if none does
 *
 * The answer is data: the ioctl itself fails only with -EBADF, -ENOENT, -ENODEV and the errnos of a
 * bad struct.
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
 * PEERDMA_IO_NO_BOUNCE: refuse what could not go direct as a whole, with -EINVAL and the reason,
 * instead of bouncing what is less than a block. The partial block at the end of a file is bounced
 * all the same. Where the CPU moves all of it (PEERDMA_MAP_SOFTWARE) it is -EXDEV, RDMA_SOFTWARE.
 */
#define PEERDMA_IO_NO_BOUNCE (1U << 0)
#define PEERDMA_IO_FILE_ID (1U << 1) /* fd is an id of PEERDMA_FILE_ADD */
#define PEERDMA_IO_FLAGS (PEERDMA_IO_NO_BOUNCE | PEERDMA_IO_FILE_ID)

/**
 * struct peerdma_io - ioctl(PEERDMA_READ), ioctl(PEERDMA_WRITE): move bytes between a file and a
 * buffer
 * @size: sizeof(struct peerdma_io)
 * @flags: PEERDMA_IO_*
 * @fd: a regular file or a block device; need not be open with O_DIRECT; or a registered one's id
 * @buf_id: a buffer of this open file
 * @file_off: bytes; not looked at by a write to a file that is open with O_APPEND
 * @buf_off: bytes from the buffer's start
 * @len: bytes, not 0
 * @out_done: bytes moved; short only at the end of the file or after an error
 * @out_direct: of these, bytes that the storage device moved to or from the buffer itself, or zeros
 *	for a hole that it has no blocks for
 * @out_near: of these, bytes of partial blocks of a read: the device moved them to another page of
 *	the same provider, and the CPU from there to the buffer
 * @out_host: of these, bytes that went through host memory
 * @out_reason: enum peerdma_reason; after a success why bytes were bounced (FILE_ALIGN, BUF_ALIGN,
 *	APPEND, RDMA_SOFTWARE) or why there were no more (END_OF_FILE, MEMLOCK)
 * @__reserved: must be 0
 *
 * Blocks of dio_offset_align bytes (PEERDMA_FILE_QUERY) that the request covers whole go direct,
 * what is before and behind them is bounced. If the place in the buffer of the first whole block is
 * not a multiple of dio_mem_align, all of it is bounced through host memory.
 *
 * A partial block of a write goes through the page cache and is on the storage when the call
 * returns, as a direct write is: bytes of the same block that others write meanwhile are not lost,
 * unless they write them with direct I/O of their own.
 *
 * Bytes of the buffer outside [buf_off, buf_off + out_done) do not change, with two exceptions: if
 * the storage reports an error, or the file is truncated while it is being read, all of [buf_off,
 * buf_off + len) may have. A read that meets the end of the file is no error: out_done says how far
 * it came, 0 if it began there, and out_reason is PEERDMA_REASON_END_OF_FILE.
 *
 * Errors: see the top. After an error out_done bytes had been moved before it; if that is not 0 the
 * ioctl succeeds and the next one reports the error.
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
 * @fd: a regular file or a block device, as it was opened: its modes and flags are the requests'
 * @out_file_id: handle, valid on this open file of /dev/peerdma until PEERDMA_FILE_REMOVE or close
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * The file stays open until it is removed and the last request on it has ended; @fd may be closed.
 *
 * Errors: -EBADF, -EISDIR, -ESPIPE; -EMFILE there are RLIMIT_NOFILE of them on this open file.
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
 * struct peerdma_buf_export - ioctl(PEERDMA_BUF_EXPORT): a piece of a buffer as a dma-buf, for the
 * driver of another device
 * @size: sizeof(struct peerdma_buf_export)
 * @flags: must be 0
 * @buf_id: a buffer of this open file
 * @out_fd: the dma-buf, close-on-exec; -1 after an error
 * @off: bytes from the buffer's start, whole pages
 * @len: bytes, whole pages, not 0
 * @out_reason: enum peerdma_reason
 * @__reserved: must be 0
 *
 * The descriptor is for drivers that import dma-bufs: ibv_reg_dmabuf_mr(), for example. Their
 * device then reads and writes the provider's memory itself, at any time, and nobody is asked
 * again.
 *
 * A driver is let in if it takes another device's memory, if the kernel knows a route between the
 * two, and if it can be told to let go: importing statically ends with -EOPNOTSUPP, without a route
 * with -EXDEV; the kernel's log says which, and peerdma-refused-N of /proc/PID/fdinfo counts it. It
 * is told when the buffer is destroyed, or its provider goes away; mapping anew is -ENODEV from
 * then on. Pages that it does not give back are given to nobody else.
 *
 * A dma-buf keeps the open file of /dev/peerdma, as a mapping does: close(2) destroys the buffers
 * only after the last dma-buf of any of them is closed as well. PEERDMA_DESTROY does it at once. It
 * cannot be mapped by mmap(2): the buffer can.
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
 * struct peerdma_buf_register - ioctl(PEERDMA_BUF_REGISTER): memory that a vendor's driver has
 * allocated, as a buffer
 * @size: sizeof(struct peerdma_buf_register)
 * @flags: must be 0
 * @pci_vendor: PCI vendor id of whose driver: 0x10de
 * @out_buf_id: handle, valid on this open file until PEERDMA_DESTROY or close
 * @addr: GPU virtual address in the calling process, a multiple of 64 KiB
 * @len: bytes, a multiple of 64 KiB, not 0
 * @out_provider_id: the provider it is of: the GPU, for as long as memory of it is registered
 * @out_reason: enum peerdma_reason
 * @out_mmap_offset: as of PEERDMA_BUF_ALLOC
 *
 * The buffer is as one of PEERDMA_BUF_ALLOC, but for what is in it: nothing is zeroed. Who calls
 * pays for it, until nobody uses its pages any more. If the driver takes the memory back, because
 * it was freed or the GPU goes away, it waits for the requests under way, and the buffer has lost
 * its memory from then on: -ENODEV. Memory of which any 64 KiB are part of a registered buffer
 * already is -EBUSY.
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
 * struct peerdma_buf_import - ioctl(PEERDMA_BUF_IMPORT): a range of somebody else's dma-buf, as a
 * buffer
 * @size: sizeof(struct peerdma_buf_import)
 * @flags: must be 0
 * @fd: the dma-buf; may be closed afterwards
 * @pci_domain: PCI domain of the function that the exporter is asked with: a storage device
 * @pci_bdf: its bus << 8 | device << 3 | function
 * @out_buf_id: handle, valid on this open file until PEERDMA_DESTROY or close
 * @off: bytes from the dma-buf's start, whole pages
 * @len: bytes, a multiple of 64 KiB, not 0
 * @out_provider_id: the provider it is of, for as long as memory of it is a buffer
 * @out_reason: enum peerdma_reason
 * @out_mmap_offset: as of PEERDMA_BUF_ALLOC
 *
 * The dma-buf is attached with that function, pinned and mapped until the buffer goes. The buffer
 * is as one of PEERDMA_BUF_REGISTER: which devices may read and write it is decided for each file.
 * If the exporter takes the memory back, or that function loses its driver, the requests under way
 * end and the buffer has lost its memory: -ENODEV. What was imported cannot be exported: hand the
 * dma-buf on.
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
 * The SQE's other members: fd is /dev/peerdma's (or its fixed index), addr the buffer's id with
 * PEERDMA_IO_* flags in its upper 32 bits, of which PEERDMA_IO_FILE_ID must be set, len the bytes,
 * at most 0x7ffff000, file_index the target file's id. A descriptor is refused with -EINVAL: a ring
 * whose restrictions name the files that it may use would reach others by it. All else must be 0,
 * the second half of a large SQE included, and uring_cmd_flags that are not end with -EOPNOTSUPP.
 *
 * The completion's res is what out_done of struct peerdma_io is, or -errno. Nothing tells which way
 * the bytes went: PEERDMA_IO_NO_BOUNCE refuses what would be bounced, and the same request by
 * ioctl(2) says why. What was started cannot be cancelled. What the drive or the filesystem could
 * not take at once is started later, and ends as a request by ioctl(2) that comes then: -ENOENT
 * after PEERDMA_DESTROY, -ENODEV after the provider has gone away. A ring that polls
 * (IORING_SETUP_IOPOLL) polls the drive's queues for polling, if its driver has any, and else looks
 * again and again until the interrupt has come.
 */
struct peerdma_uring_io {
	__aligned_u64 file_off;
	__aligned_u64 buf_off;
};

#define PEERDMA_URING_SEGS 256 /* at most in one command */

/**
 * struct peerdma_uring_seg - one piece of PEERDMA_URING_READV or PEERDMA_URING_WRITEV
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
 * PEERDMA_URING_WRITEV: many pieces between one file and one buffer
 * @segs: address of an array of struct peerdma_uring_seg; it is the command's until the
 *	completion and must not change
 * @__reserved: must be 0
 *
 * The SQE's len is the number of segments, 1 to PEERDMA_URING_SEGS; all else is as in struct
 * peerdma_uring_io. The pieces are independent of each other and in no order; where they overlap
 * in what they write, any of them may win.
 *
 * The completion's res is the number of segments that were moved whole. If that is all of them,
 * out_res is not written. If it is fewer, it has been written in each segment before the completion
 * is seen: what the same request alone would have had as its res. A negative res: nothing was sent
 * (-EINVAL also because of the numbers of one segment), but for -EFAULT, after which pieces may
 * have been moved whose results could not be written.
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
