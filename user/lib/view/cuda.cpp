// SPDX-License-Identifier: MIT
#include "lib/view/cuda.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "common/process.hpp"

namespace peerdma_impl
{
namespace
{

constexpr const char *library = "libcuda.so.1";

// Numbers of the driver's ABI.
constexpr int success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, deinitialized = 4,
	      no_device = 100, invalid_context = 201, context_is_destroyed = 709;
// Of code that this driver or device cannot run. Other errors may pass.
constexpr int no_binary_for_gpu = 209, invalid_ptx = 218, jit_compiler_not_found = 221, unsupported_ptx_version = 222;
constexpr int attribute_context = 1, attribute_memory_type = 2, attribute_is_managed = 8, attribute_ordinal = 9,
	      attribute_range_start = 11, attribute_range_size = 12; // CUpointer_attribute
constexpr unsigned memory_type_device = 2;                           // CUmemorytype
constexpr int capture_mode_relaxed = 2;                              // CUstreamCaptureMode
constexpr int capture_none = 0;                                      // CUstreamCaptureStatus
constexpr uintptr_t last_named_stream = 2;                           // default streams: NULL, legacy, per thread
constexpr int max_devices = 64;

struct Kernels {
	int error = 0; // CUresult: they cannot be loaded
	void *widen = nullptr, *last = nullptr;
};

struct Loaded {
	std::mutex lock; // protects all below
	bool is_loaded = false;
	CudaDriver driver; // immutable once it is loaded
	Kernels kernels;
	CuContext primaries[max_devices] = {}; // retained once for each device and kept
};

Loaded &loaded()
{
	static constinit PerProcess<Loaded> all;
	return all.get();
}

} // namespace

template <class Find> bool CudaDriver::load(Find &&find)
{
	bool complete = true;
	const auto get = [&](auto &function, const char *name, bool needed = true) {
		function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(name));
		complete = complete && (function || !needed);
	};
	get(attributes_, "cuPointerGetAttributes");
	if (!complete) // most often there is no driver at all
		return false;
	get(current_, "cuCtxGetCurrent");
	get(push_, "cuCtxPushCurrent_v2");
	get(pop_, "cuCtxPopCurrent_v2");
	get(device_get_, "cuDeviceGet");
	get(primary_, "cuDevicePrimaryCtxRetain");
	get(host_alloc, "cuMemHostAlloc");
	get(host_free, "cuMemFreeHost");
	get(alloc, "cuMemAlloc_v2");
	get(free, "cuMemFree_v2");
	get(stream_create, "cuStreamCreate");
	get(stream_destroy, "cuStreamDestroy_v2");
	get(stream_query, "cuStreamQuery");
	get(stream_wait, "cuStreamSynchronize");
	get(stream_wait_event, "cuStreamWaitEvent");
	get(event_create, "cuEventCreate");
	get(event_destroy, "cuEventDestroy_v2");
	get(event_record, "cuEventRecord");
	get(event_wait, "cuEventSynchronize");
	get(copy_to_device, "cuMemcpyHtoDAsync_v2");
	get(copy_in_device, "cuMemcpyDtoDAsync_v2");
	get(context_id_, "cuCtxGetId", false);
	get(stream_context_, "cuStreamGetCtx", false);
	get(is_capturing_, "cuStreamIsCapturing", false);
	get(exchange_mode_, "cuThreadExchangeStreamCaptureMode", false);
	get(load_library_, "cuLibraryLoadData", false);
	get(unload_library_, "cuLibraryUnload", false);
	get(library_kernel_, "cuLibraryGetKernel", false);
	get(kernel_function_, "cuKernelGetFunction", false);
	get(launch_, "cuLaunchKernel", false);
	return complete;
}

const CudaDriver *CudaDriver::find(Syscalls &sys)
{
	Loaded &all = loaded();
	const std::lock_guard guard(all.lock);
	if (!all.is_loaded) {
		CudaDriver driver;
		if (!driver.load([&](const char *name) { return sys.function(library, name); }))
			return nullptr;
		all.driver = driver;
		all.is_loaded = true;
	}
	return &all.driver;
}

int CudaDriver::error(int result)
{
	switch (result) {
	case success:
		return 0;
	case out_of_memory:
		return -ENOMEM;
	case invalid_value:
	case invalid_context:
		return -EINVAL;
	case not_initialized:
	case deinitialized:
	case no_device:
	case context_is_destroyed:
		return -ENODEV;
	default:
		return -EIO;
	}
}

int CudaDriver::primary_context(int ordinal, CuContext &out) const
{
	if (ordinal < 0 || ordinal >= max_devices)
		return invalid_value;
	Loaded &all = loaded();
	const std::lock_guard guard(all.lock);
	int device = 0, rc = success;
	if (!all.primaries[ordinal]) {
		rc = device_get_(&device, ordinal);
		if (!rc)
			rc = primary_(&all.primaries[ordinal], device);
		if (rc)
			all.primaries[ordinal] = nullptr;
	}
	out = all.primaries[ordinal];
	return rc;
}

