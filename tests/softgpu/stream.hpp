// SPDX-License-Identifier: MIT
//
// Streams of the stand-in driver. Each has a thread, so that a missing wait is detected. Host functions of all streams
// run on one other thread, as in a real driver.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "world.hpp"

namespace softgpu
{

using Work = std::function<void()>;

// An object that a graph owns until its last reference is dropped.
class UserObject
{
public:
	UserObject(CUhostFn destroy, void *arg, unsigned references)
		: references_(references), destroy_(destroy), arg_(arg)
	{
	}
	void retain(unsigned count) { references_ += count; }
	// False: the caller does not have that many references. Dropping the last one runs the destructor later, on the
	// thread of host functions.
	bool release(unsigned count);

private:
	std::atomic<unsigned> references_;
	const CUhostFn destroy_;
	void *const arg_;
};

// The operations of one stream, and of those that joined its capture, in order.
struct Graph {
	// With a handle that programs can query during the capture.
	static std::shared_ptr<Graph> make(CUstreamCaptureMode mode, bool forbids);
	Graph(CUstreamCaptureMode in, bool counted);
	~Graph();
	Graph(const Graph &) = delete;
	Graph &operator=(const Graph &) = delete;

	const CUstreamCaptureMode mode;
	const bool forbids; // waiting calls in all threads; counted in World::captures
	const std::thread::id thread = std::this_thread::get_id();
	const uint64_t id = next_id++;
	std::mutex running; // serializes launches in all streams
	std::mutex lock;    // protects all below
	std::vector<Work> nodes;
	std::vector<std::pair<UserObject *, unsigned>> owned;
	std::unique_ptr<CUgraph_st> handle; // until the capture ends
	CUresult spoiled = CUDA_SUCCESS;    // after a call that is not allowed during a capture
	static inline std::atomic<uint64_t> next_id{1};

	void add(Work node);
	void spoil(CUresult why);
};

// A position in a stream's order.
class Mark
{
public:
	void pass();
	bool passed();
	// False: the driver was shut down before it was reached.
	bool wait();

private:
	std::mutex lock_;
	std::condition_variable wake_;
	bool passed_ = false;
};

class Stream
{
public:
	Stream(CUcontext in, bool blocks, int prio) : context(in), blocking(blocks), priority(prio) {}
	Stream(const Stream &) = delete;
	Stream &operator=(const Stream &) = delete;

	const CUcontext context;
	const bool blocking; // it and its context's default stream wait for each other
	const int priority;
	const uint64_t id = next_id++;

	// Appends to the stream, or to the graph while the stream is captured.
	void add(Work what);
	// The same, but never to a graph.
	std::shared_ptr<Mark> mark();
	bool quiet();
	// False: the driver was shut down before.
	bool wait();

	std::shared_ptr<Graph> captured();
	bool begin_capture(std::shared_ptr<Graph> into);
	std::shared_ptr<Graph> end_capture();

	// The stream's thread: runs until the stream is stopped and empty.
	void run();
	void stop();

private:
	void push(Work what);

	std::mutex lock_; // protects all below
	std::condition_variable wake_, idle_;
	std::deque<Work> work_;
	bool busy_ = false, stopped_ = false;
	std::shared_ptr<Graph> capture_;
	static inline std::atomic<uint64_t> next_id{1};
};

// The stream of a handle in the calling thread. Empty: there is no such stream.
std::shared_ptr<Stream> stream_of(CUstream handle);
// Counts a stream of another context than the current one, or memory of another context than the stream's.
void check_context(CUstream handle, const Stream &stream, CUcontext owner = nullptr);
// Ordered after earlier work of the stream, and of its context's default stream unless it is not blocking.
void add(Stream &stream, Work what);
// Runs on the thread of host functions; returns after it has run.
void call_host(Work call);
// The same, without waiting.
void call_host_later(Work call);
// For calls that a captured stream, or one joined to its capture, does not allow: the capture becomes invalid. Returns
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the stream is captured.
CUresult refuse_captured(Stream &stream);
// All streams that are captured into this graph.
std::vector<std::shared_ptr<Stream>> streams_into(const std::shared_ptr<Graph> &graph);

// The error of a handle without a stream. A real driver dereferences the pointer.
CUresult no_stream(CUstream handle);
// Work on a stream given by its handle.
template <class Body> CUresult with_stream(CUstream handle, Body &&body)
{
	const std::shared_ptr<Stream> stream = stream_of(handle);
	return stream ? body(*stream) : no_stream(handle);
}

// Handles that behave as a driver's: the next one created has the address of the last one destroyed. A handle that is
// not valid is detected.
template <class Handle, class Object> class Handles
{
public:
	Handle *add(std::shared_ptr<Object> object)
	{
		const std::lock_guard guard(lock_);
		if (free_.empty()) {
			free_.reserve(all_.size() + 1);
			all_.push_back(std::make_unique<Handle>());
			free_.push_back(all_.back().get());
		}
		Handle *const handle = free_.back();
		free_.pop_back();
		handle->is = std::move(object);
		return handle;
	}
	std::shared_ptr<Object> find(Handle *handle)
	{
		const std::shared_lock guard(lock_);
		return known(handle) ? handle->is : nullptr;
	}
	// Empty: the handle was not valid.
	std::shared_ptr<Object> remove(Handle *handle)
	{
		const std::lock_guard guard(lock_);
		if (!known(handle) || !handle->is)
			return nullptr;
		free_.reserve(free_.size() + 1);
		free_.push_back(handle);
		return std::exchange(handle->is, nullptr);
	}
	// All handles that satisfy the condition.
	template <class Which> std::vector<Handle *> which(Which &&holds)
	{
		const std::shared_lock guard(lock_);
		std::vector<Handle *> some;
		for (const auto &handle : all_)
			if (handle->is && holds(*handle->is))
				some.push_back(handle.get());
		return some;
	}

private:
	bool known(Handle *handle) const
	{
		return std::ranges::any_of(all_, [&](const auto &one) { return one.get() == handle; });
	}

	std::shared_mutex lock_; // protects all below
	std::vector<std::unique_ptr<Handle>> all_;
	std::vector<Handle *> free_;
};

} // namespace softgpu
