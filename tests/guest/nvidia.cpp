// SPDX-License-Identifier: MIT
//
// nvidia WHAT [ARGS]: memory of a vendor's driver as a buffer. The driver is tests/kmod/nvstand.c; nvidia.sh sets how it
// behaves. /mnt/disk/nvidia holds 1 MiB of pattern 1, /mnt/disk/scratch is to be written. The host compares.
//
//   moves linear|scattered     all that a buffer is for, by each way
//   refused REASON ERRNO       registering ends with these
//   once                       no memory twice, and none allocated of such a provider
//   freed                      memory is freed under a read: who frees waits, and what came is not seen after that
//   again                      a second call for the same memory, and one for what was given back
//   races ROUNDS               freeing, destroying, closing and reading, at the same time
//   early                      memory that is freed while it is being registered
//   keep                       registers, says so, and waits to be ended from outside
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <liburing.h>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "../tools/raw.hpp"
#include "../tools/tap.hpp"

namespace
{

using tap::report;
using namespace std::chrono_literals;

constexpr uint64_t addr_base = 0x7f0000000000, frame = 65536, first = 16, frames = 16, len = frames * frame;
constexpr uint64_t addr = addr_base + first * frame;
constexpr const char *poison = "byte:221";
bool scattered;

struct Fd {
	int fd;
	explicit Fd(int opened) : fd(opened) {}
	Fd(const Fd &) = delete;
	Fd &operator=(const Fd &) = delete;
	~Fd() { ::close(fd); }
	operator int() const { return fd; }
};

peerdma_buf_register enroll(int dev, uint64_t at = addr, uint64_t size = len)
{
	auto req = raw::sized<peerdma_buf_register>();
	req.pci_vendor = 0x10de;
	req.addr = at;
	req.len = size;
	errno = -raw::call(dev, PEERDMA_BUF_REGISTER, req);
	return req;
}

int number(const std::string &what)
{
	std::ifstream in("/sys/kernel/debug/nvstand/" + what);
	int n = -1;
	in >> n;
	return n;
}

bool poke(const std::string &what, uint64_t value)
{
	const Fd fd(::open(("/sys/kernel/debug/nvstand/" + what).c_str(), O_WRONLY | O_CLOEXEC));
	const std::string text = std::to_string(value);
	return ::write(fd, text.data(), text.size()) == ssize_t(text.size());
}

/// What was registered was given back, and nothing happened that must not.
bool all_given_back()
{
	for (int i = 0; i < 200 && number("given"); i++)
		std::this_thread::sleep_for(10ms);
	return !number("given") && !number("wrong");
}

std::string state()
{
	return "given " + std::to_string(number("given")) + ", wrong " + std::to_string(number("wrong"));
}

int open_file(const char *name, int flags = O_RDWR)
{
	const int fd = ::open(name, flags | O_CLOEXEC);
	if (fd < 0)
		raw::die(name);
	return fd;
}

/// Where byte off of the buffer is in the BAR, and how many behind it are there as well.
std::pair<uint64_t, uint64_t> place(uint64_t off)
{
	if (!scattered)
		return {first * frame + off, len - off};
	return {((first + off / frame) ^ 5) * frame + off % frame, frame - off % frame};
}

/// For each contiguous part of the buffer: host VERB gpu0 ...
bool host_each(const std::string &verb, uint64_t off, uint64_t size, const std::string &source, uint64_t from)
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

bool holds(uint64_t off, uint64_t size, const std::string &source, uint64_t from = 0)
{
	return host_each("compare", off, size, source, from);
}

void fill(const std::string &source) { host_each("fill", 0, len, source, 0); }

void read_case(int dev, uint32_t buf, int file, const std::string &what, uint64_t file_off, uint64_t off, uint64_t size,
	       bool direct)
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

void ring_case(int dev, uint32_t buf, int file)
{
	io_uring ring;
	if (io_uring_queue_init(4, &ring, 0))
		raw::die("io_uring");
	io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_cqe *cqe;
	std::memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = dev;
	sqe->cmd_op = PEERDMA_URING_READ;
	sqe->addr = buf;
	sqe->len = len - 2 * frame;
	sqe->file_index = uint32_t(file);
	const peerdma_uring_io io = {frame, 512};
	std::memcpy(reinterpret_cast<char *>(sqe) + offsetof(io_uring_sqe, addr3), &io, sizeof(io));
	fill("byte:7");
	io_uring_submit(&ring);
	const bool came = !io_uring_wait_cqe(&ring, &cqe) && cqe->res == int(len - 2 * frame);
	report(came && holds(512, len - 2 * frame, "pattern:1", frame) && holds(0, 512, "byte:7"),
	       "a command of a ring", "result " + std::to_string(cqe->res));
	io_uring_queue_exit(&ring);
}

void proxy_case(int dev, const peerdma_buf_register &req)
{
	auto *proxy = static_cast<volatile uint64_t *>(
		::mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_SHARED, dev, off_t(req.out_mmap_offset)));
	if (proxy == MAP_FAILED)
		raw::die("mmap");
	const Fd plain(open_file("/mnt/disk/nvidia", O_RDONLY | O_DIRECT));
	fill("pattern:3");
	// A page that straddles nothing, in the frame before the last.
	const uint64_t at = len - 2 * frame + 4096;
	for (uint64_t i = 0; i < 4096 / 8; i++)
		proxy[at / 8 + i] = 0x5a5a5a5a5a5a5a5a;
	(void)proxy[(at + 4088) / 8];
	report(holds(at, 4096, "byte:90") && holds(0, at, "pattern:3"), "the CPU stores through a proxy");
	char *part = const_cast<char *>(reinterpret_cast<volatile char *>(proxy)) + frame / 2;
	const ssize_t got = ::pread(plain, part, 4 * frame, 0);
	report(got == ssize_t(4 * frame) && holds(frame / 2, 4 * frame, "pattern:1"), "pread(2) of a proxy",
	       std::to_string(got) + " " + std::strerror(errno));
	::munmap(const_cast<uint64_t *>(proxy), len);
}

