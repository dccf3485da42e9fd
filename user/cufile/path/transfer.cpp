// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

#include "cufile/api/library.hpp"
#include "cufile/diag/probes.hpp"
#include "cufile/path/bounce_pipeline.hpp"

namespace cufile
{
namespace
{

// So many threads of the program that move something, whatever it is, are taken for enough to have the bus be what they wait for; and
// so many for enough even if their cores have twice the work.
constexpr unsigned crowd = 7, large_crowd = 12;

// What a thread should have to do to be worth being woken.
constexpr uint64_t share = 512 * 1024;

// What a thread reads at once: small enough that all have something to do, and multiples of any file system's block.
uint64_t piece_for(const Request &request)
{
	constexpr uint64_t least = 256 * 1024, most = 512 * 1024;
	if (request.write)
		return small_slab;
	return std::clamp<uint64_t>(request.size / 8 / 65536 * 65536, least, most);
}

// What fits into a slab gains nothing from being cut where other threads of the program keep the disk busy.
bool worth_uring(const Request &request, unsigned threads)
{
	return request.size >= 2 * share && (threads > 1 || request.size > small_slab);
}

} // namespace

int64_t Library::prepare(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base, size_t size,
			 off_t file_off, off_t buf_off, bool write, Request &request)
{
	if (!base)
		return -EINVAL;
	if (file_off < 0 || buf_off < 0 || size > INT64_MAX || file_off > INT64_MAX - static_cast<int64_t>(size) ||
	    buf_off > INT64_MAX - static_cast<int64_t>(size))
		return failed(CU_FILE_INVALID_VALUE);
	// As cuFile has it: not the same for both.
	if (write && !handle->file->writable())
		return -EIO;
	if (!write && !handle->file->readable())
		return failed(CU_FILE_INVALID_FILE_OPEN_FLAG);
	if (write) {
		const int64_t rc = handle->file->check_write(static_cast<uint64_t>(file_off), size);
		if (rc < 0)
			return rc;
	}
	request.address = const_cast<char *>(static_cast<const char *>(base)) + buf_off;
	RegisteredBuffer known;
	const RegisteredBuffer *buffer = nullptr;
	std::shared_ptr<RegisteredMemory> registration;
	{
		const std::shared_lock tables(table_lock_);
		const auto found = buffers_.find(reinterpret_cast<uintptr_t>(base));
		if (found != buffers_.end()) {
			known = found->second;
			buffer = &known;
		}
		registration = buffer ? known.registration : registration_at(request.address, size);
	}
	const bool leaves = buffer && static_cast<uint64_t>(buf_off) + size > buffer->size;
	// What was freed is registered no more. That memory which the kernel has is still the same is asked of each I/O below.
	if (buffer && (leaves || !registration || !registration->bytes_from(base)) && is_replaced(base, *buffer)) {
		buffer = nullptr;
		registration.reset();
	}
	if (buffer && leaves)
		return failed(CU_FILE_INVALID_MAPPING_RANGE);
	// Some of it was mapped after it was registered, or registering it met a shortage. While a stream waits, CUDA must not be called for that: cuMemFree() of
	// another thread may hold the driver's lock until the stream goes on.
	if (registration && !registration->foreign() && size && !registration->covers(request.address, size)) {
		const int rc = request.in_stream || BounceBufferPool::stream_waits ?
				       -EBUSY :
				       registration->extend(deps_.cuda, deps_.system.now_ns(), request.address, size,
							    known.reason);
		known.over_quota = rc > 0;
		if (rc)
			registration.reset();
	}
	request.handle = handle;
	request.file = handle->file;
	request.write = write;
	request.size = size;
	request.offset = static_cast<uint64_t>(file_off);
	if (!size)
		return 1;
	return choose_path(engine, *handle, buffer, std::move(registration), base, request);
}

Library::Plan Library::plan(Engine &engine, Request &request)
{
	Plan plan;
	plan.threads = nr_threads(engine, request);
	plan.by_uring = worth_uring(request, plan.threads) && for_uring(engine, request, piece_for(request));
	if (plan.by_uring)
		plan.threads = 1;
	if (request.write || !request.file->copied())
		return plan;
	// Measured on an H200, whose bus gives 48 GB/s in pieces of 1 MiB, and 27 of what cores have just written.
	const unsigned bouncing_threads = engine.bouncing_threads;
	plan.crowded = bouncing_threads >= crowd && request.size <= large_slab;
	if (plan.crowded && request.size <= small_slab)
		plan.share = plan.threads > 1 || bouncing_threads >= large_crowd ? NtReader::Share::all :
										   NtReader::Share::half;
	// What is longer goes in slabs that the cores' caches do not hold.
	else if (plan.threads > 1 && request.size > 2 * small_slab && request.size <= large_slab)
		plan.share = NtReader::Share::half;
	return plan;
}

int64_t Library::run(Engine &engine, Request &request)
{
	const bool timed = stats_.on();
	const uint64_t start = timed ? deps_.system.now_ns() : 0;
	HostFallback host_fallback;
	int64_t n;
	probe_begin(request);
	if (request.path != TransferPath::bounce) {
		n = run_request(request, deps_, engine.bounce_buffers, host_fallback);
	} else {
		const BouncingThread mover(engine);
		engine.bind_worker(request);
		const Plan how = plan(engine, request);
		n = how.threads == 1 && !how.by_uring && request.size <= small_slab ?
			    bounce_small(request, deps_, engine.bounce_buffers, how.share) :
			    run_as_job(engine, request, how);
	}
	count(request, n, host_fallback, timed ? deps_.system.now_ns() - start : 0);
	return n;
}

// How many threads are to move it, the calling one included. A program that calls from many threads needs none of
// ours: they would only take its cores and wait for the driver's locks.
unsigned Library::nr_threads(Engine &engine, const Request &request)
{
	// The one who comes first to a job takes its buffer, which only who has one already need not wait for.
	if (BounceBufferPool::Holder::here())
		return 1;
	// Writers of the page cache wait for each other; the copy and the write overlap all the same.
	if (!engine.config.flag(CUFILE_PARAM_EXECUTION_PARALLEL_IO) ||
	    (request.write && !request.file->parallel_writes()))
		return 1;
	const auto threads = engine.config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS);
	const uint64_t bouncing_threads = engine.bouncing_threads, others = bouncing_threads - 1;
	uint64_t free = threads - std::min<uint64_t>(threads, others);
	// Where they only copy in turn with others, and are not too few for all, they may if as many cores again are left.
	if (bouncing_threads >= crowd && bouncing_threads <= 2 * threads && request.size <= small_slab &&
	    !request.write && request.file->copied() && bouncing_threads + 2 * threads <= engine.cores)
		free = threads;
	uint64_t most =
		1 + std::min<uint64_t>(free, engine.config.size(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM));
	// Two keep a disk busy with what is copied meanwhile; more wait for the GPU, spinning. Who has more helpers has more disks.
	if (request.write)
		most = std::min<uint64_t>(most, std::max<uint64_t>(most / 2, 2));
	return static_cast<unsigned>(std::clamp<uint64_t>(request.size / share, 1, most));
}

