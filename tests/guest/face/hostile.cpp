// SPDX-License-Identifier: MIT
//
// hostile FILE: structs of every size at the edge of mapped memory, and structs that another thread changes while the
// kernel reads them. FILE holds 1 MiB of pattern:1. The kernel must act on one consistent state of the struct, must not
// write beyond the size that the caller gave, and must lose nothing.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <liburing.h>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;

constexpr uint64_t page = 4096;
constexpr auto while_racing = std::chrono::milliseconds(300);
int dev, file;
uint32_t provider_id, buf;

struct Op {
	const char *name;
	unsigned long cmd;
	uint32_t size, shortest; // the shortest struct that any release has had
};

const Op ops[] = {
	{"INFO", PEERDMA_INFO, sizeof(peerdma_info), 32},
	{"PROVIDER_QUERY", PEERDMA_PROVIDER_QUERY, sizeof(peerdma_provider_query), 64},
	{"PUBLISH", PEERDMA_PUBLISH, sizeof(peerdma_publish), 48},
	{"BUF_ALLOC", PEERDMA_BUF_ALLOC, sizeof(peerdma_buf_alloc), 40},
	{"DESTROY", PEERDMA_DESTROY, sizeof(peerdma_destroy), 16},
	{"FILE_QUERY", PEERDMA_FILE_QUERY, sizeof(peerdma_file_query), 120},
	{"READ", PEERDMA_READ, sizeof(peerdma_io), 80},
	{"WRITE", PEERDMA_WRITE, sizeof(peerdma_io), 80},
	{"FILE_ADD", PEERDMA_FILE_ADD, sizeof(peerdma_file_add), 20},
	{"FILE_REMOVE", PEERDMA_FILE_REMOVE, sizeof(peerdma_destroy), 16},
	{"BUF_EXPORT", PEERDMA_BUF_EXPORT, sizeof(peerdma_buf_export), 40},
};

