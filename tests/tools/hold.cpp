// SPDX-License-Identifier: MIT
//
// hold BYTES: allocates a buffer of provider 0 and waits to be killed. Prints "holding" and the buffer's offset in the
// BAR. On SIGUSR1 reads into the buffer and prints result and reason. On SIGUSR2 destroys the buffer and prints the
// result.
#include <csignal>

#include "raw.hpp"

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, nullptr);

	int dev = raw::open_device();
	const auto buf = raw::buffer(dev, std::strtoull(argv[1], nullptr, 0));
	std::printf("holding\n%llu\n", buf.out_bar_offset);
	std::fflush(stdout);
	for (int signal; !sigwait(&set, &signal);) {
		if (signal == SIGUSR2) {
			std::printf("%d\n", raw::destroy(dev, buf.out_buf_id));
		} else {
			auto req = raw::io(dev, buf.out_buf_id, 0, 0, 4096);
			int err = raw::call(dev, PEERDMA_READ, req);
			std::printf("%d %u\n", err, req.out_reason);
		}
		std::fflush(stdout);
	}
	return 1;
}
