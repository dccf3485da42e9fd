// SPDX-License-Identifier: MIT
//
// When the stream reaches an I/O, its parameters are read through their pointers, except for those that the program
// declared fixed. The stream then waits for a worker. The worker must not call CUDA to copy: every copy takes the
// driver's lock, and another thread in cuMemFree() holds that lock until this stream is idle. So the worker reads into
// a staging buffer, and the stream itself copies from it, one buffer in each round.
#include "cufile/async/streams.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "cufile/path/probes.hpp"
#include "cufile/platform/condition.hpp"
#include "cufile/platform/cuda_context.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{

namespace
{

// Longest I/O: each round adds two entries to the stream.
constexpr uint64_t most_bytes = uint64_t{16} << 30;

// As cuFile: a range beyond the buffer gives another error than cuFileRead(), and system errors are -1.
ssize_t stream_result(int64_t result)
{
	if (result >= 0)
		return result;
	if (result == failed(CU_FILE_INVALID_MAPPING_RANGE))
		return failed(CU_FILE_INVALID_MAPPING_SIZE);
	return result < -CUFILEOP_BASE_ERR ? result : -1;
}

} // namespace

// In each round the stream calls the library and then copies what the descriptor says. After the last round it calls
// once more.
struct Streams::StreamIo {
	Streams &streams;
	const std::shared_ptr<FileHandle> handle;
	void *const base;
	size_t *size_p;
	off_t *file_off_p, *buf_off_p;
	ssize_t *const result;
	const bool write;
	// The size at submission, the program's upper limit. It fixes the number of rounds.
	const uint64_t most;
	// Replacements for the pointers of fixed parameters.
	size_t fixed_size = 0;
	off_t fixed_file_off = 0, fixed_buf_off = 0;
	bool captured = false; // it may run again
	// nullptr: the driver cannot launch the kernel, and all I/O happens in the stream's first call.
	StagingBuffer *staging = nullptr;
	Context context = nullptr;      // the stream's
	uint64_t rounds = 0;            // launches of the copy kernel
	std::atomic<int> references{1}; // stream calls, and the enqueuing thread; not counted for graphs
	std::atomic<bool> aborted{false};
	std::atomic<int> runs{0};            // in progress
	std::atomic<bool> overlapped{false}; // two concurrent runs: graphs share it

	// State of one run.
	Request request = {};
	int64_t outcome = 0; // bytes, or an error
	bool over = true, started = false;
	HostFallback host_fallback = {};
	uint64_t started_ns = 0;

	~StreamIo()
	{
		if (staging)
			StagingBufferPool::release(*staging);
	}

	void fix(unsigned flags);
	// The last reference deletes it. A captured I/O is deleted by its graph.
	void unref()
	{
		if (!captured && !--references)
			delete this;
	}
	void begin();
	void resume();
	void end();

private:
	// Runs a step on a worker while the stream waits.
	void on_worker(void (StreamIo::*step)(Engine &));
	void start(Engine &engine);
	void next(Engine &engine);
	void fill();
	void drain();
	bool can_stream_copy() const;
	bool is_all_there() const;
	int64_t prepare(Engine &engine);
	void finish_with(int64_t n)
	{
		outcome = n;
		over = true;
	}
	void stop(int64_t error) { finish_with(result_after_error(write, moved(), error)); }
	// Runs on a worker: releasing its references may call CUDA.
	void close();
	uint64_t moved() const { return static_cast<uint64_t>(outcome); }
	uint64_t part() const { return std::min(request.size - moved(), staging_bytes); }
};

void Streams::StreamIo::fix(unsigned flags)
{
	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE) {
		fixed_size = *size_p;
		size_p = &fixed_size;
	}
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET) {
		fixed_file_off = *file_off_p;
		file_off_p = &fixed_file_off;
	}
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET) {
		fixed_buf_off = *buf_off_p;
		buf_off_p = &fixed_buf_off;
	}
}

