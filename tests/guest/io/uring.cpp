// SPDX-License-Identifier: MIT
//
// uring FILE SCRATCH QUEUE|none|polled: reads and writes as io_uring commands. FILE is 1 MiB of pattern 1; the buffer
// is at the start of the BAR. The host compares the bytes through the shell functions of lib.sh.
//   QUEUE    the drive's queue folder in sysfs
//   none     the drive is in another machine
//   polled   only commands of a polling ring, on a drive with polling queues: no interrupt may arrive
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <liburing.h>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/tap.hpp"
#include "../../tools/trace.hpp"

namespace
{

using tap::compare, tap::gpu_is, tap::report;
namespace fs = std::filesystem;

constexpr uint64_t buf_len = 4 << 20;
int dev, file;
uint32_t buf, file_id;
const char *proxy;      // the buffer, mapped for the CPU
std::vector<char> held; // its old contents

class Ring
{
public:
	explicit Ring(unsigned flags = 0, unsigned entries = 64)
	{
		good_ = !io_uring_queue_init(entries, &ring_, flags);
		polls_ = flags & IORING_SETUP_IOPOLL;
	}
	~Ring()
	{
		if (good_)
			io_uring_queue_exit(&ring_);
	}
	Ring(const Ring &) = delete;
	Ring &operator=(const Ring &) = delete;

	io_uring *get() { return &ring_; }
	bool good() const { return good_; }

	io_uring_sqe *command(uint32_t op, uint64_t file_off, uint64_t buf_off, uint32_t len, uint64_t tag)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		raw::command(sqe, dev, op, buf, file_id, len, {file_off, buf_off});
		sqe->user_data = tag;
		return sqe;
	}

	/// Submits and waits for n completions: tag -> result. A repeated tag fails the run.
	std::map<uint64_t, int> run(unsigned n)
	{
		std::map<uint64_t, int> results;
		if (io_uring_submit(&ring_) < 0)
			return {};
		for (unsigned i = 0; i < n; i++) {
			io_uring_cqe *cqe = nullptr;
			if (!next(&cqe))
				return {};
			if (!results.emplace(cqe->user_data, cqe->res).second)
				return {};
			io_uring_cqe_seen(&ring_, cqe);
		}
		io_uring_cqe *more = nullptr;
		return io_uring_peek_cqe(&ring_, &more) ? results : std::map<uint64_t, int>{};
	}

	/// One command of many pieces.
	io_uring_sqe *vector(uint32_t op, const std::vector<peerdma_uring_seg> &segs, uint64_t tag)
	{
		return command(op, reinterpret_cast<uintptr_t>(segs.data()), 0, uint32_t(segs.size()), tag);
	}

	int one(io_uring_sqe *sqe)
	{
		const uint64_t tag = sqe->user_data;
		auto results = run(1);
		return results.count(tag) ? results[tag] : -12345;
	}

private:
	bool next(io_uring_cqe **cqe)
	{
		__kernel_timespec patience = {raw::by_software() ? 60 : 20, 0}; // soft-RoCE retransmits after seconds
		if (!polls_)
			return !io_uring_wait_cqe_timeout(&ring_, cqe, &patience);
		// A polling ring takes no timeout: poll it in a loop.
		for (auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
		     std::chrono::steady_clock::now() < end;)
			if (!io_uring_peek_cqe(&ring_, cqe))
				return true;
		return false;
	}

	io_uring ring_{};
	bool good_, polls_;
};

void singles()
{
	Ring ring;
	report(ring.one(ring.command(PEERDMA_URING_READ, 4096, 8192, 65536, 1)) == 65536 &&
		       gpu_is(8192, 65536, "pattern:1", 4096),
	       "a read by the file's id");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1001, 777, 5000, 3)) == 5000 &&
		       gpu_is(777, 5000, "pattern:1", 1001),
	       "a read at odd places");
	report(ring.one(ring.command(PEERDMA_URING_READ, (1 << 20) - 100, 0, 4096, 4)) == 100, "the end of the file");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1 << 20, 0, 4096, 5)) == 0, "past the end of the file");
	report(ring.one(ring.command(PEERDMA_URING_READ, 0, 0, 1 << 20, 6)) == 1 << 20 &&
		       gpu_is(0, 1 << 20, "pattern:1", 0),
	       "a MiB");
}

