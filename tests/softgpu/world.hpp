// SPDX-License-Identifier: MIT
//
// What the parts of the stand-in driver share: devices, contexts, memory, and what tests count and break.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda.h"
#include "peerdma.h"
#include "softgpu.hpp"
#include "stand.hpp"

// Those that are destroyed stay, as what no call takes any more until cuCtxCreate() gives their address again.
struct CUctx_st {
	int device;
	int live = 0; // of World::live what goes with it
	bool destroyed = false;
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
	char *stands = nullptr;               // the address that its Stand gave
	uint64_t id = 0;
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

	std::mutex lock;                              // protects what changes below
	struct peerdma_device *peer = nullptr;        // immutable
	std::vector<std::unique_ptr<Device>> devices; // immutable
	std::map<char *, Piece> memory;               // by the address that programs know
	std::map<uint64_t, Made> made;
	std::map<std::string, std::pair<int, int>> failures;
	uint64_t next_id = 0;
	int wrongs = 0, live = 0;
	std::vector<CUcontext> destroyed;
	int captures = 0;          // under way that forbid all threads what waits
	bool capture_void = false; // somebody did so
	bool initialized;
};

World &world();

// Who frees memory has it while he waits for all streams; who copies, launches, makes streams or memory wants it, as in a real
// driver (580, on an H200). So whoever a stream waits for must do none of that.
std::shared_mutex &driver_lock();

// The calling thread's.
CUcontext current();
CUcontext primary_of(int device);
// Ends what is in a context: memory.cpp, stream.cpp.
void free_memory_of(CUcontext context);
void unmake_streams_of(CUcontext context);
extern thread_local bool in_host_function;
extern thread_local int capture_mode; // CUstreamCaptureMode

// What the call is to return instead, or 0: each of the driver's begins with it.
CUresult begin(const char *name);
void wrong();
void live(int change);
// The error of a call that names a device which is not there, or 0.
CUresult check_device(int device);
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
