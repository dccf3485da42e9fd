// SPDX-License-Identifier: MIT
//
// uring FILE SCRATCH: reads and writes as io_uring commands. FILE holds pattern 1 and is 1 MiB long; the
// buffer is at the start of the BAR. The host compares: what is read goes through the shell functions of lib.sh.
#include <chrono>
#include <cstring>
#include <liburing.h>
#include <map>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../tools/raw.hpp"
#include "../tools/tap.hpp"

namespace
{

using tap::compare, tap::gpu_is, tap::report, tap::shell;

constexpr uint64_t buf_len = 4 << 20;
int dev, file;
uint32_t buf, file_id;

class Ring
{
public:
	explicit Ring(unsigned flags = 0, unsigned entries = 64)
	{
		good_ = !io_uring_queue_init(entries, &ring_, flags);
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
		io_uring_prep_nop(sqe); // zeros all of it
		sqe->opcode = IORING_OP_URING_CMD;
		sqe->fd = dev;
		sqe->cmd_op = op;
		sqe->addr = uint64_t(PEERDMA_IO_FILE_ID) << 32 | buf;
		sqe->len = len;
		sqe->file_index = file_id;
		sqe->user_data = tag;
		const peerdma_uring_io io = {file_off, buf_off};
		std::memcpy(sqe->cmd, &io, sizeof(io));
		return sqe;
	}

	/// Submits and waits for n completions: tag -> result. A tag that comes twice spoils the lot.
	std::map<uint64_t, int> run(unsigned n)
	{
		std::map<uint64_t, int> results;
		if (io_uring_submit(&ring_) < 0)
			return {};
		for (unsigned i = 0; i < n; i++) {
			io_uring_cqe *cqe = nullptr;
			__kernel_timespec patience = {20, 0};
			if (io_uring_wait_cqe_timeout(&ring_, &cqe, &patience))
				return {};
			if (!results.emplace(cqe->user_data, cqe->res).second)
				return {};
			io_uring_cqe_seen(&ring_, cqe);
		}
		io_uring_cqe *more = nullptr;
		return io_uring_peek_cqe(&ring_, &more) ? results : std::map<uint64_t, int>{};
	}

	int one(io_uring_sqe *sqe)
	{
		const uint64_t tag = sqe->user_data;
		auto results = run(1);
		return results.count(tag) ? results[tag] : -12345;
	}

private:
	io_uring ring_{};
	bool good_;
};

void singles()
{
	Ring ring;
	report(ring.one(ring.command(PEERDMA_URING_READ, 4096, 8192, 65536, 1)) == 65536 &&
		       gpu_is(8192, 65536, "pattern:1", 4096),
	       "a read by the file's id");
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, 0, 0, 4096, 2);
	sqe->addr = buf;
	sqe->file_index = static_cast<uint32_t>(file);
	report(ring.one(sqe) == 4096 && gpu_is(0, 4096, "pattern:1", 0), "a read by the file's descriptor");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1001, 777, 5000, 3)) == 5000 &&
		       gpu_is(777, 5000, "pattern:1", 1001),
	       "a read at odd places");
	report(ring.one(ring.command(PEERDMA_URING_READ, (1 << 20) - 100, 0, 4096, 4)) == 100, "the end of the file");
	report(ring.one(ring.command(PEERDMA_URING_READ, 1 << 20, 0, 4096, 5)) == 0, "past the end of the file");
	report(ring.one(ring.command(PEERDMA_URING_READ, 0, 0, 1 << 20, 6)) == 1 << 20 &&
		       gpu_is(0, 1 << 20, "pattern:1", 0),
	       "a MiB");
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
	refused("a descriptor that is not open", -EBADF, [](auto *s) {
		s->addr = buf;
		s->file_index = 999;
	});
	refused("/dev/peerdma as the target", -ESPIPE, [](auto *s) {
		s->addr = buf;
		s->file_index = static_cast<uint32_t>(dev);
	});
	refused("the ring itself as the target", -ESPIPE, [&](auto *s) {
		s->addr = buf;
		s->file_index = static_cast<uint32_t>(ring.get()->ring_fd);
	});
	refused("a length of 0", -EINVAL, [](auto *s) { s->len = 0; });
	refused("a length past 31 bits", -EINVAL, [](auto *s) { s->len = 0xffffffff; });
	refused("past the end of the buffer", -EINVAL, [](auto *s) { s->len = buf_len + 4096; });
	refused("a write to a file that is open for reading", -EBADF, [](auto *s) { s->cmd_op = PEERDMA_URING_WRITE; });
	refused("what would be bounced, if it must not be", -EINVAL, [](auto *s) {
		s->addr |= uint64_t(PEERDMA_IO_NO_BOUNCE) << 32;
		s->len = 4095;
	});
	Ring polls(IORING_SETUP_IOPOLL);
	if (polls.good()) {
		// A ring that polls takes no timeout: look, and look again.
		int got = -12345;
		polls.command(PEERDMA_URING_READ, 0, 0, 4096, 1);
		io_uring_submit(polls.get());
		io_uring_cqe *cqe = nullptr;
		for (int i = 0; i < 500 && got == -12345; i++) {
			if (!io_uring_peek_cqe(polls.get(), &cqe))
				got = cqe->res;
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		}
		report(got == -EOPNOTSUPP || got == 4096,
		       "a ring that polls is refused, or not polled (" + std::to_string(got) + ")");
	}
}

