// SPDX-License-Identifier: MIT
//
// Names as programs of other CUDA releases call them. When a call gets new arguments, the old name keeps the old ones,
// and a new version's name has the new ones.
#include <cstring>

#include <dlfcn.h>

#include "stream.hpp"

using namespace softgpu;

#undef cuGetProcAddress
#undef cuMemcpyBatchAsync
#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo

namespace
{

// The release that introduced a version of a call, for calls with several versions; the newest first.
struct Version {
	const char *call;
	int since; // 1000 * major + 10 * minor
	const char *symbol;
};
constexpr Version versions[] = {
	{"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
	{"cuGetProcAddress", 11030, "cuGetProcAddress"},
	{"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
	{"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
	{"cuCtxCreate", 12050, "cuCtxCreate_v4"},
	{"cuCtxCreate", 11040, "cuCtxCreate_v3"},
	{"cuCtxCreate", 3020, "cuCtxCreate_v2"},
	{"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
	{"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
	{"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
	{"cuCtxSynchronize", 2000, "cuCtxSynchronize"},
	{"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
	{"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
	{"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
	{"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
	{"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
	{"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
	{"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
	{"cuGraphInstantiate", 11040, "cuGraphInstantiateWithFlags"},
};

void *symbol_of(const char *name)
{
	// Searches this library itself, however it was loaded.
	Dl_info self;
	dladdr(reinterpret_cast<void *>(cuInit), &self);
	void *const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	void *const found = library ? dlsym(library, name) : nullptr;
	if (library)
		dlclose(library);
	return found;
}

// The newest version for a program of that release; with per_thread the form whose stream 0 is the thread's own, if
// there is one.
void *find_call(const std::string &name, int release, bool per_thread, bool &too_old)
{
	std::vector<std::string> symbols;
	bool has_versions = false;
	for (const Version &one : versions)
		if (one.call == name) {
			has_versions = true;
			if (one.since <= release)
				symbols.push_back(one.symbol);
		}
	too_old = has_versions && symbols.empty();
	if (!has_versions)
		symbols = {name + "_v2", name};
	for (const std::string &symbol : symbols)
		for (const char *form : {"_ptsz", "_ptds", ""})
			if (per_thread || !*form)
				if (void *const found = symbol_of((symbol + form).c_str()))
					return found;
	return nullptr;
}

constexpr uint64_t proc_address_per_thread = 2; // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

CUstream of_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

} // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char *name, void **function, int release, uint64_t flags, int *status)
{
	return guarded([&] {
		if (!name || !function)
			return CUDA_ERROR_INVALID_VALUE;
		bool too_old = false;
		*function = find_call(name, release, flags & proc_address_per_thread, too_old);
		if (status)
			*status = *function ? CU_GET_PROC_ADDRESS_SUCCESS :
				  too_old   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT :
					      CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	});
}
CUresult cuGetProcAddress(const char *name, void **function, int release, uint64_t flags)
{
	return cuGetProcAddress_v2(name, function, release, flags, nullptr);
}

// The extra argument limits the share of the GPU; ignored here.
CUresult cuCtxCreate_v3(CUcontext *context, void *, int, unsigned flags, CUdevice device)
{
	return cuCtxCreate(context, flags, device);
}
CUresult cuCtxCreate_v4(CUcontext *context, void *, unsigned flags, CUdevice device)
{
	return cuCtxCreate(context, flags, device);
}
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
	if (!context)
		return cuCtxGetDevice(device);
	return call(__func__, [&] {
		if (context->destroyed)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		*device = context->device;
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxSynchronize_v2(CUcontext context)
{
	if (!context)
		return cuCtxSynchronize();
	return call(__func__, [&] {
		if (context->destroyed)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		return wait_for_streams(context) ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
	});
}
// The first form reports the index of the invalid copy.
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
			    size_t *which, size_t nr_attributes, size_t *failed, CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX;
	return cuMemcpyBatchAsync_v2(to, from, sizes, n, attributes, which, nr_attributes, stream);
}
CUresult cuStreamBeginCapture(CUstream stream)
{
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id)
{
	return cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
				   const CUgraphNode **needs, const void **edges, size_t *count)
{
	if (edges)
		*edges = nullptr;
	return cuStreamGetCaptureInfo_v2(stream, status, id, graph, needs, count);
}
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent second)
{
	return cuEventElapsedTime(milliseconds, first, second);
}

// --- For programs whose stream 0 is the thread's own
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return cuMemcpyAsync(to, from, size, of_thread(stream));
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	return cuMemcpyHtoDAsync(to, from, size, of_thread(stream));
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	return cuMemcpyDtoHAsync(to, from, size, of_thread(stream));
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream)
{
	return cuMemsetD8Async(to, byte, size, of_thread(stream));
}
CUresult cuStreamSynchronize_ptsz(CUstream stream) { return cuStreamSynchronize(of_thread(stream)); }
CUresult cuStreamQuery_ptsz(CUstream stream) { return cuStreamQuery(of_thread(stream)); }
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
	return cuStreamWaitEvent(of_thread(stream), event, flags);
}
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) { return cuEventRecord(event, of_thread(stream)); }
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *arg)
{
	return cuLaunchHostFunc(of_thread(stream), function, arg);
}
}
