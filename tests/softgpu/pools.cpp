// SPDX-License-Identifier: MIT
//
// Memory that is not allocated by cuMemAlloc(): from a pool or from another process. Also green contexts, which have a
// part of a device.
#include "world.hpp"

#include <cstring>
#include <iterator>

#include <sys/mman.h>

using namespace softgpu;

// Pools keep no memory.
struct CUmemPoolHandle_st {
	int device;
};

// The resources of the context are not checked.
struct CUgreenCtx_st {
	CUctx_st context;
};

namespace
{

char *pointer(CUdeviceptr address) { return reinterpret_cast<char *>(address); }

// Called with the world's lock held.
auto find(const char *address)
{
	World &w = world();
	auto next = w.memory.upper_bound(const_cast<char *>(address));
	if (next == w.memory.begin())
		return w.memory.end();
	--next;
	return address < next->first + next->second.size ? next : w.memory.end();
}

} // namespace

extern "C" {

// --- Pools
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || check_device(props->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	*out = new CUmemPoolHandle_st{props->location.id};
	return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	delete pool;
	return begin(__func__);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
	CUcontext before = nullptr;
	cuCtxPushCurrent(primary_of(pool->device));
	const CUresult rc = cuMemAllocAsync(out, size, stream);
	cuCtxPopCurrent(&before);
	return rc;
}

// --- Memory of another process: maps this process's memory at a second address. A real driver accepts only other
// processes' memory.
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::lock_guard guard(world().lock);
	const auto found = find(pointer(memory));
	if (found == world().memory.end() || found->second.kind != Kind::device)
		return CUDA_ERROR_INVALID_VALUE;
	std::memset(out, 0, sizeof(*out));
	std::memcpy(out, &found->first, sizeof(found->first));
	return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	char *start = nullptr;
	std::memcpy(&start, &handle, sizeof(start));
	World &w = world();
	std::lock_guard guard(w.lock);
	const auto found = find(start);
	if (found == w.memory.end() || found->second.buffer || found->second.stands)
		return CUDA_ERROR_NOT_SUPPORTED;
	Piece piece = found->second;
	constexpr size_t page = 4096;
	const size_t bytes = (piece.size + page - 1) / page * page;
	// With shared memory, an old length of 0 maps it again.
	void *const seen = mremap(start, 0, bytes, MREMAP_MAYMOVE);
	void *const same = mremap(piece.bytes, 0, bytes, MREMAP_MAYMOVE);
	if (seen == MAP_FAILED || same == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	piece.bytes = static_cast<char *>(same);
	piece.id = ++w.next_id;
	w.memory[static_cast<char *>(seen)] = piece;
	*out = reinterpret_cast<CUdeviceptr>(seen);
	return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr memory) { return cuMemFree(memory); }

// --- Green contexts
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType)
{
	std::memset(out, 0, sizeof(*out));
	const CUresult rc = check_device(device);
	return rc ? rc : begin(__func__);
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned)
{
	*out = reinterpret_cast<CUdevResourceDesc>(resources);
	return begin(__func__);
}
CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc, CUdevice device, unsigned)
{
	if (const CUresult rc = check_device(device))
		return rc;
	*out = new CUgreenCtx_st{{device}};
	return begin(__func__);
}
CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
	*out = &green->context;
	return begin(__func__);
}
CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int)
{
	CUcontext before = nullptr;
	cuCtxPushCurrent(&green->context);
	const CUresult rc = cuStreamCreate(out, flags);
	cuCtxPopCurrent(&before);
	return rc;
}
// The context stays, but no call accepts it.
CUresult cuGreenCtxDestroy(CUgreenCtx green) { return cuCtxDestroy(&green->context); }
}
