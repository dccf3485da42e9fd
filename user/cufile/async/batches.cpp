// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <new>

#include "cufile/api/library.hpp"
#include "cufile/diag/probes.hpp"
#include "cufile/path/bounce_pipeline.hpp"

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

// What was submitted in one call. It holds its batch, which is therefore there when its last piece ends.
class BatchJob final : public Job
{
public:
	BatchJob(Library &library, std::shared_ptr<Batch> batch) : library_(library), batch_(std::move(batch)) {}

	std::vector<void *> cookies; // of the requests
	Context context = nullptr;   // of the memory that all are read into by a pipeline; else they go as they are
	bool by_uring = false;

private:
	void done(size_t index) override
	{
		const int64_t n = result(index);
		const uint64_t ns = library_.stats().on() ? library_.system().now_ns() - started_ns : 0;
		library_.count(request(index), n, host_fallback(index), ns);
		library_.stats().batch_completed(n >= 0, request(index).path == TransferPath::direct, ns);
		// Who holds the last of it may be its own thread.
		const std::shared_ptr<Batch> batch = batch_;
		batch->finish(event_of(cookies[index], n));
	}

	Library &library_;
	const std::shared_ptr<Batch> batch_;
};

int64_t nanoseconds(const struct timespec *time)
{
	if (!time)
		return -1;
	constexpr int64_t most = 1'000'000'000; // seconds: longer than anybody waits
	return std::clamp<int64_t>(time->tv_sec, 0, most) * 1'000'000'000 + time->tv_nsec;
}

} // namespace

std::shared_ptr<Batch> Library::find_batch(CUfileBatchHandle_t id)
{
	const std::shared_lock tables(table_lock_);
	const auto found = batches_.find(reinterpret_cast<uintptr_t>(id));
	return found == batches_.end() ? nullptr : found->second;
}

CUfileError_t Library::create_batch(CUfileBatchHandle_t *out, unsigned nr)
{
	const auto refuse = [&](CUfileOpError rc) {
		stats_.count(&CUfileStatsLevel1_t::batch_setup_ops, false);
		return error(rc);
	};
	if (!out || !nr)
		return refuse(CU_FILE_INVALID_VALUE);
	const CUfileOpError opened = open_for_use();
	if (opened)
		return refuse(opened);
	const Use use(*this);
	if (!use)
		return refuse(CU_FILE_DRIVER_CLOSING);
	if (nr > use->config.size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE))
		return refuse(CU_FILE_INVALID_VALUE);
	auto batch = std::make_shared<Batch>(nr);
	const std::lock_guard tables(table_lock_);
	const uintptr_t id = new_id();
	batches_.emplace(id, std::move(batch));
	*out = reinterpret_cast<CUfileBatchHandle_t>(id);
	stats_.count(&CUfileStatsLevel1_t::batch_setup_ops, true);
	return success();
}