/// The kernel looks up a ring's fixed buffer before it calls the module.
void registers(Ring &ring)
{
	static char memory[4096];
	const iovec fixed{memory, sizeof(memory)};
	if (io_uring_register_buffers(ring.get(), &fixed, 1))
		raw::die("io_uring_register_buffers");
}

void errors()
{
	Ring ring;
	auto refused = [&](const char *what, int want, auto spoil) {
		io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1);
		spoil(sqe);
		int got = ring.one(sqe);
		report(got == want, std::string(what) + " (" + std::to_string(got) + ")");
	};
	refused("an unknown command", -ENOTTY, [](auto *s) { s->cmd_op = PEERDMA_READ; });
	refused("an unknown flag", -EOPNOTSUPP, [](auto *s) { s->addr |= 1ULL << 63; });
	refused("a buffer nobody has", -ENOENT, [](auto *s) { s->addr = uint64_t(PEERDMA_IO_FILE_ID) << 32 | 12345; });
	refused("a file nobody has", -ENOENT, [](auto *s) { s->file_index = 4711; });
	refused("a descriptor, which the ring's restrictions do not know", -EINVAL, [](auto *s) {
		s->addr = buf;
		s->file_index = static_cast<uint32_t>(file);
	});
	refused("a field that means nothing here", -EINVAL, [](auto *s) { s->buf_index = 1; });
	refused("a length of 0", -EINVAL, [](auto *s) { s->len = 0; });
	refused("a length past 31 bits", -EINVAL, [](auto *s) { s->len = 0xffffffff; });
	refused("past the end of the buffer", -EINVAL, [](auto *s) { s->len = buf_len + 4096; });
	refused("a write to a file that is open for reading", -EBADF, [](auto *s) { s->cmd_op = PEERDMA_URING_WRITE; });
	refused("a flag for io_uring that is nobody's yet", -EINVAL, [](auto *s) { s->uring_cmd_flags = 1 << 23; });
	registers(ring);
	refused("a fixed buffer of the ring's", -EOPNOTSUPP, [](auto *s) { s->uring_cmd_flags = 1; });
	// 6.12 itself refuses this.
	refused("a buffer that the ring selects, again and again", -EOPNOTSUPP, [](auto *s) {
		s->uring_cmd_flags = 2;
		s->flags |= IOSQE_BUFFER_SELECT;
	});
	refused("what would be bounced, if it must not be", -EINVAL, [](auto *s) {
		s->addr |= uint64_t(PEERDMA_IO_NO_BOUNCE) << 32;
		s->len = 4095;
	});
	// In software every byte is copied.
	refused("whole blocks, if nothing must be bounced", raw::by_software() ? -EXDEV : 4096,
		[](auto *s) { s->addr |= uint64_t(PEERDMA_IO_NO_BOUNCE) << 32; });
}

/// SQEs of 128 bytes: the second half is reserved.
void large_sqes()
{
	Ring ring(IORING_SETUP_SQE128);
	report(ring.one(ring.command(PEERDMA_URING_READ, 4096, 8192, 4096, 1)) == 4096 &&
		       gpu_is(8192, 4096, "pattern:1", 4096),
	       "a read by a ring of large SQEs");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1001, 777, 5000, 1)) == 5000, "and one that has to wait");
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1);
	reinterpret_cast<char *>(sqe)[127] = 1;
	const int last = ring.one(sqe);
	reinterpret_cast<char *>(sqe)[127] = 0;
	for (unsigned i = 0; i < 64; i++) // the ring's memory is reused
		std::memset(reinterpret_cast<char *>(&ring.get()->sq.sqes[i * 2]) + 64, 0, 64);
	sqe = ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1);
	reinterpret_cast<char *>(sqe)[64] = 1;
	const int first = ring.one(sqe);
	report(last == -EINVAL && first == -EINVAL, "something in the second half",
	       std::to_string(last) + ", " + std::to_string(first));
}

