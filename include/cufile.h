/* SPDX-License-Identifier: MIT */
#ifndef _PEERDMA_CUFILE_H
#define _PEERDMA_CUFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

/**
 * DOC: The cuFile API of PeerDMA's libcufile.so.0
 *
 * Names, numbers and layouts are those of the cuFile API of CUDA 13.0 (libcufile 1.15), so that programs run without
 * recompilation. Documentation/cufile.md lists what was added from later releases and what differs from the original.
 * Extensions of PeerDMA are in peerdma_cufile.h. The text of this file is PeerDMA's own, written from public
 * documentation and from the behavior that programs observe.
 *
 * Calls may be made from any thread. After fork(2), every call in the child of a process whose driver was open returns
 * CU_FILE_DRIVER_NOT_INITIALIZED.
 */

/* CUresult and CUstream belong to the CUDA driver. Without its header they are declared here with the same values. */
#if defined(__has_include) && !defined(PEERDMA_CUFILE_NO_CUDA_H)
#if __has_include(<cuda.h>)
#include <cuda.h>
#define PEERDMA_CUFILE_HAVE_CUDA_H 1
#endif
#endif
#ifndef PEERDMA_CUFILE_HAVE_CUDA_H
typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_UNKNOWN = 999
} CUresult;
typedef struct CUstream_st *CUstream;
#endif

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define CUFILEOP_BASE_ERR 5000

/** enum CUfileOpError - why a call failed */
typedef enum CUfileOpError {
	CU_FILE_SUCCESS = 0,
	CU_FILE_DRIVER_NOT_INITIALIZED = 5001,
	CU_FILE_DRIVER_INVALID_PROPS = 5002,
	CU_FILE_DRIVER_UNSUPPORTED_LIMIT = 5003,
	CU_FILE_DRIVER_VERSION_MISMATCH = 5004,
	CU_FILE_DRIVER_VERSION_READ_ERROR = 5005,
	CU_FILE_DRIVER_CLOSING = 5006,
	CU_FILE_PLATFORM_NOT_SUPPORTED = 5007,
	CU_FILE_IO_NOT_SUPPORTED = 5008,
	CU_FILE_DEVICE_NOT_SUPPORTED = 5009,
	CU_FILE_NVFS_DRIVER_ERROR = 5010,
	CU_FILE_CUDA_DRIVER_ERROR = 5011,
	CU_FILE_CUDA_POINTER_INVALID = 5012,
	CU_FILE_CUDA_MEMORY_TYPE_INVALID = 5013,
	CU_FILE_CUDA_POINTER_RANGE_ERROR = 5014,
	CU_FILE_CUDA_CONTEXT_MISMATCH = 5015,
	CU_FILE_INVALID_MAPPING_SIZE = 5016,
	CU_FILE_INVALID_MAPPING_RANGE = 5017,
	CU_FILE_INVALID_FILE_TYPE = 5018,
	CU_FILE_INVALID_FILE_OPEN_FLAG = 5019,
	CU_FILE_DIO_NOT_SET = 5020,
	CU_FILE_INVALID_VALUE = 5022,
	CU_FILE_MEMORY_ALREADY_REGISTERED = 5023,
	CU_FILE_MEMORY_NOT_REGISTERED = 5024,
	CU_FILE_PERMISSION_DENIED = 5025,
	CU_FILE_DRIVER_ALREADY_OPEN = 5026,
	CU_FILE_HANDLE_NOT_REGISTERED = 5027,
	CU_FILE_HANDLE_ALREADY_REGISTERED = 5028,
	CU_FILE_DEVICE_NOT_FOUND = 5029,
	CU_FILE_INTERNAL_ERROR = 5030,
	CU_FILE_GETNEWFD_FAILED = 5031,
	CU_FILE_NVFS_SETUP_ERROR = 5033,
	CU_FILE_IO_DISABLED = 5034,
	CU_FILE_BATCH_SUBMIT_FAILED = 5035,
	CU_FILE_GPU_MEMORY_PINNING_FAILED = 5036,
	CU_FILE_BATCH_FULL = 5037,
	CU_FILE_ASYNC_NOT_SUPPORTED = 5038,
	CU_FILE_INTERNAL_BATCH_SETUP_ERROR = 5039,
	CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR = 5040,
	CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR = 5041,
	CU_FILE_INTERNAL_BATCH_CANCEL_ERROR = 5042,
	CU_FILE_NOMEM_ERROR = 5043,
	CU_FILE_IO_ERROR = 5044,
	CU_FILE_INTERNAL_BUF_REGISTER_ERROR = 5045,
	CU_FILE_HASH_OPR_ERROR = 5046,
	CU_FILE_INVALID_CONTEXT_ERROR = 5047,
	CU_FILE_NVFS_INTERNAL_DRIVER_ERROR = 5048,
	CU_FILE_BATCH_NOCOMPAT_ERROR = 5049,
	CU_FILE_IO_MAX_ERROR = 5050
} CUfileOpError;

