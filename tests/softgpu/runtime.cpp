// SPDX-License-Identifier: MIT
//
// A stand-in for the CUDA runtime: it calls the driver beside it, uses device 0 unless the thread chose another, and
// keeps the last error. A test fixture.
#include "cuda_runtime.h"

namespace
{

thread_local cudaError_t last;
thread_local int chosen;

cudaError_t told(CUresult rc)
{
	// CUDA_ERROR_NOT_READY is an answer, not an error.
	if (rc && rc != CUDA_ERROR_NOT_READY)
		last = static_cast<cudaError_t>(rc);
	return static_cast<cudaError_t>(rc);
}

// The runtime does this at its first call and whenever a thread has no context.
CUresult enter()
{
	CUcontext context = nullptr;
	CUresult rc = cuCtxGetCurrent(&context);
	if (!rc && context)
		return rc;
	rc = cuInit(0);
	if (!rc)
		rc = cuDevicePrimaryCtxRetain(&context, chosen);
	return rc ? rc : cuCtxSetCurrent(context);
}

template <class Call> cudaError_t inside(Call &&call)
{
	const CUresult rc = enter();
	return told(rc ? rc : call());
}

CUdeviceptr number(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

} // namespace

extern "C" {

// Neither call creates a context.
cudaError_t cudaDriverGetVersion(int *version) { return told(cuDriverGetVersion(version)); }
cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = SOFTGPU_RUNTIME * 1000;
	return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
	const cudaError_t was = last;
	last = cudaSuccess;
	return was;
}
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(cudaError_t error)
{
	const char *name = nullptr;
	cuGetErrorName(static_cast<CUresult>(error), &name);
	return name ? name : "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceCount(int *count)
{
	const CUresult rc = cuInit(0);
	return told(rc ? rc : cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int *device)
{
	*device = chosen;
	return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
	CUcontext context = nullptr;
	CUresult rc = cuInit(0);
	if (!rc)
		rc = cuDevicePrimaryCtxRetain(&context, device);
	if (!rc)
		rc = cuCtxSetCurrent(context);
	if (!rc)
		chosen = device;
	return told(rc);
}
cudaError_t cudaDeviceSynchronize(void) { return inside(cuCtxSynchronize); }
cudaError_t cudaDeviceReset(void)
{
	return inside([] { return cuDevicePrimaryCtxReset(chosen); });
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device)
{
	return inside([&] { return cuDeviceGetPCIBusId(text, len, device); });
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	return inside([&] { return cuMemGetInfo(available, total); });
}
cudaError_t cudaMalloc(void **out, size_t size)
{
	return inside([&] { return cuMemAlloc(reinterpret_cast<CUdeviceptr *>(out), size); });
}
cudaError_t cudaMallocManaged(void **out, size_t size, unsigned flags)
{
	return inside([&] { return cuMemAllocManaged(reinterpret_cast<CUdeviceptr *>(out), size, flags); });
}
cudaError_t cudaMallocAsync(void **out, size_t size, cudaStream_t stream)
{
	return inside([&] { return cuMemAllocAsync(reinterpret_cast<CUdeviceptr *>(out), size, stream); });
}
cudaError_t cudaFree(void *memory)
{
	return inside([&] { return cuMemFree(number(memory)); });
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
	return inside([&] { return cuMemFreeAsync(number(memory), stream); });
}
cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags)
{
	return inside([&] { return cuMemHostAlloc(out, size, flags); });
}
cudaError_t cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
cudaError_t cudaFreeHost(void *memory)
{
	return inside([&] { return cuMemFreeHost(memory); });
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory)
{
	unsigned type = 0, managed = 0;
	int device = 0;
	CUdeviceptr there = 0;
	void *here = nullptr;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				       CU_POINTER_ATTRIBUTE_HOST_POINTER};
	void *answers[] = {&type, &managed, &device, &there, &here};
	const cudaError_t rc = inside([&] { return cuPointerGetAttributes(5, which, answers, number(memory)); });
	if (rc)
		return rc;
	*out = {managed ? cudaMemoryTypeManaged : static_cast<cudaMemoryType>(type), device,
		reinterpret_cast<void *>(there), here};
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind)
{
	return inside([&] { return cuMemcpy(number(to), number(from), size); });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind, cudaStream_t stream)
{
	return inside([&] { return cuMemcpyAsync(number(to), number(from), size, stream); });
}
cudaError_t cudaMemset(void *to, int byte, size_t size)
{
	return inside([&] { return cuMemsetD8(number(to), static_cast<unsigned char>(byte), size); });
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t size, cudaStream_t stream)
{
	return inside([&] { return cuMemsetD8Async(number(to), static_cast<unsigned char>(byte), size, stream); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	return inside([&] { return cuStreamCreate(out, flags); });
}
cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	return inside([&] { return cuStreamDestroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return inside([&] { return cuStreamSynchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return inside([&] { return cuStreamQuery(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	return inside([&] { return cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *arg)
{
	return inside([&] { return cuLaunchHostFunc(stream, call, arg); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	return inside([&] { return cuEventCreate(out, flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return inside([&] { return cuEventDestroy(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return inside([&] { return cuEventRecord(event, stream); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return inside([&] { return cuEventSynchronize(event); });
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return inside([&] { return cuEventQuery(event); });
}
}