void export_case(int dev, uint32_t buf)
{
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buf;
	req.len = 2 * frame;
	const int err = raw::call(dev, PEERDMA_BUF_EXPORT, req);
	report(!err && req.out_fd >= 0, "a dma-buf of it", std::to_string(err));
	if (!err)
		::close(req.out_fd);
}

int moves()
{
	const Fd dev(raw::open_device()), file(open_file("/mnt/disk/nvidia")), scratch(open_file("/mnt/disk/scratch"));
	const auto req = enroll(dev);
	report(req.out_buf_id && number("given") == 1, "it is registered",
	       std::to_string(errno) + " reason " + std::to_string(req.out_reason));
	if (!req.out_buf_id)
		return 0;
	const auto provider = raw::provider(dev);
	report(provider.out_provider_id == req.out_provider_id && !provider.out_available,
	       "its GPU is a provider with nothing to allocate");
	read_case(dev, req.out_buf_id, file, "all of it", 0, 0, len, true);
	read_case(dev, req.out_buf_id, file, "across frames, in the middle of pages", 2048, frame - 512, 5 * frame,
		  true);
	read_case(dev, req.out_buf_id, file, "with partial blocks", 1000, frame + 1000, 200001, false);
	read_case(dev, req.out_buf_id, file, "where no device can write", 4096, 2 * frame - 1001, 3 * frame, false);
	fill("pattern:5");
	auto io = raw::io(scratch, req.out_buf_id, 0, 0, len);
	const int err = raw::call(dev, PEERDMA_WRITE, io);
	report(!err && io.out_direct == len && host::run("pattern compare /mnt/disk/scratch 0 1048576 pattern:5"),
	       "what is written is what it held", std::to_string(err));
	ring_case(dev, req.out_buf_id, file);
	proxy_case(dev, req);
	export_case(dev, req.out_buf_id);
	report(!raw::destroy(dev, req.out_buf_id) && all_given_back(), "it is given back", state());
	auto query = raw::sized<peerdma_provider_query>();
	bool gone = false;
	for (int i = 0; i < 100 && !gone; i++, std::this_thread::sleep_for(10ms))
		gone = raw::call(dev, PEERDMA_PROVIDER_QUERY, query) == -ENOENT;
	report(gone, "and its provider is gone");
	return 0;
}