/// Many commands at once, aligned and unaligned, each to its own place in the buffer; ordinary reads in between.
void batch(unsigned flags, const char *what)
{
	Ring ring(flags);
	if (!ring.good()) {
		report(false, what);
		return;
	}
	host::run("host fill gpu0 0 4194304 pattern:99");
	std::mt19937 random(7);
	struct Want {
		uint64_t file_off, buf_off;
		uint32_t len;
	};
	std::vector<Want> wants;
	std::vector<std::vector<char>> host(8, std::vector<char>(4096));
	for (unsigned i = 0; i < 32; i++) {
		uint32_t len = i % 4 ? 4096 * (1 + random() % 4) : 1 + random() % 9000;
		uint64_t off = i % 4 ? random() % 200 * 4096 : random() % 900000;
		wants.push_back({off, i * 65536 + (i % 4 ? 0 : random() % 5000), len});
		ring.command(PEERDMA_URING_READ, off, wants[i].buf_off, len, i);
	}
	for (unsigned i = 0; i < 8; i++) {
		io_uring_sqe *sqe = io_uring_get_sqe(ring.get());
		io_uring_prep_read(sqe, file, host[i].data(), 4096, i * 4096);
		sqe->user_data = 100 + i;
	}
	auto results = ring.run(40);
	bool good = results.size() == 40;
	uint64_t at = 0;
	std::string compares;
	for (unsigned i = 0; good && i < 32; i++) {
		const auto &w = wants[i];
		good = results[i] == int(w.len);
		compares += compare(w.buf_off, w.len, "pattern:1", w.file_off) + " && " +
			    compare(at, w.buf_off - at, "pattern:99", at) + " && ";
		at = w.buf_off + w.len;
	}
	good = good && host::run(compares + ":");
	for (unsigned i = 0; good && i < 8; i++) {
		std::vector<char> want(4096);
		good = results[100 + i] == 4096 && ::pread(file, want.data(), 4096, i * 4096) == 4096 &&
		       want == host[i];
	}
	report(good, what);
}

constexpr int UNTOUCHED = 12345678;

/// n pieces of 4 KiB: every second block of the file, each 8 KiB after the previous one in the buffer.
std::vector<peerdma_uring_seg> every_second(unsigned n, uint64_t buf_off = 0)
{
	std::vector<peerdma_uring_seg> segs;
	for (unsigned i = 0; i < n; i++)
		segs.push_back({i * 8192 % (1 << 20), buf_off + i * 8192, 4096, UNTOUCHED});
	return segs;
}

bool untouched(const std::vector<peerdma_uring_seg> &segs)
{
	for (const auto &seg : segs)
		if (seg.out_res != UNTOUCHED)
			return false;
	return true;
}

void fill()
{
	host::run("host fill gpu0 0 4194304 pattern:99");
	held.assign(proxy, proxy + buf_len);
}

/// True if the buffer holds these pieces of the file and otherwise its old contents: all of it as the CPU sees it, some
/// of it as the host does.
bool pieces_are_right(const std::vector<peerdma_uring_seg> &segs)
{
	auto want = held;
	for (const auto &seg : segs)
		if (::pread(file, &want[seg.buf_off], seg.len, seg.file_off) != ssize_t(seg.len))
			return false;
	const auto &last = segs.back();
	return !std::memcmp(want.data(), proxy, buf_len) &&
	       host::run(compare(last.buf_off, last.len, "pattern:1", last.file_off) + " && " +
			 compare(last.buf_off - 100, 100, "pattern:99", last.buf_off - 100));
}

void vectors(unsigned flags, const std::string &what)
{
	Ring ring(flags);
	fill();
	auto segs = every_second(32);
	report(ring.one(ring.vector(PEERDMA_URING_READV, segs, 1)) == 32 && untouched(segs) && pieces_are_right(segs),
	       "32 pieces in one command" + what);
	fill();
	segs = every_second(16);
	segs[5] = {100001, 5 * 8192 + 11, 5000, UNTOUCHED};
	report(ring.one(ring.vector(PEERDMA_URING_READV, segs, 1)) == 16 && untouched(segs) && pieces_are_right(segs),
	       "16 pieces, one of them at odd places" + what);
	segs[3].file_off = (1 << 20) - 100;
	segs[9].file_off = 1 << 20;
	const int got = ring.one(ring.vector(PEERDMA_URING_READV, segs, 1));
	bool good = got == 14;
	for (unsigned i = 0; i < 16; i++)
		good = good && segs[i].out_res == (i == 3 ? 100 : i == 9 ? 0 : int(segs[i].len));
	report(good, "the end of the file: how far each piece came" + what);
}

