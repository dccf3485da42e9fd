// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <mutex>

#include "cufile/platform/condition.hpp"

namespace cufile
{

// Threads that are there while there is work: made when it comes, gone when there has been none for a while.
class Workers
{
public:
	using Task = std::function<void()>;

	explicit Workers(unsigned most) : most_(most) {}
	~Workers() { stop(); }
	Workers(const Workers &) = delete;
	Workers &operator=(const Workers &) = delete;

	// Has a task run up to so many times, by as many threads as there can be. False: there is no thread, or no memory; the
	// task was not taken.
	bool add(const Task &task, unsigned times = 1) noexcept;
	// Whether the calling thread is a worker.
	static bool is_worker_thread();
	// Runs what was added, and ends all threads. Nothing may be added any more.
	void stop();
	unsigned running();

private:
	static void *main(void *self);
	void work();
	bool spawn();

	const unsigned most_;
	std::mutex lock_; // protects all below
	Condition wake_, ended_;
	std::deque<Task> tasks_;
	unsigned threads_ = 0, idle_ = 0;
	bool stopping_ = false;
};

} // namespace cufile
