// SPDX-License-Identifier: MIT
//
// Streams, events, graphs, and what is done in their order: copies and host functions. A stream is a thread, so that
// what forgets to wait is seen to. A graph is what one stream was told, in that order.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>

#include <pthread.h>

#include "world.hpp"

using namespace softgpu;

namespace
{

using Work = std::function<void()>;

struct EventState {
	std::mutex lock;
	std::condition_variable wake;
	bool done = true;

	void set(bool now)
	{
		std::lock_guard guard(lock);
		done = now;
		wake.notify_all();
	}
	void wait()
	{
		std::unique_lock guard(lock);
		wake.wait(guard, [&] { return done; });
	}
};

} // namespace

// It may be destroyed while a stream has not got to it.
struct CUevent_st {
	std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

// One reference is its handle's, one each executable's.
struct CUgraph_st {
	std::atomic<int> references{1};
	std::vector<Work> nodes, owned;

	void drop()
	{
		if (--references)
			return;
		for (const Work &gone : owned)
			gone();
		delete this;
	}
};

struct CUgraphExec_st {
	CUgraph graph;
};

struct CUuserObject_st {
	Work destroy;
};

struct CUstream_st {
	const CUcontext context; // nullptr: any
	const bool blocking;     // it and the default stream wait for each other
	const uint64_t id = next_id++;
	std::mutex lock;
	std::condition_variable wake, idle;
	std::deque<Work> work;
	bool busy = false, stop = false;
	CUgraph capture = nullptr, last = nullptr; // last: of fake_launch_graph()
	bool forbids = false;                      // the capture, to all threads, what waits
	std::thread thread;
	static inline std::atomic<uint64_t> next_id{1};

	// As in a real driver, a new stream is where the last one was.
	static inline std::mutex places_lock;
	static inline std::vector<void *> *const places = new std::vector<void *>; // of streams that were destroyed
	static void *operator new(size_t size)
	{
		std::lock_guard guard(places_lock);
		if (places->empty())
			return ::operator new(size);
		void *const place = places->back();
		places->pop_back();
		return place;
	}
	static void operator delete(void *place)
	{
		std::lock_guard guard(places_lock);
		places->push_back(place);
	}

	CUstream_st(CUcontext in, bool blocks) : context(in), blocking(blocks), thread([this] { run(); }) {}
	~CUstream_st()
	{
		{
			std::lock_guard guard(lock);
			stop = true;
		}
		wake.notify_all();
		thread.join();
	}
	void run()
	{
		pthread_setname_np(pthread_self(), "fake-stream"); // not that of who made it
		std::unique_lock guard(lock);
		for (;;) {
			wake.wait(guard, [&] { return stop || !work.empty(); });
			if (work.empty())
				return;
			auto next = std::move(work.front());
			work.pop_front();
			busy = true;
			guard.unlock();
			next();
			guard.lock();
			busy = false;
			idle.notify_all();
		}
	}
	void add(Work what)
	{
		std::lock_guard guard(lock);
		if (capture) {
			capture->nodes.push_back(std::move(what));
			return;
		}
		work.push_back(std::move(what));
		wake.notify_all();
	}
	bool quiet()
	{
		std::lock_guard guard(lock);
		return work.empty() && !busy;
	}
	void sync()
	{
		std::unique_lock guard(lock);
		idle.wait(guard, [&] { return work.empty() && !busy; });
	}
	// Done once all is that has been added so far.
	std::shared_ptr<EventState> mark()
	{
		auto state = std::make_shared<EventState>();
		state->done = false;
		std::lock_guard guard(lock);
		work.push_back([state] { state->set(true); });
		wake.notify_all();
		return state;
	}
};

namespace
{

// All streams that there are, for what waits for the device.
struct Streams {
	std::mutex lock;
	std::vector<CUstream> all;
	CUstream_st standard{nullptr, true};