void vectors_to_a_file(uint32_t scratch_id)
{
	Ring ring;
	auto segs = every_second(PEERDMA_URING_SEGS / 2);
	report(ring.one(ring.vector(PEERDMA_URING_READV, segs, 1)) == int(segs.size()), "128 pieces");
	for (auto &seg : segs)
		seg.file_off = seg.buf_off;
	io_uring_sqe *sqe = ring.vector(PEERDMA_URING_WRITEV, segs, 1);
	sqe->file_index = scratch_id;
	sqe->flags |= IOSQE_IO_LINK;
	auto back = segs;
	for (auto &seg : back)
		seg.buf_off += 2 << 20;
	sqe = ring.vector(PEERDMA_URING_READV, back, 2);
	sqe->file_index = scratch_id;
	auto results = ring.run(2);
	report(results[1] == 128 && results[2] == 128 && gpu_is(2 << 20, 4096, "pattern:1", 0) &&
		       gpu_is((2 << 20) + 100 * 8192, 4096, "pattern:1", 100 * 8192) && untouched(segs),
	       "128 pieces written, linked, and read back");
}

void vector_errors()
{
	Ring ring;
	fill();
	auto refused = [&](const char *what, int want, auto spoil) {
		auto segs = every_second(8);
		io_uring_sqe *sqe = ring.vector(PEERDMA_URING_READV, segs, 1);
		spoil(sqe, segs);
		const int got = ring.one(sqe);
		report(got == want && untouched(segs),
		       std::string("pieces: ") + what + " (" + std::to_string(got) + ")");
	};
	using Segs = std::vector<peerdma_uring_seg>;
	refused("none", -EINVAL, [](auto *s, Segs &) { s->len = 0; });
	refused("too many", -EINVAL, [](auto *s, Segs &) { s->len = PEERDMA_URING_SEGS + 1; });
	refused("from nowhere", -EINVAL, [](auto *s, Segs &) { std::memset(s->cmd, 0, 8); });
	refused("from memory that is not there", -EFAULT, [](auto *s, Segs &) {
		const uint64_t nowhere = 4096;
		std::memcpy(s->cmd, &nowhere, sizeof(nowhere));
	});
	refused("a reserved member", -EINVAL, [](auto *s, Segs &) { s->cmd[8] = 1; });
	refused("an unknown flag", -EOPNOTSUPP, [](auto *s, Segs &) { s->addr |= 1ULL << 63; });
	refused("a buffer nobody has", -ENOENT, [](auto *s, Segs &) { s->addr += 4711; });
	refused("the last is empty", -EINVAL, [](auto *, Segs &segs) { segs[7].len = 0; });
	refused("the last is too long", -EINVAL, [](auto *, Segs &segs) { segs[7].len = 0xffffffff; });
	refused("the last is not in the buffer", -EINVAL, [](auto *, Segs &segs) { segs[7].buf_off = buf_len - 4095; });
	refused("the last overflows", -EINVAL, [](auto *, Segs &segs) { segs[7].file_off = ~0ULL; });
	const int bounced = raw::by_software() ? -EXDEV : -EINVAL;
	refused("the last would be bounced, if it must not be", bounced, [](auto *s, Segs &segs) {
		s->addr |= uint64_t(PEERDMA_IO_NO_BOUNCE) << 32;
		segs[7].len = 4095;
	});
	refused("written to a file that is open for reading", -EBADF,
		[](auto *s, Segs &) { s->cmd_op = PEERDMA_URING_WRITEV; });
	report(gpu_is(0, buf_len, "pattern:99", 0), "pieces that were refused moved nothing");

	// The results must be written to an unwritable place.
	auto segs = every_second(8);
	segs[2].file_off = 1 << 20;
	void *page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	std::memcpy(page, segs.data(), segs.size() * sizeof(segs[0]));
	::mprotect(page, 4096, PROT_READ);
	io_uring_sqe *sqe = ring.vector(PEERDMA_URING_READV, segs, 1);
	std::memcpy(sqe->cmd, &page, sizeof(page));
	report(ring.one(sqe) == -EFAULT, "pieces: results cannot be written");
}