void Streams::StreamIo::on_worker(void (StreamIo::*step)(Engine &))
{
	struct Task {
		StreamIo &io;
		void (StreamIo::*const step)(Engine &);
		std::mutex lock = {};
		Condition over = {};
		bool ended = false;
		void run()
		{
			BounceBufferPool::stream_waits = true;
			try {
				const DriverState::Lease lease(io.streams.state_);
				if (lease)
					(io.*step)(*lease);
				else
					io.stop(failed(CU_FILE_DRIVER_NOT_INITIALIZED));
			} catch (...) {
				io.stop(failed(CU_FILE_NOMEM_ERROR));
			}
			if (io.over)
				io.close();
			BounceBufferPool::stream_waits = false;
			// With the lock held: the waiter may destroy this object afterwards.
			const std::lock_guard guard(lock);
			ended = true;
			over.notify_one();
		}
	} task{*this, step};
	bool taken = false;
	CUfileOpError error = CU_FILE_DRIVER_NOT_INITIALIZED;
	if (!streams.state_.is_dead()) {
		try {
			const DriverState::Lease lease(streams.state_);
			taken = lease && lease->stream_workers.add([&task] { task.run(); });
			if (lease)
				error = CU_FILE_NOMEM_ERROR;
		} catch (...) {
			taken = false;
		}
	}
	if (!taken)
		return stop(failed(error));
	std::unique_lock guard(task.lock);
	task.over.wait(guard, [&] { return task.ended; });
}

void Streams::StreamIo::close()
{
	if (started)
		streams.router_.accounting().complete(request, outcome, host_fallback,
						      started_ns ? streams.deps_.system.now_ns() - started_ns : 0);
	started = false;
	request = {};
}

void Streams::StreamIo::begin()
{
	if (runs++)
		overlapped = true;
	if (staging)
		staging->descriptor().size = 0;
	if (overlapped || aborted)
		return;
	outcome = 0;
	over = started = false;
	host_fallback = {};
	started_ns = streams.stats_.on() ? streams.deps_.system.now_ns() : 0;
	on_worker(&StreamIo::start);
}

// True for memory of the stream's context, or managed memory: the kernel reaches no other.
bool Streams::StreamIo::can_stream_copy() const
{
	return staging && (request.memory.context == context || request.memory.kind == Memory::Kind::managed);
}

// True if the range is inside one allocation. A copy would be refused otherwise, but the kernel would run.
bool Streams::StreamIo::is_all_there() const
{
	Allocation all;
	if (streams.deps_.cuda.allocation(request.address, all))
		return false;
	const uint64_t before = reinterpret_cast<uintptr_t>(request.address) - all.start;
	return before <= all.size && request.size <= all.size - before;
}

// Reads the current parameters.
int64_t Streams::StreamIo::prepare(Engine &engine)
{
	request = {};
	request.in_stream = staging;
	// Read once: the checked values are the used values.
	const size_t size = *size_p;
	const off_t buf_off = *buf_off_p;
	if (size > most)
		return failed(CU_FILE_INVALID_VALUE);
	// As cuFile: not the error of a negative file offset.
	if (buf_off < 0)
		return failed(CU_FILE_INTERNAL_ERROR);
	return streams.router_.prepare(engine, handle, base, size, *file_off_p, buf_off, write, request);
}

void Streams::StreamIo::start(Engine &engine)
{
	int64_t rc = prepare(engine);
	if (rc < 0)
		streams.stats_.count(write ? &CUfileStatsLevel1_t::write_ops : &CUfileStatsLevel1_t::read_ops, false);
	if (rc)
		return finish_with(std::min<int64_t>(rc, 0));
	const bool by_stream = request.path != TransferPath::host && can_stream_copy();
	if (!by_stream) {
		// The I/O needs no copy, or one that the stream cannot do.
		request.in_stream = false;
		return finish_with(streams.router_.run(engine, request));
	}
	probe_begin(request);
	started = true;
	if (!is_all_there())
		return finish_with(copy_failed);
	if (request.path == TransferPath::direct) {
		rc = streams.router_.transfer_or_bounce_if_revoked(engine, request, host_fallback);
		if (rc != -ENODEV || !host_fallback.reason)
			return finish_with(rc);
		// The kernel has released the memory, but the stream still reaches it.
		request.path = TransferPath::bounce;
	}
	engine.bind_worker(request);
	if (write)
		staging->descriptor() = {staging->address_for(request.address), request.address, part()};
	else
		fill();
}