/// Many at once, aligned and not, each to a place of its own in the buffer; ordinary reads in between.
void batch(unsigned flags, const char *what)
{
	Ring ring(flags);
	if (!ring.good()) {
		report(false, what);
		return;
	}
	shell("host fill gpu0 0 4194304 pattern:99");
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
	good = good && shell(compares + ":");
	for (unsigned i = 0; good && i < 8; i++) {
		std::vector<char> want(4096);
		good = results[100 + i] == 4096 && ::pread(file, want.data(), 4096, i * 4096) == 4096 &&
		       want == host[i];
	}
	report(good, what);
}

void links(const char *scratch)
{
	int fd = ::open(scratch, O_RDWR | O_CREAT | O_TRUNC, 0600);
	auto add = raw::sized<peerdma_file_add>();
	add.fd = fd;
	raw::call(dev, PEERDMA_FILE_ADD, add);
	Ring ring;
	auto to_scratch = [&](io_uring_sqe *sqe) {
		sqe->file_index = add.out_file_id;
		return sqe;
	};
	// Read, write it elsewhere, read it back: each needs the one before.
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
	for (unsigned i = 0; i < 32; i++)
		to_scratch(ring.command(PEERDMA_URING_WRITE, i * 4096, i % 3 * 4096, 4096, i));
	results = ring.run(32);
	bool good = results.size() == 32;
	for (auto [tag, res] : results)
		good = good && res == 4096;
	report(good, "32 writes at once");
	auto remove = raw::sized<peerdma_destroy>();
	remove.id = add.out_file_id;
	report(!raw::call(dev, PEERDMA_FILE_REMOVE, remove) && raw::call(dev, PEERDMA_FILE_REMOVE, remove) == -ENOENT &&
		       ring.one(to_scratch(ring.command(PEERDMA_URING_READ, 0, 0, 4096, 1))) == -ENOENT,
	       "a file is removed once");
	::close(fd);
}

/// /dev/peerdma as a fixed file of a ring whose own thread submits.
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

/// What is under way when its buffer, its file or its ring goes ends, and nothing is lost.
void teardown()
{
	bool good = true;
	for (int round = 0; round < 20 && good; round++) {
		Ring ring;
		auto other = raw::alloc(dev, raw::provider(dev).out_provider_id, 1 << 20);
		for (unsigned i = 0; i < 32; i++)
			ring.command(PEERDMA_URING_READ, i * 4096, i * 4096, 4096, i)->addr =
				uint64_t(PEERDMA_IO_FILE_ID) << 32 | other.out_buf_id;
		io_uring_submit(ring.get());
		good = !raw::destroy(dev, other.out_buf_id);
		if (round % 2)
			continue; // the ring goes with all its completions unread
		auto results = ring.run(32);
		good = good && results.size() == 32;
		for (auto [tag, res] : results)
			good = good && (res == 4096 || res == -ENOENT || res == -ENODEV);
	}
	report(good, "a buffer is destroyed under 32 reads, 20 times");

	int status = -1;
	if (pid_t child = ::fork(); !child) {
		Ring ring;
		int mine = raw::open_device();
		auto other = raw::alloc(mine, raw::provider(mine).out_provider_id, 1 << 20);
		for (unsigned i = 0; i < 32; i++) {
			io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, i * 4096, i * 4096, 4096, i);
			sqe->fd = mine;
			sqe->addr = other.out_buf_id;
			sqe->file_index = static_cast<uint32_t>(file);
		}
		io_uring_submit(ring.get());
		::_exit(0); // as a killed process would
	} else {
		::waitpid(child, &status, 0);
	}
	report(!status, "a process goes away under 32 reads");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	dev = raw::open_device();
	file = ::open(argv[1], O_RDONLY);
	if (file < 0)
		raw::die(argv[1]);
	auto provider = raw::provider(dev);
	auto alloc = raw::alloc(dev, provider.out_provider_id, buf_len);
	buf = alloc.out_buf_id;
	auto add = raw::sized<peerdma_file_add>();
	add.fd = file;
	if (!buf || alloc.out_bar_offset || raw::call(dev, PEERDMA_FILE_ADD, add))
		raw::die("buffer and file");
	file_id = add.out_file_id;
	auto info = raw::sized<peerdma_info>();
	report(!raw::call(dev, PEERDMA_INFO, info) && (info.out_features & PEERDMA_FEATURE_URING),
	       "the kernel says that it can");
	const uint64_t available = raw::provider(dev).out_available;

	singles();
	errors();
	batch(0, "32 reads and 8 ordinary ones in one batch, some at odd places");
	batch(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "the same, completed when the task asks");
	links(argv[2]);
	fixed_and_sqpoll();
	teardown();
	uint64_t now = 0;
	for (int i = 0; i < 100 && (now = raw::provider(dev).out_available) != available; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
	report(now == available, "nothing was lost: the pool is as full as before");
	return tap::end();
}
