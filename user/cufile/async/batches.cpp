// SPDX-License-Identifier: MIT
#include "cufile/async/batches.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "cufile/path/bounce_pipelines.hpp"
#include "cufile/path/probes.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{
namespace
{

CUfileIOEvents_t event_of(void *cookie, int64_t result)
{
	if (result >= 0)
		return {cookie, CUFILE_COMPLETE, static_cast<size_t>(result)};
	return {cookie, CUFILE_FAILED, static_cast<size_t>(result)};
}

// The requests of one submit. It holds its batch, which so outlives its last piece.
class BatchJob final : public Job
{
public:
	BatchJob(System &system, Accounting &accounting, Stats &stats, std::shared_ptr<Batch> batch)
		: system_(system), accounting_(accounting), stats_(stats), batch_(std::move(batch))
	{
	}

	std::vector<void *> cookies; // of the requests
	Context context = nullptr;   // of the pipeline for all of them; nullptr: no pipeline
	bool by_uring = false;

private:
	void request_done(size_t index) override
	{
		const int64_t n = result(index);
		const uint64_t ns = stats_.on() ? system_.now_ns() - started_ns : 0;
		accounting_.complete(request(index), n, host_fallback(index), ns);
		stats_.batch_request_completed(n >= 0, request(index).path == TransferPath::direct, ns);
		// The job may hold the last reference.
		const std::shared_ptr<Batch> batch = batch_;
		batch->complete_request(event_of(cookies[index], n));
	}

	System &system_;
	Accounting &accounting_;
	Stats &stats_;
	const std::shared_ptr<Batch> batch_;
};

int64_t nanoseconds(const struct timespec *time)
{
	if (!time)
		return -1;
	constexpr int64_t most = 1'000'000'000; // seconds; avoids overflow
	return std::clamp<int64_t>(time->tv_sec, 0, most) * 1'000'000'000 + time->tv_nsec;
}

// Cancels requests that have not begun.
void cancel_pending(Batch &batch)
{
	for (const auto &[job, from] : batch.cancel()) {
		const auto &cookies = static_cast<BatchJob &>(*job).cookies;
		for (size_t i = from; i < cookies.size(); i++)
			batch.complete_request({cookies[i], CUFILE_CANCELED, 0});
	}
}

void end(Batch &batch)
{
	try {
		cancel_pending(batch);
	} catch (const std::bad_alloc &) {
		// Nothing is canceled then: all requests run.
	}
	batch.drain();
}

} // namespace

std::shared_ptr<Batch> Batches::find(CUfileBatchHandle_t id)
{
	const std::shared_lock guard(lock_);
	const auto found = batches_.find(reinterpret_cast<uintptr_t>(id));
	return found == batches_.end() ? nullptr : found->second;
}

CUfileError_t Batches::create(const Config &config, CUfileBatchHandle_t *out, unsigned nr)
{
	if (nr > config.size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE))
		return error(CU_FILE_INVALID_VALUE);
	auto batch = std::make_shared<Batch>(nr);
	const std::lock_guard guard(lock_);
	const uintptr_t id = ids_.next();
	batches_.emplace(id, std::move(batch));
	*out = reinterpret_cast<CUfileBatchHandle_t>(id);
	return success();
}