/// Interrupts of all drives so far.
uint64_t interrupts()
{
	uint64_t sum = 0;
	std::ifstream in("/proc/interrupts");
	for (std::string line; std::getline(in, line);) {
		std::istringstream words(line);
		std::string name;
		words >> name;
		if (line.find("nvme") == std::string::npos)
			continue;
		for (uint64_t n; words >> n;)
			sum += n;
	}
	return sum;
}

/// Interrupts of the drives during run: the minimum of several attempts, because the journal may be written meanwhile.
uint64_t interrupts_during(const std::function<void()> &run)
{
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < 3 && least; i++) {
		fill();
		const uint64_t before = interrupts();
		run();
		least = std::min(least, interrupts() - before);
	}
	return least;
}

/// A polling ring. quiet: the drive has polling queues and must not interrupt; otherwise a local drive must.
void polled(std::optional<bool> quiet)
{
	const auto as_said = [&](uint64_t interrupts) { return !quiet || *quiet == !interrupts; };
	const char *how = quiet.value_or(false) ? "polled, without an interrupt: " : "a ring that polls: ";
	Ring ring(IORING_SETUP_IOPOLL);
	::fsync(file);
	// An uncached route is looked up by a worker, which then reads as the ioctl does.
	ring.one(ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1));
	std::vector<peerdma_uring_seg> segs = every_second(32);
	bool good = true;
	uint64_t got = interrupts_during([&] {
		for (const auto &seg : segs)
			ring.command(PEERDMA_URING_READ, seg.file_off, seg.buf_off, seg.len, seg.buf_off);
		auto results = ring.run(32);
		good = good && results.size() == 32;
		for (auto [tag, res] : results)
			good = good && res == 4096;
	});
	report(good && as_said(got) && pieces_are_right(segs),
	       std::string(how) + "32 reads (" + std::to_string(got) + ")");
	got = interrupts_during([&] { good = good && ring.one(ring.vector(PEERDMA_URING_READV, segs, 1)) == 32; });
	report(good && as_said(got) && pieces_are_right(segs),
	       std::string(how) + "32 pieces (" + std::to_string(got) + ")");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1001, 777, 5000, 1)) == 5000 &&
		       gpu_is(777, 5000, "pattern:1", 1001),
	       std::string(how) + "a read at odd places");
	segs[3].file_off = 1 << 20;
	report(ring.one(ring.vector(PEERDMA_URING_READV, segs, 1)) == 31 && !segs[3].out_res && segs[4].out_res == 4096,
	       std::string(how) + "the end of the file");
}