int refused(uint32_t reason, int error)
{
	const Fd dev(raw::open_device());
	const auto req = enroll(dev);
	report(!req.out_buf_id && req.out_reason == reason && errno == error, "refused, and why",
	       std::to_string(errno) + " reason " + std::to_string(req.out_reason));
	report(number("given") <= 0 && number("wrong") <= 0, "nothing is kept", state());
	return 0;
}

int once()
{
	const Fd dev(raw::open_device()), other(raw::open_device());
	const auto req = enroll(dev);
	auto second = enroll(other, addr + 2 * frame, 4 * frame);
	report(req.out_buf_id && errno == EBUSY && second.out_reason == PEERDMA_REASON_VENDOR_BUSY &&
		       number("given") == 1,
	       "a part of it a second time is refused", std::to_string(errno) + ", " + state());
	second = enroll(other, addr + len, 4 * frame);
	report(second.out_buf_id && second.out_provider_id == req.out_provider_id, "what is beside it is not");
	const auto made = raw::alloc(dev, req.out_provider_id, 4096);
	report(errno == EOPNOTSUPP && made.out_reason == PEERDMA_REASON_VENDOR_MEMORY, "none of it is allocated");
	const uint64_t bad[][2] = {
		{addr + 4096, len}, {addr, len + 4096}, {addr, 0}, {uint64_t(-65536), len}, {addr, 1ULL << 62}};
	const uint32_t why[] = {PEERDMA_REASON_VENDOR_ALIGN, PEERDMA_REASON_VENDOR_ALIGN, PEERDMA_REASON_LEN_ZERO,
				PEERDMA_REASON_OVERFLOW, PEERDMA_REASON_VENDOR_REFUSED};
	bool all = true;
	for (size_t i = 0; i < std::size(why); i++)
		all = all && enroll(dev, bad[i][0], bad[i][1]).out_reason == why[i] &&
		      errno == (why[i] == PEERDMA_REASON_VENDOR_REFUSED ? EOPNOTSUPP : EINVAL);
	report(all, "numbers that are none");
	raw::destroy(dev, req.out_buf_id);
	raw::destroy(other, second.out_buf_id);
	report(all_given_back() && enroll(dev).out_buf_id, "it can be registered again", state());
	return 0;
}

/// A drive that takes two seconds for the next 512 KiB.
void slow(int dev, uint32_t buf, int file)
{
	host::run("throttle 262144");
	auto io = raw::io(file, buf, 0, 0, len / 2);
	raw::call(dev, PEERDMA_READ, io);
}

int freed()
{
	const Fd dev(raw::open_device()), file(open_file("/mnt/disk/nvidia"));
	const auto req = enroll(dev);
	slow(dev, req.out_buf_id, file);
	auto io = raw::io(file, req.out_buf_id, 0, 0, len / 2);
	int err = -1;
	std::thread reader([&] { err = raw::call(dev, PEERDMA_READ, io); });
	std::this_thread::sleep_for(300ms);
	const auto begin = std::chrono::steady_clock::now();
	const bool good = poke("free", addr);
	const auto took = std::chrono::steady_clock::now() - begin;
	// The read may be back already; what it brought must not come after the memory was another's.
	reader.join();
	report(good && took > 500ms, "who frees it waits for the read");
	report(!err && io.out_done == len / 2, "which ends as if nothing had happened", std::to_string(err));
	report(holds(0, len, poison), "nothing comes after the memory is another's");
	host::run("throttle 0");
	io = raw::io(file, req.out_buf_id, 0, 0, 4096);
	err = raw::call(dev, PEERDMA_READ, io);
	report(err == -ENODEV && io.out_reason == PEERDMA_REASON_REVOKED, "new requests find it gone");
	report(number("given") == 0 && number("late") == 0 && number("wrong") == 0,
	       "it is not given back a second time", state());
	report(!raw::destroy(dev, req.out_buf_id), "what is left of it is destroyed");
	return 0;
}

