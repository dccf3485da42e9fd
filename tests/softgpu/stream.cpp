// SPDX-License-Identifier: MIT
//
// Streams, events and host functions.
#include "stream.hpp"

#include <chrono>

#include <pthread.h>

using namespace softgpu;

struct CUstream_st {
	std::shared_ptr<Stream> is;
};

namespace
{

using Clock = std::chrono::steady_clock;

// The interval at which a waiting thread checks whether the driver is shut down.
constexpr std::chrono::milliseconds glance(20);

struct Event {
	Event(CUcontext in, bool timed) : context(in), timing(timed) {}
	const CUcontext context;
	const bool timing;
	std::mutex lock; // protects all below
	std::shared_ptr<Mark> last;
	std::shared_ptr<Graph> captured; // if recorded by a captured stream
	std::shared_ptr<std::atomic<Clock::time_point>> when;
};

} // namespace

struct CUevent_st {
	std::shared_ptr<Event> is;
};

namespace
{

// All streams. Never destroyed: their threads run until the process has ended.
struct Streams {
	Handles<CUstream_st, Stream> handles;
	Handles<CUevent_st, Event> events;
	std::shared_mutex lock; // protects all below
	std::vector<std::shared_ptr<Stream>> all;
	std::map<CUcontext, std::shared_ptr<Stream>> legacy;
	std::map<std::pair<uint64_t, CUcontext>, std::shared_ptr<Stream>> per_thread;
};

Streams &streams();

// A child of fork() has none of its parent's threads, and so gets default streams of its own. A real driver cannot be
// used in a child at all.
Streams *make_streams()
{
	const auto hold = [] { streams().lock.lock(); };
	const auto release = [] { streams().lock.unlock(); };
	const auto begin_anew = [] {
		std::construct_at(&streams().lock); // the owner's thread id differs in the child
		streams().all.clear();
		streams().legacy.clear();
		streams().per_thread.clear();
	};
	pthread_atfork(hold, release, begin_anew);
	return new Streams;
}

Streams &streams()
{
	static Streams *const the_streams = make_streams();
	return *the_streams;
}

uint64_t this_thread()
{
	static std::atomic<uint64_t> next{1};
	thread_local uint64_t number = 0;
	if (!number)
		number = next++;
	return number;
}

std::shared_ptr<Stream> make_stream(CUcontext context, bool blocking, int priority = 0)
{
	const auto stream = std::make_shared<Stream>(context, blocking, priority);
	{
		const std::lock_guard guard(streams().lock);
		streams().all.push_back(stream);
	}
	const auto forget = [](const std::shared_ptr<Stream> &gone) {
		const std::lock_guard guard(streams().lock);
		std::erase(streams().all, gone);
	};
	try {
		std::thread([stream, forget] {
			pthread_setname_np(pthread_self(), "fake-stream"); // not the name of the creator
			stream->run();
			forget(stream);
		}).detach();
	} catch (...) {
		forget(stream);
		throw;
	}
	return stream;
}

// The entry of a table, created on first use.
template <class Table, class Key>
std::shared_ptr<Stream> default_stream(Table &table, const Key &key, CUcontext context)
{
	{
		const std::shared_lock guard(streams().lock);
		const auto found = table.find(key);
		if (found != table.end())
			return found->second;
	}
	const auto made = make_stream(context, true);
	const std::lock_guard guard(streams().lock);
	const auto [place, is_first] = table.emplace(key, made);
	if (!is_first)
		made->stop();
	return place->second;
}

// Empty: the context's default stream was never used.
std::shared_ptr<Stream> legacy_of(CUcontext context)
{
	const std::shared_lock guard(streams().lock);
	const auto found = streams().legacy.find(context);
	return found == streams().legacy.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Stream>> all_of(CUcontext context)
{
	const std::shared_lock guard(streams().lock);
	std::vector<std::shared_ptr<Stream>> some;
	for (const auto &stream : streams().all)
		if (!context || stream->context == context)
			some.push_back(stream);
	return some;
}

// The thread of host functions. There is one for all streams: host functions that wait for each other hang, as on a
// real driver.
class HostThread
{
public:
	void add(Work call)
	{
		const std::lock_guard guard(lock_);
		if (!started_)
			std::thread([this] { run(); }).detach();
		started_ = true;
		calls_.push_back(std::move(call));
		wake_.notify_one();
	}

private:
	void run()
	{
		pthread_setname_np(pthread_self(), "fake-callbacks");
		in_host_function = true;
		for (std::unique_lock guard(lock_);;) {
			wake_.wait(guard, [&] { return !calls_.empty(); });
			const Work call = std::move(calls_.front());
			calls_.pop_front();
			guard.unlock();
			if (!world().down)
				call();
			guard.lock();
		}
	}

	std::mutex lock_; // protects all below
	std::condition_variable wake_;
	std::deque<Work> calls_;
	bool started_ = false;
};

// A child of fork() gets its own.
std::atomic<HostThread *> &host_thread()
{
	static std::atomic<HostThread *> the_thread = [] {
		pthread_atfork(nullptr, nullptr, [] { host_thread() = new HostThread; });
		return new HostThread;
	}();
	return the_thread;
}

// A call that tells one property of a stream.
template <class Value, class Get> CUresult tell(const char *call_name, CUstream handle, Value *out, Get &&get)
{
	return call(call_name, [&] {
		return with_stream(handle, [&](const Stream &stream) {
			*out = get(stream);
			return CUDA_SUCCESS;
		});
	});
}

template <class Body> CUresult with_event(CUevent handle, Body &&body)
{
	const std::shared_ptr<Event> event = streams().events.find(handle);
	if (event)
		return body(*event);
	wrong();
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult create_stream(CUstream *out, unsigned flags, int priority)
{
	CUcontext context = nullptr;
	if (!out || flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	if (const CUresult rc = need_context(context))
		return rc;
	const std::shared_lock guard(driver_lock());
	*out = streams().handles.add(make_stream(context, !(flags & CU_STREAM_NON_BLOCKING), priority));
	live(1);
	return CUDA_SUCCESS;
}

} // namespace

// --- Marks, streams
void Mark::pass()
{
	const std::lock_guard guard(lock_);
	passed_ = true;
	wake_.notify_all();
}
bool Mark::passed()
{
	const std::lock_guard guard(lock_);
	return passed_;
}
bool Mark::wait()
{
	std::unique_lock guard(lock_);
	while (!passed_ && !world().down)
		wake_.wait_for(guard, glance);
	return passed_;
}

void Stream::push(Work what)
{
	work_.push_back(std::move(what));
	wake_.notify_all();
}
void Stream::add(Work what)
{
	const std::lock_guard guard(lock_);
	if (capture_)
		capture_->add(std::move(what));
	else
		push(std::move(what));
}
std::shared_ptr<Mark> Stream::mark()
{
	const auto mark = std::make_shared<Mark>();
	const std::lock_guard guard(lock_);
	push([mark] { mark->pass(); });
	return mark;
}
bool Stream::quiet()
{
	const std::lock_guard guard(lock_);
	return work_.empty() && !busy_;
}
bool Stream::wait()
{
	std::unique_lock guard(lock_);
	while ((!work_.empty() || busy_) && !world().down)
		idle_.wait_for(guard, glance);
	return work_.empty() && !busy_;
}
std::shared_ptr<Graph> Stream::captured()
{
	const std::lock_guard guard(lock_);
	return capture_;
}
bool Stream::begin_capture(std::shared_ptr<Graph> into)
{
	const std::lock_guard guard(lock_);
	if (capture_)
		return false;
	capture_ = std::move(into);
	return true;
}
std::shared_ptr<Graph> Stream::end_capture()
{
	const std::lock_guard guard(lock_);
	return std::exchange(capture_, nullptr);
}
void Stream::stop()
{
	const std::lock_guard guard(lock_);
	stopped_ = true;
	wake_.notify_all();
}
void Stream::run()
{
	for (std::unique_lock guard(lock_);;) {
		wake_.wait(guard, [&] { return stopped_ || !work_.empty(); });
		if (work_.empty() || world().down)
			return;
		Work next = std::move(work_.front());
		work_.pop_front();
		busy_ = true;
		guard.unlock();
		next();
		next = nullptr; // destroyed before the stream counts as idle
		guard.lock();
		busy_ = false;
		idle_.notify_all();
	}
}

namespace softgpu
{

std::shared_ptr<Stream> stream_of(CUstream handle)
{
	if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
		return streams().handles.find(handle);
	CUcontext context = nullptr;
	if (need_context(context))
		return nullptr;
	if (handle == CU_STREAM_PER_THREAD)
		return default_stream(streams().per_thread, std::pair(this_thread(), context), context);
	return default_stream(streams().legacy, context, context);
}

void check_context(CUstream handle, const Stream &stream, CUcontext owner)
{
	const bool is_default = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
	if (!is_default && (current() != stream.context || (owner && owner != stream.context)))
		wrong();
}

void add(Stream &stream, Work what)
{
	if (stream.blocking && !stream.captured()) {
		std::vector<std::shared_ptr<Stream>> before = {legacy_of(stream.context)};
		if (before[0].get() == &stream)
			before = all_of(stream.context);
		for (const auto &other : before)
			if (other && other->blocking && other.get() != &stream && !other->quiet())
				stream.add([mark = other->mark()] { mark->wait(); });
	}
	stream.add(std::move(what));
}

bool wait_for_streams(CUcontext context)
{
	bool all = true;
	for (const auto &stream : all_of(context))
		all &= stream->wait();
	return all;
}

void call_host_later(Work call) { host_thread().load()->add(std::move(call)); }

void call_host(Work call)
{
	const auto done = std::make_shared<Mark>();
	call_host_later([call = std::move(call), done] {
		call();
		done->pass();
	});
	done->wait();
}

CUresult no_stream(CUstream handle)
{
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_CONTEXT;
	wrong();
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult refuse_captured(Stream &stream)
{
	const std::shared_ptr<Graph> graph = stream.captured();
	if (!graph)
		return CUDA_SUCCESS;
	graph->spoil(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

std::vector<std::shared_ptr<Stream>> streams_into(const std::shared_ptr<Graph> &graph)
{
	std::vector<std::shared_ptr<Stream>> some;
	for (const auto &stream : all_of(nullptr))
		if (stream->captured() == graph)
			some.push_back(stream);
	return some;
}

void unmake_streams_of(CUcontext context)
{
	wait_for_streams(context);
	for (CUstream handle : streams().handles.which([&](const Stream &one) { return one.context == context; }))
		streams().handles.remove(handle);
	for (CUevent handle : streams().events.which([&](const Event &one) { return one.context == context; }))
		streams().events.remove(handle);
	for (const auto &stream : all_of(context))
		stream->stop();
	const std::lock_guard guard(streams().lock);
	streams().legacy.erase(context);
	std::erase_if(streams().per_thread, [&](const auto &one) { return one.first.second == context; });
}

} // namespace softgpu

extern "C" {

void *fake_stream(int device) { return streams().handles.add(make_stream(primary_of(device), true)); }
void fake_stream_destroy(void *handle)
{
	const auto stream = streams().handles.remove(static_cast<CUstream>(handle));
	stream->wait();
	stream->stop();
}
void fake_sync(void *handle)
{
	if (handle || current())
		stream_of(static_cast<CUstream>(handle))->wait();
}

// --- Streams
CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	return call(__func__, [&] { return create_stream(out, flags, 0); });
}
// Only libcufile creates such a stream: it must not wait for other streams, and has priority.
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	return call(__func__, [&] {
		if (flags != CU_STREAM_NON_BLOCKING || priority != -5 || !current())
			wrong();
		return create_stream(out, flags, priority);
	});
}
// Its operations are still executed; this call does not wait for them.
CUresult cuStreamDestroy(CUstream handle)
{
	return call("cuStreamDestroy_v2", [&] {
		const auto stream = streams().handles.remove(handle);
		if (!stream) {
			wrong();
			return CUDA_ERROR_INVALID_HANDLE;
		}
		stream->stop();
		live_in(stream->context, -1);
		return CUDA_SUCCESS;
	});
}
CUresult cuStreamSynchronize(CUstream handle)
{
	return call(__func__, [&] {
		return with_stream(handle, [](Stream &stream) {
			if (const CUresult rc = refuse_captured(stream))
				return rc;
			return stream.wait() ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
		});
	});
}
CUresult cuStreamQuery(CUstream handle)
{
	return call(__func__, [&] {
		return with_stream(handle, [](Stream &stream) {
			if (const CUresult rc = refuse_captured(stream))
				return rc;
			return stream.quiet() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		});
	});
}
CUresult cuCtxSynchronize(void)
{
	return call(__func__, [] {
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		return wait_for_streams(context) ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
	});
}
CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
	return call(__func__, [&] {
		return with_event(event, [&](Event &what) {
			std::shared_ptr<Mark> mark;
			std::shared_ptr<Graph> graph;
			{
				const std::lock_guard guard(what.lock);
				mark = what.last;
				graph = what.captured;
			}
			return with_stream(handle, [&](Stream &stream) {
				if (flags)
					return CUDA_ERROR_INVALID_VALUE;
				if (graph) {
					// The stream joins the capture or returns to it.
					const bool same = stream.captured() == graph || stream.begin_capture(graph);
					return same ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_MERGE;
				}
				if (const auto own = stream.captured()) {
					own->spoil(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
					return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
				}
				if (mark)
					add(stream, [mark] { mark->wait(); });
				return CUDA_SUCCESS;
			});
		});
	});
}
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	return tell(__func__, handle, context, [](const Stream &stream) { return stream.context; });
}
CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	return tell(__func__, handle, id, [](const Stream &stream) { return stream.id; });
}
CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	return tell(__func__, handle, device, [](const Stream &stream) { return stream.context->device; });
}
CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	return tell(__func__, handle, flags,
		    [](const Stream &stream) { return stream.blocking ? 0 : CU_STREAM_NON_BLOCKING; });
}
CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	return tell(__func__, handle, priority, [](const Stream &stream) { return stream.priority; });
}