void links(const char *scratch)
{
	int fd = ::open(scratch, O_RDWR | O_CREAT | O_TRUNC, 0600);
	const uint32_t scratch_id = raw::add_file(dev, fd);
	Ring ring;
	auto to_scratch = [&](io_uring_sqe *sqe) {
		sqe->file_index = scratch_id;
		return sqe;
	};
	// Read, write elsewhere, read back: each depends on the one before.
	ring.command(PEERDMA_URING_READ, 8192, 0, 12288, 1)->flags |= IOSQE_IO_LINK;
	to_scratch(ring.command(PEERDMA_URING_WRITE, 4096, 0, 12288, 2))->flags |= IOSQE_IO_LINK;
	to_scratch(ring.command(PEERDMA_URING_READ, 4096, 1 << 20, 12288, 3));
	auto results = ring.run(3);
	report(results.size() == 3 && results[1] == 12288 && results[2] == 12288 && results[3] == 12288 &&
		       gpu_is(1 << 20, 12288, "pattern:1", 8192),
	       "linked: read, write, read back");
	int odd = ring.one(to_scratch(ring.command(PEERDMA_URING_WRITE, 100, 33, 3000, 4)));
	int back = ring.one(to_scratch(ring.command(PEERDMA_URING_READ, 100, 2 << 20, 3000, 5)));
	report(odd == 3000 && back == 3000 && gpu_is(2 << 20, 3000, "pattern:1", 8192 + 33), "an odd write, read back");
	const int append = ::open(scratch, O_WRONLY | O_APPEND);
	const off_t end = ::lseek(append, 0, SEEK_END);
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_WRITE, 0, 0, 4096, 6);
	sqe->file_index = raw::add_file(dev, append);
	odd = ring.one(sqe);
	back = ring.one(to_scratch(ring.command(PEERDMA_URING_READ, uint64_t(end), 3 << 20, 4096, 7)));
	report(odd == 4096 && back == 4096 && ::lseek(append, 0, SEEK_END) == end + 4096 &&
		       gpu_is(3 << 20, 4096, "pattern:1", 8192),
	       "a write with O_APPEND goes to the end");
	::close(append);
	for (unsigned i = 0; i < 32; i++)
		to_scratch(ring.command(PEERDMA_URING_WRITE, i * 4096, i % 3 * 4096, 4096, i));
	results = ring.run(32);
	bool good = results.size() == 32;
	for (auto [tag, res] : results)
		good = good && res == 4096;
	report(good, "32 writes at once");
	vectors_to_a_file(scratch_id);
	auto remove = raw::sized<peerdma_destroy>();
	remove.id = scratch_id;
	report(!raw::call(dev, PEERDMA_FILE_REMOVE, remove) && raw::call(dev, PEERDMA_FILE_REMOVE, remove) == -ENOENT &&
		       ring.one(to_scratch(ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1))) == -ENOENT,
	       "a file is removed once");
	::close(fd);
}

/// A write is cut at the file size limit, inside a block, like pwrite().
void limited(const char *scratch)
{
	int fd = ::open(scratch, O_RDWR | O_DIRECT);
	struct rlimit before, now;
	if (fd < 0 || ::ftruncate(fd, 1 << 20) || ::getrlimit(RLIMIT_FSIZE, &before))
		raw::die("limit");
	::signal(SIGXFSZ, SIG_IGN);
	now = {100000, before.rlim_max};
	::setrlimit(RLIMIT_FSIZE, &now);
	Ring ring;
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_WRITE, 98304, 0, 4096, 1);
	sqe->file_index = raw::add_file(dev, fd);
	int res = ring.one(sqe);
	::setrlimit(RLIMIT_FSIZE, &before);
	report(res == 100000 - 98304, "a write ends at RLIMIT_FSIZE", std::to_string(res));
	::close(fd);
}

/// /dev/peerdma as a fixed file of a ring with a submission thread.
void fixed_and_sqpoll()
{
	Ring ring(IORING_SETUP_SQPOLL);
	if (!ring.good() || io_uring_register_files(ring.get(), &dev, 1)) {
		report(false, "a fixed file and SQPOLL");
		return;
	}
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, 16384, 4096, 8192, 1);
	sqe->fd = 0;
	sqe->flags |= IOSQE_FIXED_FILE;
	report(ring.one(sqe) == 8192 && gpu_is(4096, 8192, "pattern:1", 16384), "a fixed file and SQPOLL");
}

/// 32 reads of the raw drive, whose queue reports that it is full during submission.
bool reads_of_the_drive(const std::string &node)
{
	constexpr uint64_t at = 576 << 20; // the filesystem has nothing there
	const int fd = ::open(node.c_str(), O_RDONLY);
	const uint32_t id = raw::add_file(dev, fd);
	Ring ring;
	fill();
	auto want = held;
	bool good = id;
	for (unsigned i = 0; i < 32; i++) {
		ring.command(PEERDMA_URING_READ, at + i * 4096, i * 8192, 4096, i)->file_index = id;
		good = good && ::pread(fd, &want[i * 8192], 4096, off_t(at + i * 4096)) == 4096;
	}
	const auto results = ring.run(32);
	for (auto [tag, res] : results)
		good = good && res == 4096;
	::close(fd);
	return good && results.size() == 32 && !std::memcmp(want.data(), proxy, buf_len);
}

