// SPDX-License-Identifier: MIT
//
// Which process this is, for handles: after fork(2) a child has copies of them, and shares the open /dev/peerdma that the
// kernel's objects belong to.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace peerdma_impl
{

// A number that no process has whose memory this one's is a copy of. It is in a page that the kernel empties for a child,
// so that no system call is needed, and no number that a namespace gives twice. Where the kernel cannot (before 4.14) it
// is the process's id.
inline uint64_t this_process()
{
	static std::atomic<std::atomic<uint64_t> *> the_page = nullptr;
	static std::atomic<bool> by_pid = false;
	static std::atomic<uint64_t> last = 0; // copied by fork(2): a child counts on
	auto *page = the_page.load(std::memory_order_acquire);
	if (!page && by_pid.load(std::memory_order_relaxed))
		return static_cast<uint64_t>(::getpid());
	if (!page) {
		// Not a static's initializer: a child that is forked while another thread is in one waits for it for ever.
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

// What belongs to one process: a child after fork(2) starts with its own. Never destroyed: a library may be asked when
// the process is on its way out. The parent's may be locked by a thread that the child does not have.
template <class State> class PerProcess
{
public:
	// inherited: set if another process's was there before.
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
