// SPDX-License-Identifier: MIT
//
// Handling of a ring's descriptor. liburing keeps it as a plain number.
#pragma once

#include <cerrno>

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

namespace peerdma_impl
{

// A program that closed its standard streams must not get a ring in their place. 0, or -errno after closing the ring.
inline int away_from_standard_streams(io_uring &ring)
{
	if (ring.ring_fd > STDERR_FILENO)
		return 0;
	const int other = ::fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (other < 0) {
		const int rc = -errno;
		io_uring_queue_exit(&ring);
		return rc;
	}
	::close(ring.ring_fd);
	ring.ring_fd = ring.enter_ring_fd = other;
	return 0;
}

// Another file has the number now: io_uring_queue_exit() must not close it.
inline void forget_descriptor(io_uring &ring) { ring.ring_fd = ring.enter_ring_fd = -1; }

} // namespace peerdma_impl
