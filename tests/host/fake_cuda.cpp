// SPDX-License-Identifier: MIT
//
// A stand-in for libcuda.so.1, for tests of libcufile: two devices whose memory is host memory that only the driver's
// copies reach. Streams are threads, so that what forgets to wait is seen to.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda.hpp"

namespace
{

constexpr int invalid_value = 1, not_initialized = 3, invalid_device = 101, invalid_handle = 400;

struct Memory {
	size_t size;
	char *bytes;
	int device, kind;
};

struct Stream {
	int device = 0;
	std::mutex lock;
	std::condition_variable wake, idle;
	std::deque<std::function<void()>> work;
	bool busy = false, stop = false, capturing = false;
	std::vector<std::function<void()>> graph, owned;
	std::thread thread;

	explicit Stream(int d) : device(d), thread([this] { run(); }) {}
	~Stream()
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
	void add(std::function<void()> what)
	{
		std::lock_guard guard(lock);
		work.push_back(std::move(what));
		wake.notify_all();
	}
	void sync()
	{
		std::unique_lock guard(lock);
		idle.wait(guard, [&] { return work.empty() && !busy; });
	}
};

struct EventState {
	std::mutex lock;
	std::condition_variable wake;
	bool done = true;
};
// It may be destroyed while a stream has not got to it.
struct Event {
	std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

struct World {
	std::mutex lock;
	std::map<char *, Memory> memory;
	std::map<std::string, std::pair<int, int>> failures;
	int wrongs = 0, live = 0;
	bool initialized = true;
	char contexts[2]{}; // their addresses are the contexts
	Stream standard{0};
};

World &world()
{
	static World *const the_world = new World;
	return *the_world;
}

thread_local std::vector<void *> stack;
thread_local bool in_host_function;

void *context_of(int device) { return &world().contexts[device]; }
void *current() { return stack.empty() ? nullptr : stack.back(); }

// What the call is to return instead, or 0.
int begin(const char *name)
{
	World &w = world();
	std::lock_guard guard(w.lock);
	if (in_host_function)
		w.wrongs++;
	if (!w.initialized)
		return not_initialized;
	const auto found = w.failures.find(name);
	if (found == w.failures.end() || found->second.first-- > 0)
		return 0;
	const int result = found->second.second;
	w.failures.erase(found);
	return result;
}

void wrong()
{
	std::lock_guard guard(world().lock);
	world().wrongs++;
}

void live(int change)
{
	std::lock_guard guard(world().lock);
	world().live += change;
}

const Memory *find(const void *address, size_t size, char *&bytes)
{
	World &w = world();
	std::lock_guard guard(w.lock);
	auto next = w.memory.upper_bound(static_cast<char *>(const_cast<void *>(address)));
	if (next == w.memory.begin())
		return nullptr;
	const auto &[base, memory] = *std::prev(next);
	const size_t offset = static_cast<size_t>(static_cast<const char *>(address) - base);
	if (offset >= memory.size || size > memory.size - offset)
		return nullptr;
	bytes = memory.bytes + offset;
	return &memory;
}

Stream &stream_of(void *stream) { return stream ? *static_cast<Stream *>(stream) : world().standard; }

void check_context(void *stream)
{
	if (stream && current() != context_of(static_cast<Stream *>(stream)->device))
		wrong();
}

} // namespace

extern "C" {

void *fake_alloc(size_t size, int device, int kind)
{
	const size_t pages = (size + 4095) / 4096 * 4096;
	const int fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
	if (ftruncate(fd, static_cast<off_t>(pages)))
		std::abort();
	void *seen = mmap(nullptr, pages, kind == 1 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, fd, 0);
	void *bytes = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	std::lock_guard guard(world().lock);
	world().memory[static_cast<char *>(seen)] = {size, static_cast<char *>(bytes), device, kind};
	return seen;
}

void fake_free(void *memory)
{
	std::lock_guard guard(world().lock);
	const auto found = world().memory.find(static_cast<char *>(memory));
	const size_t pages = (found->second.size + 4095) / 4096 * 4096;
	munmap(memory, pages);
	munmap(found->second.bytes, pages);
	world().memory.erase(found);
}

char *fake_peek(void *memory)
{
	char *bytes = nullptr;
	find(memory, 0, bytes);
	return bytes;
}

void fake_fail(const char *name, int after, int result)
{
	std::lock_guard guard(world().lock);
	world().failures[name] = {after, result};
}

int fake_wrongs(void)
{
	std::lock_guard guard(world().lock);
	return world().wrongs;
}

int fake_live(void)
{
	std::lock_guard guard(world().lock);
	return world().live;
}

void fake_initialized(int yes)
{
	std::lock_guard guard(world().lock);
	world().initialized = yes;
}

void *fake_stream(int device) { return new Stream(device); }
void fake_stream_destroy(void *stream) { delete static_cast<Stream *>(stream); }
void fake_sync(void *stream) { stream_of(stream).sync(); }
void fake_capture(void *stream) { stream_of(stream).capturing = true; }
void fake_launch_graph(void *stream)
{
	Stream &on = stream_of(stream);
	on.capturing = false;
	for (const auto &node : on.graph)
		on.add(node);
}
void fake_end_graph(void *stream)
{
	Stream &on = stream_of(stream);
	on.sync();
	on.graph.clear();
	for (const auto &drop : on.owned)
		drop();
	on.owned.clear();
}
void fake_set_current(int device)
{
	stack.clear();
	if (device >= 0)
		stack.push_back(context_of(device));
}

int cuInit(unsigned)
{
	fake_initialized(1);
	return 0;
}

int cuPointerGetAttributes(unsigned n, int *attributes, void **answers, unsigned long long pointer)
{
	if (const int rc = begin("cuPointerGetAttributes"))
		return rc;
	char *bytes;
	const Memory *memory = find(reinterpret_cast<void *>(pointer), 0, bytes);
	for (unsigned i = 0; i < n; i++) {
		switch (attributes[i]) {
		case 1:
			*static_cast<void **>(answers[i]) =
				memory && memory->kind != 2 ? context_of(memory->device) : nullptr;
			break;
		case 2:
			*static_cast<unsigned *>(answers[i]) = memory ? 2 : 0;
			break;
		case 8:
			*static_cast<unsigned *>(answers[i]) = memory && memory->kind == 1;
			break;
		case 9:
			*static_cast<int *>(answers[i]) = memory ? memory->device : -2;
			break;
		default:
			return invalid_value;
		}
	}
	return 0;
}

int cuCtxGetCurrent(void **context)
{
	if (const int rc = begin("cuCtxGetCurrent"))
		return rc;
	*context = current();
	return 0;
}
int cuCtxPushCurrent_v2(void *context)
{
	if (const int rc = begin("cuCtxPushCurrent_v2"))
		return rc;
	stack.push_back(context);
	return 0;
}
int cuCtxPopCurrent_v2(void **context)
{
	if (const int rc = begin("cuCtxPopCurrent_v2"))
		return rc;
	*context = current();
	stack.pop_back();
	return 0;
}
// What tests/gpu/cufile_gpu.cpp wants besides.
int cuCtxSetCurrent(void *context)
{
	stack.assign(1, context);
	return begin("cuCtxSetCurrent");
}
int cuMemAlloc_v2(unsigned long long *out, size_t size)
{
	*out = reinterpret_cast<unsigned long long>(fake_alloc(size, 0, 0));
	return begin("cuMemAlloc_v2");
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size)
{
	char *bytes;
	if (!find(reinterpret_cast<void *>(to), size, bytes))
		return invalid_value;
	std::memcpy(bytes, from, size);
	return begin("cuMemcpyHtoD_v2");
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size)
{
	char *bytes;
	if (!find(reinterpret_cast<void *>(from), size, bytes))
		return invalid_value;
	std::memcpy(to, bytes, size);
	return begin("cuMemcpyDtoH_v2");
}
int cuMemHostAlloc(void **out, size_t size, unsigned)
{
	if (const int rc = begin("cuMemHostAlloc"))
		return rc;
	*out = std::aligned_alloc(4096, size);
	// Nobody may count on zeros.
	std::memset(*out, 0x5a, size);
	live(1);
	return 0;
}
int cuMemFreeHost(void *memory)
{
	if (const int rc = begin("cuMemFreeHost"))
		return rc;
	std::free(memory);
	live(-1);
	return 0;
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return begin("cuCtxGetStreamPriorityRange");
}
int cuStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
	if (const int rc = begin("cuStreamCreateWithPriority"))
		return rc;
	if (flags != 1 || priority != -5 || !current())
		wrong();
	*out = new Stream(current() == context_of(1));
	live(1);
	return 0;
}
int cuStreamDestroy_v2(void *stream)
{
	if (const int rc = begin("cuStreamDestroy_v2"))
		return rc;
	delete static_cast<Stream *>(stream);
	live(-1);
	return 0;
}
int cuStreamSynchronize(void *stream)
{
	if (const int rc = begin("cuStreamSynchronize"))
		return rc;
	stream_of(stream).sync();
	return 0;
}
int cuEventCreate(void **out, unsigned)
{
	if (const int rc = begin("cuEventCreate"))
		return rc;
	*out = new Event;
	live(1);
	return 0;
}
int cuEventDestroy_v2(void *event)
{
	if (const int rc = begin("cuEventDestroy_v2"))
		return rc;
	delete static_cast<Event *>(event);
	live(-1);
	return 0;
}
int cuEventRecord(void *event, void *stream)
{
	if (const int rc = begin("cuEventRecord"))
		return rc;
	check_context(stream);
	const auto it = static_cast<Event *>(event)->state;
	{
		std::lock_guard guard(it->lock);
		it->done = false;
	}
	stream_of(stream).add([it] {
		std::lock_guard guard(it->lock);
		it->done = true;
		it->wake.notify_all();
	});
	return 0;
}
int cuEventSynchronize(void *event)
{
	if (const int rc = begin("cuEventSynchronize"))
		return rc;
	const auto it = static_cast<Event *>(event)->state;
	std::unique_lock guard(it->lock);
	it->wake.wait(guard, [&] { return it->done; });
	return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, void *stream)
{
	if (const int rc = begin("cuMemcpyHtoDAsync_v2"))
		return rc;
	check_context(stream);
	char *bytes;
	if (!find(reinterpret_cast<void *>(to), size, bytes))
		return invalid_value;
	stream_of(stream).add([bytes, from, size] { std::memcpy(bytes, from, size); });
	return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, void *stream)
{
	if (const int rc = begin("cuMemcpyDtoHAsync_v2"))
		return rc;
	check_context(stream);
	char *bytes;
	if (!find(reinterpret_cast<void *>(from), size, bytes))
		return invalid_value;
	stream_of(stream).add([to, bytes, size] { std::memcpy(to, bytes, size); });
	return 0;
}
int cuLaunchHostFunc(void *stream, void (*call)(void *), void *arg)
{
	if (const int rc = begin("cuLaunchHostFunc"))
		return rc;
	Stream &on = stream_of(stream);
	auto node = [call, arg] {
		in_host_function = true;
		call(arg);
		in_host_function = false;
	};
	if (on.capturing)
		on.graph.emplace_back(node);
	else
		on.add(node);
	return 0;
}
int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, const void ***, size_t *)
{
	if (const int rc = begin("cuStreamGetCaptureInfo_v2"))
		return rc;
	*status = stream_of(stream).capturing;
	*id = 1;
	*graph = stream;
	return 0;
}
int cuUserObjectCreate(void **out, void *arg, void (*destroy)(void *), unsigned, unsigned)
{
	if (const int rc = begin("cuUserObjectCreate"))
		return rc;
	*out = new std::function<void()>([arg, destroy] { destroy(arg); });
	return 0;
}
int cuGraphRetainUserObject(void *graph, void *object, unsigned, unsigned)
{
	if (const int rc = begin("cuGraphRetainUserObject"))
		return rc;
	auto *const drop = static_cast<std::function<void()> *>(object);
	stream_of(graph).owned.push_back(*drop);
	delete drop;
	return 0;
}
int cuDeviceGetCount(int *count)
{
	*count = 2;
	return begin("cuDeviceGetCount");
}
int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < 0 || ordinal > 1 ? invalid_device : begin("cuDeviceGet");
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = context_of(device);
	return begin("cuDevicePrimaryCtxRetain");
}
int cuDeviceGetUuid(char *uuid, int device)
{
	std::memset(uuid, 0xa0 + device, 16);
	return begin("cuDeviceGetUuid");
}
int cuDeviceGetPCIBusId(char *text, int len, int device)
{
	if (device)
		return invalid_handle;
	std::strncpy(text, "FFFF:FF:1F.7", static_cast<size_t>(len));
	return begin("cuDeviceGetPCIBusId");
}
}
