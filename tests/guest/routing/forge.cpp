// SPDX-License-Identifier: MIT
//
// forge DISK PRIORITY ORDER KINDS [write]: requests for adjacent blocks of DISK in one io_uring_enter(2), which plugs
// them. KINDS has a letter for each block: h for an ordinary O_DIRECT request to host memory, p or q for a PeerDMA
// command to a buffer of the first or second provider. PRIORITY is that of the ordinary requests: none, or forged
// (PeerDMA's own for the first provider). ORDER is the order of submission: up, down, or halves, which alternates
// between the two halves of the range, so that a request's neighbor is never the last plugged one. Reads are compared
// with single reads, writes are read back. Prints: BAD MERGES, as counted by the disk.
#include <fstream>
#include <liburing.h>
#include <numeric>
#include <vector>

#include "../../tools/command.hpp"

namespace
{

constexpr uint64_t block = 4096, start = 16 << 20;

struct Place {
	uint32_t buf = 0; // 0: host memory
	uint64_t buf_off = 0;
	volatile uint64_t *at = nullptr;
};

struct Buffer {
	uint32_t id = 0;
	char *proxy = nullptr;
};

Buffer make_buffer(int dev, int provider, uint64_t len)
{
	auto alloc = raw::alloc(dev, raw::provider(dev, provider).out_provider_id, len);
	if (!alloc.out_buf_id)
		raw::die("buffer");
	return {alloc.out_buf_id, raw::map(dev, alloc)};
}

/// The place of each block's bytes, each in a separate page.
std::vector<Place> places(int dev, const std::string &kinds)
{
	const uint64_t len = kinds.size() * block;
	void *host = std::aligned_alloc(block, len);
	Buffer buffers[2];
	std::vector<Place> result;
	for (size_t i = 0; i < kinds.size(); i++) {
		Place place;
		char *base = static_cast<char *>(host);
		if (kinds[i] != 'h') {
			Buffer &buffer = buffers[kinds[i] == 'q'];
			if (!buffer.id)
				buffer = make_buffer(dev, kinds[i] == 'q', len);
			place.buf = buffer.id;
			base = buffer.proxy;
		}
		place.buf_off = i * block;
		place.at = reinterpret_cast<uint64_t *>(base + i * block);
		result.push_back(place);
	}
	return result;
}

std::vector<size_t> order_of(const std::string &order, size_t n)
{
	std::vector<size_t> result(n);
	std::iota(result.begin(), result.end(), 0);
	if (order == "down")
		std::iota(result.rbegin(), result.rend(), 0);
	for (size_t i = 0; order == "halves" && i < n; i++)
		result[i] = i / 2 + i % 2 * (n / 2);
	return result;
}

/// Class BE, level 4, and PeerDMA's hint.
uint16_t hint_of(uint32_t provider) { return static_cast<uint16_t>(2 << 13 | (512 | provider % 512) << 3 | 4); }

/// Merges of reads and writes together.
uint64_t merges(const std::string &disk)
{
	std::ifstream stat("/sys/class/block/" + disk + "/stat");
	uint64_t ignored = 0, reads = 0, writes = 0;
	stat >> ignored >> reads >> ignored >> ignored >> ignored >> writes;
	return reads + writes;
}

bool equal(const volatile uint64_t *a, const uint64_t *b)
{
	for (size_t i = 0; i < block / sizeof(*b); i++) {
		if (a[i] != b[i])
			return false;
	}
	return true;
}

void fill(volatile uint64_t *at, uint64_t seed)
{
	for (size_t i = 0; i < block / sizeof(*at); i++)
		at[i] = seed * 1000003 + i;
}

void prepare(io_uring_sqe *sqe, int dev, int file, const Place &place, uint64_t off, bool write)
{
	if (!place.buf) {
		io_uring_prep_rw(write ? IORING_OP_WRITE : IORING_OP_READ, sqe, file, const_cast<uint64_t *>(place.at),
				 block, off);
		return;
	}
	raw::command(sqe, dev, write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ, place.buf, raw::add_file(dev, file),
		     block, {off, place.buf_off});
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	const std::string disk = argv[1], priority = argv[2], kinds = argv[4];
	const bool write = argc > 5;
	int dev = raw::open_device();
	int file = raw::open_file("/dev/" + disk, O_RDWR | O_DIRECT);
	auto all = places(dev, kinds);
	auto *single = static_cast<uint64_t *>(std::aligned_alloc(block, block));
	// Caches the route before the batch: the first request on a disk blocks, and blocking unplugs.
	for (const auto &place : all) {
		auto req = raw::io(file, place.buf, start - block, place.buf_off, block);
		if (place.buf && raw::call(dev, PEERDMA_READ, req))
			raw::die("the first read");
	}
	for (size_t i = 0; i < all.size(); i++)
		fill(all[i].at, write ? 77 * i + static_cast<uint64_t>(::getpid()) : ~i);

	io_uring ring{};
	if (io_uring_queue_init(128, &ring, 0))
		raw::die("io_uring");
	for (size_t i : order_of(argv[3], all.size())) {
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		prepare(sqe, dev, file, all[i], start + i * block, write);
		if (!all[i].buf && priority == "forged")
			sqe->ioprio = hint_of(raw::provider(dev).out_provider_id);
	}
	const uint64_t before = merges(disk);
	unsigned bad = 0;
	if (io_uring_submit_and_wait(&ring, static_cast<unsigned>(all.size())) < 0)
		raw::die("submit");
	for (size_t i = 0; i < all.size(); i++) {
		io_uring_cqe *cqe = nullptr;
		if (io_uring_wait_cqe(&ring, &cqe))
			raw::die("completion");
		bad += cqe->res != int(block);
		io_uring_cqe_seen(&ring, cqe);
	}
	const uint64_t merged = merges(disk) - before;
	for (size_t i = 0; i < all.size(); i++) {
		if (::pread(file, single, block, static_cast<off_t>(start + i * block)) != int(block))
			raw::die("pread");
		bad += !equal(all[i].at, single);
	}
	std::printf("%u %llu\n", bad, static_cast<unsigned long long>(merged));
	return bad ? 1 : 0;
}
