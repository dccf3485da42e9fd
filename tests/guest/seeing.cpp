// SPDX-License-Identifier: MIT
//
// seeing FILE READS: requests of every kind on one open file. Prints what the requests themselves said, as
// "said KEY VALUE", then "fdinfo KEY VALUE" of that open file, then "ready"; waits for the end of its input.
// FILE is written to: its first 8 KiB with themselves.
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../tools/raw.hpp"

static std::map<std::string, unsigned long long> said;
static int dev;

static void request(int fd, uint32_t buf, uint64_t file_off, uint64_t buf_off, uint64_t len, bool write = false)
{
	auto req = raw::io(fd, buf, file_off, buf_off, len);
	const int err = raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, req);
	said[write ? "writes" : "reads"]++;
	said["direct-bytes"] += req.out_direct;
	said["near-bytes"] += req.out_near;
	said["host-bytes"] += req.out_host;
	if (err && req.out_reason) {
		said["refused"]++;
		said["refused-" + std::to_string(req.out_reason)]++;
	} else if (err) {
		said["errors"]++;
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const uint64_t reads = std::strtoull(argv[2], nullptr, 0);
	const uint64_t mib = 1 << 20;
	dev = raw::open_device();
	const int fd = ::open(argv[1], O_RDWR);
	struct stat st;
	if (fd < 0 || ::fstat(fd, &st))
		raw::die(argv[1]);
	auto buf = raw::alloc(dev, raw::provider(dev).out_provider_id, mib);
	if (!buf.out_buf_id)
		raw::die("buffer");
	said["buffers"] = 1;
	said["buffer-bytes"] = mib;
	for (const char *key : {"near-bytes", "host-bytes", "errors"})
		said[key] = 0;

	for (uint64_t i = 0; i < reads; i++)
		request(fd, buf.out_buf_id, i * 4096, i * 4096, 4096);
	request(fd, buf.out_buf_id, static_cast<uint64_t>(st.st_size) / 512 * 512, 512 * 1024, 512);
	request(fd, buf.out_buf_id, 0, 0, 8192, true);
	request(fd, buf.out_buf_id, 1, 0, 4096);
	request(fd, buf.out_buf_id, 1, 0, 4096);
	request(fd, buf.out_buf_id, 0, mib, 4096);
	// An error that has an errno and no reason.
	const rlimit limit = {mib, mib};
	::signal(SIGXFSZ, SIG_IGN);
	if (::setrlimit(RLIMIT_FSIZE, &limit))
		raw::die("setrlimit");
	request(fd, buf.out_buf_id, 512 * mib, 0, 4096, true);

	for (const auto &[key, value] : said)
		std::printf("said %s %llu\n", key.c_str(), value);
	std::ifstream info("/proc/self/fdinfo/" + std::to_string(dev));
	std::string key;
	unsigned long long value;
	for (std::string line; std::getline(info, line);) {
		char name[64];
		if (std::sscanf(line.c_str(), "peerdma-%63[^:]: %llu", name, &value) == 2)
			std::printf("fdinfo %s %llu\n", name, value);
	}
	std::printf("ready\n");
	std::fflush(stdout);
	while (::getchar() != EOF)
		;
	return 0;
}
