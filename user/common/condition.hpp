// SPDX-License-Identifier: MIT
//
// A condition variable without std::condition_variable::wait() of libstdc++ 12 (GLIBCXX_3.4.30): a process that has
// already loaded an older libstdc++ could not load this library.
#pragma once

#include <condition_variable>
#include <mutex>

#include <pthread.h>

namespace peerdma_impl
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

} // namespace peerdma_impl
