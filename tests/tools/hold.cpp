// SPDX-License-Identifier: MIT
//
// hold BYTES: owns a buffer of provider 0 and waits to be killed. Prints "holding", then the buffer's place
// in the BAR. On SIGUSR1: result and reason of a read into the buffer. On SIGUSR2: destroys it, and says the result.
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
	auto buf = raw::alloc(dev, raw::provider(dev).out_provider_id, std::strtoull(argv[1], nullptr, 0));
	if (!buf.out_buf_id)
		raw::die("buffer");
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
