// SPDX-License-Identifier: MIT
//
// What is waited for. std::condition_variable::wait() is of libstdc++ 12 (GLIBCXX_3.4.30), and a process that has loaded an
// older one before us could not load us for its sake.
#pragma once

#include <condition_variable>
#include <mutex>

#include <pthread.h>

namespace cufile
{

class Condition : public std::condition_variable
{
public:
	void wait(std::unique_lock<std::mutex> &guard)
	{
		pthread_cond_wait(native_handle(), guard.mutex()->native_handle());
	}
	template <class Predicate> void wait(std::unique_lock<std::mutex> &guard, Predicate until)
	{
		while (!until())
			wait(guard);
	}
};

} // namespace cufile