/**
 * cufileop_status_error - the text of an error
 * @status: of a CUfileError_t
 *
 * The texts are those of cuFile's documentation, because programs compare them. Some name nvidia-fs, which PeerDMA does
 * not have. For the meaning of each error in this library see "Errors" in Documentation/cufile.md.
 * Return: a static string, "unknown cufile error" for a number that is not in the enum.
 */
static inline const char *cufileop_status_error(CUfileOpError status)
{
	switch ((int)status) {
	case CU_FILE_SUCCESS:
		return "cufile success";
	case CU_FILE_DRIVER_NOT_INITIALIZED:
		return "nvidia-fs driver is not loaded";
	case CU_FILE_DRIVER_INVALID_PROPS:
		return "invalid property";
	case CU_FILE_DRIVER_UNSUPPORTED_LIMIT:
		return "property range error";
	case CU_FILE_DRIVER_VERSION_MISMATCH:
		return "nvidia-fs driver version mismatch";
	case CU_FILE_DRIVER_VERSION_READ_ERROR:
		return "nvidia-fs driver version read error";
	case CU_FILE_DRIVER_CLOSING:
		return "driver shutdown in progress";
	case CU_FILE_PLATFORM_NOT_SUPPORTED:
		return "GPUDirect Storage not supported on current platform";
	case CU_FILE_IO_NOT_SUPPORTED:
		return "GPUDirect Storage not supported on current file";
	case CU_FILE_DEVICE_NOT_SUPPORTED:
		return "GPUDirect Storage not supported on current GPU";
	case CU_FILE_NVFS_DRIVER_ERROR:
		return "nvidia-fs driver ioctl error";
	case CU_FILE_CUDA_DRIVER_ERROR:
		return "CUDA Driver API error";
	case CU_FILE_CUDA_POINTER_INVALID:
		return "invalid device pointer";
	case CU_FILE_CUDA_MEMORY_TYPE_INVALID:
		return "invalid pointer memory type";
	case CU_FILE_CUDA_POINTER_RANGE_ERROR:
		return "pointer range exceeds allocated address range";
	case CU_FILE_CUDA_CONTEXT_MISMATCH:
		return "cuda context mismatch";
	case CU_FILE_INVALID_MAPPING_SIZE:
		return "access beyond maximum pinned size";
	case CU_FILE_INVALID_MAPPING_RANGE:
		return "access beyond mapped size";
	case CU_FILE_INVALID_FILE_TYPE:
		return "unsupported file type";
	case CU_FILE_INVALID_FILE_OPEN_FLAG:
		return "unsupported file open flags";
	case CU_FILE_DIO_NOT_SET:
		return "fd direct IO not set";
	case CU_FILE_INVALID_VALUE:
		return "invalid arguments";
	case CU_FILE_MEMORY_ALREADY_REGISTERED:
		return "device pointer already registered";
	case CU_FILE_MEMORY_NOT_REGISTERED:
		return "device pointer lookup failure";
	case CU_FILE_PERMISSION_DENIED:
		return "driver or file access error";
	case CU_FILE_DRIVER_ALREADY_OPEN:
		return "driver is already open";
	case CU_FILE_HANDLE_NOT_REGISTERED:
		return "file descriptor is not registered";
	case CU_FILE_HANDLE_ALREADY_REGISTERED:
		return "file descriptor is already registered";
	case CU_FILE_DEVICE_NOT_FOUND:
		return "GPU device not found";
	case CU_FILE_INTERNAL_ERROR:
		return "internal error";
	case CU_FILE_GETNEWFD_FAILED:
		return "failed to obtain new file descriptor";
	case CU_FILE_NVFS_SETUP_ERROR:
		return "NVFS driver initialization error";
	case CU_FILE_IO_DISABLED:
		return "GPUDirect Storage disabled by config on current file";
	case CU_FILE_BATCH_SUBMIT_FAILED:
		return "failed to submit a batch operation";
	case CU_FILE_GPU_MEMORY_PINNING_FAILED:
		return "failed to allocate pinned GPU memory";
	case CU_FILE_BATCH_FULL:
		return "queue full for batch operation";
	case CU_FILE_ASYNC_NOT_SUPPORTED:
		return "cuFile stream operation is not supported";
	case CU_FILE_INTERNAL_BATCH_SETUP_ERROR:
		return "batch setup internal error";
	case CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR:
		return "batch submit internal error";
	case CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR:
		return "batch get status internal error";
	case CU_FILE_INTERNAL_BATCH_CANCEL_ERROR:
		return "batch cancel internal error";
	case CU_FILE_NOMEM_ERROR:
		return "out of memory";
	case CU_FILE_IO_ERROR:
		return "I/O error";
	case CU_FILE_INTERNAL_BUF_REGISTER_ERROR:
		return "buffer registration error";
	case CU_FILE_HASH_OPR_ERROR:
		return "hash operation error";
	case CU_FILE_INVALID_CONTEXT_ERROR:
		return "invalid context error";
	case CU_FILE_NVFS_INTERNAL_DRIVER_ERROR:
		return "nvidia-fs internal driver error";
	case CU_FILE_BATCH_NOCOMPAT_ERROR:
		return "batch operation needs compatibility mode, which is off";
	case CU_FILE_IO_MAX_ERROR:
		return "end of the list of errors";
	}
	return "unknown cufile error";
}