/// Two pages with no mapping behind the last byte of the first.
class Edge
{
public:
	Edge()
	{
		at_ = static_cast<char *>(
			::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		::mprotect(at_ + page, page, PROT_NONE);
	}
	~Edge() { ::munmap(at_, 2 * page); }
	Edge(const Edge &) = delete;
	Edge &operator=(const Edge &) = delete;
	/// Room for len bytes that end at the end of the mapping.
	char *last(size_t len) const { return at_ + page - len; }
	char *start() const { return at_; }
	void protect(int rights) const { ::mprotect(at_, page, rights); }

private:
	char *at_;
};

int call(const Op &op, void *arg) { return ::ioctl(dev, op.cmd, arg) ? -errno : 0; }

/// A struct with invalid ids and descriptors, so that the call has no effect.
void harmless(char *at, size_t len, uint32_t size)
{
	std::memset(at, 0, len);
	const uint32_t none[] = {size, 0, 0x7ffffff0, 0x7ffffff0};
	std::memcpy(at, none, std::min(len, sizeof(none)));
}

/// The error of a harmless struct of a valid size.
bool is_refused(int err) { return err == -ENOENT || err == -EBADF || err == -ENODEV || err == -EINVAL; }

void sizes()
{
	Edge edge;
	std::string bad;
	for (const Op &op : ops) {
		const bool always = op.cmd == PEERDMA_INFO;
		const auto expect = [&](const char *what, uint32_t size, int err, bool good) {
			if (!good)
				bad += std::string(" ") + op.name + " of " + std::to_string(size) + " " + what + ": " +
				       std::to_string(err);
		};
		for (uint32_t size = 4; size <= op.size + 16; size++) {
			// Ends at the end of the mapping.
			harmless(edge.last(size), size, size);
			int err = call(op, edge.last(size));
			if (size < op.shortest)
				expect("is too short", size, err, err == -EINVAL);
			else
				expect("ends with the mapping", size, err, always ? !err : is_refused(err));
			// Reaches one byte beyond it.
			harmless(edge.last(size - 1), size - 1, size);
			err = call(op, edge.last(size - 1));
			if (size > 4)
				expect("is cut off", size, err, err == (size < op.shortest ? -EINVAL : -EFAULT));
		}
		// Longer than the module's struct: extra bytes must be 0, wherever they are.
		for (uint32_t at : {op.size, op.size + 100, uint32_t(page) - 1}) {
			harmless(edge.start(), page, page);
			int err = call(op, edge.start());
			expect("of a page", page, err, always ? !err : is_refused(err));
			harmless(edge.start(), page, page);
			edge.start()[at] = 1;
			err = call(op, edge.start());
			expect("with something behind", at, err, err == -E2BIG);
		}
		for (uint32_t size : {uint32_t(page) + 1, 0x7fffffffU, 0xffffffffU}) {
			harmless(edge.start(), page, size);
			int err = call(op, edge.start());
			expect("is too long", size, err, err == -E2BIG);
		}
		// Addresses outside the process's memory.
		for (uintptr_t at : {0UL, 8UL, 0x7ffffffff000UL, 0x800000000000UL, 0xff11000000000000UL,
				     0xffff888000000000UL, 0xffffffff81000000UL, 0xfffffffffffffff0UL}) {
			int err = call(op, reinterpret_cast<void *>(at));
			expect("is nowhere", 0, err, err == -EFAULT);
		}
		// Readable but not writable: the call must leave nothing behind.
		harmless(edge.last(op.size), op.size, op.size);
		edge.protect(PROT_READ);
		int err = call(op, edge.last(op.size));
		edge.protect(PROT_READ | PROT_WRITE);
		expect("cannot be written", op.size, err, always ? err == -EFAULT : is_refused(err) || err == -EFAULT);
	}
	report(bad.empty(), "all ioctls: every size, at the edge of what is mapped", bad);
}

/// An older program's shorter struct: members behind its end are not written.
void short_structs()
{
	Edge edge;
	constexpr size_t len = 40;
	char *at = edge.last(len + 8);
	std::memset(at, 0xee, len + 8);
	auto req = raw::sized<peerdma_buf_alloc>();
	req.size = len;
	req.provider_id = provider_id;
	req.len = page;
	std::memcpy(at, &req, len);
	int err = ::ioctl(dev, PEERDMA_BUF_ALLOC, at) ? -errno : 0;
	std::memcpy(&req, at, len);
	uint64_t behind;
	std::memcpy(&behind, at + len, 8);
	report(!err && req.out_buf_id && behind == 0xeeeeeeeeeeeeeeeeULL,
	       "a shorter struct: nothing is written behind it");
	raw::destroy(dev, req.out_buf_id);
}

/// An object whose id cannot be returned must not remain.
void results_that_cannot_be_written()
{
	Edge edge;
	const auto fails = [&](unsigned long cmd, const auto &req) {
		std::memcpy(edge.start(), &req, sizeof(req));
		edge.protect(PROT_READ);
		const int err = ::ioctl(dev, cmd, edge.start()) ? -errno : 0;
		edge.protect(PROT_READ | PROT_WRITE);
		return err == -EFAULT;
	};
	const uint64_t before = raw::provider(dev).out_available;
	auto alloc = raw::sized<peerdma_buf_alloc>();
	alloc.provider_id = provider_id;
	alloc.len = page;
	report(fails(PEERDMA_BUF_ALLOC, alloc) && raw::provider(dev).out_available == before,
	       "a buffer whose number cannot be written is not there");
	auto add = raw::sized<peerdma_file_add>();
	add.fd = file;
	const bool refused = fails(PEERDMA_FILE_ADD, add);
	const uint32_t next = raw::add_file(dev, file); // ids increase
	auto remove = raw::sized<peerdma_destroy>();
	remove.id = next - 1;
	const int err = raw::call(dev, PEERDMA_FILE_REMOVE, remove);
	remove.id = next;
	report(refused && err == -ENOENT && !raw::call(dev, PEERDMA_FILE_REMOVE, remove), "nor is such a file");
	auto piece = raw::sized<peerdma_buf_export>();
	piece.buf_id = raw::alloc(dev, provider_id, page).out_buf_id;
	piece.len = page;
	const int lowest = ::dup(dev);
	::close(lowest);
	const bool is_not = fails(PEERDMA_BUF_EXPORT, piece) && ::fcntl(lowest, F_GETFD) < 0;
	report(is_not && !raw::call(dev, PEERDMA_BUF_EXPORT, piece) && piece.out_fd == lowest && !::close(lowest) &&
		       !raw::destroy(dev, piece.buf_id),
	       "nor such a dma-buf, nor its descriptor");
}

// --- Memory that changes while the kernel reads it

/// Alternates a value between two states until it is destroyed.
class Flipper
{
public:
	template <typename T> Flipper(volatile T *at, T one, T other)
	{
		*at = one;
		thread_ = std::thread([this, at, one, other] {
			// Equal time for both values.
			for (bool now = true; !stop_; now = !now)
				*at = now ? one : other;
		});
	}
	~Flipper()
	{
		stop_ = true;
		thread_.join();
	}
	Flipper(const Flipper &) = delete;
	Flipper &operator=(const Flipper &) = delete;

private:
	std::atomic<bool> stop_{false};
	std::thread thread_;
};

/// Repeats `once` until two different results have been seen. Each must be in `allowed`; the caller checks its effects.
void race(const char *what, const std::function<int()> &once, const std::set<int> &allowed)
{
	std::set<int> seen;
	std::string bad;
	const auto at_most = std::chrono::seconds(raw::by_software() ? 60 : 20);
	const auto start = std::chrono::steady_clock::now();
	const auto gone = [&] { return std::chrono::steady_clock::now() - start; };
	while (gone() < while_racing || (seen.size() < 2 && gone() < at_most)) {
		const int got = once();
		if (seen.insert(got).second && !allowed.count(got))
			bad += " " + std::to_string(got);
	}
	report(bad.empty() && seen.size() > 1, what, "got" + bad + ", kinds seen: " + std::to_string(seen.size()));
}

void racing_reads(uint32_t other_buf)
{
	auto req = raw::io(file, buf, 0, 0, page);
	const auto read = [&] {
		req.out_done = 77;
		return raw::call(dev, PEERDMA_READ, req);
	};
	{
		Flipper flip(&req.len, __u64(page), __u64(2 * page));
		race("the length changes under a read: one or the other",
		     [&] { return read()                                     ?:
					  raw::straight(req) == req.out_done ? int(req.out_done) :
									       -1; },
		     {int(page), int(2 * page)});
	}
	{
		Flipper flip(&req.len, __u64(page), __u64(1) << 62);
		race("it becomes more than the buffer is", [&] { return read() ?: int(req.out_done); },
		     {int(page), -EINVAL});
	}
	req.len = page;
	{
		Flipper flip(&req.buf_off, __u64(0), __u64(-page));
		race("the place becomes one that is no place", read, {0, -EINVAL});
	}
	req.buf_off = 0;
	{
		Flipper flip(&req.buf_id, buf, other_buf + 1000);
		race("the buffer becomes one that is not there", read, {0, -ENOENT});
	}
	req.buf_id = buf;
	{
		Flipper flip(&req.fd, file, -1);
		race("the file is closed", read, {0, -EBADF});
	}
	req.fd = file;
	{
		Flipper flip(&req.flags, __u32(0), __u32(1) << 30);
		race("a flag comes that nobody knows", read, {0, -EOPNOTSUPP});
	}
	req.flags = 0;
	{
		// The size selects the code path that reads the struct.
		Flipper flip(&req.size, __u32(sizeof(req)), __u32(8));
		race("the struct becomes too short", read, {0, -EINVAL});
	}
	{
		Flipper flip(&req.size, __u32(sizeof(req)), __u32(-1));
		race("and too long", read, {0, -E2BIG});
	}
	{
		// A struct longer than the module's takes the generic ioctl path, even for a read.
		struct {
			peerdma_io io;
			__u64 unknown;
		} longer{req, 0};
		Flipper flip(&longer.io.size, __u32(sizeof(longer)), __u32(8));
		race("a longer struct becomes too short", [&] { return raw::call(dev, PEERDMA_READ, longer); },
		     {0, -EINVAL});
	}
}

void racing_allocations()
{
	const uint64_t before = raw::provider(dev).out_available;
	auto req = raw::sized<peerdma_buf_alloc>();
	req.provider_id = provider_id;
	{
		Flipper flip(&req.len, __u64(page), __u64(1) << 40);
		race("the length of a buffer becomes more than there is",
		     [&] {
			     req.size = sizeof(req);
			     int err = raw::call(dev, PEERDMA_BUF_ALLOC, req);
			     if (err)
				     return err;
			     // The length is the validated one: exactly one page.
			     void *one = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, dev, off_t(req.out_mmap_offset));
			     void *two =
				     ::mmap(nullptr, 2 * page, PROT_READ, MAP_SHARED, dev, off_t(req.out_mmap_offset));
			     const bool good = one != MAP_FAILED && two == MAP_FAILED &&
					       raw::provider(dev).out_available == before - page;
			     ::munmap(one, page);
			     return raw::destroy(dev, req.out_buf_id) ?: good ? 0 : -1;
		     },
		     {0, -ENOMEM});
	}
	req.len = page;
	{
		Flipper flip(&req.flags, __u32(0), __u32(1) << 31);
		race("a flag comes that nobody knows, to a buffer",
		     [&] {
			     int err = raw::call(dev, PEERDMA_BUF_ALLOC, req);
			     return err ?: raw::destroy(dev, req.out_buf_id);
		     },
		     {0, -EOPNOTSUPP});
	}
	report(raw::provider(dev).out_available == before, "and nothing of it is lost");
}