// No flags are defined; the original accepts any.
CUfileError_t Batches::submit(CUfileBatchHandle_t id, unsigned nr, const CUfileIOParams_t *ios)
{
	const auto refuse = [&](CUfileOpError rc) {
		stats_.batch_submitted(0, 0, 0, 0, 0, false);
		return error(rc);
	};
	const uint64_t start = stats_.on() ? deps_.system.now_ns() : 0;
	const DriverState::Lease lease(state_);
	const auto batch = lease ? find(id) : nullptr;
	if (!batch || !ios)
		return refuse(CU_FILE_INVALID_VALUE);
	// Checked before the array is read, which need not be longer than the capacity of the batch.
	if (nr > batch->capacity())
		return refuse(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	Engine &engine = *lease;
	// Bounced reads of one context share a pipeline. Reads by io_uring have one of their own, with one thread.
	std::vector<std::shared_ptr<BatchJob>> jobs;
	const auto job_for = [&](Request &request, uint64_t piece_bytes) -> BatchJob & {
		const Context context =
			request.path == TransferPath::bounce && !request.write ? request.memory.context : nullptr;
		const bool by_uring = context && router_.host_bounce().can_use_uring(engine, request, piece_bytes);
		for (const auto &job : jobs)
			if (job->context == context && job->by_uring == by_uring)
				return *job;
		jobs.push_back(std::make_shared<BatchJob>(deps_.system, router_.accounting(), stats_, batch));
		jobs.back()->context = context;
		jobs.back()->by_uring = by_uring;
		jobs.back()->started_ns = start;
		if (context)
			jobs.back()->set_pipeline(std::make_shared<ReadPipeline>(
				*jobs.back(), deps_, engine.bounce_buffers, context, ReadPipeline::Mode::batch,
				by_uring, NtReader::Share::all));
		return *jobs.back();
	};
	std::vector<CUfileIOEvents_t> at_once; // requests that complete without a thread
	uint64_t bytes[2] = {}, direct = 0;
	// All or nothing: every request is checked before any begins.
	for (unsigned i = 0; i < nr; i++) {
		const CUfileIOParams_t &io = ios[i];
		const auto handle = registry_.find_file(io.fh);
		if (io.mode != CUFILE_BATCH || !handle)
			return refuse(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
		if (io.opcode != CUFILE_READ && io.opcode != CUFILE_WRITE) {
			at_once.push_back({io.cookie, CUFILE_INVALID, 0});
			continue;
		}
		const bool write = io.opcode == CUFILE_WRITE;
		Request request;
		const int64_t rc = router_.prepare(engine, handle, io.u.batch.devPtr_base, io.u.batch.size,
						   io.u.batch.file_offset, io.u.batch.devPtr_offset, write, request);
		if (rc < 0)
			return refuse(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
		if (rc > 0) {
			at_once.push_back(event_of(io.cookie, 0));
			continue;
		}
		bytes[write] += request.size;
		direct += request.path == TransferPath::direct;
		constexpr uint64_t read_piece = 256 * 1024;
		const uint64_t piece = request.path != TransferPath::bounce ? UINT64_MAX :
				       write                                ? small_slab :
									      read_piece;
		BatchJob &job = job_for(request, piece);
		job.add(std::move(request), piece);
		job.cookies.push_back(io.cookie);
	}
	std::vector<Workers::Task> tasks;
	for (const auto &job : jobs)
		tasks.push_back(router_.job_task(engine, job));
	const CUfileOpError rc = batch->begin(nr, {jobs.begin(), jobs.end()});
	if (rc)
		return refuse(rc);
	// Must not fail for lack of memory from here on.
	for (const auto &job : jobs)
		for (size_t i = 0; i < job->nr_requests(); i++)
			probe_begin(job->request(i));
	for (const CUfileIOEvents_t &event : at_once)
		batch->complete_request(event);
	const uint64_t most = std::max<uint64_t>(engine.config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS), 1);
	for (size_t i = 0; i < jobs.size(); i++) {
		const auto threads =
			jobs[i]->by_uring ? 1 : static_cast<unsigned>(std::min<uint64_t>(most, jobs[i]->nr_pieces()));
		// Without a worker the calling thread runs the job. So does a thread that holds a bounce buffer, for
		// which all workers may wait.
		if (BounceBufferPool::Holder::here() || !engine.workers.add(tasks[i], threads))
			tasks[i]();
	}
	stats_.batch_submitted(nr, direct, bytes[0], bytes[1], stats_.on() ? deps_.system.now_ns() - start : 0, true);
	return success();
}

CUfileError_t Batches::status(CUfileBatchHandle_t id, unsigned min, unsigned *nr, CUfileIOEvents_t *events,
			      const struct timespec *timeout)
{
	// Waits without a lease of the engine: it may take for ever, and must not keep the driver from closing.
	const auto batch = find(id);
	if (!batch || !nr || (*nr && !events) || (timeout && (timeout->tv_nsec < 0 || timeout->tv_nsec > 999'999'999)))
		return error(CU_FILE_INVALID_VALUE);
	// One more thread, which need not be woken.
	const auto help = [this](Job &job) {
		const DriverState::Lease lease(state_);
		if (lease)
			router_.run_pieces(*lease, job);
	};
	return error(batch->fetch(min, *nr, min ? nanoseconds(timeout) : 0, help, events));
}

CUfileError_t Batches::cancel(CUfileBatchHandle_t id)
{
	const auto batch = find(id);
	stats_.count(&CUfileStatsLevel1_t::batch_cancel_ops, batch != nullptr);
	if (!batch)
		return error(CU_FILE_INVALID_VALUE);
	cancel_pending(*batch);
	return success();
}

void Batches::destroy(CUfileBatchHandle_t id)
{
	std::shared_ptr<Batch> batch;
	{
		const std::lock_guard guard(lock_);
		const auto found = batches_.find(reinterpret_cast<uintptr_t>(id));
		if (found != batches_.end()) {
			batch = std::move(found->second);
			batches_.erase(found);
		}
	}
	stats_.count(&CUfileStatsLevel1_t::batch_destroy_ops, batch != nullptr);
	// Afterwards the program may free the memory of its requests.
	if (batch)
		end(*batch);
}

void Batches::destroy_all()
{
	decltype(batches_) all;
	{
		const std::lock_guard guard(lock_);
		all.swap(batches_);
	}
	for (auto &[id, batch] : all)
		end(*batch);
}

} // namespace cufile