/** struct CUfileError - what most calls return: 0 in both members is success */
typedef struct CUfileError {
	CUfileOpError err;
	CUresult cu_err; /* the CUDA driver's error, if err is CU_FILE_CUDA_DRIVER_ERROR */
} CUfileError_t;

#define IS_CUFILE_ERR(err) (abs((int)(err)) > CUFILEOP_BASE_ERR)
#define CUFILE_ERRSTR(err) cufileop_status_error((CUfileOpError)abs((int)(err)))
#define IS_CUDA_ERR(status) ((status).err == CU_FILE_CUDA_DRIVER_ERROR)
#define CU_FILE_CUDA_ERR(status) ((status).cu_err)

/* The driver */

/** enum CUfileDriverStatusFlags - bit numbers in dstatusflags: targets that support direct I/O */
typedef enum CUfileDriverStatusFlags {
	CU_FILE_LUSTRE_SUPPORTED = 0,
	CU_FILE_WEKAFS_SUPPORTED = 1,
	CU_FILE_NFS_SUPPORTED = 2,
	CU_FILE_GPFS_SUPPORTED = 3,
	CU_FILE_NVME_SUPPORTED = 4,
	CU_FILE_NVMEOF_SUPPORTED = 5,
	CU_FILE_SCSI_SUPPORTED = 6,
	CU_FILE_SCALEFLUX_CSD_SUPPORTED = 7,
	CU_FILE_NVMESH_SUPPORTED = 8,
	CU_FILE_BEEGFS_SUPPORTED = 9,
	CU_FILE_NVME_P2P_SUPPORTED = 11,
	CU_FILE_SCATEFS_SUPPORTED = 12,
	CU_FILE_VIRTIOFS_SUPPORTED = 13,
	CU_FILE_MAX_TARGET_TYPES = 14
} CUfileDriverStatusFlags_t;

