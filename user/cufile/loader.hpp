// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <mutex>
#include <type_traits>

#include <dlfcn.h>

namespace cufile
{

// A library that is looked for once, when it is first wanted, and kept. The program may load it later.
class Loader
{
public:
	constexpr explicit Loader(const char *name) : name_(name) {}
	Loader(const Loader &) = delete;
	Loader &operator=(const Loader &) = delete;

	// Whether it is there, with all that is needed. find(get) asks get(function, "its name", needed) for each function.
	template <class Find> bool load(Find &&find)
	{
		const int known = state_.load(std::memory_order_acquire);
		if (known)
			return known > 0;
		std::lock_guard guard(lock_);
		if (!state_.load(std::memory_order_relaxed))
			state_.store(look_for(find) ? 1 : -1, std::memory_order_release);
		return state_.load(std::memory_order_relaxed) > 0;
	}

	// Not found, it may have been loaded by somebody else since. Nothing is loaded for it.
	template <class Find> void look_again(Find &&find)
	{
		if (state_.load(std::memory_order_acquire) >= 0)
			return;
		std::lock_guard guard(lock_);
		if (state_.load(std::memory_order_relaxed) < 0 && look_for(find, RTLD_NOLOAD))
			state_.store(1, std::memory_order_release);
	}

private:
	template <class Find> bool look_for(Find &&find, int how = 0)
	{
		void *library = ::dlopen(name_, RTLD_NOW | RTLD_LOCAL | how);
		if (!library)
			return false;
		bool all = true;
		find([&](auto &function, const char *name, bool needed = true) {
			function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
			all = all && (function || !needed);
		});
		if (!all)
			::dlclose(library);
		return all;
	}

	const char *const name_;
	std::mutex lock_;           // protects the looking
	std::atomic<int> state_{0}; // 0 not looked for, 1 found, -1 there is none
};

} // namespace cufile