void Streams::StreamIo::fill()
{
	const uint64_t size = part();
	char *const to = request.address + moved(), *const from = staging->address_for(to);
	const int64_t n = request.file->read(from, size, request.offset + moved());
	if (n < 0)
		return stop(n);
	staging->descriptor() = {to, from, static_cast<uint64_t>(n)};
	outcome += n;
	over = moved() == request.size || static_cast<uint64_t>(n) < size;
}

void Streams::StreamIo::drain()
{
	const uint64_t size = staging->descriptor().size;
	const int64_t n = request.file->write(staging->descriptor().to, size, request.offset + moved());
	staging->descriptor().size = 0;
	if (n < 0)
		return stop(n);
	outcome += n;
	over = moved() == request.size || static_cast<uint64_t>(n) < size;
	const char *const from = request.address + moved();
	if (!over)
		staging->descriptor() = {staging->address_for(from), from, part()};
}

void Streams::StreamIo::next(Engine &)
{
	if (write)
		drain();
	else
		fill();
}

void Streams::StreamIo::resume()
{
	if (!write || over || overlapped || aborted)
		staging->descriptor().size = 0;
	if (!over && !overlapped && !aborted)
		on_worker(&StreamIo::next);
}

void Streams::StreamIo::end()
{
	if (!over && write && !overlapped)
		on_worker(&StreamIo::next);
	*result = stream_result(overlapped ? -EBUSY : outcome);
	if (!--runs)
		overlapped = false;
}

CUfileError_t Streams::submit(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
			      ssize_t *result, CUstream stream, bool write)
{
	if (!base || !size || !file_off || !buf_off || !result)
		return error(CU_FILE_INVALID_VALUE);
	const DriverState::Lease lease(state_);
	auto handle = lease ? registry_.find_file(fh) : nullptr;
	if (!handle)
		return error(CU_FILE_HANDLE_NOT_REGISTERED);
	if (!deps_.cuda.load())
		return error(CU_FILE_ASYNC_NOT_SUPPORTED);
	const size_t most = *size;
	if (!most) {
		*result = 0;
		return success();
	}
	unsigned flags = 0;
	const int unknown = flags_of(stream, flags);
	if (unknown)
		return error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(unknown));
	std::unique_ptr<StreamIo> io(new StreamIo{*this, std::move(handle), base, size, file_off, buf_off, result,
						  write, std::min<uint64_t>(most, most_bytes)});
	io->fix(flags);
	return enqueue(std::move(io), stream);
}

template <void (Streams::StreamIo::*...steps)()> void Streams::in_stream(void *arg)
{
	auto *const io = static_cast<StreamIo *>(arg);
	const DriverState::ActiveCall call(io->streams.state_); // the driver may be closed
	(..., (io->*steps)());
	io->unref();
}

