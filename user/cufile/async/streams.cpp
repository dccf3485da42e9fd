// SPDX-License-Identifier: MIT
//
// I/O in the order of a CUDA stream. What the pointers point to is read when the stream gets there, not before, but for
// what the program promised to be fixed. The stream waits for us then, and who frees memory meanwhile has the driver's lock
// until the stream has ended: so nothing that we do may want that lock, which every copy does. The stream
// calls us, a worker reads into a staging, and the stream itself copies from there; and so on, a staging's bytes at a time.
#include <algorithm>
#include <atomic>
#include <cerrno>

#include "cufile/api/library.hpp"
#include "cufile/diag/probes.hpp"
#include "cufile/platform/condition.hpp"
#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

namespace
{

// The most bytes of one I/O: each turn is two entries of the stream.
constexpr uint64_t most_bytes = uint64_t{16} << 30;

// As cuFile has it: a range beyond the buffer is another error than in cuFileRead(), and an error of the system is -1.
ssize_t told(int64_t result)
{
	if (result >= 0)
		return result;
	if (result == failed(CU_FILE_INVALID_MAPPING_RANGE))
		return failed(CU_FILE_INVALID_MAPPING_SIZE);
	return result < -CUFILEOP_BASE_ERR ? result : -1;
}

} // namespace

// Its turns come one after the other: the stream calls us, then it copies what the order says. After the last one it calls
// us once more.
struct Library::StreamIo {
	Library &library;
	const std::shared_ptr<FileHandle> handle;
	void *const base;
	size_t *size_p;
	off_t *file_off_p, *buf_off_p;
	ssize_t *const result;
	const bool write;
	// The size when it was put into the stream, which is the program's limit: the number of turns follows from it.
	const uint64_t most;
	// In location of what the pointers point to.
	size_t fixed_size = 0;
	off_t fixed_file_off = 0, fixed_buf_off = 0;
	bool captured = false; // it may run again
	// Without a staging the driver cannot copy, and there is no turn: then all is done when the stream first calls.
	StagingBuffer *staging = nullptr;
	Context context = nullptr; // the stream's
	uint64_t turns = 0;        // how often the stream looks at the order
	std::atomic<int> holds{1}; // of the stream's calls, and of who puts them there; not of a graph's
	std::atomic<bool> given_up{false};
	std::atomic<int> runs{0};       // under way
	std::atomic<bool> mixed{false}; // two at a time: graphs that share it

	// Of one run.
	Request request = {};
	int64_t outcome = 0; // bytes, or an error
	bool over = true, begun = false;
	HostFallback host_fallback = {};
	uint64_t started_ns = 0;

	~StreamIo()
	{
		if (staging)
			StagingBufferPool::release(*staging);
	}