/** enum CUfileDriverControlFlags - bit numbers in dcontrolflags */
typedef enum CUfileDriverControlFlags {
	CU_FILE_USE_POLL_MODE = 0,
	CU_FILE_ALLOW_COMPAT_MODE = 1,
	CU_FILE_POSIX_IO_MODE = 2,
	CU_FILE_VANILLA_POSIX_IO_MODE = 2,
	CU_FILE_FALLBACK_IO_MODE = 4
} CUfileDriverControlFlags_t;

/** enum CUfileFeatureFlags - bit numbers in fflags */
typedef enum CUfileFeatureFlags {
	CU_FILE_DYN_ROUTING_SUPPORTED = 0,
	CU_FILE_BATCH_IO_SUPPORTED = 1,
	CU_FILE_STREAMS_SUPPORTED = 2,
	CU_FILE_PARALLEL_IO_SUPPORTED = 3,
	CU_FILE_P2P_SUPPORTED = 4
} CUfileFeatureFlags_t;

/** enum CUfileP2PFlags - bit numbers of the ways to reach device memory */
typedef enum CUfileP2PFlags {
	CUFILE_P2PDMA = 0,
	CUFILE_NVFS = 1,
	CUFILE_DMABUF = 2,
	CUFILE_C2C = 3,
	CUFILE_NVIDIA_PEERMEM = 4
} CUfileP2PFlags_t;

#define CU_FILE_P2P_FLAG_PCI_P2PDMA (1 << CUFILE_P2PDMA)
#define CU_FILE_P2P_FLAG_NVFS (1 << CUFILE_NVFS)
#define CU_FILE_P2P_FLAG_DMABUF (1 << CUFILE_DMABUF)
#define CU_FILE_P2P_FLAG_C2C (1 << CUFILE_C2C)
#define CU_FILE_P2P_FLAG_NVIDIA_PEERMEM (1 << CUFILE_NVIDIA_PEERMEM)

/** struct CUfileDrvProps - the driver's properties; sizes are KiB */
typedef struct CUfileDrvProps {
	struct {
		unsigned int major_version;
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int max_device_cache_size;
	unsigned int per_buffer_cache_size;
	unsigned int max_device_pinned_mem_size;
	unsigned int max_batch_io_size;
	unsigned int max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

/* Opens and closes are counted; the last close closes the driver. */
CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose(void);
CUfileError_t cuFileDriverClose_v2(void);
#define cuFileDriverClose cuFileDriverClose_v2
long cuFileUseCount(void);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props);
CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size);
CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size);
CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size);
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size);
CUfileError_t cuFileGetVersion(int *version);
CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size);
/* Since 1.16. @mask: CU_FILE_P2P_FLAG_* */
CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t mask);
CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *mask);
/* Since 1.17: writes the PCI tree of the machine to a file, as JSON */
CUfileError_t cuFileExportPCIeTopology(const char *path);

/* Files */

typedef struct sockaddr sockaddr_t;

typedef struct cufileRDMAInfo {
	int version;
	int desc_len;
	const char *desc_str;
} cufileRDMAInfo_t;

/** struct CUfileFSOps - a filesystem in user space; read and write are required, the others may be NULL */
typedef struct CUfileFSOps {
	const char *(*fs_type)(const void *handle);
	int (*getRDMADeviceList)(const void *handle, sockaddr_t **hostaddrs);
	int (*getRDMADevicePriority)(const void *handle, char *, size_t, off_t, const sockaddr_t *hostaddr);
	ssize_t (*read)(const void *handle, char *, size_t, off_t, const cufileRDMAInfo_t *);
	ssize_t (*write)(const void *handle, const char *, size_t, off_t, const cufileRDMAInfo_t *);
} CUfileFSOps_t;

