// SPDX-License-Identifier: MIT
#include "stand.hpp"

#include <cstdlib>
#include <iterator>
#include <new>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../kmod/expstand.h"

namespace softgpu
{

Stand::Stand(const std::string &address, size_t from, size_t size) : from_(from), size_(size)
{
	const std::string path = "/sys/bus/pci/devices/" + address + "/resource2";
	const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
	void *const bar = mmap(nullptr, stand_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *const seen = mmap(stand_base + from, size, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (bar == MAP_FAILED || seen != stand_base + from)
		std::abort();
	close(fd);
	bar_ = static_cast<char *>(bar);
}

char *Stand::take(size_t size)
{
	constexpr size_t frame = 65536, small = 512;
	const size_t align = size < frame ? small : frame;
	std::lock_guard guard(lock_);
	size_t at = from_;
	for (const auto &[start, taken] : taken_) {
		if (at + size <= start)
			break;
		at = (start + taken + align - 1) / align * align;
	}
	if (at + size > from_ + size_)
		return nullptr;
	try {
		taken_[at] = size;
	} catch (const std::bad_alloc &) {
		return nullptr;
	}
	return stand_base + at;
}

bool Stand::give(const char *seen)
{
	std::lock_guard guard(lock_);
	return taken_.erase(static_cast<size_t>(seen - stand_base));
}

bool Stand::find(const void *address, char *&start, size_t &size)
{
	const auto at = static_cast<size_t>(static_cast<const char *>(address) - stand_base);
	std::lock_guard guard(lock_);
	auto next = taken_.upper_bound(at);
	if (next == taken_.begin() || at - std::prev(next)->first >= std::prev(next)->second)
		return false;
	--next;
	start = stand_base + next->first;
	size = next->second;
	return true;
}

int Stand::dma_buf(const char *bytes, size_t size) const
{
	struct exp_make make = {};
	make.off = static_cast<size_t>(bytes - bar_);
	make.len = size;
	const int maker = open("/dev/expstand", O_RDWR | O_CLOEXEC);
	const int rc = ioctl(maker, EXP_MAKE, &make);
	close(maker);
	return rc ? -1 : make.out_fd;
}

} // namespace softgpu
