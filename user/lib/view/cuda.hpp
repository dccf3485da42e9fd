// SPDX-License-Identifier: MIT
//
// The CUDA driver, if the process has loaded it: what reads of views into a CUDA device's memory need of it. Nothing here
// loads it, and the build needs no header of it.
#pragma once

#include <cstdint>

#include "common/syscalls.hpp"
#include "lib/view/widen_kernel.hpp"

namespace peerdma_impl
{

using CuAddress = unsigned long long;
using CuContext = struct CUctx_st *;
using CuStream = struct CUstream_st *;
using CuEvent = struct CUevent_st *;

// A CUDA context. The address of a destroyed one may be used again, its id is not.
struct CudaContext {
	CuContext handle = nullptr;
	uint64_t id = 0; // 0: the driver does not tell
	auto operator<=>(const CudaContext &) const = default;
};

class CudaDriver
{
public:
	// nullptr: the process has not loaded it, or it lacks a function. Valid until the process ends.
	static const CudaDriver *find(Syscalls &sys);

	// -errno for a CUresult, 0 for success.
	static int error(int result);

	// Whether [address, address + len) is memory of a device: true and the context to use, or false and 0, or -errno:
	// it is so in part only.
	bool look_up(CuAddress address, uint64_t len, CudaContext &context, int &rc) const;
	// The context has not been destroyed.
	bool is_alive(const CudaContext &context) const;
	// It is a default stream, legacy or per thread, and the thread's context is another one.
	bool is_default_of_another(CuStream stream, const CudaContext &context) const;
	// Whether commands of this stream can be enqueued in this context: 0 or -errno.
	int check_stream(CuStream stream, const CudaContext &context) const;

	// The kernels can be launched; 0 or -errno. Called in a context.
	int load_kernels() const;
	// `from` and `to` as WidenArguments says. last: by peerdma_widen_last.
	int widen(const WidenArguments &arguments, bool last, CuStream stream) const;

	// Of the driver. Only called in a context.
	int (*host_alloc)(void **, size_t, unsigned) = nullptr;
	int (*host_free)(void *) = nullptr;
	int (*alloc)(CuAddress *, size_t) = nullptr;
	int (*free)(CuAddress) = nullptr;
	int (*stream_create)(CuStream *, unsigned) = nullptr;
	int (*stream_destroy)(CuStream) = nullptr;
	int (*stream_query)(CuStream) = nullptr;
	int (*stream_wait)(CuStream) = nullptr;
	int (*stream_wait_event)(CuStream, CuEvent, unsigned) = nullptr;
	int (*event_create)(CuEvent *, unsigned) = nullptr;
	int (*event_destroy)(CuEvent) = nullptr;
	int (*event_record)(CuEvent, CuStream) = nullptr;
	int (*event_wait)(CuEvent) = nullptr;
	int (*copy_to_device)(CuAddress, const void *, size_t, CuStream) = nullptr;
	int (*copy_in_device)(CuAddress, CuAddress, size_t, CuStream) = nullptr;

private:
	friend class InContext;

	template <class Find> bool load(Find &&find);
	// The memory that the address is in: true and its context and end, or false.
	bool memory_at(CuAddress address, CudaContext &context, CuAddress &end, int &rc) const;
	int primary_context(int ordinal, CuContext &out) const;

	int (*attributes_)(unsigned, int *, void **, CuAddress) = nullptr;
	int (*current_)(CuContext *) = nullptr;
	int (*push_)(CuContext) = nullptr;
	int (*pop_)(CuContext *) = nullptr;
	int (*device_get_)(int *, int) = nullptr;
	int (*primary_)(CuContext *, int) = nullptr;
	// An old driver may lack these.
	int (*context_id_)(CuContext, unsigned long long *) = nullptr;
	int (*stream_context_)(CuStream, CuContext *) = nullptr;
	int (*is_capturing_)(CuStream, int *) = nullptr;
	int (*exchange_mode_)(int *) = nullptr;
	int (*load_library_)(void **, const void *, void *, void **, unsigned, void *, void **, unsigned) = nullptr;
	int (*unload_library_)(void *) = nullptr;
	int (*library_kernel_)(void **, void *, const char *) = nullptr;
	int (*kernel_function_)(void **, void *) = nullptr;
	int (*launch_)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream, void **,
		       void **) = nullptr;
};

// While it lives the thread has the context, and captures of other streams do not forbid its calls: these concern the
// library's own streams and memory, which are never captured.
class InContext
{
public:
	InContext(const CudaDriver &driver, const CudaContext &context);
	~InContext();
	InContext(const InContext &) = delete;
	InContext &operator=(const InContext &) = delete;

	int error() const { return error_; } // 0 or -errno: the thread does not have it

private:
	void exchange_mode();

	const CudaDriver &driver_;
	bool pushed_ = false;
	int mode_;
	int error_ = 0;
};

} // namespace peerdma_impl
