// SPDX-License-Identifier: MIT
//
// The engine has the parts of an open driver. The driver state holds it while the driver is open, and counts its users.
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
	// Moves the calling thread, a worker, to the CPUs next to the request's GPU. Not for a user-space filesystem:
	// its code may create threads, which would inherit the CPUs.
	void bind_worker(const Request &request);

	const Dependencies deps;
	Config config;
	BounceBufferPool bounce_buffers;
	PeerGpuBounces peer_gpus;
	Workers workers;
	Workers stream_workers;                    // streams wait for these; they never wait for a copy
	const unsigned cores;                      // usable by the program
	std::atomic<unsigned> bouncing_threads{0}; // the program's
	std::atomic<bool> logged_no_uring{false};
};

class DriverState
{
public:
	// Only for the driver's own calls, under the driver's lock.
	Engine *engine() const { return engine_.get(); }
	void set_engine(std::unique_ptr<Engine> engine);
	// Waits until no I/O uses the engine.
	std::unique_ptr<Engine> take_engine();
	// While set, new leases are empty. Otherwise the closing thread could wait for ever for the last lease.
	void set_closing(bool closing) { closing_ = closing; }
	bool is_closing() const { return closing_; }
	void set_busy(bool busy) { busy_ = busy; }

	// In the child of fork() the library is dead if the driver was open or another thread was in a call: that
	// thread is not in the child to release its locks. The flag is inherited by grandchildren.
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
	std::shared_mutex use_;                             // protects engine_; every lease holds it shared
	std::unique_ptr<Engine> engine_;
};

// A shared hold on the engine. Empty if the driver is closed.
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

// Increments a counter for its lifetime.
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

// Defers pthread_cancel() of the calling thread until its end.
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

// A thread in an API call. A canceled thread would leave locks and bounce buffers behind.
class DriverState::ActiveCall
{
public:
	explicit ActiveCall(DriverState &state) : counted_(state.active_calls_) {}

private:
	const NotCanceled not_canceled_;
	const Counted<unsigned> counted_;
};

} // namespace cufile
