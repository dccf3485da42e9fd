// SPDX-License-Identifier: MIT
//
// What the parts of the stand-in driver share: devices, contexts, memory, and what tests count and break.
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

// Never freed: one that was destroyed is the next one made, as a driver's addresses are used again.
struct CUctx_st {
	int device;
	unsigned flags = 0;
	uint64_t id = 0;
	std::atomic<int> live{0}; // of World::live what goes with it
	std::atomic<bool> destroyed{false};
};

namespace softgpu
{

enum class Kind { device, managed, unowned, host };

// A piece of memory: of a device's, or of the host's that the driver knows.
struct Piece {
	size_t size;
	char *bytes; // where the driver gets at it
	int device;
	Kind kind;
	CUcontext context = nullptr;          // nullptr: that of its device
	struct peerdma_buf *buffer = nullptr; // nullptr: memory of the host's
	bool mapped = false;                  // by cuMemMap(), of what cuMemCreate() made
	bool sync = false;                    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
	char *stands = nullptr;               // the address that its Stand gave
	uint64_t id = 0;
	bool own = false;   // of the host's: the driver's, not registered
	unsigned flags = 0; // of the host's: as it was asked for
};

// What cuMemCreate() made.
struct Made {
	Piece piece;
	unsigned references;
};

struct Device {
	uint32_t provider; // 0: memory of the host's
	std::string address;
	size_t bytes;
	CUctx_st primary;
	std::unique_ptr<Stand> stand = {}; // its memory is its own driver's
};

struct World {
	World();
	void add_stand(const std::string &address);

	// Protects what changes below. Calls that change nothing share it, so that ThreadSanitizer sees no order between them that
	// a real driver does not give.
	std::shared_mutex lock;
	struct peerdma_device *peer = nullptr;        // immutable
	std::vector<std::unique_ptr<Device>> devices; // immutable
	std::map<char *, Piece> memory;               // by the address that programs know
	std::map<uint64_t, Made> made;
	std::map<std::string, std::pair<int, int>> failures;
	std::vector<CUcontext> gone; // contexts to be made again
	uint64_t next_id = 0;

	// Not protected.
	std::atomic<int> wrongs{0}, live{0};
	std::atomic<int> captures{0};          // under way that forbid all threads what waits
	std::atomic<bool> capture_void{false}; // somebody did so
	std::atomic<bool> has_failures{false};
	std::atomic<bool> initialized{false};
	std::atomic<bool> down{false}; // the process is ending: exit() has come to the driver
};

World &world();

// Who frees memory has it while he waits for all streams; who copies, launches, makes streams or memory wants it, as in a real
// driver (580, on an H200). So whoever a stream waits for must do none of that.
std::shared_mutex &driver_lock();

// The calling thread's.
CUcontext current();
CUcontext primary_of(int device);
// Waits for all streams of a context; nullptr: of all. False: the driver was shut down before.
bool wait_for_streams(CUcontext context);
// Ends what is in a context: memory.cpp, stream.cpp.
void free_memory_of(CUcontext context);
void unmake_streams_of(CUcontext context);
extern thread_local bool in_host_function;
extern thread_local int capture_mode; // CUstreamCaptureMode

// What the call is to return instead, or 0: each of the driver's begins with it.
CUresult begin(const char *name);
// No exception leaves a C function.
template <class Body> CUresult guarded(Body &&body) noexcept
{
	try {
		return body();
	} catch (const std::bad_alloc &) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	} catch (const std::system_error &) { // there is no other thread to be had
		return CUDA_ERROR_OUT_OF_MEMORY;
	} catch (...) {
		return CUDA_ERROR_UNKNOWN;
	}
}
// A call of the driver's that asks it to be initialized: all but a few.
template <class Body> CUresult call(const char *name, Body &&body) noexcept
{
	return guarded([&] {
		const CUresult rc = begin(name);
		return rc ? rc : body();
	});
}
// The calling thread's context, for what cannot be done without one, or the error.
CUresult need_context(CUcontext &context);
void wrong();
void live(int change);
void live_in(CUcontext context, int change); // not in the current one
// The error of a call that names a device which is not there, or 0.
CUresult check_device(int device);
// A device's memory, of which nobody asked that what is done to it without a stream be waited for.
bool is_left_behind(CUdeviceptr address);
// Whose memory a device's memory is; nullptr: nobody's, or none of a device.
CUcontext owner_of(CUdeviceptr address);

// Where the driver gets at a range's bytes: in one place, but for what is mapped in pieces. Of a range that it does not
// know, that is where the program does, if the host's memory will do. Empty: there is no such range.
struct Span {
	char *bytes;
	size_t size;
};
using Spans = std::vector<Span>;
Spans spans_at(CUdeviceptr address, size_t size, bool host_too);

} // namespace softgpu
