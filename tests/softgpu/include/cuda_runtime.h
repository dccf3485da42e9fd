/* SPDX-License-Identifier: MIT */
/* The part of the CUDA runtime's interface that the stand-in implements: see cuda.h beside it. */
#ifndef _SOFTGPU_CUDA_RUNTIME_H
#define _SOFTGPU_CUDA_RUNTIME_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are those of the driver. */
typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidDevice = 101,
	cudaErrorNotReady = 600
} cudaError_t;
enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};
enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3
};
struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
	void *devicePointer;
	void *hostPointer;
};
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *arg);
#define cudaStreamNonBlocking 1

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **out, size_t size);
cudaError_t cudaMallocManaged(void **out, size_t size, unsigned flags);
cudaError_t cudaMallocAsync(void **out, size_t size, cudaStream_t stream);
cudaError_t cudaFree(void *memory);
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream);
cudaError_t cudaMallocHost(void **out, size_t size);
cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *to, int byte, size_t size);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t size, cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t *out);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *arg);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);

#ifdef __cplusplus
}
#endif

#endif /* _SOFTGPU_CUDA_RUNTIME_H */
