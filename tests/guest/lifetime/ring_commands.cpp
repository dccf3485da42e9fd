// SPDX-License-Identifier: MIT
//
// ring_commands DEVICE N [destroy]: reads a page from DEVICE by N concurrent commands of a ring. Prints "sent" when the
// kernel has all of them, and at the end the number of whole reads. destroy: after "sent" destroys the buffer, prints
// "destroyed" when that has returned, and at the end the number of commands that found no buffer.
#include <liburing.h>

#include "../../tools/command.hpp"

int main(int argc, char **argv)
{
	constexpr unsigned len = 4096;
	const bool destroys = argc == 4 && !std::strcmp(argv[3], "destroy");
	if (argc != 3 && !destroys)
		return 2;
	const unsigned n = unsigned(std::atoi(argv[2]));
	const int dev = raw::open_device(), file = ::open(argv[1], O_RDONLY | O_CLOEXEC);
	const auto buf = raw::buffer(dev, len);
	const uint32_t file_id = raw::add_file(dev, file);
	io_uring ring{};
	if (!file_id || io_uring_queue_init(n, &ring, 0))
		raw::die("ring_commands");
	// Caches the route for the commands that follow.
	auto first = raw::io(file, buf.out_buf_id, 0, 0, len);
	if (raw::call(dev, PEERDMA_READ, first))
		raw::die("the first read");
	std::printf("ready\n");
	std::fflush(stdout);
	for (char go; ::read(0, &go, 1) == 1 && go != '\n';)
		;
	for (unsigned i = 0; i < n; i++)
		raw::command(io_uring_get_sqe(&ring), dev, PEERDMA_URING_READ, buf.out_buf_id, file_id, len,
			     {uint64_t(i) * len, 0});
	if (io_uring_submit(&ring) != int(n))
		raw::die("io_uring_submit");
	std::printf("sent\n");
	std::fflush(stdout);
	if (destroys) {
		if (raw::destroy(dev, buf.out_buf_id))
			raw::die("destroy");
		std::printf("destroyed\n");
		std::fflush(stdout);
	}
	unsigned as_meant = 0;
	for (unsigned i = 0; i < n; i++) {
		io_uring_cqe *cqe = nullptr;
		if (io_uring_wait_cqe(&ring, &cqe))
			raw::die("io_uring_wait_cqe");
		as_meant += cqe->res == (destroys ? -ENOENT : int(len));
		io_uring_cqe_seen(&ring, cqe);
	}
	std::printf("%u\n", as_meant);
	return 0;
}
