// SPDX-License-Identifier: MIT
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

#include "tools/copy/copy.hpp"

namespace cli
{
namespace
{

// O_NONBLOCK: never wait for the other end of a FIFO, or for new data in a file of the kernel.
int open_source(peerdma_impl::Syscalls &sys, const std::string &path)
{
	const int fd = sys.open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		throw Failure{fmt::format("cannot open {}", path), -fd, 0, "", {}};
	return fd;
}

File file_of(const Device &device, const Fd &fd, const std::string &path)
{
	struct peerdma_file *raw = nullptr;
	if (const int rc = peerdma_file_from_fd(device.get(), fd.get(), &raw); rc < 0)
		throw Failure{fmt::format("cannot open {}", path), -rc, 0, "", {}};
	return File(raw);
}

// The number of bytes at this offset, 0 or 1.
int64_t bytes_at(const Fd &fd, const std::string &path, uint64_t offset)
{
	char byte;
	const int64_t n = fd.read({&byte, 1}, offset);
	if (n < 0)
		throw Failure{fmt::format("cannot read {}, {} bytes from its start", path, offset),
			      static_cast<int>(-n),
			      0,
			      "",
			      {}};
	return n;
}

} // namespace

Source::Source(peerdma_impl::Syscalls &sys, const Device &device, const std::string &path)
	: path_(path), fd_(sys, open_source(sys, path)), file_(file_of(device, fd_, path)), size_(size_of(file_, path))
{
	check_end();
}

void Source::check_end() const
{
	const bool more = bytes_at(fd_, path_, size_) > 0, fewer = !more && size_ && !bytes_at(fd_, path_, size_ - 1);
	if (more || fewer)
		throw Failure{
			fmt::format("{} has {} bytes than its size of {}", path_, more ? "more" : "fewer", size_),
			EINVAL,
			0,
			"Copy files of procfs and sysfs with cp(1); if another program writes to it, try again later.",
			{}};
}

void Source::check_unchanged() const
{
	if (const uint64_t now = size_of(file_, path_); now != size_)
		throw Failure{
			fmt::format("{} changed while it was read: it had {} bytes, and now has {}", path_, size_, now),
			EIO,
			0,
			"Try again while no program writes to it.",
			{}};
	check_end();
}

} // namespace cli