	std::vector<CUstream> blocking()
	{
		std::vector<CUstream> some;
		for (CUstream stream : all)
			if (stream->blocking)
				some.push_back(stream);
		return some;
	}
};

Streams &streams()
{
	static Streams *const the_streams = new Streams;
	return *the_streams;
}

CUstream make_stream(CUcontext context, bool blocking)
{
	auto *const stream = new CUstream_st(context, blocking);
	std::lock_guard guard(streams().lock);
	streams().all.push_back(stream);
	return stream;
}

void unmake_stream(CUstream stream)
{
	{
		std::lock_guard guard(streams().lock);
		std::erase(streams().all, stream);
	}
	delete stream;
}

CUstream_st &stream_of(CUstream stream)
{
	if (stream == CU_STREAM_PER_THREAD) {
		thread_local const CUstream own = make_stream(current() ? current() : primary_of(0), true);
		return *own;
	}
	return stream && stream != CU_STREAM_LEGACY ? *stream : streams().standard;
}

// What is asked of a stream is so in its context, and of memory of that context.
void check_context(CUstream stream, CUcontext owner = nullptr)
{
	if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
	    (current() != stream->context || (owner && owner != stream->context)))
		wrong();
}

// Into a stream's order, which is also that of the default stream unless it is a stream of its own.
void add(CUstream stream, Work what)
{
	CUstream_st &on = stream_of(stream);
	if (!on.capture && on.blocking) {
		std::lock_guard guard(streams().lock);
		if (&on == &streams().standard) {
			for (CUstream other : streams().blocking())
				if (!other->quiet())
					on.add([before = other->mark()] { before->wait(); });
		} else if (!streams().standard.quiet()) {
			on.add([before = streams().standard.mark()] { before->wait(); });
		}
	}
	on.add(std::move(what));
}

// What a call that does not name a stream waits for, before it does its work at once.
void wait_for_default()
{
	std::vector<CUstream> some;
	{
		std::lock_guard guard(streams().lock);
		some = streams().blocking();
	}
	streams().standard.sync();
	for (CUstream stream : some)
		stream->sync();
}

Work in_stream(CUhostFn call, void *arg)
{
	return [call, arg] {
		in_host_function = true;
		call(arg);
		in_host_function = false;
	};
}

// What the CPU has stored in a device's memory is there for other devices once it was read back.
void read_back(const Span &span)
{
	if (span.size)
		static_cast<void>(*const_cast<volatile char *>(span.bytes + span.size - 1));
}

// Both are of the same length, not necessarily in the same pieces.
void copy(Spans to, Spans from)
{
	for (size_t t = 0, f = 0; t < to.size() && f < from.size();) {
		const size_t part = std::min(to[t].size, from[f].size);
		std::memmove(to[t].bytes, from[f].bytes, part);
		read_back({to[t].bytes, part});
		for (Span *const span : {&to[t], &from[f]}) {
			span->bytes += part;
			span->size -= part;
		}
		t += !to[t].size;
		f += !from[f].size;
	}
}

void fill(const Spans &to, unsigned char byte)
{
	for (const Span &span : to) {
		std::memset(span.bytes, byte, span.size);
		read_back(span);
	}
}

enum class Side { device, host, any };

Spans spans_of(CUdeviceptr address, size_t size, Side side)
{
	if (side == Side::host)
		return {{reinterpret_cast<char *>(address), size}};
	return spans_at(address, size, side == Side::any);
}

CUresult copy_now(const char *name, CUdeviceptr to, Side to_side, CUdeviceptr from, Side from_side, size_t size)
{
	if (const CUresult rc = begin(name))
		return rc;
	const Spans into = spans_of(to, size, to_side), out_of = spans_of(from, size, from_side);
	if (into.empty() || out_of.empty())
		return CUDA_ERROR_INVALID_VALUE;
	const std::shared_lock guard(driver_lock());
	wait_for_default();
	copy(into, out_of);
	return CUDA_SUCCESS;
}

CUresult copy_later(const char *name, CUdeviceptr to, Side to_side, CUdeviceptr from, Side from_side, size_t size,
		    CUstream stream)
{
	if (const CUresult rc = begin(name))
		return rc;
	check_context(stream, to_side == Side::device   ? owner_of(to) :
			      from_side == Side::device ? owner_of(from) :
							  nullptr);
	const Spans into = spans_of(to, size, to_side), out_of = spans_of(from, size, from_side);
	if (into.empty() || out_of.empty())
		return CUDA_ERROR_INVALID_VALUE;
	const std::shared_lock guard(driver_lock());
	add(stream, [into, out_of] { copy(into, out_of); });
	return CUDA_SUCCESS;
}

CUdeviceptr number(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

} // namespace

void softgpu::unmake_streams_of(CUcontext context)
{
	std::vector<CUstream> gone;
	{
		std::lock_guard guard(streams().lock);
		for (CUstream stream : streams().all)
			if (stream->context == context)
				gone.push_back(stream);
	}
	for (CUstream stream : gone)
		unmake_stream(stream);
}

extern "C" {

void *fake_stream(int device) { return make_stream(primary_of(device), true); }
void fake_stream_destroy(void *stream) { unmake_stream(static_cast<CUstream>(stream)); }
void fake_sync(void *stream) { stream_of(static_cast<CUstream>(stream)).sync(); }
void fake_capture(void *stream) { static_cast<CUstream>(stream)->capture = new CUgraph_st; }
void fake_launch_graph(void *stream)
{
	const auto on = static_cast<CUstream>(stream);
	if (on->capture)
		on->last = std::exchange(on->capture, nullptr);
	for (const Work &node : on->last->nodes)
		on->add(node);
}
void fake_end_graph(void *stream)
{
	const auto on = static_cast<CUstream>(stream);
	if (on->capture)
		on->last = std::exchange(on->capture, nullptr);
	on->sync();
	std::exchange(on->last, nullptr)->drop();
}

// --- Copies
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_now(__func__, to, Side::any, from, Side::any, size);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size)
{
	return copy_now("cuMemcpyHtoD_v2", to, Side::device, number(from), Side::host, size);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size)
{
	return copy_now("cuMemcpyDtoH_v2", number(to), Side::host, from, Side::device, size);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_now("cuMemcpyDtoD_v2", to, Side::device, from, Side::device, size);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later(__func__, to, Side::any, from, Side::any, size, stream);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyHtoDAsync_v2", to, Side::device, number(from), Side::host, size, stream);
}
// Of one set of attributes for all, and from host memory only.
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
			    size_t *which, size_t nr_attributes, CUstream stream)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	// Never of a default stream.
	if (!stream || !n || nr_attributes != 1 || *which ||
	    attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++)
		if (const CUresult rc = copy_later("cuMemcpyHtoDAsync_v2", to[i], Side::device, from[i], Side::host,
						   sizes[i], stream))
			return rc;
	return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyDtoHAsync_v2", number(to), Side::host, from, Side::device, size, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyDtoDAsync_v2", to, Side::device, from, Side::device, size, stream);
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char byte, size_t size)
{
	if (const CUresult rc = begin("cuMemsetD8_v2"))
		return rc;
	const Spans into = spans_at(to, size, false);
	if (into.empty())
		return CUDA_ERROR_INVALID_VALUE;
	wait_for_default();
	fill(into, byte);
	return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	const Spans into = spans_at(to, size, false);
	if (into.empty())
		return CUDA_ERROR_INVALID_VALUE;
	add(stream, [into, byte] { fill(into, byte); });
	return CUDA_SUCCESS;
}

