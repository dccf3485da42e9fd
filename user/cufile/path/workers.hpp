// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <mutex>

#include "cufile/platform/condition.hpp"

namespace cufile
{

// Threads that are created when work arrives and exit after a while without work.
class Workers
{
public:
	using Task = std::function<void()>;

	explicit Workers(unsigned most) : most_(most) {}
	~Workers() { stop(); }
	Workers(const Workers &) = delete;
	Workers &operator=(const Workers &) = delete;

	// Runs a task up to `times` times, on as many threads as the limit allows. False: no thread or no memory; the
	// task was not taken.
	bool add(const Task &task, unsigned times = 1) noexcept;
	static bool is_worker_thread();
	// Runs all added tasks and ends all threads. Nothing may be added afterwards.
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