typedef enum CUfileFileHandleType {
	CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1,
	CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
	CU_FILE_HANDLE_TYPE_USERSPACE_FS = 3
} CUfileFileHandleType;

typedef struct CUfileDescr_t {
	CUfileFileHandleType type;
	union {
		int fd;
		void *handle;
	} handle;
	const CUfileFSOps_t *fs_ops;
} CUfileDescr_t;

typedef void *CUfileHandle_t;

/*
 * Files: the library opens a registered file again, with several descriptors; the program may close its own. If
 * descriptors run out, the error is CU_FILE_GETNEWFD_FAILED. As any close(2), deregistering releases all fcntl(F_SETLK)
 * locks of this process on the file, whichever descriptor took them. So does the last cuFileDriverClose(). Use
 * F_OFD_SETLK or flock(2) instead.
 */
CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(CUfileHandle_t fh);

/* Buffers: registration caches what each I/O would have to look up */

#define CU_FILE_RDMA_REGISTER 1
#define CU_FILE_RDMA_RELAXED_ORDERING 2

CUfileError_t cuFileBufRegister(const void *bufPtr_base, size_t length, int flags);
CUfileError_t cuFileBufDeregister(const void *bufPtr_base);

/*
 * Reading and writing: they return a count, or -1 with errno set to a system errno or a CUfileOpError. A short count
 * means the end of the file, for a write also that there is no room for the rest (ENOSPC, EDQUOT, EFBIG). Any other
 * error returns -1, even if bytes were moved before it.
 */

ssize_t cuFileRead(CUfileHandle_t fh, void *bufPtr_base, size_t size, off_t file_offset, off_t bufPtr_offset);
ssize_t cuFileWrite(CUfileHandle_t fh, const void *bufPtr_base, size_t size, off_t file_offset, off_t bufPtr_offset);

typedef struct CUfileIOVec {
	void *base;
	size_t len;
} CUfileIOVec_t;

ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned int flags);
ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned int flags);

/* Batches */

typedef enum CUfileOpcode { CUFILE_READ = 0, CUFILE_WRITE = 1 } CUfileOpcode_t;

typedef enum CUFILEStatus_enum {
	CUFILE_WAITING = 0x01,
	CUFILE_PENDING = 0x02,
	CUFILE_INVALID = 0x04,
	CUFILE_CANCELED = 0x08,
	CUFILE_COMPLETE = 0x10,
	CUFILE_TIMEOUT = 0x20,
	CUFILE_FAILED = 0x40
} CUfileStatus_t;

typedef enum cufileBatchMode { CUFILE_BATCH = 1 } CUfileBatchMode_t;

typedef struct CUfileIOParams {
	CUfileBatchMode_t mode;
	union {
		struct {
			void *devPtr_base;
			off_t file_offset;
			off_t devPtr_offset;
			size_t size;
		} batch;
	} u;
	CUfileHandle_t fh;
	CUfileOpcode_t opcode;
	void *cookie;
} CUfileIOParams_t;

typedef struct CUfileIOEvents {
	void *cookie;
	CUfileStatus_t status;
	size_t ret;
} CUfileIOEvents_t;

typedef void *CUfileBatchHandle_t;

/*
 * cuFileBatchIOGetStatus(): min_nr is limited to the number of entries left; a min_nr above *nr is
 * CU_FILE_INVALID_VALUE. After cuFileBatchIOCancel() nothing is waited for: a non-zero min_nr returns no events, 0
 * returns each entry that has ended.
 */
CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch_idp, unsigned nr);
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch_idp, unsigned nr, CUfileIOParams_t *iocbp,
				  unsigned int flags);
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch_idp, unsigned min_nr, unsigned *nr,
				     CUfileIOEvents_t *iocbp, struct timespec *timeout);
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch_idp);
void cuFileBatchIODestroy(CUfileBatchHandle_t batch_idp);