CUfileError_t Streams::enqueue(std::unique_ptr<StreamIo> owned, CUstream stream)
{
	// For memory without a context this asks the driver for the device's, which must not happen while a stream
	// waits.
	Memory memory;
	static_cast<void>(deps_.cuda.look_up(owned->base, memory));
	StreamInfo lead;
	int unable = deps_.cuda.query_stream(stream, lead);
	ScopedCudaContext inside(deps_.cuda);
	if (!unable)
		unable = inside.enter(lead.context);
	if (!unable) {
		owned->staging = staging_buffers_.acquire(lead.context, lead.captured ? 0 : lead.id);
		owned->context = lead.context;
		owned->rounds = (owned->most + staging_bytes - 1) / staging_bytes;
		if (!owned->staging)
			return error(CU_FILE_NOMEM_ERROR);
	} else if (!logged_no_stream_copy_.exchange(true)) {
		log_.say(Log::Level::warn, "this CUDA driver cannot launch the copy kernel in a stream (CUresult " +
						   std::to_string(unable) +
						   "): freeing memory while a stream has I/O may hang");
	}
	StreamIo *const io = owned.release();
	StagingBuffer *const staging = io->staging;
	std::unique_lock<std::mutex> filing;
	if (staging)
		filing = std::unique_lock(staging->submission_lock);
	const auto call = [&](void (*function)(void *), void (*gone)(void *)) {
		bool captured = false;
		io->references++;
		const int rc = deps_.cuda.call_in_stream(stream, function, gone, io, captured);
		if (rc)
			io->references--;
		else if (captured)
			io->captured = true;
		return rc;
	};
	constexpr auto begin = in_stream<&StreamIo::begin>, resume = in_stream<&StreamIo::resume>;
	constexpr auto end = in_stream<&StreamIo::end>, all_at_once = in_stream<&StreamIo::begin, &StreamIo::end>;
	int rc = call(staging ? begin : all_at_once, [](void *arg) { delete static_cast<StreamIo *>(arg); });
	bool unreferenced = false; // the last kernel launch has no callback after it that holds a reference
	for (uint64_t round = 0; staging && round < io->rounds && !rc; round++) {
		rc = deps_.cuda.launch_copy(&staging->descriptor(), stream);
		unreferenced = !rc;
		if (!rc)
			rc = call(round + 1 == io->rounds ? end : resume, nullptr);
		// Entries that are already in the stream then do nothing.
		if (rc)
			io->aborted = true;
	}
	filing = {};
	if (!rc || !unreferenced)
		io->unref();
	return rc ? error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc)) : success();
}

Streams::StreamKey Streams::key_of(CUstream stream, uint64_t id)
{
	constexpr uintptr_t legacy = 1, per_thread = 2; // CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
	if (reinterpret_cast<uintptr_t>(stream) > per_thread)
		return {stream, 0};
	return {reinterpret_cast<uintptr_t>(stream) == legacy ? nullptr : stream, id};
}

int Streams::id_of(CUstream stream, uint64_t &id)
{
	id = 0;
	return deps_.cuda.load() ? deps_.cuda.stream_id(stream, id) : CUDA_ERROR_NOT_INITIALIZED;
}

int Streams::flags_of(CUstream stream, unsigned &flags)
{
	flags = 0;
	{
		// Most streams are not registered: do not ask the driver.
		const std::shared_lock guard(lock_);
		auto at = streams_.lower_bound(key_of(stream, 0));
		while (at != streams_.end() && at->first.first == key_of(stream, 0).first && !at->second.flags)
			++at;
		if (at == streams_.end() || at->first.first != key_of(stream, 0).first)
			return 0;
	}
	uint64_t id;
	const int rc = id_of(stream, id);
	const std::shared_lock guard(lock_);
	const auto found = streams_.find(key_of(stream, id));
	if (!rc && found != streams_.end() && found->second.id == id)
		flags = found->second.flags;
	return rc;
}

CUfileError_t Streams::register_stream(CUstream stream, unsigned flags)
{
	// The original accepts any flags.
	flags &= CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE |
		 CU_FILE_STREAM_PAGE_ALIGNED_INPUTS;
	deps_.cuda.retry_load();
	deps_.peerdma.retry_load();
	uint64_t id;
	const int rc = id_of(stream, id);
	// Without its id a stream cannot be told from a later one with the same handle, which must not inherit its
	// flags.
	if (rc && flags)
		return deps_.cuda.load() ? error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc)) :
					   error(CU_FILE_ASYNC_NOT_SUPPORTED);
	const std::lock_guard guard(lock_);
	const auto [known, added] = streams_.emplace(key_of(stream, id), RegisteredStream{id, flags});
	if (!added && known->second.id == id)
		return error(CU_FILE_INVALID_VALUE);
	known->second = {id, flags};
	return success();
}

CUfileError_t Streams::deregister_stream(CUstream stream)
{
	// Do not ask the driver about a handle: the program may have destroyed the stream.
	const bool is_handle = key_of(stream, 1).second == 0;
	uint64_t id = 0;
	if (!is_handle)
		static_cast<void>(id_of(stream, id));
	const std::lock_guard guard(lock_);
	return error(streams_.erase(key_of(stream, id)) ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

void Streams::clear()
{
	const std::lock_guard guard(lock_);
	streams_.clear();
}

} // namespace cufile
