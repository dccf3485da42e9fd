// SPDX-License-Identifier: MIT
//
// crowded r|rw FILE OFF THREADS ROUNDS: concurrent threads, each on its own CPU, read (r) or read and write (rw) whole
// blocks of one registered file from OFF on. They use one registered buffer, by ioctls and by a ring each. Each thread
// does ROUNDS between the marks of qemu/lines.c, and warms up before.
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <liburing.h>
#include <sched.h>
#include <thread>
#include <vector>

#include "../tools/command.hpp"

namespace
{

constexpr uint64_t share = 64 << 10; // bytes of the buffer and of the file for each thread
constexpr int warm_up = 400;         // more than the number of uses after which a reference count becomes per-CPU

class Worker
{
public:
	Worker(int dev, uint32_t buf, uint32_t file, uint64_t off, unsigned self, bool writes)
		: writes_(writes), dev_(dev), buf_(buf), file_(file), at_(self * share), file_off_(off + at_)
	{
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(self, &one);
		if (::sched_setaffinity(0, sizeof(one), &one) || io_uring_queue_init(8, &ring_, 0))
			raw::die("a thread of its own CPU");
	}
	~Worker() { io_uring_queue_exit(&ring_); }
	Worker(const Worker &) = delete;
	Worker &operator=(const Worker &) = delete;

	void round()
	{
		request(PEERDMA_READ);
		command(PEERDMA_URING_READ);
		if (writes_) {
			request(PEERDMA_WRITE);
			command(PEERDMA_URING_WRITE);
		}
	}

private:
	void request(unsigned long cmd)
	{
		auto io = raw::io(int(file_), buf_, file_off_, at_, 4096);
		io.flags = PEERDMA_IO_FILE_ID | PEERDMA_IO_NO_BOUNCE;
		if (raw::call(dev_, cmd, io) || io.out_direct != 4096)
			raw::die("a request");
	}

	void command(uint32_t op)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		io_uring_cqe *cqe = nullptr;
		raw::command(sqe, dev_, op, buf_, file_, 4096, {file_off_, at_});
		if (io_uring_submit_and_wait(&ring_, 1) != 1 || io_uring_wait_cqe(&ring_, &cqe) || cqe->res != 4096)
			raw::die("a command");
		io_uring_cqe_seen(&ring_, cqe);
	}

	bool writes_;
	int dev_;
	uint32_t buf_, file_;
	uint64_t at_, file_off_;
	io_uring ring_{};
};

} // namespace

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	const bool writes = !std::strcmp(argv[1], "rw");
	const uint64_t off = std::strtoull(argv[3], nullptr, 0);
	const auto threads = unsigned(std::atoi(argv[4]));
	const int rounds = std::atoi(argv[5]);
	const int dev = raw::open_device();
	const uint32_t buf = raw::alloc(dev, raw::provider(dev).out_provider_id, threads * share).out_buf_id;
	const uint32_t file = raw::add_file(dev, ::open(argv[2], O_RDWR));
	if (!buf || !file)
		raw::die(argv[2]);
	std::barrier all(threads);
	std::vector<std::thread> running;
	for (unsigned i = 0; i < threads; i++)
		running.emplace_back([&, i] {
			Worker worker(dev, buf, file, off, i, writes);
			for (int k = 0; k < warm_up; k++)
				worker.round();
			all.arrive_and_wait();
			if (!i)
				asm volatile("nopl 0x50444d41(%%rax,%%rax)" ::: "memory");
			all.arrive_and_wait();
			for (int k = 0; k < rounds; k++)
				worker.round();
			all.arrive_and_wait();
			if (!i)
				asm volatile("nopl 0x50444d40(%%rax,%%rax)" ::: "memory");
			all.arrive_and_wait();
		});
	for (auto &thread : running)
		thread.join();
	std::printf("%u threads, %d rounds\n", threads, rounds);
	return 0;
}