	void fix(unsigned flags);
	// The last one has it deleted; a graph does so itself.
	void let_go()
	{
		if (!captured && !--holds)
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
	void say(int64_t n)
	{
		outcome = n;
		over = true;
	}
	void stop(int64_t error) { say(stopped(write, moved(), error)); }
	// On a worker: what hangs on it may have to ask CUDA when it goes.
	void close();
	uint64_t moved() const { return static_cast<uint64_t>(outcome); }
	uint64_t part() const { return std::min(request.size - moved(), staging_bytes); }
};

void Library::StreamIo::fix(unsigned flags)
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

void Library::StreamIo::on_worker(void (StreamIo::*step)(Engine &))
{
	struct Turn {
		StreamIo &io;
		void (StreamIo::*const step)(Engine &);
		std::mutex lock = {};
		Condition over = {};
		bool ended = false;
		void take()
		{
			BounceBufferPool::stream_waits = true;
			try {
				const Use use(io.library);
				if (use)
					(io.*step)(*use);
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
	} turn{*this, step};
	bool taken = false;
	CUfileOpError error = CU_FILE_DRIVER_NOT_INITIALIZED;
	if (!library.dead()) {
		try {
			const Use use(library);
			taken = use && use->stream_workers.add([&turn] { turn.take(); });
			if (use)
				error = CU_FILE_NOMEM_ERROR;
		} catch (...) {
			taken = false;
		}
	}
	if (!taken)
		return stop(failed(error));
	std::unique_lock guard(turn.lock);
	turn.over.wait(guard, [&] { return turn.ended; });
}

void Library::StreamIo::close()
{
	if (begun)
		library.count(request, outcome, host_fallback, started_ns ? library.system().now_ns() - started_ns : 0);
	begun = false;
	request = {};
}

void Library::StreamIo::begin()
{
	if (runs++)
		mixed = true;
	if (staging)
		staging->descriptor().size = 0;
	if (mixed || given_up)
		return;
	outcome = 0;
	over = begun = false;
	host_fallback = {};
	started_ns = library.stats().on() ? library.system().now_ns() : 0;
	on_worker(&StreamIo::start);
}

// It is in the stream's context, whose kernels reach no other's, or managed.
bool Library::StreamIo::can_stream_copy() const
{
	return staging && (request.memory.context == context || request.memory.kind == Memory::Kind::managed);
}

// All of it is there: a copy that leaves an allocation would be refused, a kernel does as it is told.
bool Library::StreamIo::is_all_there() const
{
	Allocation all;
	if (library.deps_.cuda.allocation(request.address, all))
		return false;
	const uint64_t before = reinterpret_cast<uintptr_t>(request.address) - all.start;
	return before <= all.size && request.size <= all.size - before;
}

// The parameters as they are now. The same for each way that the bytes may go.
int64_t Library::StreamIo::prepare(Engine &engine)
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
	return library.prepare(engine, handle, base, size, *file_off_p, buf_off, write, request);
}

void Library::StreamIo::start(Engine &engine)
{
	int64_t rc = prepare(engine);
	if (rc < 0)
		library.stats().count(write ? &CUfileStatsLevel1_t::write_ops : &CUfileStatsLevel1_t::read_ops, false);
	if (rc)
		return say(std::min<int64_t>(rc, 0));
	const bool by_stream = request.path != TransferPath::host && can_stream_copy();
	if (!by_stream) {
		// What wants no copy, and what the stream cannot copy.
		request.in_stream = false;
		return say(library.run(engine, request));
	}
	probe_begin(request);
	begun = true;
	if (!is_all_there())
		return say(copy_failed);
	if (request.path == TransferPath::direct) {
		rc = run_request(request, engine.deps, engine.bounce_buffers, host_fallback);
		if (rc != -ENODEV || !host_fallback.reason)
			return say(rc);
		// The kernel has had to give it back; the stream has it all the same.
		request.path = TransferPath::bounce;
	}
	engine.bind_worker(request);
	if (write)
		staging->descriptor() = {staging->address_for(request.address), request.address, part()};
	else
		fill();
}

void Library::StreamIo::fill()
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

void Library::StreamIo::drain()
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

void Library::StreamIo::next(Engine &)
{
	if (write)
		drain();
	else
		fill();
}

void Library::StreamIo::resume_read()
{
	if (!write || over || mixed || given_up)
		staging->descriptor().size = 0;
	if (!over && !mixed && !given_up)
		on_worker(&StreamIo::next);
}

void Library::StreamIo::end()
{
	if (!over && write && !mixed)
		on_worker(&StreamIo::next);
	*result = told(mixed ? -EBUSY : outcome);
	if (!--runs)
		mixed = false;
}

CUfileError_t Library::submit_to_stream(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
					ssize_t *result, CUstream stream, bool write)
{
	if (!base || !size || !file_off || !buf_off || !result)
		return error(CU_FILE_INVALID_VALUE);
	const Use use(*this);
	auto handle = use ? find(fh) : nullptr;
	if (!handle)
		return error(CU_FILE_HANDLE_NOT_REGISTERED);
	if (!has_cuda())
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
	return put_into_stream(std::move(io), stream);
}

template <void (Library::StreamIo::*...steps)()> void Library::in_stream(void *arg)
{
	auto *const io = static_cast<StreamIo *>(arg);
	const Visit visit(io->library); // the driver may be closed
	(..., (io->*steps)());
	io->let_go();
}

CUfileError_t Library::put_into_stream(std::unique_ptr<StreamIo> owned, CUstream stream)
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
		owned->turns = (owned->most + staging_bytes - 1) / staging_bytes;
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
		io->holds++;
		const int rc = deps_.cuda.call_in_stream(stream, function, gone, io, captured);
		if (rc)
			io->holds--;
		else if (captured)
			io->captured = true;
		return rc;
	};
	constexpr auto begin = in_stream<&StreamIo::begin>, resume_read = in_stream<&StreamIo::resume_read>;
	constexpr auto end = in_stream<&StreamIo::end>, all_at_once = in_stream<&StreamIo::begin, &StreamIo::end>;
	int rc = call(staging ? begin : all_at_once, [](void *arg) { delete static_cast<StreamIo *>(arg); });
	bool unheld = false; // the stream looks at the order once more, and nobody holds it then
	for (uint64_t turn = 0; staging && turn < io->turns && !rc; turn++) {
		rc = deps_.cuda.launch_copy(&staging->descriptor(), stream);
		unheld = !rc;
		if (!rc)
			rc = call(turn + 1 == io->turns ? end : resume_read, nullptr);
		// What is in the stream already begins nothing more then.
		if (rc)
			io->given_up = true;
	}
	filing = {};
	if (!rc || !unheld)
		io->let_go();
	return rc ? error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc)) : success();
}

} // namespace cufile
