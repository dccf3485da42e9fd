// SPDX-License-Identifier: MIT
//
// Names, texts and remedies for the numbers of the ABI. This is the only source of these texts: Documentation/routes.md
// contains them (tests/host/docs/reasons.py writes and compares them), and peerdma check prints them. The switch has no
// default, so that -Wswitch reports a reason of the header that is missing here.

#include "peerdma.h"

namespace
{

struct Reason {
	const char *name;
	const char *text;
	const char *advice;
};

constexpr Reason unknown = {"UNKNOWN", "unknown reason", "The module is newer than the library: update libpeerdma."};

constexpr Reason describe(enum peerdma_reason reason)
{
	switch (reason) {
	case PEERDMA_REASON_NONE:
		return {"NONE", "nothing stands in the way", ""};
	case PEERDMA_REASON_LEN_ZERO:
		return {"LEN_ZERO", "the length is 0", "Ask for at least one block."};
	case PEERDMA_REASON_OVERFLOW:
		return {"OVERFLOW", "offset and length together do not fit in 63 bits",
			"Check the offset and the length for a negative number that became a large one."};
	case PEERDMA_REASON_BUF_RANGE:
		return {"BUF_RANGE", "the range is not inside the buffer",
			"Allocate a larger buffer, or read less into it."};
	case PEERDMA_REASON_FILE_ALIGN:
		return {"FILE_ALIGN",
			"the request begins or ends inside a block of the file, and that part was bounced",
			"Use offsets and lengths that are multiples of dio_offset_align, which peerdma explain "
			"prints."};
	case PEERDMA_REASON_BUF_ALIGN:
		return {"BUF_ALIGN", "the offset in the buffer is not a multiple of the device's memory alignment",
			"Use a multiple of dio_mem_align, which peerdma explain prints."};
	case PEERDMA_REASON_PAGE_ALIGN:
		return {"PAGE_ALIGN",
			"a buffer, or a range of one to export or to register, does not begin at a page or is not "
			"whole pages",
			"Use multiples of the page size, usually 4096 bytes."};
	case PEERDMA_REASON_BAR_RANGE:
		return {"BAR_RANGE", "the range is not inside a memory BAR of the device",
			"See the BARs with lspci -vv -s and the device's address, and give --bar, --offset and --size "
			"that fit."};
	case PEERDMA_REASON_NOT_BOUND:
		return {"NOT_BOUND", "the device is not bound to the peerdma driver",
			"Use peerdma publish, which binds it."};
	case PEERDMA_REASON_RANGE_ALIGN:
		return {"RANGE_ALIGN", "the range's address or its length is not a multiple of the publishing granule",
			"Use --offset and --size that are multiples of 2 MiB, or of publish_align of peerdma_query()."};
	case PEERDMA_REASON_APPEND:
		return {"APPEND", "the file is open with O_APPEND, and only the filesystem knows where a write goes",
			"Open it without O_APPEND and write to explicit offsets."};
	case PEERDMA_REASON_NOT_PREFETCHABLE:
		return {"NOT_PREFETCHABLE",
			"the BAR is not prefetchable: it may hold registers, so its buffers are not zeroed",
			"Publish the device's memory BAR instead. If this BAR is memory, publish it with "
			"--non-prefetchable; its buffers need root and PEERDMA_BUF_NO_ZERO."};
	case PEERDMA_REASON_FD_MODE:
		return {"FD_MODE", "the descriptor is not open for this direction",
			"Open the file for reading to read from it and for writing to write to it."};
	case PEERDMA_REASON_FILE_TYPE:
		return {"FILE_TYPE", "it is neither a regular file nor a block device",
			"Name a regular file or a block device."};
	case PEERDMA_REASON_FILESYSTEM:
		return {"FILESYSTEM", "this filesystem's direct I/O is not known to be safe with peer memory",
			"Put the file on ext4 or xfs on an NVMe drive, or use the block device itself."};
	case PEERDMA_REASON_NO_DIO:
		return {"NO_DIO", "this file offers no direct I/O",
			"Copy it to a file that is not encrypted, not under verity, without inline data and, to be "
			"written, with extents, on a mount without data=journal and DAX."};
	case PEERDMA_REASON_END_OF_FILE:
		return {"END_OF_FILE", "the file ends before the requested range", ""};
	case PEERDMA_REASON_REALTIME:
		return {"REALTIME", "it is a realtime file of xfs, whose bytes are on another device",
			"Copy it to a file without the realtime flag (xfs_io -c 'chattr -r', on an empty file)."};
	case PEERDMA_REASON_NFS_TRANSPORT:
		return {"NFS_TRANSPORT", "NFS by a transport other than RDMA, which hands the pages to a socket",
			"Mount it with -o rdma,port=20049; the server and the network card must support it."};
	case PEERDMA_REASON_NFS_LOCAL:
		return {"NFS_LOCAL",
			"NFS from a server on this machine, whose files the client accesses without the network",
			"Use the exported filesystem itself, or disable localio and mount it again: echo N "
			">/sys/module/nfs/parameters/localio_enabled."};
	case PEERDMA_REASON_NFS_LAYOUT:
		return {"NFS_LAYOUT", "NFS with a pNFS layout, whose driver moves the bytes",
			"Mount it without pNFS: use -o vers=3, or a server without layouts."};
	case PEERDMA_REASON_NFS_SECURITY:
		return {"NFS_SECURITY", "NFS with Kerberos integrity or privacy, which the CPU computes",
			"Mount it with -o sec=sys or sec=krb5."};
	case PEERDMA_REASON_NFS_SERVERS:
		return {"NFS_SERVERS", "NFS by transports to several addresses of the server",
			"Mount it without trunking: -o notrunkdiscovery,max_connect=1."};
	case PEERDMA_REASON_NFS_SIZE:
		return {"NFS_SIZE", "NFS with transfers of less than a page, which the CPU copies",
			"Mount it with an rsize and a wsize of whole pages, or without both: see nfsstat -m, and the "
			"server's limit."};
	case PEERDMA_REASON_STACKED:
		return {"STACKED",
			"the block device is neither a disk of a PCI function nor built from such disks by md or dm",
			"Use a partition of a drive, or md or LVM over such partitions, not loop or a network device."};
	case PEERDMA_REASON_DM_TARGET:
		return {"DM_TARGET", "a device-mapper target that may access the data, or that waits",
			"Use a volume whose targets are linear, striped, unstriped, switch or zero (dmsetup table "
			"shows them), over drives or over md raid0; put md raid1 and raid10 over such volumes, not "
			"below them."};
	case PEERDMA_REASON_MD_LEVEL:
		return {"MD_LEVEL", "an md array whose parity the CPU computes",
			"Use md raid0, raid1, raid10 or linear."};
	case PEERDMA_REASON_QUEUE:
		return {"QUEUE",
			"the disk's driver does not announce support for peer memory, or the network card's DMA does "
			"not support it",
			"Use an NVMe drive on PCI; for NVMe over RDMA use kernel 7.1 or later."};
	case PEERDMA_REASON_DISTANCE:
		return {"DISTANCE",
			"the kernel knows no PCI route between the provider and the disk, or the network card that "
			"leads to it",
			"Put both below one PCIe switch (lspci -t shows the tree), or use a host whose bridges the "
			"kernel trusts: AMD from Zen on, some of Intel's. No kernel parameter adds a bridge."};
	case PEERDMA_REASON_MAPPING:
		return {"MAPPING", "a trial DMA mapping failed",
			"Look in the kernel's log for the IOMMU's message; the kernel parameter iommu=pt may help."};
	case PEERDMA_REASON_INTEGRITY:
		return {"INTEGRITY", "the disk carries checksums that the CPU would have to compute",
			"Format its namespace, which erases it, to an LBA format without metadata (nvme id-ns, nvme "
			"format --lbaf)."};
	case PEERDMA_REASON_DMABUF:
		return {"DMABUF", "this kernel cannot revoke the memory of an exported dma-buf",
			"Use a kernel with CONFIG_DMABUF_MOVE_NOTIFY, or 7.2, or have root set "
			"/sys/module/peerdma/parameters/pinned_importers."};
	case PEERDMA_REASON_IMPORTER:
		return {"IMPORTER", "the importing driver does not support revocation of a dma-buf's memory",
			"The kernel's log names the device. Use a device whose driver imports dynamically, such as "
			"mlx5, or have root set /sys/module/peerdma/parameters/pinned_importers."};
	case PEERDMA_REASON_FABRIC_TCP:
		return {"FABRIC_TCP", "NVMe over TCP, whose driver hands the pages to a socket",
			"Connect to the controller by RDMA (nvme connect -t rdma); the network card must support it."};
	case PEERDMA_REASON_FABRIC_LOOP:
		return {"FABRIC_LOOP", "an NVMe target on this machine, by nvme-loop",
			"Use the drive behind the target."};
	case PEERDMA_REASON_FABRIC_FC:
		return {"FABRIC_FC", "NVMe over Fibre Channel, whose driver does not support peer memory",
			"Use a drive in this machine, or NVMe over RDMA."};
	case PEERDMA_REASON_RDMA_MODULE:
		return {"RDMA_MODULE", "storage of another machine, and the module for its network is not loaded",
			"Load peerdma_rdma, and for NFS peerdma_nfs as well: by modprobe where a package has installed "
			"them, by insmod beside peerdma.ko where make module has built them."};
	case PEERDMA_REASON_RDMA_ROUTE:
		return {"RDMA_ROUTE", "no RDMA device leads to the storage's address now",
			"Check that the link is up and has its address (rdma link, ip route get). For NVMe check the "
			"controller's state (nvme list-subsys), for NFS that it is mounted in the initial network "
			"namespace."};
	case PEERDMA_REASON_RDMA_SOFTWARE:
		return {"RDMA_SOFTWARE", "the RDMA device is software: the CPU copies every byte",
			"Use a network card with RDMA in hardware. For tests only, peerdma_rdma.allow_software=1 "
			"permits soft-RoCE."};
	case PEERDMA_REASON_REVOKED:
		return {"REVOKED", "the device was unpublished, removed, reset or suspended",
			"Allocate a new buffer, after publishing the device again if it is not listed (peerdma "
			"providers)."};
	case PEERDMA_REASON_USER_LIMIT:
		return {"USER_LIMIT", "the limit of provider memory per user is reached",
			"Destroy buffers of this user (peerdma stat lists the owners), or have root raise "
			"/sys/module/peerdma/parameters/user_max."};
	case PEERDMA_REASON_CGROUP_LIMIT:
		return {"CGROUP_LIMIT", "the limit of provider memory of the process's cgroup is reached",
			"Destroy buffers of this cgroup, or raise dmem.max of it and of its ancestors."};
	case PEERDMA_REASON_MEMLOCK:
		return {"MEMLOCK", "bytes must pass through host memory, and RLIMIT_MEMLOCK leaves no room for it",
			"Raise the limit (ulimit -l), or use offsets and lengths that are not bounced: peerdma explain "
			"prints dio_mem_align and dio_offset_align."};
	case PEERDMA_REASON_VERBS_DEVICE:
		return {"VERBS_DEVICE",
			"the RDMA device's driver neither imports revocable dma-bufs nor takes memory on demand",
			"If the kernel's log says that it imports statically, root may set "
			"/sys/module/peerdma/parameters/pinned_importers; else use another device, mlx5 for example. "
			"Soft-RoCE takes memory on demand from kernel 6.16 on."};
	case PEERDMA_REASON_VERBS_KERNEL:
		return {"VERBS_KERNEL",
			"the RDMA device takes memory on demand only, and this kernel maps peer memory incorrectly for "
			"it",
			"Use a kernel from 6.16 on, or an RDMA device that imports dma-bufs."};
	case PEERDMA_REASON_VERBS_MTU:
		return {"VERBS_MTU",
			"the RDMA device takes memory on demand only, and no port of it sends a page in one packet",
			"Raise the MTU of its network (ip link set mtu 9000), so that ibv_devinfo says active_mtu "
			"4096, "
			"or use an RDMA device that imports dma-bufs."};
	case PEERDMA_REASON_VENDOR_MODULE:
		return {"VENDOR_MODULE", "PeerDMA's module for this vendor's driver is not loaded",
			"For NVIDIA load peerdma_nvidia: by modprobe where a package has installed it, by insmod "
			"beside peerdma.ko where make module has built it."};
	case PEERDMA_REASON_VENDOR_DRIVER:
		return {"VENDOR_DRIVER", "the vendor's driver is not loaded, or does not export the required functions",
			"For NVIDIA: load the open kernel modules, in practice 570 or later (nvidia-uvm); the closed "
			"ones do not export these functions."};
	case PEERDMA_REASON_VENDOR_REFUSED:
		return {"VENDOR_REFUSED", "the vendor's driver does not pin this range",
			"Register a whole allocation of cudaMalloc() made by this process; see the kernel's log. "
			"NVIDIA's driver refuses all memory on most GeForce cards."};
	case PEERDMA_REASON_VENDOR_TABLE:
		return {"VENDOR_TABLE", "the vendor's driver returned a page table of an unknown version or layout",
			"Its interface has changed: update PeerDMA."};
	case PEERDMA_REASON_VENDOR_NOT_BAR:
		return {"VENDOR_NOT_BAR", "the memory is not in one BAR of one PCI function",
			"A GPU that shares its memory with the CPU (Grace Hopper) needs no peer-to-peer DMA: use the "
			"memory as host memory."};
	case PEERDMA_REASON_VENDOR_UNPUBLISHED:
		return {"VENDOR_UNPUBLISHED", "no driver has published the GPU's BAR as peer-to-peer memory",
			"For NVIDIA: load nvidia-uvm of a driver for CUDA 12.8 or later, and give nvidia the option "
			"NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" in a file of "
			"/etc/modprobe.d; rebuild the initramfs, from which it may load, and reboot. peerdma check "
			"prints the commands."};
	case PEERDMA_REASON_VENDOR_WC:
		return {"VENDOR_WC", "the kernel has the GPU's BAR mapped write-combined",
			"For NVIDIA: give nvidia the option "
			"NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\" in a file of "
			"/etc/modprobe.d; rebuild the initramfs, from which it may load, and reboot. peerdma check "
			"prints the commands."};
	case PEERDMA_REASON_VENDOR_OURS:
		return {"VENDOR_OURS", "the GPU is bound to the peerdma driver, not to its vendor's",
			"Unpublish it and bind it to its vendor's driver. A dma-buf of a PeerDMA buffer cannot be "
			"imported again: pass the descriptor of /dev/peerdma that created the buffer."};
	case PEERDMA_REASON_VENDOR_BUSY:
		return {"VENDOR_BUSY",
			"part of the memory is registered already or used by another peer-to-peer path, or its owner "
			"is busy",
			"Register each 64 KiB once, and do not use them through NVIDIA's own libcufile meanwhile. For "
			"a dma-buf: the drive or the exporter did not answer within a second; try again."};
	case PEERDMA_REASON_VENDOR_FREED:
		return {"VENDOR_FREED", "the memory was freed, or its GPU removed, during the registration",
			"Do not free it before the registration has ended."};
	case PEERDMA_REASON_VENDOR_ALIGN:
		return {"VENDOR_ALIGN",
			"the address or the length is not a multiple of 64 KiB, or the offset in a dma-buf is not a "
			"multiple of a page",
			"Allocate and register in units of 64 KiB."};
	case PEERDMA_REASON_VENDOR_MEMORY:
		return {"VENDOR_MEMORY", "a vendor's driver allocates the memory of this provider",
			"Allocate with that driver, for example by cudaMalloc(), and register the memory."};
	case PEERDMA_REASON_IMPORT_UNABLE:
		return {"IMPORT_UNABLE", "this kernel has no dma-bufs, or this module cannot import them",
			"Use a kernel with CONFIG_DMA_SHARED_BUFFER, and a module as new as the library."};
	case PEERDMA_REASON_IMPORT_NOT_DMABUF:
		return {"IMPORT_NOT_DMABUF", "the descriptor is not a dma-buf",
			"Pass the descriptor that the other driver's library has exported."};
	case PEERDMA_REASON_IMPORT_REVOCABLE:
		return {"IMPORT_REVOCABLE", "the dma-buf's exporter accepts only importers that support revocation",
			"If the exporter may wait for reads and writes under way, have root set the parameter "
			"revocable_imports=1 of peerdma."};
	case PEERDMA_REASON_IMPORT_DEVICE:
		return {"IMPORT_DEVICE",
			"a dma-buf cannot be attached for this device: it has no driver, or the memory is its own",
			"Name the PCI function of the drive that will read and write the memory."};
	case PEERDMA_REASON_IMPORT_IOMMU:
		return {"IMPORT_IOMMU",
			"an IOMMU translates the addresses of the device, so they do not identify the memory",
			"Boot with iommu=pt, if the machine's owner accepts devices without IOMMU protection, or name "
			"a device whose addresses are not translated."};
	case PEERDMA_REASON_IMPORT_REFUSED:
		return {"IMPORT_REFUSED", "the dma-buf's exporter refuses to attach, pin or map it for this device",
			"The kernel's log names the step and its errno. Some pairs of devices cannot reach each "
			"other."};
	case PEERDMA_REASON_IMPORT_TABLE:
		return {"IMPORT_TABLE", "the dma-buf's exporter reports less memory than the dma-buf is long",
			"Report it to the maintainers of that driver."};
	case PEERDMA_REASON_IMPORT_PIECES:
		return {"IMPORT_PIECES", "64 KiB of the dma-buf are not contiguous",
			"Allocate it in larger pages, or begin at another offset."};
	case PEERDMA_REASON_IMPORT_HOST:
		return {"IMPORT_HOST", "the dma-buf is in host memory, or its exporter has moved it there",
			"A driver moves memory to the host for a device that cannot reach its own: see peerdma "
			"explain. Host memory itself needs no peer-to-peer DMA."};
	case PEERDMA_REASON_IMPORT_ADDRESS:
		return {"IMPORT_ADDRESS",
			"for this memory the kernel gives the device no address, or another one than the dma-buf's "
			"exporter",
			"See peerdma explain for a file on that drive: the devices may not reach each other."};
	case PEERDMA_REASON_IMPORT_EXPORT:
		return {"IMPORT_EXPORT", "the buffer was imported from a dma-buf", "Pass on the original dma-buf."};
	case PEERDMA_REASON_IMPORT_UNKNOWN:
		return {"IMPORT_UNKNOWN",
			"no vendor library that the process has loaded knows the address as device memory",
			"Use memory of CUDA, HIP or Level Zero; the latter needs its context. Host memory needs no "
			"peer-to-peer DMA."};
	case PEERDMA_REASON_IMPORT_HANDLE:
		return {"IMPORT_HANDLE", "the vendor's library does not export this memory as a dma-buf",
			"Use memory of one device, not managed or shared memory, and a driver that supports dma-bufs. "
			"With Level Zero, allocate it for export as a dma-buf."};
	case PEERDMA_REASON_RULE:
		return {"RULE", "a rule of /etc/peerdma/rules denies it",
			"peerdma explain shows the rule. peerdma-rules(5) describes the rules; only root can change "
			"them."};
	}
	return unknown;
}

// The number comes from the kernel, which may be newer. Converting a value outside the enumerators is defined: the
// enum's range covers all bits of its largest enumerator, and values from 128 on are cut off.
constexpr Reason describe_number(uint32_t reason)
{
	return reason < 128 ? describe(static_cast<enum peerdma_reason>(reason)) : unknown;
}

} // namespace

