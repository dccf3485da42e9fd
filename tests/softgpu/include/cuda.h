/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver's interface that the stand-in implements: a test fixture, for programs that are built
 * without CUDA. Names, numbers and layouts follow the public documentation; the text is PeerDMA's own.
 */
#ifndef _SOFTGPU_CUDA_H
#define _SOFTGPU_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_VERSION 12080

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
	CUDA_ERROR_UNKNOWN = 999
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
typedef void (*CUhostFn)(void *arg);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *arg);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_STREAM_NON_BLOCKING 1
#define CU_EVENT_DISABLE_TIMING 2
#define CU_MEMHOSTALLOC_PORTABLE 1
#define CU_MEMHOSTALLOC_DEVICEMAP 2
#define CU_MEMHOSTALLOC_WRITECOMBINED 4
#define CU_USER_OBJECT_NO_DESTRUCTOR_SYNC 1
#define CU_GRAPH_USER_OBJECT_MOVE 1
#define CU_STREAM_WAIT_VALUE_GEQ 0
#define CU_STREAM_WAIT_VALUE_EQ 1
#define CU_STREAM_WAIT_VALUE_AND 2
#define CU_STREAM_WAIT_VALUE_NOR 3
#define CU_MEM_ATTACH_GLOBAL 1

/* Attributes for cuPointerGetAttribute(). */
typedef enum CUpointer_attribute_enum {
	CU_POINTER_ATTRIBUTE_CONTEXT = 1,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
	CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
	CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
	CU_POINTER_ATTRIBUTE_MAPPED = 13
} CUpointer_attribute;
typedef enum CUmemorytype_enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 } CUmemorytype;

typedef enum CUdevice_attribute_enum {
	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
	CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
	CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
	CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
	CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124
} CUdevice_attribute;

/* Virtual memory management: physical allocations that are mapped at chosen addresses. */
typedef enum CUmemLocationType_enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;
typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;
typedef enum CUmemAllocationType_enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
typedef enum CUmemAccess_flags_enum {
	CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
} CUmemAccess_flags;
typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;
typedef enum CUmemAllocationGranularity_flags_enum {
	CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0
} CUmemAllocationGranularity_flags;
typedef enum CUmemRangeHandleType_enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 } CUmemRangeHandleType;

typedef enum CUstreamCaptureMode_enum {
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;
typedef enum CUstreamCaptureStatus_enum {
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1
} CUstreamCaptureStatus;

/* Results of cuGetProcAddress(). */
typedef enum {
	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;

/* Memory pools, memory of other processes, green contexts: tests/softgpu/pools.cpp. */
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUmemPoolProps_st {
	CUmemAllocationType allocType;
	int handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;
typedef struct CUipcMemHandle_st {
	char reserved[64];
} CUipcMemHandle;
#define CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS 1
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef enum CUdevResourceType_enum { CU_DEV_RESOURCE_TYPE_SM = 1 } CUdevResourceType;
typedef struct CUdevResource_st {
	CUdevResourceType type;
	unsigned char rest[140];
} CUdevResource;
#define CU_GREEN_CTX_DEFAULT_STREAM 1

typedef enum {
	CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
	CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
	CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3
} CUmemcpySrcAccessOrder;
typedef struct {
	CUmemcpySrcAccessOrder srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned flags;
} CUmemcpyAttributes;

/* Versioned names as programs with this CUDA_VERSION use them. Names of other versions are in versions.cpp. */
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2
#define cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2
#define cuCtxCreate cuCtxCreate_v2
#define cuCtxDestroy cuCtxDestroy_v2
#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuIpcOpenMemHandle cuIpcOpenMemHandle_v2
#define cuMemFree cuMemFree_v2
#define cuMemAllocHost cuMemAllocHost_v2
#define cuMemHostRegister cuMemHostRegister_v2
#define cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2
#define cuMemGetAddressRange cuMemGetAddressRange_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyDtoD cuMemcpyDtoD_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpyBatchAsync cuMemcpyBatchAsync_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuStreamWaitValue32 cuStreamWaitValue32_v2
#define cuStreamWaitValue64 cuStreamWaitValue64_v2
#define cuStreamWriteValue32 cuStreamWriteValue32_v2
#define cuStreamWriteValue64 cuStreamWriteValue64_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2
#define cuGraphInstantiate cuGraphInstantiateWithFlags
#define cuGetProcAddress cuGetProcAddress_v2

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetErrorString(CUresult error, const char **text);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags, int *found);

CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int len, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice device);
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text);
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuCtxPopCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetId(CUcontext context, unsigned long long *id);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUresult cuCtxGetFlags(unsigned *flags);
CUresult cuCtxSynchronize(void);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);

CUresult cuMemGetInfo(size_t *available, size_t *total);
CUresult cuMemAlloc(CUdeviceptr *out, size_t size);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags);
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream);
CUresult cuMemFree(CUdeviceptr memory);
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream);
CUresult cuMemAllocHost(void **out, size_t size);
CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags);
CUresult cuMemFreeHost(void *memory);
CUresult cuMemHostRegister(void *memory, size_t size, unsigned flags);
CUresult cuMemHostUnregister(void *memory);
CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *memory, unsigned flags);
CUresult cuMemHostGetFlags(unsigned *flags, void *memory);
CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr memory);
CUresult cuPointerGetAttribute(void *answer, CUpointer_attribute attribute, CUdeviceptr memory);
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **answers, CUdeviceptr memory);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr memory);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr memory, size_t size, CUmemRangeHandleType type,
				       unsigned long long flags);
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option);
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle memory);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle memory);
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr address,
			     unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t size);
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle memory,
		  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t size);
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream);
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr memory);
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr memory);
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned count);
CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags);
CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int priority);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
			   CUstream stream);
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size);
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
			    size_t *which, size_t nr_attributes, CUstream stream);
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemsetD8(CUdeviceptr to, unsigned char byte, size_t size);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream);

CUresult cuStreamCreate(CUstream *out, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
CUresult cuStreamGetDevice(CUstream stream, CUdevice *device);
CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn call, void *arg);
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback call, void *arg, unsigned flags);
CUresult cuEventCreate(CUevent *out, unsigned flags);
CUresult cuEventDestroy(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent second);

/* One kernel is known by its name: that of user/cufile/platform/copy_kernel.hpp. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *jit, void **jit_values, unsigned nr_jit,
			   void *options, void **option_values, unsigned nr_options);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
			void **extra);

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
				const CUgraphNode **needs, size_t *count);
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy, unsigned references, unsigned flags);
CUresult cuUserObjectRetain(CUuserObject object, unsigned count);
CUresult cuUserObjectRelease(CUuserObject object, unsigned count);
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags);

#ifdef __cplusplus
}
#endif

#endif /* _SOFTGPU_CUDA_H */