int again()
{
	const Fd dev(raw::open_device());
	auto req = enroll(dev);
	report(poke("free", addr) && poke("again", 1), "a second call finds nothing to do");
	raw::destroy(dev, req.out_buf_id);
	report(poke("again", 1), "nor one when the buffer is gone");
	req = enroll(dev);
	report(req.out_buf_id && poke("again", 1) && number("given") == 1, "nor is one meant for another buffer",
	       state());
	raw::destroy(dev, req.out_buf_id);
	report(all_given_back(), "all is given back", state());
	return 0;
}

/// In each round something else comes first.
int races(int rounds)
{
	const Fd file(open_file("/mnt/disk/nvidia"));
	bool poisoned = true;
	int n = 0, dead = 0;
	for (int i = 0; i < rounds; i++) {
		auto dev = std::make_unique<Fd>(raw::open_device());
		const auto req = enroll(*dev);
		if (!req.out_buf_id)
			continue;
		n++;
		std::atomic<bool> go = false;
		std::atomic<bool> freed = false;
		auto wait = [&](int us) {
			while (!go)
				;
			std::this_thread::sleep_for(std::chrono::microseconds(us));
		};
		std::vector<std::thread> threads;
		for (int j = 0; j < 2; j++)
			threads.emplace_back([&, j] {
				wait(0);
				for (int k = 0; k < 8; k++) {
					auto io = raw::io(file, req.out_buf_id, 0, uint64_t(j) * len / 2, len / 2);
					if (raw::call(*dev, PEERDMA_READ, io))
						break;
				}
			});
		threads.emplace_back([&] {
			wait(i * 37 % 3000);
			freed = poke("free", addr);
		});
		threads.emplace_back([&] {
			wait(i * 53 % 3000);
			raw::destroy(*dev, req.out_buf_id);
		});
		go = true;
		for (auto &thread : threads)
			thread.join();
		dead += freed;
		if (freed && i % 4 == 0)
			poisoned = poisoned && holds(0, len, poison);
		dev.reset();
		if (!all_given_back())
			break;
	}
	report(n == rounds && dead > 0, "each round is one",
	       std::to_string(n) + " rounds, freed in " + std::to_string(dead));
	report(poisoned, "nothing comes after the memory is another's");
	report(all_given_back(), "all is given back", state());
	return 0;
}

int early()
{
	const Fd dev(raw::open_device()), file(open_file("/mnt/disk/nvidia"));
	bool good = true;
	for (int i = 0; i < 20; i++) {
		const auto req = enroll(dev);
		if (req.out_buf_id) { // it came a little later
			auto io = raw::io(file, req.out_buf_id, 0, 0, 4096);
			const int err = raw::call(dev, PEERDMA_READ, io);
			good = good && (!err || err == -ENODEV);
			raw::destroy(dev, req.out_buf_id);
		} else {
			good = good && errno == ENODEV && req.out_reason == PEERDMA_REASON_VENDOR_FREED;
		}
		good = good && all_given_back();
	}
	report(good, "freed while it is registered: refused, or lost a little later", state());
	return 0;
}

int keep()
{
	const Fd dev(raw::open_device()), file(open_file("/mnt/disk/nvidia"));
	const auto req = enroll(dev);
	std::printf("%s\n", req.out_buf_id ? "registered" : "not registered");
	std::fflush(stdout);
	for (;;) {
		auto io = raw::io(file, req.out_buf_id, 0, 0, len);
		if (raw::call(dev, PEERDMA_READ, io))
			break;
	}
	std::printf("gone %d\n", errno);
	std::fflush(stdout);
	::pause();
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 1 ? argv[1] : "";

	if (what == "moves" && argc > 2) {
		scattered = !std::strcmp(argv[2], "scattered");
		return moves();
	}
	if (what == "refused" && argc > 3)
		return refused(uint32_t(std::atoi(argv[2])), std::atoi(argv[3]));
	if (what == "once")
		return once();
	if (what == "freed")
		return freed();
	if (what == "again")
		return again();
	if (what == "races" && argc > 2)
		return races(std::atoi(argv[2]));
	if (what == "early")
		return early();
	if (what == "keep")
		return keep();
	return 2;
}
