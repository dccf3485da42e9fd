// SPDX-License-Identifier: MIT
//
// Shared by the parts of the stand-in driver: devices, contexts, memory, counters and injected failures.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cuda.h"
#include "peerdma.h"
#include "softgpu.hpp"
#include "stand.hpp"

// Never freed: a destroyed context is the next one created, because a driver reuses addresses.
struct CUctx_st {
	int device;
	unsigned flags = 0;
	uint64_t id = 0;
	std::atomic<int> live{0}; // the part of World::live that it owns
	std::atomic<bool> destroyed{false};
};

namespace softgpu
{

enum class Kind { device, managed, unowned, host };

// An allocation: device memory, or host memory that the driver knows.
struct Piece {
	size_t size;
	char *bytes; // CPU address
	int device;
	Kind kind;
	CUcontext context = nullptr;          // nullptr: the device's
	struct peerdma_buf *buffer = nullptr; // nullptr: host memory
	bool mapped = false;                  // by cuMemMap(), from cuMemCreate()
	bool sync = false;                    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
	char *stands = nullptr;               // address in its Stand
	uint64_t id = 0;
	bool own = false;   // host memory: allocated by the driver, not registered
	unsigned flags = 0; // host memory: the requested flags
};

// An allocation of cuMemCreate().
struct Made {
	Piece piece;
	unsigned references;
};

struct Device {
	uint32_t provider; // 0: host memory
	std::string address;
	size_t bytes;
	CUctx_st primary;
	std::unique_ptr<Stand> stand = {}; // if its memory is in its own driver
};

struct World {
	World();
	void add_stand(const std::string &address);

	// Protects the mutable members below. Calls that change nothing take it shared, so that ThreadSanitizer does
	// not see an order between them that a real driver does not guarantee.
	std::shared_mutex lock;
	struct peerdma_device *peer = nullptr;        // immutable
	std::vector<std::unique_ptr<Device>> devices; // immutable
	std::map<char *, Piece> memory;               // by the program's address
	std::map<uint64_t, Made> made;
	std::map<std::string, std::pair<int, int>> failures;
	std::vector<CUcontext> gone; // destroyed contexts, to be reused
	uint64_t next_id = 0;

	// Atomic, not protected by lock.
	std::atomic<int> wrongs{0}, live{0};
	std::atomic<int> captures{0};          // captures under way that forbid waiting calls in all threads
	std::atomic<bool> capture_void{false}; // such a call was made
	std::atomic<bool> has_failures{false};
	std::atomic<bool> initialized{false};
	std::atomic<bool> down{false}; // exit() has reached the driver's handler
};

World &world();

// Freeing memory holds it while it waits for all streams. Copies, launches, and the creation of streams and memory need
// it, as in a real driver (580, on an H200). A task that a stream waits for must therefore do none of these.
std::shared_mutex &driver_lock();

// The calling thread's context.
CUcontext current();
CUcontext primary_of(int device);
// Waits for all streams of a context; nullptr: of all contexts. False: the driver was shut down before.
bool wait_for_streams(CUcontext context);
// Frees the objects of a context: memory.cpp, stream.cpp.
void free_memory_of(CUcontext context);
void unmake_streams_of(CUcontext context);
extern thread_local bool in_host_function;
extern thread_local int capture_mode; // CUstreamCaptureMode

// An injected result for the call, or 0. Each call of the driver begins with it.
CUresult begin(const char *name);
// Stops exceptions: no C function may throw.
template <class Body> CUresult guarded(Body &&body) noexcept
{
	try {
		return body();
	} catch (const std::bad_alloc &) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	} catch (const std::system_error &) { // no thread could be created
		return CUDA_ERROR_OUT_OF_MEMORY;
	} catch (...) {
		return CUDA_ERROR_UNKNOWN;
	}
}
// A call that requires cuInit(): all but a few.
template <class Body> CUresult call(const char *name, Body &&body) noexcept
{
	return guarded([&] {
		const CUresult rc = begin(name);
		return rc ? rc : body();
	});
}
// The calling thread's context, or the error without a context.
CUresult need_context(CUcontext &context);
void wrong();
void live(int change);
void live_in(CUcontext context, int change); // in an explicit context
// The error for a device number that does not exist, or 0.
CUresult check_device(int device);
// Device memory without SYNC_MEMOPS: operations on it without a stream are not waited for.
bool is_left_behind(CUdeviceptr address);
// The context that owns device memory; nullptr: no context, or not device memory.
CUcontext owner_of(CUdeviceptr address);

// The CPU addresses of a range: one span, or several if it is mapped in pieces. A range that the driver does not know
// is at the program's own address, if host memory is allowed. Empty: there is no such range.
struct Span {
	char *bytes;
	size_t size;
};
using Spans = std::vector<Span>;
Spans spans_at(CUdeviceptr address, size_t size, bool host_too);

} // namespace softgpu