// --- Streams
CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	const std::shared_lock guard(driver_lock());
	*out = make_stream(current(), !(flags & CU_STREAM_NON_BLOCKING));
	live(1);
	return CUDA_SUCCESS;
}
// Only libcufile asks for one: it must wait for nobody's, and come first.
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (flags != CU_STREAM_NON_BLOCKING || priority != -5 || !current())
		wrong();
	return cuStreamCreate(out, flags);
}
CUresult cuStreamDestroy(CUstream stream)
{
	if (const CUresult rc = begin("cuStreamDestroy_v2"))
		return rc;
	unmake_stream(stream);
	live(-1);
	return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	stream_of(stream).sync();
	return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream)
{
	const CUresult rc = begin(__func__);
	return rc ? rc : stream_of(stream).quiet() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuCtxSynchronize(void)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::vector<CUstream> all;
	{
		std::lock_guard guard(streams().lock);
		all = streams().all;
	}
	streams().standard.sync();
	for (CUstream stream : all)
		stream->sync();
	return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	add(stream, [state = event->state] { state->wait(); });
	return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	*context = stream_of(stream).context ? stream_of(stream).context : current();
	return begin(__func__);
}
CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	*id = stream_of(stream).id;
	return begin(__func__);
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn call, void *arg)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	const std::shared_lock guard(driver_lock());
	add(stream, in_stream(call, arg));
	return CUDA_SUCCESS;
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback call, void *arg, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	add(stream, [=] {
		in_host_function = true;
		call(stream, CUDA_SUCCESS, arg);
		in_host_function = false;
	});
	return CUDA_SUCCESS;
}

