// SPDX-License-Identifier: MIT
//
// neighbours FILE: three threads write to the same two blocks at once: bytes 100..299 through PeerDMA, bytes 300..499
// with pwrite, bytes 500..699 through PeerDMA. After each of its writes, each thread must find its own bytes in the
// file.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../../tools/raw.hpp"

namespace
{

constexpr int rounds = 300;
constexpr uint64_t len = 200;
std::atomic<int> lost;

bool holds(int fd, uint64_t off, const std::vector<unsigned char> &want)
{
	std::vector<unsigned char> got(want.size());
	return ::pread(fd, got.data(), got.size(), off) == ssize_t(got.size()) && got == want;
}

/// The bytes come from a file of zeros and one of ones, because a buffer is filled by reading.
void by_peerdma(int dev, uint32_t buf, int fd, int zeros, int ones, uint64_t off)
{
	for (int i = 0; i < rounds && !lost; i++) {
		auto fill = raw::io(i % 2 ? ones : zeros, buf, 0, 0, 512);
		auto write = raw::io(fd, buf, off, 3, len);
		if (raw::call(dev, PEERDMA_READ, fill) || raw::call(dev, PEERDMA_WRITE, write) ||
		    write.out_done != len || !holds(fd, off, std::vector<unsigned char>(len, i % 2 ? 0xff : 0)))
			lost++;
	}
}

void by_pwrite(int fd, uint64_t off)
{
	for (int i = 0; i < 4 * rounds && !lost; i++) {
		const std::vector<unsigned char> word(len, static_cast<unsigned char>(i));
		if (::pwrite(fd, word.data(), len, off) != ssize_t(len) || !holds(fd, off, word))
			lost++;
	}
}

int file_of(const std::string &path, int byte)
{
	int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
	const std::vector<unsigned char> bytes(4096, static_cast<unsigned char>(byte));
	if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != ssize_t(bytes.size()) || ::fsync(fd))
		raw::die(path);
	return fd;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	const std::string path = argv[1];
	const int fd = file_of(path, 0x55), zeros = file_of(path + ".0", 0), ones = file_of(path + ".1", 0xff);
	int dev = raw::open_device();
	const uint32_t provider = raw::provider(dev).out_provider_id;
	auto first = raw::alloc(dev, provider, 4096), second = raw::alloc(dev, provider, 4096);
	if (!first.out_buf_id || !second.out_buf_id)
		raw::die("buffer");
	std::thread a(by_peerdma, dev, first.out_buf_id, fd, zeros, ones, 100);
	std::thread b(by_pwrite, fd, 300);
	std::thread c(by_peerdma, dev, second.out_buf_id, fd, zeros, ones, 500);
	a.join();
	b.join();
	c.join();
	std::vector<unsigned char> rest(100, 0x55);
	if (!holds(fd, 0, rest) || !holds(fd, 700, std::vector<unsigned char>(3396, 0x55)))
		lost++;
	std::printf("%d writes were lost\n", lost.load());
	return lost != 0;
}
