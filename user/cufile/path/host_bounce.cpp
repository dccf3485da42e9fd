// SPDX-License-Identifier: MIT
#include "cufile/path/host_bounce.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include "cufile/path/bounce_pipelines.hpp"
#include "cufile/platform/cuda_context.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{
namespace
{

// From `crowd` bouncing threads of the program on, the bus is taken for the bottleneck; from `large_crowd` on, even if
// copying past the caches doubles the cores' work.
constexpr unsigned crowd = 7, large_crowd = 12;

// Less work is not worth waking a thread.
constexpr uint64_t least_share = 512 * 1024;

// Bytes that a thread reads at once: small enough that all threads have work, and a multiple of any file block.
uint64_t piece_for(const Request &request)
{
	constexpr uint64_t least = 256 * 1024, most = 512 * 1024;
	if (request.write)
		return small_slab;
	return std::clamp<uint64_t>(request.size / 8 / 65536 * 65536, least, most);
}

// Cutting a request that fits into a slab gains nothing while other threads of the program keep the disk busy.
bool worth_uring(const Request &request, unsigned threads)
{
	return request.size >= 2 * least_share && (threads > 1 || request.size > small_slab);
}

// Threads for a request, including the caller. A program that calls from many threads gets no helpers: they would take
// its cores and contend for the driver's locks.
unsigned nr_threads(const Engine &engine, const Request &request)
{
	// The first thread of a job acquires a bounce buffer and may block; a thread that already holds one must not.
	if (BounceBufferPool::Holder::here())
		return 1;
	// Writers of the page cache wait for each other. Copy and write overlap anyway.
	if (!engine.config.flag(CUFILE_PARAM_EXECUTION_PARALLEL_IO) ||
	    (request.write && !request.file->parallel_writes()))
		return 1;
	const auto threads = engine.config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS);
	const uint64_t bouncing_threads = engine.bouncing_threads, others = bouncing_threads - 1;
	uint64_t free = threads - std::min<uint64_t>(threads, others);
	// A crowd that copies from the page cache gets helpers if the cores suffice for it and twice the helpers.
	if (bouncing_threads >= crowd && bouncing_threads <= 2 * threads && request.size <= small_slab &&
	    !request.write && request.file->copied() && bouncing_threads + 2 * threads <= engine.cores)
		free = threads;
	uint64_t most =
		1 + std::min<uint64_t>(free, engine.config.size(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM));
	// Two threads keep a disk busy while the GPU copies; more of them spin on the GPU. More helpers are for more
	// disks.
	if (request.write)
		most = std::min<uint64_t>(most, std::max<uint64_t>(most / 2, 2));
	return static_cast<unsigned>(std::clamp<uint64_t>(request.size / least_share, 1, most));
}

// Bounces a request that fits into one slab. share: for a read.
int64_t bounce_small(Engine &engine, const Request &request, NtReader::Share share)
{
	Cuda &cuda = engine.deps.cuda;
	ScopedCudaContext scope(cuda);
	if (scope.enter(request.memory.context))
		return copy_failed;
	std::unique_ptr<BounceBuffer> buffer;
	int64_t n = copy_failed;
	bool broken = false;
	const int rc = engine.bounce_buffers.acquire(request.memory.context, false, buffer);
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
			n = share == NtReader::Share::none ?
				    request.file->read(slab, request.size, request.offset) :
				    buffer->nt_readers[0].read(*request.file, slab, request.size, request.offset,
							       share);
			const Copy copy = {request.address, slab, static_cast<uint64_t>(n)};
			if (n > 0)
				broken = cuda.copy_to_device(&copy, 1, buffer->stream()) ||
					 cuda.wait_stream(buffer->stream());
			if (broken)
				n = copy_failed;
		}
		engine.bounce_buffers.release(std::move(buffer), broken);
	}
	return n;
}

} // namespace