/*
 * The arguments are pointers, read when the stream reaches the operation. The size at the time of the call is an upper
 * limit. If the size is larger when the stream reaches the operation, the count is -CU_FILE_INVALID_VALUE. If it is 0
 * at the call, the count is 0 at once. cuFileStreamRegister() registers the stream, not its address: a new stream at
 * the address of a destroyed one is not registered.
 */

#define CU_FILE_STREAM_FIXED_BUF_OFFSET 1
#define CU_FILE_STREAM_FIXED_FILE_OFFSET 2
#define CU_FILE_STREAM_FIXED_FILE_SIZE 4
#define CU_FILE_STREAM_PAGE_ALIGNED_INPUTS 8

CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p, off_t *file_offset_p,
			      off_t *bufPtr_offset_p, ssize_t *bytes_read_p, CUstream stream);
CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p, off_t *file_offset_p,
			       off_t *bufPtr_offset_p, ssize_t *bytes_written_p, CUstream stream);
CUfileError_t cuFileStreamRegister(CUstream stream, unsigned flags);
CUfileError_t cuFileStreamDeregister(CUstream stream);

/* Parameters: set them before the driver is open */

typedef enum CUFileSizeTConfigParameter_t {
	CUFILE_PARAM_PROFILE_STATS,
	CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH,
	CUFILE_PARAM_EXECUTION_MAX_IO_THREADS,
	CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB,
	CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM,
	CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB,
	CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB,
	CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE,
	CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB,
	CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS
} CUFileSizeTConfigParameter_t;

typedef enum CUFileBoolConfigParameter_t {
	CUFILE_PARAM_PROPERTIES_USE_POLL_MODE,
	CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE,
	CUFILE_PARAM_FORCE_COMPAT_MODE,
	CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE,
	CUFILE_PARAM_EXECUTION_PARALLEL_IO,
	CUFILE_PARAM_PROFILE_NVTX,
	CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY,
	CUFILE_PARAM_USE_PCIP2PDMA,
	CUFILE_PARAM_PREFER_IO_URING,
	CUFILE_PARAM_FORCE_ODIRECT_MODE,
	CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION,
	CUFILE_PARAM_STREAM_MEMOPS_BYPASS
} CUFileBoolConfigParameter_t;

typedef enum CUFileStringConfigParameter_t {
	CUFILE_PARAM_LOGGING_LEVEL,
	CUFILE_PARAM_ENV_LOGFILE_PATH,
	CUFILE_PARAM_LOG_DIR
} CUFileStringConfigParameter_t;

typedef enum CUFileArrayConfigParameter_t {
	CUFILE_PARAM_POSIX_POOL_SLAB_SIZE_KB,
	CUFILE_PARAM_POSIX_POOL_SLAB_COUNT,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_SIZE_KB,
	CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_COUNT
} CUFileArrayConfigParameter_t;

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value);
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value);
CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *desc_str, int len);
CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value, size_t *max_value);
CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values, int len);
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value);
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value);
CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *desc_str);
CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values, const size_t *count_values, int len);
/* Since 1.17 */
CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values, size_t *count_values, int len);
CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values, const size_t *count_values,
							 int len);

/* Statistics, with the layout of CUDA 13.0 */

#define CUFILE_GPU_UUID_LEN 16

typedef struct CUfileOpCounter {
	uint64_t ok;
	uint64_t err;
} CUfileOpCounter_t;

