// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

namespace peerdma_impl
{

// A command of the module's for io_uring, and how it ended.
struct Command {
	uint32_t op; // PEERDMA_URING_*
	uint32_t buf_id;
	uint32_t file_id;
	uint32_t len;           // bytes, or segments
	uint64_t first, second; // the two words of cmd[]
	uint64_t tag;
};

struct Completion {
	uint64_t tag;
	int32_t res;
};

// What the library wants of io_uring, so that its batches are tested without a kernel. All return -errno.
class Queue
{
public:
	virtual ~Queue() = default;
	// False: there is no room before the next submit().
	virtual bool push(const Command &command) = 0;
	// How many were handed to the kernel; the rest stays for the next call.
	virtual int submit() = 0;
	// Sleeps until there is a completion, at most timeout_ns (negative: for ever), and takes up to max.
	virtual int wait(Completion *out, unsigned max, int64_t timeout_ns) = 0;
};

// A ring of the kernel's whose commands all go to the descriptor dev. one_thread: who submits first is the only
// one that submits and waits.
int kernel_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<Queue> &out);

} // namespace peerdma_impl