HostBounce::Plan HostBounce::plan(Engine &engine, Request &request)
{
	Plan plan;
	plan.threads = nr_threads(engine, request);
	plan.by_uring = worth_uring(request, plan.threads) && can_use_uring(engine, request, piece_for(request));
	if (plan.by_uring)
		plan.threads = 1;
	if (request.write || !request.file->copied())
		return plan;
	// Measured on an H200: the bus gives 48 GB/s in 1 MiB pieces, and 27 GB/s of data that cores have just written.
	const unsigned bouncing_threads = engine.bouncing_threads;
	plan.crowded = bouncing_threads >= crowd && request.size <= large_slab;
	if (plan.crowded && request.size <= small_slab)
		plan.share = plan.threads > 1 || bouncing_threads >= large_crowd ? NtReader::Share::all :
										   NtReader::Share::half;
	// Longer requests use slabs that do not fit into the CPU caches.
	else if (plan.threads > 1 && request.size > 2 * small_slab && request.size <= large_slab)
		plan.share = NtReader::Share::half;
	return plan;
}

int64_t HostBounce::run(Engine &engine, Request &request)
{
	const Counted counted(engine.bouncing_threads);
	if (Workers::is_worker_thread())
		engine.bind_worker(request);
	const Plan how = plan(engine, request);
	return how.threads == 1 && !how.by_uring && request.size <= small_slab ?
		       bounce_small(engine, request, how.share) :
		       run_as_job(engine, request, how);
}

int64_t HostBounce::run_serially(Engine &engine, const Request &request)
{
	uint64_t done = 0;
	while (done < request.size) {
		Request part = request;
		part.address += done;
		part.offset += done;
		part.size = std::min(request.size - done, small_slab);
		const int64_t n = bounce_small(engine, part, NtReader::Share::none);
		if (n < 0)
			return result_after_error(request.write, done, n);
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < part.size)
			break;
	}
	return static_cast<int64_t>(done);
}

bool HostBounce::can_use_uring(Engine &engine, Request &request, uint64_t piece_bytes)
{
	if (request.write || !engine.config.flag(CUFILE_PARAM_EXECUTION_PARALLEL_IO))
		return false;
	request.uring_target = request.file->uring_target(request.offset, request.size);
	if (request.uring_target.fd < 0)
		return false;
	// A longer request is cut at whole blocks.
	if (request.size <= piece_bytes &&
	    (request.offset % request.uring_target.offset || request.size < request.uring_target.offset))
		return false;
	const int rc = engine.bounce_buffers.uring_state();
	if (engine.logged_no_uring != (rc < 0) && engine.logged_no_uring.exchange(rc < 0) != (rc < 0))
		log_.say(Log::Level::warn, rc < 0 ? "there is no io_uring: " + std::generic_category().message(-rc) +
							    "; threads read past the page cache" :
						    "io_uring reads past the page cache again");
	return rc >= 0;
}

int64_t HostBounce::run_as_job(Engine &engine, const Request &request, const Plan &plan)
{
	auto job = std::make_shared<Job>();
	job->add(request, piece_for(request));
	if (!request.write)
		job->set_pipeline(std::make_shared<ReadPipeline>(*job, engine.deps, engine.bounce_buffers,
								 request.memory.context,
								 plan.threads > 1 ? ReadPipeline::Mode::helped :
								 plan.crowded     ? ReadPipeline::Mode::crowded :
										    ReadPipeline::Mode::alone,
								 plan.by_uring, plan.share));
	const auto bounce = [&engine, job] {
		engine.bind_worker(job->request(0));
		process_pieces(*job, engine.deps, engine.bounce_buffers, [](Job::Piece &) {});
	};
	engine.workers.add(bounce, plan.threads - 1);
	process_pieces(*job, engine.deps, engine.bounce_buffers, [](Job::Piece &) {});
	if (job->pipeline())
		job->pipeline()->wait();
	job->wait();
	return job->result(0);
}

} // namespace cufile