// Whether its pieces go past the page cache, where one thread can have many of them under way. Through it threads are
// faster, because they copy.
bool Library::for_uring(Engine &engine, Request &request, uint64_t piece_bytes)
{
	if (request.write || !engine.config.flag(CUFILE_PARAM_EXECUTION_PARALLEL_IO))
		return false;
	request.uring_target = request.file->uring_target(request.offset, request.size);
	if (request.uring_target.fd < 0)
		return false;
	// What is cut is so at whole blocks.
	if (request.size <= piece_bytes &&
	    (request.offset % request.uring_target.offset || request.size < request.uring_target.offset))
		return false;
	const int rc = engine.bounce_buffers.uring_state();
	if (engine.logged_no_uring != (rc < 0) && engine.logged_no_uring.exchange(rc < 0) != (rc < 0))
		log_.say(Log::Level::warn, rc < 0 ? "threads read past the page cache, because there is no io_uring: " +
							    std::generic_category().message(-rc) :
						    "io_uring reads past the page cache again");
	return rc >= 0;
}

int64_t Library::run_as_job(Engine &engine, const Request &request, const Plan &how)
{
	auto job = std::make_shared<Job>();
	job->add(request, piece_for(request));
	if (!request.write)
		job->set_pipeline(std::make_unique<BouncePipeline>(*job, deps_, engine.bounce_buffers,
								   request.memory.context,
								   how.threads > 1 ? BouncePipeline::Mode::nr_threads :
								   how.crowded     ? BouncePipeline::Mode::crowded :
										     BouncePipeline::Mode::alone,
								   how.by_uring, how.share));
	engine.workers.add(engine.job_task(job), how.threads - 1);
	process_pieces(*job, deps_, engine.bounce_buffers);
	if (job->pipeline())
		job->pipeline()->wait();
	job->wait();
	return job->result(0);
}

int64_t Library::transfer_leased(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base,
				 size_t size, off_t file_off, off_t buf_off, bool write)
{
	Request request;
	const int64_t rc = prepare(engine, handle, base, size, file_off, buf_off, write, request);
	if (rc > 0)
		return 0;
	if (rc < 0) {
		stats_.count(write ? &CUfileStatsLevel1_t::write_ops : &CUfileStatsLevel1_t::read_ops, false);
		return rc;
	}
	return run(engine, request);
}

int64_t Library::transfer(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off, bool write)
{
	const Use use(*this);
	// A driver that is closed knows no file, so there is nothing to open it for.
	const auto handle = use ? find(fh) : nullptr;
	if (!handle)
		return failed(CU_FILE_HANDLE_NOT_REGISTERED);
	return transfer_leased(*use, handle, base, size, file_off, buf_off, write);
}

int64_t Library::transfer_vector(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				 unsigned flags, bool write)
{
	const int64_t rc = transfer_segments(fh, vector, n, file_off, flags, write);
	stats_.vector(write, rc >= 0);
	return rc;
}

int64_t Library::transfer_segments(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				   unsigned flags, bool write)
{
	const Use use(*this);
	const auto handle = use ? find(fh) : nullptr;
	if (!handle)
		return failed(CU_FILE_HANDLE_NOT_REGISTERED);
	// As many as readv(2) takes.
	if (flags || (n && !vector) || n > IOV_MAX || file_off < 0)
		return failed(CU_FILE_INVALID_VALUE);
	// All is looked at before anything is moved.
	std::vector<Request> requests(n);
	off_t at = file_off;
	for (size_t i = 0; i < n; i++) {
		const int64_t rc = vector[i].len ? prepare(*use, handle, vector[i].base, vector[i].len, at, 0, write,
							   requests[i]) :
						   1;
		if (rc < 0)
			return rc;
		at += static_cast<off_t>(vector[i].len);
	}
	int64_t total = 0;
	for (Request &request : requests) {
		if (!request.size)
			continue;
		const int64_t moved = run(*use, request);
		if (moved < 0)
			return stopped(write, static_cast<uint64_t>(total), moved);
		total += moved;
		if (static_cast<uint64_t>(moved) < request.size)
			break;
	}
	return total;
}

} // namespace cufile
