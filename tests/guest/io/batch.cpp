// SPDX-License-Identifier: MIT
//
// batch FILE ELSEWHERE: the library's rings on the real module. FILE is 1 MiB of pattern 1; ELSEWHERE is on a
// filesystem without direct I/O. The buffer is at the start of the BAR. In the end its first and second MiB must hold
// pattern 1, which batch.sh has the host check.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../../tools/tap.hpp"
#include "peerdma.hpp"

namespace
{

constexpr uint64_t MiB = 1 << 20, BLOCK = 4096;
using tap::need, tap::report;

struct Ring {
	peerdma_ring *ring = nullptr;
	Ring(const peerdma::Device &device, uint32_t depth, uint32_t capacity, uint32_t flags)
	{
		if (peerdma_ring_create(device.get(), depth, capacity, flags, &ring))
			std::printf("Bail out! no ring\n"), std::exit(1);
	}
	Ring(const Ring &) = delete;
	Ring &operator=(const Ring &) = delete;
	~Ring() { peerdma_ring_destroy(ring); }

	/// tag -> result; empty on a repeated tag, an error, or a timeout of 20 s.
	std::map<uint64_t, int64_t> fetch(size_t n)
	{
		std::map<uint64_t, int64_t> all;
		peerdma_done done[16];
		while (all.size() < n) {
			int got = peerdma_ring_wait(ring, done, 16, 1, 20'000);
			if (got <= 0)
				return {};
			for (int i = 0; i < got; i++)
				if (!all.emplace(done[i].tag, done[i].result).second)
					return {};
		}
		return all;
	}
};

/// Reads each block of the file once, in random order, through a much smaller ring; two at odd offsets.
void whole_file(const peerdma::Device &device, peerdma::File &file, peerdma::Buffer &buffer, uint64_t to,
		uint32_t flags, const std::string &what)
{
	Ring ring(device, 4, 1024, flags);
	std::vector<peerdma_op> ops;
	for (uint64_t at = 0; at < MiB; at += BLOCK) {
		uint64_t half = at % (64 * BLOCK) ? BLOCK : 1000;
		ops.push_back({PEERDMA_OP_READ, 0, file.get(), buffer.get(), to + at, half, at, at});
		if (half < BLOCK)
			ops.push_back({PEERDMA_OP_READ, 0, file.get(), buffer.get(), to + at + half, BLOCK - half,
				       at + half, at + half});
	}
	std::shuffle(ops.begin(), ops.end(), std::mt19937(3));
	const bool queued = peerdma_ring_queue(ring.ring, ops.data(), uint32_t(ops.size())) == int(ops.size());
	auto results = ring.fetch(ops.size());
	bool good = queued && results.size() == ops.size();
	for (const auto &op : ops)
		good = good && results[op.tag] == int64_t(op.len);
	peerdma_done more;
	report(good && !peerdma_ring_wait(ring.ring, &more, 1, 1, -1), what);
}

/// Reads ELSEWHERE, 100000 bytes of pattern 2, to 3 MiB into the buffer through the page cache, and writes a part of it
/// back.
void fall_back(const peerdma::Device &device, std::uint32_t provider, const peerdma::Buffer &buffer, const char *path)
{
	for (int flags : {O_RDWR, O_RDWR | O_DIRECT}) {
		auto file = need(device.open_file(path, flags), path);
		auto why = need(file.explain(provider), "explain");
		auto got = need(file.read(buffer, 3 * MiB, 200000, 0), "read");
		auto put = need(file.write(buffer, 3 * MiB + 1001, 5000, 1001), "write");
		report(why.route == PEERDMA_ROUTE_POSIX && why.reason == PEERDMA_REASON_FILESYSTEM && !why.error &&
			       got.done == 100000 && got.host == 100000 && got.route == PEERDMA_ROUTE_POSIX &&
			       got.reason == PEERDMA_REASON_FILESYSTEM && put.host == 5000,
		       std::string("a file of another filesystem goes through the page cache, and says so") +
			       (flags & O_DIRECT ? ", O_DIRECT too" : ""));
	}
	auto strict = need(peerdma::Device::open(PEERDMA_OPEN_REQUIRE_DIRECT), "open");
	auto file = need(strict.open_file(path, O_RDONLY), path);
	auto mine = need(strict.create_buffer(provider, 4096), "buffer");
	auto refused = file.read(mine, 0, 4096, 0);
	report(!refused && refused.error().code() == EXDEV && refused.error().reason() == PEERDMA_REASON_FILESYSTEM,
	       "unless it must go direct: then it is refused");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	auto device = need(peerdma::Device::open(), "open");
	auto provider = need(device.find(""), "provider");
	auto buffer = need(device.create_buffer(provider.id, 4 * MiB), "buffer");
	auto file = need(device.open_file(argv[1], O_RDONLY), argv[1]);
	auto elsewhere = need(device.open_file(argv[2], O_RDONLY), argv[2]);

	whole_file(device, file, buffer, 0, 0, "260 reads through a ring of 4");
	whole_file(device, file, buffer, MiB, PEERDMA_RING_VECTORS | PEERDMA_RING_ONE_THREAD,
		   "the same, neighbours as one command, by one thread");

	Ring ring(device, 2, 8, 0);
	auto read = [&](uint64_t tag, peerdma::File &from) {
		const peerdma_op op = {PEERDMA_OP_READ, 0, from.get(), buffer.get(), 2 * MiB, BLOCK, 0, tag};
		return peerdma_ring_queue(ring.ring, &op, 1);
	};
	bool good = read(1, file) == 1 && read(2, elsewhere) == 1 && read(3, file) == 1 &&
		    !peerdma_ring_cancel(ring.ring, 3);
	auto results = ring.fetch(3);
	report(good && results[1] == 4096 && results[2] == -EXDEV && results[3] == -ECANCELED,
	       "one is moved, one refused, one was taken back");
	peerdma_done none;
	report(!peerdma_ring_wait(ring.ring, &none, 1, 1, 50), "nothing to wait for");
	for (uint64_t tag = 0; tag < 8; tag++)
		good = read(tag, file) == 1 && good;
	report(good && read(9, file) == -EAGAIN && ring.fetch(8).size() == 8 && read(9, file) == 1,
	       "a full ring says so, and has room again"); // one request stays queued when the ring is destroyed
	fall_back(device, provider.id, buffer, argv[2]);
	return tap::end();
}
