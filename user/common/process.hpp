// SPDX-License-Identifier: MIT
//
// Identifies the process that owns a handle. After fork(2) the child has copies of the handles and shares the open
// /dev/peerdma to which the kernel's objects belong.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace peerdma_impl
{

// A number that differs from that of every ancestor by fork(2). It is kept in a page that the kernel wipes in a child,
// so that no system call is needed. Unlike a process id it is unique across PID namespaces. If the kernel does not
// support MADV_WIPEONFORK (before 4.14), the process id is used.
inline uint64_t this_process()
{
	static std::atomic<std::atomic<uint64_t> *> the_page = nullptr;
	static std::atomic<bool> by_pid = false;
	static std::atomic<uint64_t> last = 0; // copied by fork(2): a child continues the count
	auto *page = the_page.load(std::memory_order_acquire);
	if (!page && by_pid.load(std::memory_order_relaxed))
		return static_cast<uint64_t>(::getpid());
	if (!page) {
		// Not a static initializer: if another thread is in it during fork(2), the child would wait for it for
		// ever.
		const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
		void *const made = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (made == MAP_FAILED)
			return static_cast<uint64_t>(::getpid());
		if (::madvise(made, size, MADV_WIPEONFORK)) {
			::munmap(made, size);
			by_pid = true;
			return static_cast<uint64_t>(::getpid());
		}
		auto *const own = new (made) std::atomic<uint64_t>(0);
		if (the_page.compare_exchange_strong(page, own, std::memory_order_acq_rel))
			page = own;
		else
			::munmap(made, size);
	}
	uint64_t number = page->load(std::memory_order_relaxed);
	if (!number) {
		const uint64_t next = ++last;
		if (page->compare_exchange_strong(number, next, std::memory_order_relaxed))
			number = next;
	}
	return number;
}

// State of one process: a child after fork(2) starts with a new State. The parent's may be locked by a thread that does
// not exist in the child. Never destroyed: a library may be called while the process exits.
template <class State> class PerProcess
{
public:
	// inherited: set if a State of another process was there before.
	State &get(bool *inherited = nullptr)
	{
		Owned *owned = owned_.load(std::memory_order_acquire);
		while (!owned || owned->process != this_process()) {
			auto *const made = new Owned{this_process(), owned != nullptr, {}};
			if (owned_.compare_exchange_strong(owned, made, std::memory_order_acq_rel))
				owned = made;
			else
				delete made;
		}
		if (inherited)
			*inherited = owned->inherited;
		return owned->state;
	}

private:
	struct Owned {
		const uint64_t process;
		const bool inherited;
		State state;
	};
	std::atomic<Owned *> owned_ = nullptr;
};

} // namespace peerdma_impl
