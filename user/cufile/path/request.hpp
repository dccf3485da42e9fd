// SPDX-License-Identifier: MIT
//
// One I/O: what is transferred, and by which path.
#pragma once

#include <cstdint>
#include <memory>

#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/file.hpp"
#include "peerdma_cufile.h"

namespace cufile
{

// Their numbers are the probes'.
//   direct    between the drive and the memory of the GPU
//   host      the system's own read and write: host memory, also for a file system of the program's own
//   bounce    by way of pinned host memory, and a copy of the CUDA driver's
//   peer_gpu  by way of the memory of a GPU that the drive reaches, and a copy between the GPUs
enum class TransferPath { direct, host, bounce, peer_gpu };

// Why an I/O is not direct.
using FallbackReason = enum peerdma_cufile_why;

struct FileHandle;
class DirectFile;
class PeerGpuBounce;
class RegisteredMemory;

struct Request {
	std::shared_ptr<FileHandle> handle;
	std::shared_ptr<File> file;
	bool write = false;
	char *address = nullptr;
	uint64_t size = 0, offset = 0;
	TransferPath path = TransferPath::host;
	FallbackReason fallback = PEERDMA_CUFILE_WHY_NONE;
	uint32_t reason = 0;                          // enum peerdma_reason, if fallback is REFUSED or NOT_A_BUFFER
	Memory memory;                                // if it bounces
	File::UringTarget uring_target;               // of its first byte, if io_uring may read it
	std::shared_ptr<DirectFile> direct_file;      // path direct or peer_gpu
	std::shared_ptr<PeerGpuBounce> peer_gpu;      // path peer_gpu
	BufferLocation location;                      // path direct
	std::weak_ptr<RegisteredMemory> registration; // that the location is in, if it is in one
	bool strict = false;                          // directly, or not at all
	bool in_stream = false;                       // a stream waits for it: CUDA must not be called for a copy
};

// What was to be direct and went by way of the host.
struct HostFallback {
	uint32_t reason = 0; // enum peerdma_reason, if that was all of it
	uint64_t bytes = 0;
};

} // namespace cufile
