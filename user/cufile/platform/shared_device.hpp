// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <mutex>

#include "peerdma.h"

namespace cufile
{

// The open /dev/peerdma that all registrations share, so that a file is opened once for all of them. It is closed with
// the last registration.
//
// If the program closes its descriptor, the next registration opens a new one. Buffers of the old one keep it, because
// libpeerdma's handles share it; their I/O fails with EBADF.
class SharedDevice
{
public:
	struct Calls {
		decltype(&peerdma_open) open;
		decltype(&peerdma_close) close;
		decltype(&peerdma_fd) fd; // nullptr in an old library
	};

	// Pairs with release(). number: BufferLocation::device. Returns 0 or -errno.
	int acquire(const Calls &calls, struct peerdma_device *&out, int &number)
	{
		const std::lock_guard guard(lock_);
		if (!shared_ || is_lost(calls)) {
			struct peerdma_device *opened = nullptr;
			const int rc = calls.open(&opened, 0);
			if (rc < 0)
				return rc;
			if (shared_)
				calls.close(device_);
			device_ = opened;
			number_--;
		}
		shared_++;
		out = device_;
		number = number_;
		return 0;
	}
	void release(const Calls &calls)
	{
		const std::lock_guard guard(lock_);
		if (!--shared_)
			calls.close(device_);
	}
	// True if it is the current device and its descriptor is open.
	bool is_valid(const Calls &calls, int number)
	{
		const std::lock_guard guard(lock_);
		return shared_ && number == number_ && !is_lost(calls);
	}

private:
	bool is_lost(const Calls &calls) const { return calls.fd && calls.fd(device_) == -EBADF; }

	std::mutex lock_; // protects all below
	struct peerdma_device *device_ = nullptr;
	unsigned shared_ = 0;
	int number_ = -1; // -1: no device
};

} // namespace cufile
