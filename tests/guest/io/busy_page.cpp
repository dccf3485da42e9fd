// SPDX-License-Identifier: MIT
//
// busy_page DRIVE OFF FREE_OFF: writes to a drive that has a mounted filesystem. The page at OFF holds a block that the
// filesystem keeps in use, so the kernel cannot drop it from the page cache and writes through the cache. The counters
// must show that; if bouncing is forbidden, nothing may be written. The block is rewritten with its own bytes. The page
// at FREE_OFF is unused.
#include <cstring>
#include <fcntl.h>

#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;
constexpr unsigned len = 4096;

struct Answer {
	int err;
	peerdma_io io;
};

std::string told(const Answer &got)
{
	return std::to_string(got.err) + ", reason " + std::to_string(got.io.out_reason) + ", direct " +
	       std::to_string(got.io.out_direct) + ", host " + std::to_string(got.io.out_host);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const uint64_t used = std::strtoull(argv[2], nullptr, 0), unused = std::strtoull(argv[3], nullptr, 0);
	const int dev = raw::open_device(), drive = ::open(argv[1], O_RDWR);
	const auto alloc = raw::buffer(dev, len);
	char *proxy = raw::map(dev, alloc);
	char bytes[len] = {}, now[len] = {};
	if (drive < 0)
		raw::die(argv[1]);
	auto write = [&](uint64_t off, uint32_t flags) {
		if (::pread(drive, bytes, len, off_t(off)) != len) // loads it into the page cache
			raw::die("pread");
		std::memcpy(proxy, bytes, len);
		Answer got{0, raw::io(drive, alloc.out_buf_id, off, 0, len)};
		got.io.flags = flags;
		got.err = raw::call(dev, PEERDMA_WRITE, got.io);
		return got;
	};

	auto got = write(unused, PEERDMA_IO_NO_BOUNCE);
	report(!got.err && got.io.out_direct == len, "a page that nobody uses: a direct write", told(got));
	got = write(used, PEERDMA_IO_NO_BOUNCE);
	report(got.err == -EXDEV && got.io.out_reason == PEERDMA_REASON_NO_DIO && !got.io.out_done,
	       "one that is in use: refused", told(got));
	got = write(used, 0);
	report(!got.err && got.io.out_reason == PEERDMA_REASON_NO_DIO && !got.io.out_direct && got.io.out_host == len &&
		       ::pread(drive, now, len, off_t(used)) == len && !std::memcmp(now, bytes, len),
	       "if it may be bounced: written, and counted as that", told(got));
	return tap::end();
}
