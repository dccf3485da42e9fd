// SPDX-License-Identifier: MIT
#include "common/queue.hpp"

#include <cerrno>
#include <cstring>

#include <liburing.h>

#include "common/descriptor.hpp"
#include "common/syscalls.hpp"
#include "common/uring.hpp"
#include "uapi/peerdma.h"

namespace peerdma_impl
{
namespace
{

class KernelQueue final : public Queue
{
public:
	KernelQueue() = default;
	KernelQueue(const KernelQueue &) = delete;
	KernelQueue &operator=(const KernelQueue &) = delete;
	~KernelQueue() override
	{
		if (!open_)
			return;
		if (!is_there())
			forget_descriptor(ring_);
		io_uring_queue_exit(&ring_);
	}

	int open(int dev, unsigned depth, bool one_thread)
	{
		// The kernel binds a single issuer's ring to the thread that enables it, not to the one that creates
		// it.
		const unsigned flags =
			one_thread ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED :
				     IORING_SETUP_COOP_TASKRUN;
		int rc = io_uring_queue_init(depth, &ring_, flags | IORING_SETUP_CLAMP);
		if (rc < 0)
			return rc;
		disabled_ = one_thread;
		rc = away_from_standard_streams(ring_);
		if (rc < 0)
			return rc;
		open_ = true;
		own_.fd = ring_.ring_fd;
		own_.identify(kernel_syscalls(), false);
		// Fixed file: saves a look-up per command.
		return io_uring_register_files(&ring_, &dev, 1);
	}

	bool push(const Command &command) override
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		if (!sqe)
			return false;
		const uint64_t words[] = {command.first, command.second};
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, 0, nullptr, command.len, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
		sqe->cmd_op = command.op;
		sqe->addr = uint64_t{PEERDMA_IO_FILE_ID} << 32 | command.buf_id;
		sqe->file_index = command.file_id;
		sqe->user_data = command.tag;
		std::memcpy(sqe->cmd, words, sizeof(words));
		return true;
	}

	int submit() override
	{
		if (!is_there())
			return -EBADF;
		if (disabled_) {
			// Replaces io_uring_enable_rings(), which liburing 2.3 does not export.
			int rc = io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS,
						   nullptr, 0);
			if (rc < 0)
				return rc;
			disabled_ = false;
		}
		return io_uring_submit(&ring_);
	}

	int wait(Completion *out, unsigned max, int64_t timeout_ns) override
	{
		if (!io_uring_cq_ready(&ring_) && !is_there())
			return -EBADF;
		io_uring_cqe *cqe = nullptr;
		__kernel_timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
		int rc = timeout_ns < 0 ? io_uring_wait_cqe(&ring_, &cqe) :
					  io_uring_wait_cqe_timeout(&ring_, &cqe, &timeout);
		if (rc < 0)
			return rc == -ETIME ? 0 : rc;
		unsigned head, n = 0;
		io_uring_for_each_cqe(&ring_, head, cqe)
		{
			if (n == max)
				break;
			out[n++] = {cqe->user_data, cqe->res};
		}
		io_uring_cq_advance(&ring_, n);
		return static_cast<int>(n);
	}

private:
	// False if the program has closed the descriptor, even if a ring of its own has the number: each has its own
	// inode.
	bool is_there() const { return own_.is_there(kernel_syscalls()); }

	io_uring ring_{};
	Descriptor own_;
	bool open_ = false, disabled_ = false;
};

} // namespace

int kernel_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<Queue> &out)
{
	auto queue = std::make_unique<KernelQueue>();
	int rc = queue->open(dev, depth, one_thread);
	if (rc < 0)
		return rc;
	out = std::move(queue);
	return 0;
}

} // namespace peerdma_impl