// --- io_uring

class Ring
{
public:
	Ring()
	{
		if (io_uring_queue_init(8, &ring_, 0))
			raw::die("io_uring");
	}
	~Ring() { io_uring_queue_exit(&ring_); }
	Ring(const Ring &) = delete;
	Ring &operator=(const Ring &) = delete;

	io_uring_sqe *command(uint32_t op, uint32_t len, const peerdma_uring_io &words)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		static const uint32_t id = raw::add_file(dev, file);
		raw::command(sqe, dev, op, buf, id, len, words);
		return sqe;
	}
	int run()
	{
		io_uring_cqe *cqe = nullptr;
		if (io_uring_submit_and_wait(&ring_, 1) < 0 || io_uring_wait_cqe(&ring_, &cqe))
			return -1;
		const int res = cqe->res;
		io_uring_cqe_seen(&ring_, cqe);
		return res;
	}

private:
	io_uring ring_;
};

void ring_vectors()
{
	constexpr unsigned nr = 8;
	constexpr size_t bytes = nr * sizeof(peerdma_uring_seg);
	Ring ring;
	Edge edge;
	const auto vec = [&](char *at) {
		ring.command(PEERDMA_URING_READV, nr, {reinterpret_cast<uintptr_t>(at), 0});
		return ring.run();
	};
	const auto fill = [&](char *at, unsigned n) {
		for (unsigned i = 0; i < n; i++) {
			const peerdma_uring_seg seg{i * page, i * page, uint32_t(page), -77};
			std::memcpy(at + i * sizeof(seg), &seg, sizeof(seg));
		}
	};
	fill(edge.last(bytes), nr);
	report(vec(edge.last(bytes)) == int(nr), "pieces whose array ends with the mapping");
	fill(edge.last(bytes / 2), nr / 2);
	report(vec(edge.last(bytes / 2)) == -EFAULT, "an array that is half mapped");
	report(vec(reinterpret_cast<char *>(0xffff888000000000ULL)) == -EFAULT, "an array in the kernel's memory");
	// A piece past the end of the file is short, so results must be written, and cannot be.
	fill(edge.last(bytes), nr);
	reinterpret_cast<peerdma_uring_seg *>(edge.last(bytes))[3].file_off = 1 << 20;
	edge.protect(PROT_READ);
	const int res = vec(edge.last(bytes));
	edge.protect(PROT_READ | PROT_WRITE);
	report(res == -EFAULT, "results that cannot be written", std::to_string(res));

	auto *segs = reinterpret_cast<peerdma_uring_seg *>(edge.last(bytes));
	fill(edge.last(bytes), nr);
	{
		Flipper flip(&segs[5].len, __u32(page), __u32(0x80000000));
		race("a piece's length changes while it is read", [&] { return vec(edge.last(bytes)); }, {nr, -EINVAL});
	}
	segs[5].len = page;
	{
		Flipper flip(&segs[5].buf_off, __u64(0), __u64(-page));
		race("a piece's place", [&] { return vec(edge.last(bytes)); }, {nr, -EINVAL});
	}
}

