// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

namespace peerdma_impl
{

// An io_uring command of the module, and its completion.
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

// The io_uring operations that the library needs, virtual so that batches are tested without a kernel. All return
// -errno.
class Queue
{
public:
	virtual ~Queue() = default;
	// False: no room until the next submit().
	virtual bool push(const Command &command) = 0;
	// Returns the number of commands submitted; the rest stays for the next call.
	virtual int submit() = 0;
	// Sleeps until there is a completion, at most timeout_ns (negative: for ever), and takes up to max.
	virtual int wait(Completion *out, unsigned max, int64_t timeout_ns) = 0;
};

// A kernel ring whose commands all go to the descriptor dev. one_thread: the first thread that submits is the only one
// that submits and waits.
int kernel_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<Queue> &out);

} // namespace peerdma_impl
