// SPDX-License-Identifier: MIT
//
// The parameters are read through their pointers when the stream gets there, but for those that the program promised to
// be fixed. The stream then waits for a worker. A thread that frees memory meanwhile holds the driver's lock until the
// stream is idle, so the worker must not take that lock, which every copy does. Therefore the worker reads into a staging
// buffer, and the stream itself copies from there, one buffer in each round.
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

// The most bytes of one I/O: each round is two entries of the stream.
constexpr uint64_t most_bytes = uint64_t{16} << 30;

// As cuFile has it: a range beyond the buffer is another error than in cuFileRead(), and an error of the system is -1.
ssize_t stream_result(int64_t result)
{
	if (result >= 0)
		return result;
	if (result == failed(CU_FILE_INVALID_MAPPING_RANGE))
		return failed(CU_FILE_INVALID_MAPPING_SIZE);
	return result < -CUFILEOP_BASE_ERR ? result : -1;
}

} // namespace

// Its rounds follow each other: the stream calls the library, then copies what the descriptor says. After the last one it
// calls once more.
struct Streams::StreamIo {
	Streams &streams;
	const std::shared_ptr<FileHandle> handle;
	void *const base;
	size_t *size_p;
	off_t *file_off_p, *buf_off_p;
	ssize_t *const result;
	const bool write;
	// The size when it was put into the stream, which is the program's limit: the number of rounds follows from it.
	const uint64_t most;
	// In place of what the pointers point to.
	size_t fixed_size = 0;
	off_t fixed_file_off = 0, fixed_buf_off = 0;
	bool captured = false; // it may run again
	// Without a staging buffer the driver cannot launch the kernel: then all is done in the stream's first call.
	StagingBuffer *staging = nullptr;
	Context context = nullptr;      // the stream's
	uint64_t rounds = 0;            // how often the stream launches the copy kernel
	std::atomic<int> references{1}; // of the stream's calls, and of the thread that enqueues them; not of a graph's
	std::atomic<bool> aborted{false};
	std::atomic<int> runs{0};            // under way
	std::atomic<bool> overlapped{false}; // two at a time: graphs that share it

	// Of one run.
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
	// The last one has it deleted; a graph does so itself.
	void unref()
	{
		if (!captured && !--references)
			delete this;
	}
	void begin();
	void resume_read();
	void end();

private:
	// On a worker, while the stream waits.
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
	void stop(int64_t error) { finish_with(stopped(write, moved(), error)); }
	// On a worker: what hangs on it may have to ask CUDA when it goes.
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
			// With the lock: afterwards all of this may be gone.
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

// It is in the stream's context, whose kernels reach no other's, or managed.
bool Streams::StreamIo::can_stream_copy() const
{
	return staging && (request.memory.context == context || request.memory.kind == Memory::Kind::managed);
}

// All of it is there: a copy that leaves an allocation would be refused, a kernel does as it is stream_result.
bool Streams::StreamIo::is_all_there() const
{
	Allocation all;
	if (streams.deps_.cuda.allocation(request.address, all))
		return false;
	const uint64_t before = reinterpret_cast<uintptr_t>(request.address) - all.start;
	return before <= all.size && request.size <= all.size - before;
}

// The parameters as they are now. The same for each way that the bytes may go.
int64_t Streams::StreamIo::prepare(Engine &engine)
{
	request = {};
	request.in_stream = staging;
	// Read once: what is checked is what is used.
	const size_t size = *size_p;
	const off_t buf_off = *buf_off_p;
	if (size > most)
		return failed(CU_FILE_INVALID_VALUE);
	// As cuFile has it: another error than that of a negative offset in the file.
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
		// What wants no copy, and what the stream cannot copy.
		request.in_stream = false;
		return finish_with(streams.router_.run(engine, request));
	}
	probe_begin(request);
	started = true;
	if (!is_all_there())
		return finish_with(copy_failed);
	if (request.path == TransferPath::direct) {
		rc = streams.router_.transfer_unbounced(engine, request, host_fallback);
		if (rc != -ENODEV || !host_fallback.reason)
			return finish_with(rc);
		// The kernel has had to give it back; the stream has it all the same.
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

void Streams::StreamIo::resume_read()
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
	// Of memory that belongs to no context the driver is asked for the device's, which is not to be done while a stream waits.
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
		log_.say(Log::Level::warn, "this CUDA driver cannot copy for us in a stream (CUresult " +
						   std::to_string(unable) +
						   "): who frees memory while there is I/O in one may hang");
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
	constexpr auto begin = in_stream<&StreamIo::begin>, resume_read = in_stream<&StreamIo::resume_read>;
	constexpr auto end = in_stream<&StreamIo::end>, all_at_once = in_stream<&StreamIo::begin, &StreamIo::end>;
	int rc = call(staging ? begin : all_at_once, [](void *arg) { delete static_cast<StreamIo *>(arg); });
	bool unreferenced = false; // the stream launches the copy kernel once more, without a reference to this
	for (uint64_t round = 0; staging && round < io->rounds && !rc; round++) {
		rc = deps_.cuda.launch_copy(&staging->descriptor(), stream);
		unreferenced = !rc;
		if (!rc)
			rc = call(round + 1 == io->rounds ? end : resume_read, nullptr);
		// What is in the stream already begins nothing more then.
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
		// Most streams are not registered: then the driver is not asked.
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
	// The original takes any flags.
	flags &= CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE |
		 CU_FILE_STREAM_PAGE_ALIGNED_INPUTS;
	deps_.cuda.retry_load();
	deps_.peerdma.retry_load();
	uint64_t id;
	const int rc = id_of(stream, id);
	// Without its id a stream cannot be stream_result from a later one of the same name, which must not inherit its flags.
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
	// The driver is not asked about a handle: the program may have destroyed the stream.
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
