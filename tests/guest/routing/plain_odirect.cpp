// SPDX-License-Identifier: MIT
//
// plain_odirect FILE OFFSET BYTE: writes one block of BYTE by a plain O_DIRECT pwrite(2) from a mapping of a buffer of
// the first provider, without a check by PeerDMA. Prints the bytes written, or the errno as a negative number.
#include <cstring>

#include "../../tools/raw.hpp"

int main(int argc, char **argv)
{
	constexpr uint64_t len = 4096;
	if (argc != 4)
		return 2;
	int dev = raw::open_device();
	int file = raw::open_file(argv[1], O_RDWR | O_DIRECT);
	const auto buf = raw::buffer(dev, len);
	char *at = raw::map(dev, buf);
	std::memset(at, std::atoi(argv[3]), len);
	ssize_t done = ::pwrite(file, at, len, std::strtoll(argv[2], nullptr, 0));
	std::printf("%zd\n", done < 0 ? -errno : done);
	return 0;
}
