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

// The probes report these numbers.
// direct: between the drive and GPU memory
// host: pread() and pwrite(), for host memory and user-space filesystems
// bounce: through pinned host memory and a copy by the CUDA driver
// peer_gpu: through the memory of a GPU that the drive reaches, and a copy between the GPUs
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
	Memory memory;                                // path bounce
	File::UringTarget uring_target;               // of the first byte, if io_uring may read it
	std::shared_ptr<DirectFile> direct_file;      // path direct or peer_gpu
	std::shared_ptr<PeerGpuBounce> peer_gpu;      // path peer_gpu
	BufferLocation location;                      // path direct
	std::weak_ptr<RegisteredMemory> registration; // of the location, if any
	bool strict = false;                          // fail unless it is direct
	bool in_stream = false;                       // a stream waits for it: CUDA must not be called for a copy
};

// The part of a direct I/O that went through the host.
struct HostFallback {
	uint32_t reason = 0; // enum peerdma_reason, if it was all of it
	uint64_t bytes = 0;
};

} // namespace cufile
