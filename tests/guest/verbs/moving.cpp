// SPDX-License-Identifier: MIT
//
// RDMA into and out of a dma-buf whose owner moves it within the GPU, bytes and all, and goes on. Both ends are of this process; the
// other region is host memory (ibv_reg_mr()), and completions come by events.
//
//   moving RDMA-DEVICE
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>

#include "../../kmod/expstand.h"
#include "../../tools/dmabuf_mr.hpp"
#include "../../tools/guest.hpp"
#include "../../tools/tap.hpp"
#include "queue.hpp"

namespace
{

using std::to_string;
using tap::report;
using namespace queue;

constexpr uint64_t len = 1 << 20;
// Places of the memory in the GPU.
constexpr std::array<uint64_t, 4> places = {0, 3 << 20, 7 << 20, 12 << 20};
constexpr const char *poison = "byte:221"; // of expstand

/// The memory of the exporter.
class Exported
{
public:
	Exported() : device_(raw::open_file("/dev/expstand", O_RDWR))
	{
		struct exp_make make = {};
		make.off = places[0];
		make.len = len;
		make.dynamic = 1;
		make.layout = EXP_LINEAR;
		make.trouble = EXP_UNPINNED;
		if (::ioctl(device_, EXP_MAKE, &make))
			die("EXP_MAKE");
		fd_ = make.out_fd;
	}
	Exported(const Exported &) = delete;
	~Exported()
	{
		::close(fd_);
		::close(device_);
	}
	int fd() const { return fd_; }
	uint64_t place() const { return places[at_]; }
	/// To the next place. Returns the one that it has left.
	uint64_t move()
	{
		const uint64_t was = place();
		struct exp_relocate to = {};
		at_ = (at_ + 1) % places.size();
		to.off = place();
		to.fd = fd_;
		if (::ioctl(device_, EXP_RELOCATE, &to))
			die("EXP_RELOCATE");
		return was;
	}

private:
	int device_, fd_ = -1;
	size_t at_ = 0;
};

/// Two queue pairs of this process, of which the first one posts; and the regions.
class Ends
{
public:
	Ends(const char *device, int dmabuf) : rdma_(device), here_(rdma_, true), there_(rdma_)
	{
		std::istringstream to(there_.name()), from(here_.name());
		here_.join(to, IBV_MTU_4096);
		there_.join(from, IBV_MTU_4096);
		host_ = ibv_reg_mr(rdma_.pd, bytes.data(), bytes.size(), access_all);
		gpu_ = ibv_reg_dmabuf_mr(rdma_.pd, 0, len, 0, dmabuf, access_all);
		if (!host_ || !gpu_)
			die("a region");
	}
	Ends(const Ends &) = delete;
	~Ends()
	{
		ibv_dereg_mr(gpu_);
		ibv_dereg_mr(host_);
	}
	/// WRITE from, or READ to, the same place of `bytes`.
	enum ibv_wc_status run(enum ibv_wr_opcode opcode, uint64_t off, uint64_t size)
	{
		here_.post(opcode,
			   {.addr = uint64_t(bytes.data() + off), .length = uint32_t(size), .lkey = host_->lkey}, off,
			   gpu_->rkey);
		return here_.wait().status;
	}
	unsigned events() const { return here_.events(); }

	std::vector<uint8_t> bytes = std::vector<uint8_t>(len);

private:
	Rdma rdma_;
	Queue here_, there_;
	struct ibv_mr *host_ = nullptr, *gpu_ = nullptr;
};

std::string pattern(unsigned seed) { return "pattern:" + to_string(seed); }

/// A range, and the rest of the memory, which holds byte 7.
bool gpu_has(uint64_t place, uint64_t off, uint64_t size, const std::string &source)
{
	return tap::gpu_is(place + off, size, source, off) && (!off || tap::gpu_is(place, off, "byte:7")) &&
	       (off + size == len || tap::gpu_is(place + off + size, len - off - size, "byte:7"));
}

void fill(uint64_t place, const std::string &source)
{
	if (!host::run("host fill gpu0 " + to_string(place) + " " + to_string(len) + " " + source))
		die("host fill");
}

/// Between two requests: what was read before a move is written after it.
void move_between(Exported &exported, Ends &ends)
{
	constexpr std::array<std::pair<uint64_t, uint64_t>, 5> ranges = {
		{{0, len}, {0, 1}, {4095, 2}, {4097, 70001}, {len - 513, 513}}};
	for (unsigned seed = 1; seed <= ranges.size(); seed++) {
		const auto [off, size] = ranges[seed - 1];
		const std::string what =
			"moved between two requests, " + to_string(size) + " bytes at " + to_string(off) + ": ";
		std::memset(ends.bytes.data(), 0, len);
		fill(exported.place(), pattern(seed));
		report(ends.run(IBV_WR_RDMA_READ, off, size) == IBV_WC_SUCCESS, what + "READ");
		const uint64_t left = exported.move();
		report(tap::gpu_is(exported.place(), len, pattern(seed)), what + "the bytes move along");
		fill(exported.place(), "byte:7");
		report(ends.run(IBV_WR_RDMA_WRITE, off, size) == IBV_WC_SUCCESS, what + "WRITE");
		report(gpu_has(exported.place(), off, size, pattern(seed)),
		       what + "each byte is at the new place, and none beside it");
		report(tap::gpu_is(left, len, poison), what + "none at the old one");
	}
}

/// While requests for all bytes are under way: each ends, at whatever places the bytes were. `ends` has the bytes, and so has the memory
/// after a WRITE.
void move_under(Exported &exported, Ends &ends, enum ibv_wr_opcode opcode)
{
	constexpr unsigned moves = 24;
	const bool reads = opcode == IBV_WR_RDMA_READ;
	const std::string what = std::string("moved under ") + (reads ? "READs: " : "WRITEs: ");
	const std::vector<uint8_t> expected = ends.bytes;
	std::atomic<bool> ended = false, under_way = false;
	unsigned under = 0, clean = 0, requests = 0, failed = 0, wrong = 0;
	std::thread mover([&] {
		for (unsigned i = 0; i < moves; i++) {
			under += guest::within(std::chrono::seconds(20), [&] { return under_way.load(); });
			const uint64_t left = exported.move();
			clean += tap::gpu_is(left, len, poison);
		}
		ended = true;
	});
	while (!ended || requests < 2) {
		if (reads)
			std::memset(ends.bytes.data(), 0, len);
		under_way = true;
		failed += ends.run(opcode, 0, len) != IBV_WC_SUCCESS;
		under_way = false;
		wrong += ends.bytes != expected;
		requests++;
	}
	mover.join();
	report(!failed, what + "each ends well", to_string(failed) + " of " + to_string(requests));
	report(under == moves, what + "they were under way", to_string(under));
	report(!wrong, what + "host memory has every byte", to_string(wrong) + " of " + to_string(requests));
	report(clean == moves, what + "none comes to a place that was left",
	       to_string(clean) + " of " + to_string(moves));
	report(gpu_has(exported.place(), 0, len, pattern(20)), what + "each byte is at the last place");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		die("moving RDMA-DEVICE");
	Exported exported;
	Ends ends(argv[1], exported.fd());
	move_between(exported, ends);
	fill(exported.place(), pattern(20));
	report(ends.run(IBV_WR_RDMA_READ, 0, len) == IBV_WC_SUCCESS, "moved under requests: the bytes");
	fill(exported.place(), "byte:7");
	move_under(exported, ends, IBV_WR_RDMA_WRITE);
	move_under(exported, ends, IBV_WR_RDMA_READ);
	report(ends.events() > 0, "completions came by events");
	return tap::end();
}
