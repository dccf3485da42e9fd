// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "common/syscalls.hpp"

namespace cli
{

// A descriptor that closes itself, or an -errno.
class Fd
{
public:
	Fd(peerdma_impl::Syscalls &sys, int fd) : sys_(&sys), fd_(fd) {}
	Fd(Fd &&other) noexcept : sys_(other.sys_), fd_(std::exchange(other.fd_, -EBADF)) {}
	~Fd()
	{
		if (fd_ >= 0)
			sys_->close(fd_);
	}
	Fd &operator=(Fd &&) = delete;
	int get() const { return fd_; }

	// Returns fewer bytes at the end of the file; -errno.
	int64_t read(std::span<char> to, uint64_t offset) const
	{
		return all(to.size(),
			   [&](uint64_t at) { return sys_->pread(fd_, to.data() + at, to.size() - at, offset + at); });
	}
	// Writes all of them, or returns -errno.
	int64_t write(std::string_view from, uint64_t offset) const
	{
		return all(from.size(), [&](uint64_t at) {
			const int64_t n = sys_->pwrite(fd_, from.data() + at, from.size() - at, offset + at);
			return n ? n : -EIO;
		});
	}

private:
	template <class Some> static int64_t all(uint64_t len, Some &&some)
	{
		uint64_t at = 0;
		while (at < len) {
			const int64_t n = some(at);
			if (n == -EINTR)
				continue;
			if (n < 0)
				return n;
			if (!n)
				break;
			at += static_cast<uint64_t>(n);
		}
		return static_cast<int64_t>(at);
	}

	peerdma_impl::Syscalls *sys_;
	int fd_;
};

} // namespace cli