typedef struct CUfileStatsLevel1 {
	CUfileOpCounter_t read_ops;
	CUfileOpCounter_t write_ops;
	CUfileOpCounter_t hdl_register_ops;
	CUfileOpCounter_t hdl_deregister_ops;
	CUfileOpCounter_t buf_register_ops;
	CUfileOpCounter_t buf_deregister_ops;
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t write_bw_bytes_per_sec;
	uint64_t read_lat_avg_us;
	uint64_t write_lat_avg_us;
	uint64_t read_ops_per_sec;
	uint64_t write_ops_per_sec;
	uint64_t read_lat_sum_us;
	uint64_t write_lat_sum_us;
	CUfileOpCounter_t batch_submit_ops;
	CUfileOpCounter_t batch_complete_ops;
	CUfileOpCounter_t batch_setup_ops;
	CUfileOpCounter_t batch_cancel_ops;
	CUfileOpCounter_t batch_destroy_ops;
	CUfileOpCounter_t batch_enqueued_ops;
	CUfileOpCounter_t batch_posix_enqueued_ops;
	CUfileOpCounter_t batch_processed_ops;
	CUfileOpCounter_t batch_posix_processed_ops;
	CUfileOpCounter_t batch_nvfs_submit_ops;
	CUfileOpCounter_t batch_p2p_submit_ops;
	CUfileOpCounter_t batch_aio_submit_ops;
	CUfileOpCounter_t batch_iouring_submit_ops;
	CUfileOpCounter_t batch_mixed_io_submit_ops;
	CUfileOpCounter_t batch_total_submit_ops;
	uint64_t batch_read_bytes;
	uint64_t batch_write_bytes;
	uint64_t batch_read_bw_bytes;
	uint64_t batch_write_bw_bytes;
	uint64_t batch_submit_lat_avg_us;
	uint64_t batch_completion_lat_avg_us;
	uint64_t batch_submit_ops_per_sec;
	uint64_t batch_complete_ops_per_sec;
	uint64_t batch_submit_lat_sum_us;
	uint64_t batch_completion_lat_sum_us;
	uint64_t last_batch_read_bytes;
	uint64_t last_batch_write_bytes;
} CUfileStatsLevel1_t;

/** struct CUfileStatsLevel2 - element n of a histogram counts I/Os of 2^(n-1) KiB or more and below 2^n */
typedef struct CUfileStatsLevel2 {
	CUfileStatsLevel1_t basic;
	uint64_t read_size_kb_hist[32];
	uint64_t write_size_kb_hist[32];
} CUfileStatsLevel2_t;

typedef struct CUfilePerGpuStats {
	char uuid[CUFILE_GPU_UUID_LEN];
	uint64_t read_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t read_utilization;
	uint64_t read_duration_us;
	uint64_t n_total_reads;
	uint64_t n_p2p_reads;
	uint64_t n_nvfs_reads;
	uint64_t n_posix_reads;
	uint64_t n_unaligned_reads;
	uint64_t n_dr_reads;
	uint64_t n_sparse_regions;
	uint64_t n_inline_regions;
	uint64_t n_reads_err;
	uint64_t writes_bytes;
	uint64_t write_bw_bytes_per_sec;
	uint64_t write_utilization;
	uint64_t write_duration_us;
	uint64_t n_total_writes;
	uint64_t n_p2p_writes;
	uint64_t n_nvfs_writes;
	uint64_t n_posix_writes;
	uint64_t n_unaligned_writes;
	uint64_t n_dr_writes;
	uint64_t n_writes_err;
	uint64_t n_mmap;
	uint64_t n_mmap_ok;
	uint64_t n_mmap_err;
	uint64_t n_mmap_free;
	uint64_t reg_bytes;
} CUfilePerGpuStats_t;

typedef struct CUfileStatsLevel3 {
	CUfileStatsLevel2_t detailed;
	uint32_t num_gpus;
	CUfilePerGpuStats_t per_gpu_stats[16];
} CUfileStatsLevel3_t;

CUfileError_t cuFileSetStatsLevel(int level);
CUfileError_t cuFileGetStatsLevel(int *level);
CUfileError_t cuFileStatsStart(void);
CUfileError_t cuFileStatsStop(void);
CUfileError_t cuFileStatsReset(void);
CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats);
CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats);
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* _PEERDMA_CUFILE_H */
