// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

namespace cufile
{

// The dynamic linker. Tests replace it.
struct Linker {
	static void *open(const char *name, int flags) { return ::dlopen(name, flags); }
	// There are too few descriptors to load a library.
	static bool is_short()
	{
		const int fd = ::open("/", O_PATH | O_CLOEXEC);
		if (fd >= 0)
			::close(fd);
		return fd < 0 && (errno == EMFILE || errno == ENFILE);
	}
	// Libraries that the process has ever loaded.
	static uint64_t loads()
	{
		uint64_t adds = 0;
		::dl_iterate_phdr(
			[](struct dl_phdr_info *info, size_t, void *out) {
				*static_cast<uint64_t *>(out) = info->dlpi_adds;
				return 1; // each entry has the same count
			},
			&adds);
		return adds;
	}
};

// A library that is looked up on first use and kept. only_loaded: found only once the program or another library has
// loaded it.
template <class Via> class LoaderVia
{
public:
	constexpr explicit LoaderVia(const char *name, bool only_loaded = false)
		: name_(name), state_(only_loaded ? -1 : 0)
	{
	}
	LoaderVia(const LoaderVia &) = delete;
	LoaderVia &operator=(const LoaderVia &) = delete;

	// load() has found it.
	bool is_loaded() const { return state_.load(std::memory_order_acquire) > 0; }
	// True if the library and all needed functions are there. find(get) calls get(function, "its name", needed) for
	// each function.
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

	// Looks again for a library that load() did not find. Does not load it, and does not search (a walk through the
	// library path) unless the process has loaded something since. After a shortage of descriptors it searches as
	// load() does.
	template <class Find> void retry_load(Find &&find)
	{
		if (state_.load(std::memory_order_acquire) >= 0 ||
		    (!short_ && Via::loads() == loads_.load(std::memory_order_relaxed)))
			return;
		std::lock_guard guard(lock_);
		if (state_.load(std::memory_order_relaxed) < 0 && look_for(find, short_ ? 0 : RTLD_NOLOAD))
			state_.store(1, std::memory_order_release);
	}

private:
	template <class Find> bool look_for(Find &&find, int how = 0)
	{
		// Read first: a library loaded meanwhile is worth another search.
		loads_.store(Via::loads(), std::memory_order_relaxed);
		void *library = Via::open(name_, RTLD_NOW | RTLD_LOCAL | how);
		short_ = !library && !(how & RTLD_NOLOAD) && Via::is_short();
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
	std::mutex lock_;                // serializes searches
	std::atomic<int> state_;         // 0 not searched, 1 found, -1 not found
	std::atomic<uint64_t> loads_{0}; // at the last search
	std::atomic<bool> short_{false}; // the last search met a shortage of descriptors
};

using Loader = LoaderVia<Linker>;

} // namespace cufile
