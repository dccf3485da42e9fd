// SPDX-License-Identifier: MIT
#include "cufile/path/workers.hpp"

#include <chrono>
#include <csignal>
#include <new>

#include <pthread.h>

#include "cufile/platform/numa_affinity.hpp"

namespace cufile
{
namespace
{

constexpr std::chrono::milliseconds patience(200);

thread_local bool is_worker = false;

} // namespace

bool Workers::add(const Task &task, unsigned times) noexcept
{
	if (!times)
		return true;
	unsigned taken = 0;
	{
		std::lock_guard guard(lock_);
		if (stopping_)
			return false;
		try {
			for (; taken < times; taken++) {
				if (idle_ <= tasks_.size() && threads_ < most_)
					spawn();
				if (!threads_)
					return false;
				tasks_.push_back(task);
			}
		} catch (const std::bad_alloc &) {
			if (!taken)
				return false;
		}
	}
	// Wakes one worker, which wakes the next: the calling thread has work of its own.
	wake_.notify_one();
	return true;
}

// Blocks all signals: the program's handlers must not run on a thread that it does not know.
bool Workers::spawn()
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_attr_t attributes;
	if (pthread_attr_init(&attributes))
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (const Cpus *cpus = NumaAffinity::original_cpus()) {
		const CpuMask mask(*cpus);
		pthread_attr_setaffinity_np(&attributes, mask.bytes, mask.get());
	}
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_t thread;
	const bool made = !pthread_create(&thread, &attributes, main, this);
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
	pthread_attr_destroy(&attributes);
	threads_ += made;
	return made;
}

bool Workers::is_worker_thread() { return is_worker; }

void *Workers::main(void *self)
{
	is_worker = true;
	pthread_setname_np(pthread_self(), "peerdma-io");
	static_cast<Workers *>(self)->work();
	return nullptr;
}

void Workers::work()
{
	std::unique_lock guard(lock_);
	for (;;) {
		if (!tasks_.empty()) {
			const Task task = std::move(tasks_.front()); // moved: must not allocate
			tasks_.pop_front();
			const bool more = !tasks_.empty() && idle_;
			guard.unlock();
			if (more)
				wake_.notify_one();
			task();
			guard.lock();
			continue;
		}
		if (stopping_)
			break;
		idle_++;
		const auto status = wake_.wait_for(guard, patience);
		idle_--;
		if (status == std::cv_status::timeout && tasks_.empty())
			break;
	}
	threads_--;
	// With the lock held: the waiting thread may destroy this object once it has it.
	ended_.notify_all();
}

void Workers::stop()
{
	std::unique_lock guard(lock_);
	stopping_ = true;
	wake_.notify_all();
	ended_.wait(guard, [&] { return !threads_; });
}

unsigned Workers::running()
{
	std::lock_guard guard(lock_);
	return threads_;
}

} // namespace cufile