// No flags are known; the original takes any.
CUfileError_t Library::submit(CUfileBatchHandle_t id, unsigned nr, const CUfileIOParams_t *ios)
{
	const auto refuse = [&](CUfileOpError rc) {
		stats_.batch_submitted(0, 0, 0, 0, 0, false);
		return error(rc);
	};
	const uint64_t start = stats_.on() ? deps_.system.now_ns() : 0;
	const Use use(*this);
	const auto batch = use ? find_batch(id) : nullptr;
	if (!batch || !ios)
		return refuse(CU_FILE_INVALID_VALUE);
	// Whoever says that there are more has no need to have so many.
	if (nr > batch->capacity())
		return refuse(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	Engine &engine = *use;
	// What is read into the memory of one context goes on one pipeline, or on two: a ring's has one thread.
	std::vector<std::shared_ptr<BatchJob>> jobs;
	const auto job_for = [&](Request &request, uint64_t piece_bytes) -> BatchJob & {
		const Context context =
			request.path == TransferPath::bounce && !request.write ? request.memory.context : nullptr;
		const bool by_uring = context && for_uring(engine, request, piece_bytes);
		for (const auto &job : jobs)
			if (job->context == context && job->by_uring == by_uring)
				return *job;
		jobs.push_back(std::make_shared<BatchJob>(*this, batch));
		jobs.back()->context = context;
		jobs.back()->by_uring = by_uring;
		jobs.back()->started_ns = start;
		if (context)
			jobs.back()->set_pipeline(std::make_unique<BouncePipeline>(
				*jobs.back(), deps_, engine.bounce_buffers, context, BouncePipeline::Mode::batch,
				by_uring, NtReader::Share::all));
		return *jobs.back();
	};
	std::vector<CUfileIOEvents_t> at_once; // what needs no thread to end
	uint64_t bytes[2] = {}, direct = 0;
	// All or nothing: what is wrong with one is said before any has begun.
	for (unsigned i = 0; i < nr; i++) {
		const CUfileIOParams_t &io = ios[i];
		const auto handle = find(io.fh);
		if (io.mode != CUFILE_BATCH || !handle)
			return refuse(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
		if (io.opcode != CUFILE_READ && io.opcode != CUFILE_WRITE) {
			at_once.push_back({io.cookie, CUFILE_INVALID, 0});
			continue;
		}
		const bool write = io.opcode == CUFILE_WRITE;
		Request request;
		const int64_t rc = prepare(*use, handle, io.u.batch.devPtr_base, io.u.batch.size,
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
		tasks.push_back(engine.job_task(job));
	const CUfileOpError rc = batch->begin(nr, {jobs.begin(), jobs.end()});
	if (rc)
		return refuse(rc);
	// Nothing from here on needs memory that might not be there.
	for (const auto &job : jobs)
		for (size_t i = 0; i < job->nr_requests(); i++)
			probe_begin(job->request(i));
	for (const CUfileIOEvents_t &event : at_once)
		batch->finish(event);
	const uint64_t most = std::max<uint64_t>(engine.config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS), 1);
	for (size_t i = 0; i < jobs.size(); i++) {
		const auto threads =
			jobs[i]->by_uring ? 1 : static_cast<unsigned>(std::min<uint64_t>(most, jobs[i]->nr_pieces()));
		// Without any thread it is done here and now; and by who has a buffer, because our threads may all wait for that.
		if (BounceBufferPool::Holder::here() || !engine.workers.add(tasks[i], threads))
			tasks[i]();
	}
	stats_.batch_submitted(nr, direct, bytes[0], bytes[1], stats_.on() ? deps_.system.now_ns() - start : 0, true);
	return success();
}

CUfileError_t Library::status(CUfileBatchHandle_t id, unsigned min, unsigned *nr, CUfileIOEvents_t *events,
			      const struct timespec *timeout)
{
	// Waiting is without a hold on the engine: it may take for ever, and must not keep the driver from being closed.
	const auto batch = find_batch(id);
	if (!batch || !nr || (*nr && !events) || (timeout && (timeout->tv_nsec < 0 || timeout->tv_nsec > 999'999'999)))
		return error(CU_FILE_INVALID_VALUE);
	// A thread more, and one that need not be woken.
	const auto help = [this](Job &job) {
		const Use use(*this);
		if (use)
			process_pieces(job, deps_, use->bounce_buffers);
	};
	return error(batch->fetch(min, *nr, min ? nanoseconds(timeout) : 0, help, events));
}

// Takes back what has not begun.
void Library::cancel_pending(Batch &batch)
{
	for (const auto &[job, from] : batch.cancel()) {
		const auto &cookies = static_cast<BatchJob &>(*job).cookies;
		for (size_t i = from; i < cookies.size(); i++)
			batch.finish({cookies[i], CUFILE_CANCELED, 0});
	}
}

void Library::end_batch(Batch &batch)
{
	try {
		cancel_pending(batch);
	} catch (const std::bad_alloc &) {
		// Then all of it comes to its end.
	}
	batch.drain();
}

CUfileError_t Library::cancel(CUfileBatchHandle_t id)
{
	const auto batch = find_batch(id);
	stats_.count(&CUfileStatsLevel1_t::batch_cancel_ops, batch != nullptr);
	if (!batch)
		return error(CU_FILE_INVALID_VALUE);
	cancel_pending(*batch);
	return success();
}

void Library::destroy(CUfileBatchHandle_t id)
{
	std::shared_ptr<Batch> batch;
	{
		const std::lock_guard tables(table_lock_);
		const auto found = batches_.find(reinterpret_cast<uintptr_t>(id));
		if (found != batches_.end()) {
			batch = std::move(found->second);
			batches_.erase(found);
		}
	}
	stats_.count(&CUfileStatsLevel1_t::batch_destroy_ops, batch != nullptr);
	// Afterwards the program may free what it read into.
	if (batch)
		end_batch(*batch);
}

} // namespace cufile
