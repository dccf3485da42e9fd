// SPDX-License-Identifier: MIT
//
// Devices, contexts, and what tests count and break.
#include "world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace softgpu;

namespace softgpu
{
namespace
{

thread_local std::vector<CUcontext> stack;

// While a stream is captured, as a real driver has it (580, on an H200); but for the last, of which it is not known.
constexpr std::string_view forbidden[] = {
	"cuMemAlloc_v2",      "cuMemFree_v2",        "cuMemHostAlloc", "cuMemFreeHost",
	"cuEventSynchronize", "cuStreamSynchronize", "cuEventQuery",   "cuMemcpyBatchAsync_v2",
};

// Which devices there are without the module.
constexpr int host_devices = 2;
constexpr size_t host_device_bytes = size_t{1} << 30;

// As in a real driver, it is where the last one was.
CUcontext new_context(int device)
{
	std::lock_guard guard(world().lock);
	if (world().destroyed.empty())
		return new CUctx_st{device};
	const CUcontext context = world().destroyed.back();
	world().destroyed.pop_back();
	*context = {device};
	return context;
}

bool is_usable(CUcontext context)
{
	std::lock_guard guard(world().lock);
	return !context->destroyed;
}

} // namespace

CUcontext primary_of(int device) { return &world().devices[static_cast<size_t>(device)]->primary; }

thread_local bool in_host_function;
thread_local int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// The device whose memory its own driver gives out, by its PCI address. The other half of that is for other vendors' stand-ins.
void World::add_stand(const std::string &address)
{
	const int number = static_cast<int>(devices.size());
	devices.emplace_back(new Device{
		0, address, stand_bytes / 2, {number}, std::make_unique<Stand>(address, 0, stand_bytes / 2)});
}

World::World()
{
	if (const char *address = std::getenv("SOFTGPU_STAND"))
		add_stand(address);
	if (!peerdma_open(&peer, 0)) {
		uint32_t ids[64];
		const int count = peerdma_provider_list(peer, ids, 64);
		for (int i = 0; i < count && i < 64; i++) {
			struct peerdma_provider_info info = {};
			info.size = sizeof(info);
			if (peerdma_provider_get(peer, ids[i], &info))
				continue;
			char address[32];
			std::snprintf(address, sizeof(address), "%04X:%02X:%02X.%X", info.pci_domain, info.pci_bdf >> 8,
				      info.pci_bdf >> 3 & 31, info.pci_bdf & 7);
			const int number = static_cast<int>(devices.size());
			devices.emplace_back(new Device{info.id, address, info.len, {number}});
		}
	}
	initialized = devices.empty();
	// As the first GPU of a machine without one calls itself: tests ask for an address that is no device's.
	while (devices.size() < host_devices && initialized) {
		const int number = static_cast<int>(devices.size());
		devices.emplace_back(new Device{0, number ? "" : "FFFF:FF:1F.7", host_device_bytes, {number}});
	}
}

World &world()
{
	static World *const the_world = new World;
	return *the_world;
}

std::shared_mutex &driver_lock()
{
	static std::shared_mutex *const the_lock = new std::shared_mutex;
	return *the_lock;
}

CUcontext current() { return stack.empty() ? nullptr : stack.back(); }

CUresult begin(const char *name)
{
	World &w = world();
	std::lock_guard guard(w.lock);
	if (in_host_function)
		w.wrongs++;
	if (!w.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (w.captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && std::ranges::count(forbidden, name)) {
		w.capture_void = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	const auto found = w.failures.find(name);
	if (found == w.failures.end() || found->second.first-- > 0)
		return CUDA_SUCCESS;
	const int result = found->second.second;
	w.failures.erase(found);
	return static_cast<CUresult>(result);
}

void wrong()
{
	std::lock_guard guard(world().lock);
	world().wrongs++;
}

void live(int change)
{
	std::lock_guard guard(world().lock);
	world().live += change;
	if (current())
		current()->live += change;
}

CUresult check_device(int device)
{
	const bool good = device >= 0 && static_cast<size_t>(device) < world().devices.size();
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

} // namespace softgpu

extern "C" {

void fake_fail(const char *name, int after, int result)
{
	std::lock_guard guard(world().lock);
	world().failures[name] = {after, result};
}

int fake_wrongs(void)
{
	std::lock_guard guard(world().lock);
	return world().wrongs;
}

int fake_live(void)
{
	std::lock_guard guard(world().lock);
	return world().live;
}

void fake_initialized(int yes)
{
	std::lock_guard guard(world().lock);
	world().initialized = yes;
}

void fake_set_current(int device)
{
	stack.clear();
	if (device >= 0)
		stack.push_back(primary_of(device));
}

CUresult cuInit(unsigned)
{
	fake_initialized(1);
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return begin(__func__);
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
#define NAME(code)                                                                                                     \
	case code:                                                                                                     \
		*name = #code;                                                                                         \
		return CUDA_SUCCESS
	switch (error) {
		NAME(CUDA_SUCCESS);
		NAME(CUDA_ERROR_INVALID_VALUE);
		NAME(CUDA_ERROR_OUT_OF_MEMORY);
		NAME(CUDA_ERROR_NOT_INITIALIZED);
		NAME(CUDA_ERROR_NO_DEVICE);
		NAME(CUDA_ERROR_INVALID_DEVICE);
		NAME(CUDA_ERROR_INVALID_CONTEXT);
		NAME(CUDA_ERROR_INVALID_HANDLE);
		NAME(CUDA_ERROR_NOT_FOUND);
		NAME(CUDA_ERROR_NOT_READY);
		NAME(CUDA_ERROR_NOT_SUPPORTED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		NAME(CUDA_ERROR_UNKNOWN);
	}
#undef NAME
	*name = nullptr;
	return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }

CUresult cuGetProcAddress(const char *symbol, void **function, int, uint64_t, int *found)
{
	// Of this very library, however it was loaded; of several versions the newest that is here.
	Dl_info self;
	dladdr(reinterpret_cast<void *>(cuInit), &self);
	void *const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	*function = nullptr;
	for (const char *version : {"_v2", "", "WithFlags"})
		if (library && !*function)
			*function = dlsym(library, (std::string(symbol) + version).c_str());
	if (library)
		dlclose(library);
	if (found)
		*found = *function ? 0 : 1; // CU_GET_PROC_ADDRESS_SUCCESS, _SYMBOL_NOT_FOUND
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = static_cast<int>(world().devices.size());
	return begin(__func__);
}
CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	const CUresult rc = check_device(ordinal);
	return rc ? rc : begin(__func__);
}
CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
	std::snprintf(name, static_cast<size_t>(len), "PeerDMA test fixture, no GPU");
	const CUresult rc = check_device(device);
	return rc ? rc : begin(__func__);
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	std::memset(uuid->bytes, 0xa0 + device, sizeof(uuid->bytes));
	return begin(__func__);
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }
// The CPU copies, wherever it is.
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other)
{
	CUresult rc = check_device(device);
	if (!rc)
		rc = check_device(other);
	if (rc)
		return rc;
	*can = device != other;
	return begin(__func__);
}
CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice device)
{
	const std::string &address = world().devices[static_cast<size_t>(device)]->address;
	if (address.empty())
		return CUDA_ERROR_INVALID_HANDLE;
	std::snprintf(text, static_cast<size_t>(len), "%s", address.c_str());
	return begin(__func__);
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	*bytes = world().devices[static_cast<size_t>(device)]->bytes;
	return begin(__func__);
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	unsigned domain = 0, bus = 0, slot = 0, function = 0;
	std::sscanf(world().devices[static_cast<size_t>(device)]->address.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot,
		    &function);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*value = static_cast<int>(domain);
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = static_cast<int>(bus);
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*value = static_cast<int>(slot);
		break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = 32;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
		*value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		*value = world().peer != nullptr;
		break;
	default:
		*value = 0; // it cannot
	}
	return begin(__func__);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	const CUresult rc = check_device(device);
	if (rc)
		return rc;
	*context = primary_of(device);
	return begin(__func__);
}
// For ever there, as what it holds is worth nothing.
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return begin(__func__); }
CUresult cuCtxCreate(CUcontext *context, unsigned, CUdevice device)
{
	CUresult rc = check_device(device);
	if (!rc)
		rc = begin(__func__);
	if (rc)
		return rc;
	*context = new_context(device);
	stack.push_back(*context);
	return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext context)
{
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	if (!is_usable(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	std::erase(stack, context);
	unmake_streams_of(context);
	free_memory_of(context);
	std::lock_guard guard(world().lock);
	world().live -= context->live;
	context->destroyed = true;
	world().destroyed.push_back(context);
	return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context)
{
	const CUresult rc = begin(__func__);
	if (!rc)
		*context = current();
	return rc;
}
CUresult cuCtxPushCurrent(CUcontext context)
{
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	// A real driver follows the pointer.
	if (!is_usable(context)) {
		wrong();
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	stack.push_back(context);
	return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *context)
{
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context)
		*context = current();
	stack.pop_back();
	return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context)
{
	if (context && !is_usable(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.empty())
		stack.pop_back();
	if (context)
		stack.push_back(context);
	return begin(__func__);
}
CUresult cuCtxGetDevice(CUdevice *device)
{
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = current()->device;
	return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return begin(__func__);
}
}