const char *peerdma_reason_name(uint32_t reason) { return describe_number(reason).name; }
const char *peerdma_reason_text(uint32_t reason) { return describe_number(reason).text; }
const char *peerdma_reason_advice(uint32_t reason) { return describe_number(reason).advice; }

const char *peerdma_map_name(uint32_t map)
{
	if (map <= PEERDMA_MAP_SOFTWARE) {
		switch (static_cast<enum peerdma_map>(map)) {
		case PEERDMA_MAP_NONE:
			return "none";
		case PEERDMA_MAP_BUS_ADDR:
			return "bus address";
		case PEERDMA_MAP_HOST_BRIDGE:
			return "host bridge";
		case PEERDMA_MAP_IOVA:
			return "iova";
		case PEERDMA_MAP_SOFTWARE:
			return "software";
		}
	}
	return "unknown";
}

const char *peerdma_route_name(uint32_t route)
{
	if (route <= PEERDMA_ROUTE_POSIX) {
		switch (static_cast<enum peerdma_route>(route)) {
		case PEERDMA_ROUTE_NONE:
			return "none";
		case PEERDMA_ROUTE_DIRECT:
			return "direct";
		case PEERDMA_ROUTE_DIRECT_EDGES:
			return "direct, edges bounced";
		case PEERDMA_ROUTE_NEAR:
			return "bounced near the provider";
		case PEERDMA_ROUTE_HOST:
			return "bounced through host memory";
		case PEERDMA_ROUTE_POSIX:
			return "posix";
		}
	}
	return "unknown";
}