/// A drive with a short queue: requests that do not fit at once are submitted by the module's workers.
void few_requests(const std::string &queue)
{
	std::string before;
	std::ifstream(queue + "/nr_requests") >> before;
	raw::put(queue + "/nr_requests", "4");
	const int n = trace::put_off(trace::completed_during([&] {
		const std::string how = ", of a drive that takes 4 at a time";
		batch(0, ("32 reads and 8 ordinary ones" + how).c_str());
		vectors(0, how);
		const char *far = std::getenv("FAR_DISK"); // the queue is a hidden path's
		report(reads_of_the_drive(far ? far : "/dev/" + fs::path(queue).parent_path().filename().string()),
		       "32 reads" + how + ", itself");
	}));
	if (raw::by_software())
		tap::skip("some of them had to wait", "a network in software takes them as slowly as they come");
	else
		report(n, "some of them had to wait (" + std::to_string(n) + ")");
	raw::put(queue + "/nr_requests", before);
}

/// Requests that the fdinfo of this open file counts: "reads" or "writes".
uint64_t counted(const std::string &which)
{
	std::ifstream in("/proc/self/fdinfo/" + std::to_string(dev));
	for (std::string word; in >> word;)
		if (uint64_t n = 0; word == "peerdma-" + which + ":" && in >> n)
			return n;
	return 0;
}

/// Number of completed requests, and of those submitted without blocking.
std::pair<int, int> sent_during(const std::function<void()> &run)
{
	const auto lines = trace::completed_during(run);
	return {int(lines.size()), trace::sent(lines)};
}

/// A drive that takes 64 KiB at a time: the module splits larger requests, and no worker waits for them.
void larger_than_the_drive_takes(const std::string &queue)
{
	std::string before;
	std::ifstream(queue + "/max_sectors_kb") >> before;
	raw::put(queue + "/max_sectors_kb", "64");
	Ring ring;
	fill();
	int res = 0;
	uint64_t reads = counted("reads");
	auto sent = sent_during([&] { res = ring.one(ring.command(PEERDMA_URING_READ, 0, 65536, 1 << 20, 1)); });
	report(res == 1 << 20 && gpu_is(65536, 1 << 20, "pattern:1", 0) && gpu_is(0, 65536, "pattern:99", 0) &&
		       gpu_is(65536 + (1 << 20), 65536, "pattern:99", 65536 + (1 << 20)),
	       "a read of 16 times what the drive takes", std::to_string(res));
	report(sent == std::pair(16, 16) && counted("reads") == reads + 1,
	       "is 16 pieces, none in a worker, and counts as one",
	       std::to_string(sent.first) + ", " + std::to_string(sent.second) + ", " +
		       std::to_string(counted("reads") - reads));

	std::vector<peerdma_uring_seg> segs = {
		{0, 0, 200704, UNTOUCHED}, {524288, 262144, 4096, UNTOUCHED}, {655360, 1 << 20, 393216, UNTOUCHED}};
	fill();
	reads = counted("reads");
	sent = sent_during([&] { res = ring.one(ring.vector(PEERDMA_URING_READV, segs, 2)); });
	report(res == 3 && untouched(segs) && pieces_are_right(segs) && sent == std::pair(11, 11) &&
		       counted("reads") == reads + 3,
	       "segments of which two are larger", std::to_string(sent.first) + ", " + std::to_string(sent.second));

	// On the raw drive: a filesystem may block to update the file's timestamp.
	const std::string node = "/dev/" + fs::path(queue).parent_path().filename().string();
	const int fd = ::open(node.c_str(), O_RDWR);
	const uint32_t id = raw::add_file(dev, fd);
	constexpr uint64_t at = 600 << 20;                    // the filesystem has nothing there
	::posix_fadvise(fd, at, 393216, POSIX_FADV_DONTNEED); // a write without waiting does not evict cached pages
	const uint64_t writes = counted("writes");
	sent = sent_during([&] {
		io_uring_sqe *sqe = ring.command(PEERDMA_URING_WRITE, at, 1 << 20, 393216, 3);
		sqe->file_index = id;
		res = ring.one(sqe);
	});
	std::vector<char> wrote(393216), want(wrote.size());
	report(res == 393216 && ::pread(fd, wrote.data(), wrote.size(), at) == ssize_t(wrote.size()) &&
		       ::pread(file, want.data(), want.size(), 655360) == ssize_t(want.size()) && wrote == want &&
		       sent == std::pair(6, 6) && counted("writes") == writes + 1,
	       "a write", std::to_string(res) + ", " + std::to_string(sent.first));
	auto remove = raw::sized<peerdma_destroy>();
	remove.id = id;
	raw::call(dev, PEERDMA_FILE_REMOVE, remove);
	::close(fd);
	raw::put(queue + "/max_sectors_kb", before);
}

