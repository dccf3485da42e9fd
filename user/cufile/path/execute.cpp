// SPDX-License-Identifier: MIT
#include "cufile/path/execute.hpp"

#include <algorithm>
#include <cerrno>

#include "cufile/path/bounce_pipeline.hpp"
#include "cufile/path/direct_file.hpp"
#include "cufile/path/peer_gpu_bounce.hpp"
#include "cufile/platform/cuda_context.hpp"
#include "cufile/platform/errors.hpp"
#include "cufile/registry/registered_memory.hpp"

namespace cufile
{

int64_t bounce_small(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		     NtReader::Share share)
{
	Cuda &cuda = deps.cuda;
	ScopedCudaContext scope(cuda);
	if (scope.enter(request.memory.context))
		return copy_failed;
	std::unique_ptr<BounceBuffer> buffer;
	int64_t n = copy_failed;
	bool broken = false;
	const int rc = bounce_buffers.acquire(request.memory.context, false, buffer);
	if (rc) {
		n = rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed;
	} else {
		const BounceBufferPool::Holder holding;
		char *const slab = buffer->memory();
		if (request.write) {
			broken = cuda.copy_to_host(slab, request.address, request.size, buffer->stream()) ||
				 cuda.wait_stream(buffer->stream());
			if (!broken)
				n = request.file->write(slab, request.size, request.offset);
		} else {
			n = buffer->nt_readers[0].read(*request.file, slab, request.size, request.offset, share);
			const Copy copy = {request.address, slab, static_cast<uint64_t>(n)};
			if (n > 0)
				broken = cuda.copy_to_device(&copy, 1, buffer->stream()) ||
					 cuda.wait_stream(buffer->stream());
			if (broken)
				n = copy_failed;
		}
		bounce_buffers.release(std::move(buffer), broken);
	}
	return n;
}

namespace
{

// One slab after the other, without helpers.
int64_t bounce_serially(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers)
{
	uint64_t done = 0;
	while (done < request.size) {
		Request part = request;
		part.address += done;
		part.offset += done;
		part.size = std::min(request.size - done, small_slab);
		const int64_t n = bounce_small(part, deps, bounce_buffers, NtReader::Share::none);
		if (n < 0)
			return stopped(request.write, done, n);
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < part.size)
			break;
	}
	return static_cast<int64_t>(done);
}

} // namespace

int64_t run_request(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		    HostFallback &host_fallback)
{
	host_fallback = {};
	if (request.path == TransferPath::direct || request.path == TransferPath::peer_gpu) {
		int64_t n = -ENODEV;
		struct peerdma_io_result result = {};
		// Only until it ends: afterwards the program may deregister the memory and register it again.
		const std::shared_ptr<RegisteredMemory> held = request.registration.lock();
		if (request.path == TransferPath::peer_gpu)
			n = request.peer_gpu->transfer(request, result);
		else if (held)
			n = transfer_runs(deps.peerdma, request, *held, result);
		else if (!request.location.registered)
			n = transfer_direct(deps.peerdma, request, request.location, request.size, request.offset,
					    result);
		// The program has deregistered it, or the kernel had to give it back. CUDA may have it all the same, if it is its.
		if (n == -ENODEV && (request.location.registered || request.path == TransferPath::peer_gpu)) {
			host_fallback.reason =
				result.reason ? result.reason : static_cast<uint32_t>(PEERDMA_REASON_REVOKED);
			if (request.strict)
				return failed(CU_FILE_IO_NOT_SUPPORTED);
			return request.in_stream || request.memory.kind == Memory::Kind::foreign ?
				       n :
				       bounce_serially(request, deps, bounce_buffers);
		}
		host_fallback = {host_fallback_reason(result), result.host};
		if (!request.strict || n < 0 || (!host_fallback.reason && !host_fallback.bytes))
			return n;
		// What the module says before need not be what it does: it is too late, but not for saying so.
		if (!host_fallback.reason)
			host_fallback.reason = PEERDMA_REASON_FILE_ALIGN;
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	const int64_t n = request.write ? request.file->write(request.address, request.size, request.offset) :
					  request.file->read(request.address, request.size, request.offset);
	// As cuFile has it: the number of CUDA's "invalid value", for a pointer that leads nowhere.
	return n == -EFAULT ? -CUDA_ERROR_INVALID_VALUE : n;
}

void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers)
{
	if (job.pipeline()) {
		job.pipeline()->process_pieces();
		return;
	}
	WritePipeline pipeline(job, deps, bounce_buffers);
	while (Job::Piece *piece = job.take()) {
		const Request &request = job.request(*piece);
		if (request.path == TransferPath::bounce) {
			pipeline.add(*piece);
			continue;
		}
		Request part = request;
		part.address = piece->address;
		part.location.offset += piece->offset - request.offset;
		part.size = piece->size;
		part.offset = piece->offset;
		job.finish(*piece, run_request(part, deps, bounce_buffers, piece->host_fallback));
	}
}

} // namespace cufile