bool CudaDriver::memory_at(CuAddress address, CudaContext &context, CuAddress &end, int &rc) const
{
	unsigned type = 0, managed = 0;
	int ordinal = -1;
	CuAddress start = 0;
	size_t size = 0;
	int which[] = {attribute_memory_type, attribute_context,     attribute_is_managed,
		       attribute_ordinal,     attribute_range_start, attribute_range_size};
	void *answers[] = {&type, &context.handle, &managed, &ordinal, &start, &size};
	rc = 0;
	const int result = attributes_(6, which, answers, address);
	// Before CUDA is initialized there is no device memory.
	if (result == not_initialized || result == deinitialized || result == no_device || result == invalid_value)
		return false;
	if (result) {
		rc = error(result);
		return false;
	}
	if (!(managed & 0xff) && type != memory_type_device)
		return false;
	// Memory of a pool, and memory mapped in pieces, belongs to no context.
	if (!context.handle)
		rc = error(ordinal >= 0 ? primary_context(ordinal, context.handle) : current_(&context.handle));
	if (!rc && !context.handle)
		rc = -EINVAL;
	unsigned long long id = 0;
	context.id = !rc && context_id_ && !context_id_(context.handle, &id) ? id : 0;
	end = start + size;
	return !rc;
}

bool CudaDriver::look_up(CuAddress address, uint64_t len, CudaContext &context, int &rc) const
{
	CuAddress end = 0;
	if (!memory_at(address, context, end, rc))
		return false;
	// Memory that is mapped in pieces is contiguous too.
	while (end > address && end - address < len) {
		CudaContext other;
		CuAddress next = 0;
		if (!memory_at(end, other, next, rc) || other != context || next <= end)
			break;
		end = next;
	}
	if (end <= address || end - address < len)
		rc = -EFAULT;
	return !rc;
}

bool CudaDriver::is_alive(const CudaContext &context) const
{
	unsigned long long id = 0;
	return !context.id || (!context_id_(context.handle, &id) && id == context.id);
}

bool CudaDriver::is_default_of_another(CuStream stream, const CudaContext &context) const
{
	CuContext now = nullptr;
	return stream && reinterpret_cast<uintptr_t>(stream) <= last_named_stream && !current_(&now) && now &&
	       now != context.handle;
}

int CudaDriver::check_stream(CuStream stream, const CudaContext &context) const
{
	int capturing = capture_none;
	if (reinterpret_cast<uintptr_t>(stream) > last_named_stream) {
		CuContext of = nullptr;
		if (stream_context_ && (stream_context_(stream, &of) || of != context.handle))
			return -EINVAL;
	}
	if (is_capturing_ && (is_capturing_(stream, &capturing) || capturing != capture_none))
		return -EBUSY;
	return 0;
}

// Once for all contexts.
int CudaDriver::load_kernels() const
{
	if (!load_library_ || !library_kernel_ || !kernel_function_ || !launch_)
		return -EOPNOTSUPP;
	Loaded &all = loaded();
	const std::lock_guard guard(all.lock);
	Kernels &kernels = all.kernels;
	if (!kernels.last && !kernels.error) {
		void *code = nullptr;
		int rc = load_library_(&code, widen_kernel_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0);
		if (!rc)
			rc = library_kernel_(&kernels.widen, code, widen_kernel_name);
		if (!rc)
			rc = library_kernel_(&kernels.last, code, widen_last_kernel_name);
		if (rc)
			kernels.last = nullptr;
		if (rc && code && unload_library_)
			unload_library_(code);
		if (rc && rc != no_binary_for_gpu && rc != invalid_ptx && rc != jit_compiler_not_found &&
		    rc != unsupported_ptx_version)
			return error(rc);
		kernels.error = rc;
	}
	return kernels.error ? -EOPNOTSUPP : 0;
}

int CudaDriver::widen(const WidenArguments &arguments, bool last, CuStream stream) const
{
	WidenArguments copy = arguments;
	void *parameters[] = {&copy.to, &copy.from, &copy.count, &copy.bits, &copy.skip, &copy.left, &copy.wide};
	const Kernels &kernels = loaded().kernels; // immutable once loaded
	void *function = nullptr;
	const int rc = kernel_function_(&function, last ? kernels.last : kernels.widen);
	if (rc)
		return error(rc);
	const uint64_t wanted = (copy.count / 4 + widen_threads - 1) / widen_threads;
	const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>(wanted, 1, widen_most_blocks));
	return error(launch_(function, last ? 1 : blocks, 1, 1, widen_threads, 1, 1, 0, stream, parameters, nullptr));
}

InContext::InContext(const CudaDriver &driver, const CudaContext &context)
	: driver_(driver), mode_(capture_mode_relaxed)
{
	exchange_mode();
	CuContext now = nullptr;
	if (!driver_.current_(&now) && now == context.handle)
		return;
	error_ = CudaDriver::error(driver_.push_(context.handle));
	pushed_ = !error_;
}

InContext::~InContext()
{
	CuContext old = nullptr;
	if (pushed_)
		driver_.pop_(&old);
	exchange_mode();
}

void InContext::exchange_mode()
{
	if (driver_.exchange_mode_)
		driver_.exchange_mode_(&mode_);
}

} // namespace peerdma_impl
