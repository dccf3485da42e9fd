// SPDX-License-Identifier: MIT
//
// Ring on io_uring. Even if the ring fails, each queued read completes once, and a thread waits for it: until then the
// kernel writes into memory that would otherwise be reused.
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <new>

#include <liburing.h>
#include <sys/stat.h>

#include "common/uring.hpp"
#include "cufile/platform/real_dependencies.hpp"

namespace cufile
{
namespace
{

class KernelRing final : public Ring
{
public:
	KernelRing() = default;
	KernelRing(const KernelRing &) = delete;
	KernelRing &operator=(const KernelRing &) = delete;

	~KernelRing() override
	{
		if (!open_)
			return;
		Completion completions[64];
		while (under_way_)
			reap(completions, std::size(completions), true);
		// A closed ring releases its resources later, or never if a child of fork() holds it.
		there_ = is_valid();
		if (!there_)
			peerdma_impl::forget_descriptor(ring_);
		if (fixed_memory_)
			io_uring_unregister_buffers(&ring_);
		if (fixed_file_)
			io_uring_unregister_files(&ring_);
		io_uring_queue_exit(&ring_);
	}

	int open(unsigned depth, void *memory, uint64_t bytes)
	{
		// The waiting thread processes completions itself, without interrupts.
		int rc = io_uring_queue_init(
			depth, &ring_, IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
		if (rc == -EINVAL)
			rc = io_uring_queue_init(depth, &ring_, IORING_SETUP_CLAMP);
		if (rc < 0)
			return rc;
		depth_ = std::min(depth, ring_.sq.ring_entries);
		rc = peerdma_impl::away_from_standard_streams(ring_);
		if (rc < 0)
			return rc;
		open_ = true;
		if (::fstat(ring_.ring_fd, &identity_) < 0)
			return -errno;
		if (!memory)
			return rc;
		// Registering may exceed the program's limit of pinned memory, or not suit this memory: then each read
		// pins its own pages.
		const struct iovec all = {memory, bytes};
		fixed_memory_ = io_uring_register_buffers(&ring_, &all, 1) == 0;
		const int none = -1;
		fixed_file_ = lets_go_at_once() && io_uring_register_files(&ring_, &none, 1) == 0;
		return 0;
	}

	bool read(int fd, void *to, uint64_t size, uint64_t offset, uint64_t tag) override
	{
		if (broken_ || under_way_ == depth_)
			return false;
		io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);
		if (!sqe)
			return false;
		const bool held = fd == shared_;
		const auto n = static_cast<unsigned>(size);
		if (fixed_memory_)
			io_uring_prep_read_fixed(sqe, held ? 0 : fd, to, n, offset, 0);
		else
			io_uring_prep_read(sqe, held ? 0 : fd, to, n, offset);
		if (held)
			sqe->flags |= IOSQE_FIXED_FILE;
		sqe->user_data = tag;
		under_way_++;
		return true;
	}

	size_t reap(Completion *out, size_t most, bool wait) override
	{
		hand_over(wait && under_way_);
		for (;;) {
			size_t n = take_ended(out, most);
			n += take_refused(out + n, most - n);
			under_way_ -= static_cast<unsigned>(n);
			if (n || !wait || !under_way_)
				return n;
			sleep();
		}
	}

	void register_file(int fd) override
	{
		if (!fixed_file_ || fd == shared_ || !is_valid())
			return;
		shared_ = io_uring_register_files_update(&ring_, 0, &fd, 1) == 1 ? fd : -1;
	}

private:
	// Before Linux 6.4 an unregistered file stays open for up to a second, and umount(2) would fail. The nearest
	// feature flag is of 6.10.
	bool lets_go_at_once() const
	{
		constexpr unsigned recvsend_bundle = 1U << 14;
		return ring_.features & recvsend_bundle;
	}

	unsigned queued() { return io_uring_sq_ready(&ring_); }

	// True if the descriptor still is the ring's: each ring has its own inode. The program may have closed it and
	// opened another ring by that number.
	bool is_valid() const
	{
		struct stat now;
		return ::fstat(ring_.ring_fd, &now) == 0 && now.st_dev == identity_.st_dev &&
		       now.st_ino == identity_.st_ino;
	}

	void hand_over(bool wait)
	{
		there_ = is_valid();
		broken_ = broken_ || !there_;
		if (broken_)
			return;
		do {
			const int rc = io_uring_submit_and_wait(&ring_, wait ? 1 : 0);
			if (rc == -EINTR)
				continue;
			const bool for_now = rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM || rc == 0;
			if (queued() && rc <= 0 && (!for_now || under_way_ == queued()))
				broken_ = true;
			if (rc <= 0)
				return;
		} while (queued());
	}

	size_t take_ended(Completion *out, size_t most)
	{
		io_uring_cqe *cqe = nullptr;
		if (there_)
			io_uring_peek_cqe(&ring_, &cqe); // runs pending task work
		unsigned head, n = 0;
		io_uring_for_each_cqe(&ring_, head, cqe)
		{
			if (n == most)
				break;
			out[n++] = {cqe->user_data, cqe->res};
		}
		io_uring_cq_advance(&ring_, n);
		return n;
	}

	// Queued reads that a failed ring has not consumed. Nothing is submitted any more, so they never will be.
	size_t take_refused(Completion *out, size_t most)
	{
		size_t n = 0;
		for (; broken_ && n < most && refused_ < queued(); n++) {
			const unsigned at = *ring_.sq.khead + refused_++;
			out[n] = {ring_.sq.sqes[at & ring_.sq.ring_mask].user_data, -ECANCELED};
		}
		return n;
	}

	void sleep()
	{
		io_uring_cqe *cqe = nullptr;
		const int rc = there_ ? io_uring_wait_cqe(&ring_, &cqe) : -EBADF;
		if (rc >= 0 || rc == -EINTR)
			return;
		// The program has closed the ring's descriptor. Reads in flight complete all the same.
		const struct timespec soon = {0, 100'000};
		::nanosleep(&soon, nullptr);
	}

	io_uring ring_{};
	struct stat identity_ {
	};
	bool there_ = true; // at the last check
	bool open_ = false, fixed_memory_ = false, fixed_file_ = false, broken_ = false;
	unsigned depth_ = 0, under_way_ = 0, refused_ = 0; // under_way_ includes queued reads
	int shared_ = -1;
};

} // namespace

int kernel_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out)
{
	std::unique_ptr<KernelRing> ring(new (std::nothrow) KernelRing);
	if (!ring)
		return -ENOMEM;
	const int rc = ring->open(depth, memory, bytes);
	if (rc >= 0)
		out = std::move(ring);
	return rc;
}

} // namespace cufile
