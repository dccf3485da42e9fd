// SPDX-License-Identifier: MIT
// Tests for buffers of memory that another driver has allocated: the location seen by the host, and every use of a
// buffer. The memory is frames 16 to 31 of the GPU's BAR, contiguous or scattered. /mnt/disk/foreign is 1 MiB of
// pattern 1; /mnt/disk/scratch is written to.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/guest.hpp"
#include "../../tools/tap.hpp"

namespace foreign
{

using raw::open_file, tap::report;

constexpr uint64_t frame = 65536, first = 16, frames = 16, len = frames * frame;
constexpr const char *poison = "byte:221";
constexpr const char *pattern_file = "/mnt/disk/foreign", *scratch_file = "/mnt/disk/scratch";
inline bool scattered;

struct Fd {
	int fd;
	explicit Fd(int opened) : fd(opened) {}
	Fd(const Fd &) = delete;
	Fd &operator=(const Fd &) = delete;
	~Fd() { ::close(fd); }
	operator int() const { return fd; }
};

/// The BAR offset of byte `off` of the buffer, and the number of contiguous bytes from there.
inline std::pair<uint64_t, uint64_t> place(uint64_t off)
{
	if (!scattered)
		return {first * frame + off, len - off};
	return {((first + off / frame) ^ 5) * frame + off % frame, frame - off % frame};
}

/// Runs `host VERB gpu0 ...` for each contiguous part of the buffer.
inline bool host_each(const std::string &verb, uint64_t off, uint64_t size, const std::string &source, uint64_t from)
{
	while (size) {
		const auto [at, more] = place(off);
		const uint64_t step = std::min(size, more);
		if (!host::run("host " + verb + " gpu0 " + std::to_string(at) + " " + std::to_string(step) + " " +
			       source + " " + std::to_string(from)))
			return false;
		off += step, from += step, size -= step;
	}
	return true;
}

inline bool holds(uint64_t off, uint64_t size, const std::string &source, uint64_t from = 0)
{
	return host_each("compare", off, size, source, from);
}

inline void fill(const std::string &source) { host_each("fill", 0, len, source, 0); }

inline void read_case(int dev, uint32_t buf, int file, const std::string &what, uint64_t file_off, uint64_t off,
		      uint64_t size, bool direct)
{
	fill("byte:7");
	auto io = raw::io(file, buf, file_off, off, size);
	const int err = raw::call(dev, PEERDMA_READ, io);
	report(!err && io.out_done == size && (direct ? io.out_direct == size : io.out_direct < size) && !io.out_near,
	       what + ": it comes",
	       std::to_string(err) + " reason " + std::to_string(io.out_reason) + " direct " +
		       std::to_string(io.out_direct) + " host " + std::to_string(io.out_host));
	report(holds(off, size, "pattern:1", file_off) && holds(0, off, "byte:7") &&
		       holds(off + size, len - off - size, "byte:7"),
	       what + ": where it should, and nothing else changes");
}

inline void ring_case(int dev, uint32_t buf, int file)
{
	fill("byte:7");
	const int res =
		raw::run_command(dev, PEERDMA_URING_READ, buf, raw::add_file(dev, file), len - 2 * frame, {frame, 512});
	report(res == int(len - 2 * frame) && holds(512, len - 2 * frame, "pattern:1", frame) &&
		       holds(0, 512, "byte:7"),
	       "a command of a ring", "result " + std::to_string(res));
}

inline void proxy_case(int dev, uint64_t mmap_offset)
{
	char *bytes = raw::map(dev, mmap_offset, len);
	auto *proxy = reinterpret_cast<volatile uint64_t *>(bytes);
	const Fd plain(open_file(pattern_file, O_RDONLY | O_DIRECT));
	fill("pattern:3");
	// A page inside the last frame but one.
	const uint64_t at = len - 2 * frame + 4096;
	for (uint64_t i = 0; i < 4096 / 8; i++)
		proxy[at / 8 + i] = 0x5a5a5a5a5a5a5a5a;
	(void)proxy[(at + 4088) / 8];
	report(holds(at, 4096, "byte:90") && holds(0, at, "pattern:3"), "the CPU stores through a proxy");
	const ssize_t got = ::pread(plain, bytes + frame / 2, 4 * frame, 0);
	report(got == ssize_t(4 * frame) && holds(frame / 2, 4 * frame, "pattern:1"), "pread(2) of a proxy",
	       std::to_string(got) + " " + std::strerror(errno));
	::munmap(bytes, len);
}

/// Moves bytes by every way.
inline void use(int dev, uint32_t buf, uint64_t mmap_offset)
{
	const Fd file(open_file(pattern_file)), scratch(open_file(scratch_file));
	read_case(dev, buf, file, "all of it", 0, 0, len, true);
	read_case(dev, buf, file, "across frames, in the middle of pages", 2048, frame - 512, 5 * frame, true);
	read_case(dev, buf, file, "with partial blocks", 1000, frame + 1000, 200001, false);
	read_case(dev, buf, file, "where no device can write", 4096, 2 * frame - 1001, 3 * frame, false);
	fill("pattern:5");
	auto io = raw::io(scratch, buf, 0, 0, len);
	const int err = raw::call(dev, PEERDMA_WRITE, io);
	report(!err && io.out_direct == len && host::run("pattern compare /mnt/disk/scratch 0 1048576 pattern:5"),
	       "what is written is what it held", std::to_string(err));
	ring_case(dev, buf, file);
	proxy_case(dev, mmap_offset);
}

/// Threads that begin at the same time, each after a delay of its own.
class Race
{
public:
	void add(int delay_us, std::function<void()> body)
	{
		threads_.emplace_back([this, delay_us, body = std::move(body)] {
			while (!go_)
				;
			std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
			body();
		});
	}
	/// Reads into both halves of the buffer, until it is lost. The three must stay valid until the end.
	void add_readers(const Fd &dev, const Fd &file, const std::atomic<uint32_t> &buf)
	{
		for (uint64_t half : {0, 1})
			add(0, [&, half] {
				for (int i = 0; i < 8; i++) {
					auto io = raw::io(file, buf, 0, half * len / 2, len / 2);
					if (raw::call(dev, PEERDMA_READ, io) == -ENODEV)
						break;
				}
			});
	}
	/// Returns when all have ended.
	void run()
	{
		go_ = true;
		for (auto &thread : threads_)
			thread.join();
	}

private:
	std::atomic<bool> go_ = false;
	std::vector<std::thread> threads_;
};

/// The driver invalidates the memory under a read. It must sleep until the read has ended, as its stand-in measures
/// (tests/kmod/watch.h).
inline void lost_case(int dev, uint32_t buf, const std::string &driver, const std::string &who,
		      const std::function<bool()> &invalidate)
{
	const Fd file(open_file(pattern_file));
	host::throttle(131072);
	auto io = raw::io(file, buf, 0, 0, len / 2);
	int err = raw::call(dev, PEERDMA_READ, io); // passes at once; the next one takes four seconds
	io = raw::io(file, buf, 0, 0, len / 2);
	std::thread reader([&] { err = raw::call(dev, PEERDMA_READ, io); });
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	const bool good = invalidate();
	// The read may have returned already; its bytes must not arrive after the memory was reused.
	reader.join();
	const int waited_ms = guest::debug_number(driver, "waited"), ran_ms = guest::debug_number(driver, "ran");
	const std::string said = std::to_string(waited_ms) + " ms, of a CPU " + std::to_string(ran_ms) + " ms";
	report(waited_ms > 500, who + " waits for the read", said);
	report(ran_ms >= 0 && ran_ms < waited_ms / 10, "and sleeps meanwhile", said);
	report(good && !err && io.out_done == len / 2, "which ends as if nothing had happened", std::to_string(err));
	report(holds(0, len, poison), "nothing comes after the memory is another's");
	host::throttle(0);
	io = raw::io(file, buf, 0, 0, 4096);
	err = raw::call(dev, PEERDMA_READ, io);
	report(err == -ENODEV && io.out_reason == PEERDMA_REASON_REVOKED, "new requests find it gone");
}

} // namespace foreign
