// SPDX-License-Identifier: MIT
//
// pdio read|write|append FILE FILE_OFF LEN BUF_OFF [BUF_LEN [BEFORE]]: one request on a new buffer of provider 0, using
// the ABI directly. BEFORE runs between allocation and transfer: a request to the host, or a shell command that may use
// lib.sh; %AT in it is replaced by the buffer's offset in the BAR, and %LEN by its length. NO_BOUNCE in the environment
// sets that flag. RING in the environment uses an io_uring command, which reports errno or done only.
//
// Prints: errno reason done direct near host bar_offset
#include <algorithm>
#include <cstring>

#include "command.hpp"
#include "host.hpp"

namespace
{

/// 0 or -errno.
int by_ring(int dev, bool write, peerdma_io &req)
{
	const int res =
		raw::run_command(dev, write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ, req.buf_id,
				 raw::add_file(dev, req.fd), uint32_t(req.len), {req.file_off, req.buf_off}, req.flags);
	req.out_done = uint64_t(std::max(res, 0));
	return std::min(res, 0);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 6) {
		std::fprintf(stderr, "usage: pdio read|write|append FILE FILE_OFF LEN BUF_OFF [BUF_LEN [BEFORE]]\n");
		return 2;
	}
	const bool append = !std::strcmp(argv[1], "append");
	const bool write = append || !std::strcmp(argv[1], "write");
	const uint64_t file_off = std::strtoull(argv[3], nullptr, 0);
	const uint64_t len = std::strtoull(argv[4], nullptr, 0);
	const uint64_t buf_off = std::strtoull(argv[5], nullptr, 0);
	const uint64_t buf_len = argc > 6 ? std::strtoull(argv[6], nullptr, 0) : (buf_off + len + 4095) / 4096 * 4096;

	int dev = raw::open_device();
	int fd = ::open(argv[2], append ? O_WRONLY | O_APPEND : write ? O_RDWR | O_CREAT : O_RDONLY, 0644);
	if (fd < 0)
		raw::die(argv[2]);
	const auto buf = raw::buffer(dev, buf_len);
	if (argc > 7 && !host::run(host::filled_in(argv[7], buf.out_bar_offset, buf_len))) {
		std::fprintf(stderr, "the command before failed\n");
		return 1;
	}
	auto req = raw::io(fd, buf.out_buf_id, file_off, buf_off, len);
	if (std::getenv("NO_BOUNCE"))
		req.flags |= PEERDMA_IO_NO_BOUNCE;
	int err = std::getenv("RING") ? by_ring(dev, write, req) :
					raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, req);
	std::printf("%d %u %llu %llu %llu %llu %llu\n", -err, req.out_reason, req.out_done, req.out_direct,
		    req.out_near, req.out_host, buf.out_bar_offset);
	return err ? 1 : 0;
}
