// SPDX-License-Identifier: MIT
//
// Devices, contexts, and the counters and injected failures of tests.
#include "world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <strings.h>

using namespace softgpu;

namespace softgpu
{
namespace
{

// The calling thread's contexts. Trivially destructible: destructors of static objects call the driver after the main
// thread's locals are destroyed.
struct ContextStack {
	CUcontext at[64];
	int depth;
};
thread_local constinit ContextStack stack = {};

// The version of the driver, independent of the header that programs use.
constexpr int driver_version = 13000;

// Forbidden while a stream is captured, as in a real driver (580, on an H200). For the last one this is not known.
constexpr std::string_view forbidden[] = {
	"cuMemAlloc_v2",      "cuMemFree_v2",        "cuMemHostAlloc", "cuMemFreeHost",
	"cuEventSynchronize", "cuStreamSynchronize", "cuEventQuery",   "cuMemcpyBatchAsync_v2",
};

// The number of devices without the module.
constexpr int host_devices = 2;
constexpr size_t host_device_bytes = size_t{1} << 30;

bool is_primary(CUcontext context)
{
	return std::ranges::any_of(world().devices, [&](const auto &device) { return &device->primary == context; });
}

bool push(CUcontext context)
{
	const bool room = static_cast<size_t>(stack.depth) < std::size(stack.at);
	if (room)
		stack.at[stack.depth++] = context;
	return room;
}

void pop()
{
	if (stack.depth)
		stack.depth--;
}

// Frees all objects of the context.
void empty(CUcontext context)
{
	unmake_streams_of(context);
	free_memory_of(context);
	world().live -= context->live.exchange(0);
}

} // namespace

CUcontext primary_of(int device) { return &world().devices[static_cast<size_t>(device)]->primary; }

thread_local bool in_host_function = false;
thread_local int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// The device whose own driver provides its memory, by PCI address. The other half of the BAR is for other vendors'
// stand-ins.
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
	for (const auto &device : devices)
		device->primary.id = ++next_id;
	// Device 0 has no PCI address, as the first GPU of a machine without one; the other has an address that no
	// device of the tests has.
	while (devices.size() < host_devices && initialized) {
		const int number = static_cast<int>(devices.size());
		devices.emplace_back(new Device{0, number ? "" : "FFFF:FF:1F.7", host_device_bytes, {number}});
		devices.back()->primary.id = ++next_id;
	}
	// The remaining exit handlers, mainly destructors of older static objects, find the driver shut down.
	std::atexit([] { world().down = true; });
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

CUcontext current() { return stack.depth ? stack.at[stack.depth - 1] : nullptr; }

CUresult need_context(CUcontext &context)
{
	context = current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult begin(const char *name)
{
	World &w = world();
	if (in_host_function)
		w.wrongs++;
	if (w.down)
		return CUDA_ERROR_DEINITIALIZED;
	if (!w.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (w.captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && std::ranges::count(forbidden, name)) {
		w.capture_void = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!w.has_failures)
		return CUDA_SUCCESS;
	std::lock_guard guard(w.lock);
	const auto found = w.failures.find(name);
	if (found == w.failures.end() || found->second.first-- > 0)
		return CUDA_SUCCESS;
	const int result = found->second.second;
	w.failures.erase(found);
	w.has_failures = !w.failures.empty();
	return static_cast<CUresult>(result);
}

void wrong() { world().wrongs++; }

void live_in(CUcontext context, int change)
{
	world().live.fetch_add(change, std::memory_order_relaxed);
	if (context)
		context->live.fetch_add(change, std::memory_order_relaxed);
}
void live(int change) { live_in(current(), change); }

CUresult check_device(int device)
{
	const bool good = device >= 0 && static_cast<size_t>(device) < world().devices.size();
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

} // namespace softgpu

namespace
{

// A call on a device.
template <class Body> CUresult with_device(const char *name, CUdevice number, Body &&body) noexcept
{
	return call(name, [&] {
		const CUresult rc = check_device(number);
		return rc ? rc : body(*world().devices[static_cast<size_t>(number)]);
	});
}

} // namespace

extern "C" {

void fake_fail(const char *name, int after, int result)
{
	std::lock_guard guard(world().lock);
	if (name)
		world().failures[name] = {after, result};
	else
		world().failures.clear();
	world().has_failures = name;
}

int fake_wrongs(void) { return world().wrongs; }
int fake_live(void) { return world().live; }
void fake_initialized(int yes) { world().initialized = yes; }

void fake_set_current(int device)
{
	stack.depth = 0;
	if (device >= 0)
		push(primary_of(device));
}

// --- Calls that need no cuInit()
CUresult cuInit(unsigned flags)
{
	return guarded([&] {
		if (world().down)
			return CUDA_ERROR_DEINITIALIZED;
		if (flags)
			return CUDA_ERROR_INVALID_VALUE;
		world().initialized = true;
		return CUDA_SUCCESS;
	});
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = driver_version;
	return CUDA_SUCCESS;
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
		NAME(CUDA_ERROR_DEINITIALIZED);
		NAME(CUDA_ERROR_NO_DEVICE);
		NAME(CUDA_ERROR_INVALID_DEVICE);
		NAME(CUDA_ERROR_INVALID_CONTEXT);
		NAME(CUDA_ERROR_INVALID_HANDLE);
		NAME(CUDA_ERROR_ILLEGAL_STATE);
		NAME(CUDA_ERROR_NOT_FOUND);
		NAME(CUDA_ERROR_NOT_READY);
		NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
		NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
		NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
		NAME(CUDA_ERROR_NOT_SUPPORTED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE);
		NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
		NAME(CUDA_ERROR_CAPTURED_EVENT);
		NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		NAME(CUDA_ERROR_UNKNOWN);
	}
#undef NAME
	*name = nullptr;
	return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }

// --- Devices
CUresult cuDeviceGetCount(int *count)
{
	return call(__func__, [&] {
		*count = static_cast<int>(world().devices.size());
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	return with_device(__func__, ordinal, [&](const Device &) {
		*device = ordinal;
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
	return with_device(__func__, device, [&](const Device &) {
		std::snprintf(name, static_cast<size_t>(len), "PeerDMA test fixture, no GPU");
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return with_device(__func__, device, [&](const Device &) {
		std::memset(uuid->bytes, 0xa0 + device, sizeof(uuid->bytes));
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }
// The CPU copies, so any device reaches any other.
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other)
{
	return with_device(__func__, device, [&](const Device &) {
		const CUresult rc = check_device(other);
		if (!rc)
			*can = device != other;
		return rc;
	});
}
CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice device)
{
	return with_device(__func__, device, [&](const Device &one) {
		if (one.address.empty())
			return CUDA_ERROR_INVALID_HANDLE;
		std::snprintf(text, static_cast<size_t>(len), "%s", one.address.c_str());
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	return call(__func__, [&] {
		const auto &all = world().devices;
		const auto found = std::ranges::find_if(
			all, [&](const auto &one) { return !strcasecmp(one->address.c_str(), text); });
		if (!*text || found == all.end())
			return CUDA_ERROR_INVALID_DEVICE;
		*device = static_cast<int>(found - all.begin());
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	return with_device("cuDeviceTotalMem_v2", device, [&](const Device &one) {
		*bytes = one.bytes;
		return CUDA_SUCCESS;
	});
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	return with_device(__func__, device, [&](const Device &one) {
		unsigned domain = 0, bus = 0, slot = 0, function = 0;
		std::sscanf(one.address.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function);
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
		return CUDA_SUCCESS;
	});
}

// --- Contexts
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	return with_device(__func__, device, [&](Device &one) {
		*context = &one.primary;
		return CUDA_SUCCESS;
	});
}
// Primary contexts are never freed: their contents have no cost.
CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return with_device("cuDevicePrimaryCtxRelease_v2", device, [](const Device &) { return CUDA_SUCCESS; });
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	return with_device(__func__, device, [&](const Device &one) {
		*flags = one.primary.flags;
		*active = 1;
		return CUDA_SUCCESS;
	});
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
	return with_device("cuDevicePrimaryCtxSetFlags_v2", device, [&](Device &one) {
		one.primary.flags = flags;
		return CUDA_SUCCESS;
	});
}
// Holders keep the context, without its objects.
CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return with_device("cuDevicePrimaryCtxReset_v2", device, [](Device &one) {
		empty(&one.primary);
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
	return with_device("cuCtxCreate_v2", device, [&](const Device &) {
		World &w = world();
		const std::lock_guard guard(w.lock);
		if (w.gone.empty()) {
			w.gone.reserve(w.devices.size() + w.next_id + 1); // so that destroying one needs no memory
			w.gone.push_back(new CUctx_st{device});
		}
		CUcontext made = w.gone.back();
		if (!push(made))
			return CUDA_ERROR_OUT_OF_MEMORY;
		w.gone.pop_back();
		made->device = device;
		made->flags = flags;
		made->id = ++w.next_id;
		made->destroyed = false;
		*context = made;
		return CUDA_SUCCESS;
	});
}
// It stays current in other threads, but is not valid.
CUresult cuCtxDestroy(CUcontext context)
{
	return call("cuCtxDestroy_v2", [&] {
		if (!context || is_primary(context) || context->destroyed)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (current() == context)
			pop();
		empty(context);
		const std::lock_guard guard(world().lock);
		context->destroyed = true;
		world().gone.push_back(context);
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxGetCurrent(CUcontext *context)
{
	return call(__func__, [&] {
		*context = current();
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxPushCurrent(CUcontext context)
{
	return call("cuCtxPushCurrent_v2", [&] {
		// A real driver dereferences the pointer.
		if (!context || context->destroyed) {
			wrong();
			return CUDA_ERROR_INVALID_CONTEXT;
		}
		return push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	});
}
CUresult cuCtxPopCurrent(CUcontext *context)
{
	return call("cuCtxPopCurrent_v2", [&] {
		if (!current())
			return CUDA_ERROR_INVALID_CONTEXT;
		if (context)
			*context = current();
		pop();
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxSetCurrent(CUcontext context)
{
	return call(__func__, [&] {
		if (context && context->destroyed)
			return CUDA_ERROR_INVALID_CONTEXT;
		pop();
		return !context || push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	});
}
CUresult cuCtxGetDevice(CUdevice *device)
{
	return call(__func__, [&] {
		CUcontext context = nullptr;
		const CUresult rc = need_context(context);
		if (!rc)
			*device = context->device;
		return rc;
	});
}
CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
	return call(__func__, [&] {
		const CUresult rc = context ? CUDA_SUCCESS : need_context(context);
		if (rc)
			return rc;
		if (context->destroyed)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		*id = context->id;
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
	return call(__func__, [&] {
		if (context && context->destroyed)
			return CUDA_ERROR_INVALID_CONTEXT;
		*version = 3020;
		return CUDA_SUCCESS;
	});
}
CUresult cuCtxGetFlags(unsigned *flags)
{
	return call(__func__, [&] {
		CUcontext context = nullptr;
		const CUresult rc = need_context(context);
		if (!rc)
			*flags = context->flags;
		return rc;
	});
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	return call(__func__, [&] {
		*least = 0;
		*greatest = -5;
		return CUDA_SUCCESS;
	});
}
}
