// SPDX-License-Identifier: MIT
//
// The engine is what an open driver works with. The driver state holds it while the driver is open, and counts its users.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include <pthread.h>

#include "cufile/config/config.hpp"
#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"
#include "cufile/path/peer_gpu_bounce.hpp"
#include "cufile/path/workers.hpp"

namespace cufile
{

struct Engine {
	Engine(Config c, const Dependencies &deps);
	// Moves the calling thread, a worker, to the CPUs next to the request's GPU. Not for a file system of the program's own: its code may
	// make threads.
	void bind_worker(const Request &request);

	const Dependencies deps;
	Config config;
	BounceBufferPool bounce_buffers;
	PeerGpuBounces peer_gpus;
	Workers workers;
	Workers stream_workers;                    // that streams wait for: never behind a copy
	const unsigned cores;                      // that the program may use
	std::atomic<unsigned> bouncing_threads{0}; // of the program
	std::atomic<bool> logged_no_uring{false};
};

class DriverState
{
public:
	// The calls of the driver itself, which are under a lock of its own.
	Engine *engine() const { return engine_.get(); }
	void set_engine(std::unique_ptr<Engine> engine);
	// Waits until no I/O uses it.
	std::unique_ptr<Engine> take_engine();
	// While it is set, there are no new leases: the closing thread could else wait for ever for the last one to end.
	void set_closing(bool closing) { closing_ = closing; }
	bool is_closing() const { return closing_; }
	void set_busy(bool busy) { busy_ = busy; }

	// In the child of fork(): the library is dead if the driver was open, or if another thread was in a call, because that
	// thread is not there to release its locks. So it is in children of that child.
	void after_fork()
	{
		if (busy_ || active_calls_)
			dead_ = true;
	}
	bool is_dead() const { return dead_.load(std::memory_order_relaxed); }

	class Lease;
	class ActiveCall;

private:
	std::atomic<bool> busy_{false}, dead_{false};
	std::atomic<bool> closing_{false};
	alignas(64) std::atomic<unsigned> active_calls_{0}; // threads
	std::shared_mutex use_;                             // held shared by every lease; protects engine_
	std::unique_ptr<Engine> engine_;
};

// A shared hold on the engine. Empty: the driver is closed.
class DriverState::Lease
{
public:
	explicit Lease(DriverState &state)
		: guard_(state.closing_ ? Guard() : Guard(state.use_)), engine_(guard_ ? state.engine_.get() : nullptr)
	{
	}
	Engine *operator->() const { return engine_; }
	Engine &operator*() const { return *engine_; }
	explicit operator bool() const { return engine_; }

private:
	using Guard = std::shared_lock<std::shared_mutex>;
	Guard guard_;
	Engine *const engine_;
};

// Counts itself while it lives.
template <class Number> class Counted
{
public:
	explicit Counted(std::atomic<Number> &count) : count_(count) { count_++; }
	~Counted() { count_--; }
	Counted(const Counted &) = delete;
	Counted &operator=(const Counted &) = delete;

private:
	std::atomic<Number> &count_;
};

// pthread_cancel() of the calling thread takes effect when it ends.
class NotCanceled
{
public:
	NotCanceled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
	~NotCanceled() { pthread_setcancelstate(before_, nullptr); }
	NotCanceled(const NotCanceled &) = delete;
	NotCanceled &operator=(const NotCanceled &) = delete;

private:
	int before_ = PTHREAD_CANCEL_ENABLE;
};

// A thread in one of our calls. It cannot be canceled: it would leave locks and bounce buffers behind.
class DriverState::ActiveCall
{
public:
	explicit ActiveCall(DriverState &state) : counted_(state.active_calls_) {}

private:
	const NotCanceled not_canceled_;
	const Counted<unsigned> counted_;
};

} // namespace cufile