/// In-flight commands end when their buffer, file or ring goes, and nothing is lost.
void teardown()
{
	bool good = true;
	for (int round = 0; round < 20 && good; round++) {
		Ring ring;
		const auto other = raw::buffer(dev, 1 << 20);
		const auto segs = every_second(32);
		for (unsigned i = 0; i < 32; i++)
			ring.command(PEERDMA_URING_READ, i * 4096, i * 4096, 4096, i)->addr =
				uint64_t(PEERDMA_IO_FILE_ID) << 32 | other.out_buf_id;
		ring.vector(PEERDMA_URING_READV, segs, 32)->addr =
			uint64_t(PEERDMA_IO_FILE_ID) << 32 | other.out_buf_id;
		io_uring_submit(ring.get());
		good = !raw::destroy(dev, other.out_buf_id);
		if (round % 2)
			continue; // destroys the ring with all completions unread
		auto results = ring.run(33);
		good = good && results.size() == 33;
		for (auto [tag, res] : results)
			good = good && (res == (tag == 32 ? 32 : 4096) || res == -ENOENT || res == -ENODEV);
	}
	report(good, "a buffer is destroyed under 32 reads and 32 pieces, 20 times");

	int status = -1;
	if (pid_t child = ::fork(); !child) {
		Ring ring;
		// The child has copies of the globals.
		dev = raw::open_device();
		buf = raw::buffer(dev, 1 << 20).out_buf_id;
		file_id = raw::add_file(dev, file);
		for (unsigned i = 0; i < 32; i++)
			ring.command(PEERDMA_URING_READ, i * 4096, i * 4096, 4096, i);
		// A command that has partial results to report, to a process that is exiting.
		auto segs = every_second(32);
		segs[31].file_off = (1 << 20) - 100;
		ring.vector(PEERDMA_URING_READV, segs, 32);
		io_uring_submit(ring.get());
		::_exit(0); // like a killed process
	} else {
		::waitpid(child, &status, 0);
	}
	report(!status, "a process goes away under 32 reads");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	dev = raw::open_device();
	file = raw::open_file(argv[1], O_RDONLY);
	const auto alloc = raw::buffer(dev, buf_len);
	buf = alloc.out_buf_id;
	file_id = raw::add_file(dev, file);
	if (alloc.out_bar_offset || !file_id)
		raw::die("buffer and file");
	proxy = raw::map(dev, alloc, PROT_READ);
	auto info = raw::sized<peerdma_info>();
	constexpr uint64_t can = PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC;
	report(!raw::call(dev, PEERDMA_INFO, info) && (info.out_features & can) == can, "the kernel says that it can");
	if (!std::strcmp(argv[3], "polled")) {
		// The target of a network drive has interrupts of its own.
		polled(std::getenv("FAR_nvme0") ? std::nullopt : std::optional(true));
		return tap::end();
	}
	const uint64_t available = raw::provider(dev).out_available;

	singles();
	errors();
	large_sqes();
	batch(0, "32 reads and 8 ordinary ones in one batch, some at odd places");
	batch(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "the same, completed when the task asks");
	links(argv[2]);
	limited(argv[2]);
	fixed_and_sqpoll();
	vectors(0, "");
	vectors(IORING_SETUP_SQPOLL, ", submitted by the kernel's thread");
	vectors(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, ", completed when the task asks");
	vector_errors();
	const bool here = std::strcmp(argv[3], "none");
	polled(here ? std::optional(false) : std::nullopt);
	if (here)
		few_requests(argv[3]);
	if (here && !std::getenv("FAR_DISK"))
		larger_than_the_drive_takes(argv[3]);
	teardown();
	uint64_t now = 0;
	for (int i = 0; i < 100 && (now = raw::provider(dev).out_available) != available; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
	report(now == available, "nothing was lost: the pool is as full as before");
	return tap::end();
}