/// The ring's own memory belongs to the process too.
void ring_entries()
{
	Ring ring;
	io_uring_sqe *sqe = ring.command(PEERDMA_URING_READ, page, {});
	std::atomic<bool> stop{false};
	// liburing cycles through eight entries: this one is used every eighth time, and the others do not matter.
	std::thread flip([&] {
		auto *id = reinterpret_cast<volatile __u64 *>(&sqe->addr);
		auto *off = reinterpret_cast<volatile __u64 *>(sqe->cmd) + 1;
		while (!stop) {
			*id = buf + 1000;
			*off = 0;
			*id = buf;
			*off = 1ULL << 62;
		}
	});
	ring.run();
	race("an entry of the ring changes while it is looked at",
	     [&] {
		     ring.command(PEERDMA_URING_READ, page, {});
		     return ring.run();
	     },
	     {int(page), -ENOENT, -EINVAL});
	stop = true;
	flip.join();
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	dev = raw::open_device();
	file = raw::open_file(argv[1], O_RDONLY);
	provider_id = raw::provider(dev).out_provider_id;
	buf = raw::buffer(dev, 64 * 1024).out_buf_id;
	const uint64_t available = raw::provider(dev).out_available;
	sizes();
	short_structs();
	results_that_cannot_be_written();
	racing_reads(buf);
	racing_allocations();
	ring_vectors();
	ring_entries();
	report(raw::provider(dev).out_available == available, "nothing was lost: the pool is as full as before");
	auto req = raw::io(file, buf, 0, 0, page);
	report(!raw::call(dev, PEERDMA_READ, req) && raw::straight(req) == page, "a right request still works");
	return tap::end();
}
