// SPDX-License-Identifier: MIT
#pragma once

// io_uring commands on /dev/peerdma, in the kernel's layout.
#include <cstring>
#include <liburing.h>

#include "raw.hpp"

namespace raw
{

/// Fills an SQE except user_data and flags. words: offsets of a read or write; for the vector commands {address of the
/// segments, 0}, and len is their number.
inline void command(io_uring_sqe *sqe, int dev, uint32_t op, uint32_t buf_id, uint32_t file_id, uint32_t len,
		    const peerdma_uring_io &words)
{
	io_uring_prep_nop(sqe); // zeroes the whole SQE
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = dev;
	sqe->cmd_op = op;
	sqe->addr = uint64_t(PEERDMA_IO_FILE_ID) << 32 | buf_id;
	sqe->file_index = file_id;
	sqe->len = len;
	std::memcpy(sqe->cmd, &words, sizeof(words));
}

/// Runs one command on a ring of its own and returns its result. flags: PEERDMA_IO_*
inline int run_command(int dev, uint32_t op, uint32_t buf_id, uint32_t file_id, uint32_t len,
		       const peerdma_uring_io &words, uint32_t flags = 0)
{
	io_uring ring;
	io_uring_cqe *cqe = nullptr;
	if (io_uring_queue_init(4, &ring, 0))
		die("io_uring");
	io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	command(sqe, dev, op, buf_id, file_id, len, words);
	sqe->addr |= uint64_t(flags) << 32;
	if (io_uring_submit_and_wait(&ring, 1) != 1 || io_uring_wait_cqe(&ring, &cqe))
		die("a command");
	const int res = cqe->res;
	io_uring_queue_exit(&ring);
	return res;
}

} // namespace raw