// --- The kernel that libcufile has
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *, void **, unsigned, void *, void **, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	*library = static_cast<CUlibrary>(const_cast<void *>(code));
	return std::strstr(static_cast<const char *>(code), ".entry") ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	*kernel = reinterpret_cast<CUkernel>(library);
	const bool known = !std::strcmp(name, "peerdma_carry") && std::strstr(reinterpret_cast<char *>(library), name);
	return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	const std::shared_lock guard(driver_lock());
	*function = reinterpret_cast<CUfunction>(kernel);
	return begin(__func__);
}
// Does what that one does. It cannot reach what neither a device nor the driver knows, nor another context's memory.
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			CUstream stream, void **parameters, void **)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	check_context(stream);
	struct Order {
		CUdeviceptr to, from;
		uint64_t size;
	};
	const volatile Order *const order = *static_cast<const volatile Order **>(parameters[0]);
	const std::shared_lock guard(driver_lock());
	add(stream, [order, in = current()] {
		if (!order->size)
			return;
		const Spans to = spans_at(order->to, order->size, false),
			    from = spans_at(order->from, order->size, false);
		const bool others = (owner_of(order->to) && owner_of(order->to) != in) ||
				    (owner_of(order->from) && owner_of(order->from) != in);
		if (to.empty() || from.empty() || others)
			wrong();
		else
			copy(to, from);
	});
	return CUDA_SUCCESS;
}

// --- Events
CUresult cuEventCreate(CUevent *out, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	*out = new CUevent_st;
	live(1);
	return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event)
{
	if (const CUresult rc = begin("cuEventDestroy_v2"))
		return rc;
	delete event;
	live(-1);
	return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	check_context(stream);
	const std::shared_lock guard(driver_lock());
	event->state->set(false);
	add(stream, [state = event->state] { state->set(true); });
	return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	event->state->wait();
	return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::lock_guard guard(event->state->lock);
	return event->state->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// --- Graphs
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	if (const CUresult rc = begin("cuStreamBeginCapture_v2"))
		return rc;
	CUstream_st &on = stream_of(stream);
	if (on.capture || &on == &streams().standard)
		return CUDA_ERROR_INVALID_VALUE;
	on.capture = new CUgraph_st;
	on.forbids = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
	std::lock_guard guard(world().lock);
	world().captures += on.forbids;
	return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	CUstream_st &on = stream_of(stream);
	*out = std::exchange(on.capture, nullptr);
	std::lock_guard guard(world().lock);
	world().captures -= std::exchange(on.forbids, false);
	if (*out && std::exchange(world().capture_void, false)) {
		std::exchange(*out, nullptr)->drop();
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	*mode = static_cast<CUstreamCaptureMode>(std::exchange(capture_mode, static_cast<int>(*mode)));
	return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	*status = stream_of(stream).capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return begin(__func__);
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
				const CUgraphNode **, size_t *)
{
	if (const CUresult rc = begin("cuStreamGetCaptureInfo_v2"))
		return rc;
	*id = 1;
	*graph = stream_of(stream).capture;
	*status = *graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}
CUresult cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy, unsigned, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	*out = new CUuserObject_st{[arg, destroy] { destroy(arg); }};
	return CUDA_SUCCESS;
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	graph->owned.push_back(std::move(object->destroy));
	delete object;
	return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, unsigned long long)
{
	if (const CUresult rc = begin("cuGraphInstantiateWithFlags"))
		return rc;
	graph->references++;
	*out = new CUgraphExec_st{graph};
	return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	for (const Work &node : exec->graph->nodes)
		add(stream, node);
	return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	exec->graph->drop();
	delete exec;
	return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	graph->drop();
	return CUDA_SUCCESS;
}
}