// --- Host functions
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *arg)
{
	return call(__func__, [&] {
		if (!function)
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(handle, [&](Stream &stream) {
			const std::shared_lock guard(driver_lock());
			add(stream, [=] { call_host([=] { function(arg); }); });
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *arg, unsigned flags)
{
	return call(__func__, [&] {
		if (!function || flags)
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(handle, [&](Stream &stream) {
			if (const CUresult rc = refuse_captured(stream))
				return rc;
			add(stream, [=] { call_host([=] { function(handle, CUDA_SUCCESS, arg); }); });
			return CUDA_SUCCESS;
		});
	});
}

// --- Events
CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	return call(__func__, [&] {
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		*out = streams().events.add(std::make_shared<Event>(context, !(flags & CU_EVENT_DISABLE_TIMING)));
		live(1);
		return CUDA_SUCCESS;
	});
}
CUresult cuEventDestroy(CUevent handle)
{
	return call("cuEventDestroy_v2", [&] {
		const auto event = streams().events.remove(handle);
		if (!event) {
			wrong();
			return CUDA_ERROR_INVALID_HANDLE;
		}
		live_in(event->context, -1);
		return CUDA_SUCCESS;
	});
}
// A thread or stream that already waits for the event waits for the earlier record.
CUresult cuEventRecord(CUevent handle, CUstream in)
{
	return call(__func__, [&] {
		return with_event(handle, [&](Event &event) {
			return with_stream(in, [&](Stream &stream) {
				check_context(in, stream);
				if (event.context != stream.context)
					return CUDA_ERROR_INVALID_HANDLE;
				const std::shared_lock guard(driver_lock());
				const std::lock_guard state(event.lock);
				event.captured = stream.captured();
				if (event.captured)
					return CUDA_SUCCESS;
				const auto mark = std::make_shared<Mark>();
				const auto when = std::make_shared<std::atomic<Clock::time_point>>();
				event.last = mark;
				event.when = when;
				add(stream, [mark, when] {
					*when = Clock::now();
					mark->pass();
				});
				return CUDA_SUCCESS;
			});
		});
	});
}
CUresult cuEventSynchronize(CUevent handle)
{
	return call(__func__, [&] {
		return with_event(handle, [](Event &event) {
			std::shared_ptr<Mark> mark;
			{
				const std::lock_guard guard(event.lock);
				if (event.captured)
					return CUDA_ERROR_CAPTURED_EVENT;
				mark = event.last;
			}
			return !mark || mark->wait() ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
		});
	});
}
CUresult cuEventQuery(CUevent handle)
{
	return call(__func__, [&] {
		return with_event(handle, [](Event &event) {
			const std::lock_guard guard(event.lock);
			if (event.captured)
				return CUDA_ERROR_CAPTURED_EVENT;
			return !event.last || event.last->passed() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		});
	});
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent second)
{
	return call(__func__, [&] {
		Clock::time_point moments[2];
		for (const int i : {0, 1}) {
			const CUresult rc = with_event(i ? second : first, [&](Event &event) {
				const std::lock_guard guard(event.lock);
				if (!event.timing || !event.last)
					return CUDA_ERROR_INVALID_HANDLE;
				moments[i] = *event.when;
				return event.last->passed() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
			});
			if (rc)
				return rc;
		}
		*milliseconds = std::chrono::duration<float, std::milli>(moments[1] - moments[0]).count();
		return CUDA_SUCCESS;
	});
}
}
