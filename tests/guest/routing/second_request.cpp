// SPDX-License-Identifier: MIT
//
// second_request read|write FILE COMMAND: registers FILE and makes a request for one block of it; runs COMMAND in a
// shell; repeats the request. Prints the result, the reason and the direct bytes of both.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../tools/raw.hpp"

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const bool write = !std::strcmp(argv[1], "write");
	const int dev = raw::open_device();
	const int file = ::open(argv[2], O_RDWR);
	const uint32_t buf = raw::buffer(dev, 4096).out_buf_id;
	const uint32_t id = raw::add_file(dev, file);
	if (!id)
		raw::die(argv[2]);
	for (int i = 0; i < 2; i++) {
		auto io = raw::io(int(id), buf, 0, 0, 4096);
		io.flags = PEERDMA_IO_FILE_ID;
		const int err = raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, io);
		std::printf("%d %u %llu%c", err, io.out_reason, 1ULL * io.out_direct, i ? '\n' : ' ');
		std::fflush(stdout);
		if (!i && std::system(argv[3]))
			raw::die(argv[3]);
	}
	return 0;
}
