// SPDX-License-Identifier: MIT
//
// suspended FILE disk|deep|s2idle|refused: the guest sleeps and the GPU's memory is lost. FILE is 128 KiB of pattern:1.
// A system call in flight must end before; a command of a ring and the buffers must be revoked. refused: the drive
// takes longer than the GPU's driver waits, so the sleep must fail.
#include <chrono>
#include <cstring>
#include <sys/timerfd.h>
#include <thread>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/sigbus.hpp"
#include "../../tools/tap.hpp"

namespace
{

using host::throttle, tap::report;
using Bytes = std::vector<char>;
constexpr unsigned len = 65536;
constexpr uint64_t other_at = len; // in the GPU's memory: the second buffer of an empty pool
constexpr uint64_t behind = len;   // in the file: bytes that are read slowly
constexpr int asleep_s = 25;       // seconds until the wake-up; requests in flight have ended by then

bool holds(const volatile char *memory, const Bytes &want)
{
	for (unsigned i = 0; i < len; i++)
		if (memory[i] != want[i])
			return false;
	return true;
}

Bytes bytes_of(int fd, uint64_t off)
{
	Bytes bytes(len);
	if (::pread(fd, bytes.data(), len, off_t(off)) != ssize_t(len))
		raw::die("pread");
	return bytes;
}

std::string how_it_ended(int err, const peerdma_io &io)
{
	return std::to_string(err) + ", reason " + std::to_string(io.out_reason) + ", done " +
	       std::to_string(io.out_done) + ", direct " + std::to_string(io.out_direct);
}

/// The real-time clock wakes the guest; in S3 no kernel timer runs.
int alarm_clock()
{
	const int fd = ::timerfd_create(CLOCK_BOOTTIME_ALARM, TFD_CLOEXEC);
	const itimerspec when = {{}, {asleep_s, 0}};
	if (fd < 0 || ::timerfd_settime(fd, 0, &when, nullptr))
		raw::die("timerfd");
	return fd;
}

int put(const char *path, const std::string &what)
{
	const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
	const int err = ::write(fd, what.data(), what.size()) == ssize_t(what.size()) ? 0 : -errno;
	::close(fd);
	return err;
}

/// Returns 0 once the guest is awake again, or -errno.
int sleep(const std::string &how)
{
	const char *const state = "/sys/power/state", *const mem_sleep = "/sys/power/mem_sleep";
	if (how == "disk")
		return host::run("host again") ? put(state, "disk") : -EIO;
	if (how == "deep") {
		const int alarm = alarm_clock();
		const int err = put(mem_sleep, "deep") ?: put(state, "mem");
		::close(alarm);
		return err;
	}
	if (!host::run("insmod $(dirname $LAB_MODULE)/kmod/wake.ko seconds=" + std::to_string(asleep_s)))
		return -EIO;
	const int err = put(mem_sleep, "s2idle") ?: put(state, "mem");
	return host::run("rmmod wake") ? err : -EIO;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const std::string how = argv[2];
	const bool refused = how == "refused";
	const int dev = raw::open_device(), file = ::open(argv[1], O_RDONLY);
	const auto provider = raw::provider(dev);
	const auto before = raw::alloc(dev, provider.out_provider_id, len);
	const auto other = raw::alloc(dev, provider.out_provider_id, len);
	const uint32_t file_id = raw::add_file(dev, file);
	if (file < 0 || !before.out_buf_id || !other.out_buf_id || !file_id)
		raw::die(argv[1]);
	sigbus::expect();
	const Bytes want = bytes_of(file, 0), far = bytes_of(file, behind);
	const volatile char *mapped = raw::map(dev, before, PROT_READ), *read_to = raw::map(dev, other, PROT_READ);
	auto io = raw::io(file, before.out_buf_id, 0, 0, len);
	int err = raw::call(dev, PEERDMA_READ, io);
	report(!err && io.out_direct == len && holds(mapped, want), "a buffer before", how_it_ended(err, io));

	// From here on the memory has other bytes; the old ones are gone.
	if (!host::run("host fill gpu0 0 1048576 byte:90"))
		raw::die("the GPU's memory");

	// The first request passes at once, each later one takes seconds: first the system call's, then the ring's.
	throttle(refused ? 3000 : 16384);
	auto slow = raw::io(file, other.out_buf_id, behind, 0, len);
	raw::call(dev, PEERDMA_READ, slow);
	slow = raw::io(file, other.out_buf_id, behind, 0, len);
	int slow_err = 0;
	std::thread reader;
	if (!refused) // otherwise the kernel would wait for it before it suspends the GPU's driver
		reader = std::thread([&] { slow_err = raw::call(dev, PEERDMA_READ, slow); });
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	io_uring ring;
	if (io_uring_queue_init(4, &ring, 0))
		raw::die("io_uring");
	raw::command(io_uring_get_sqe(&ring), dev, PEERDMA_URING_READ, before.out_buf_id, file_id, len, {behind, 0});
	if (io_uring_submit(&ring) != 1)
		raw::die("submit");

	err = sleep(how);
	throttle(0);
	report(err == (refused ? -EBUSY : 0), refused ? "it does not sleep while a drive moves bytes" : "it has slept",
	       std::to_string(err));
	if (reader.joinable()) {
		reader.join();
		// Its thread may be frozen before it can compare, and then the buffer is gone: the host compares.
		report(!slow_err && slow.out_direct == len && tap::gpu_is(other_at, len, "pattern:1", behind),
		       "a system call that was under way ended before", how_it_ended(slow_err, slow));
	}
	io_uring_cqe *cqe = nullptr;
	while ((err = io_uring_wait_cqe(&ring, &cqe)) == -EINTR)
		;
	// The kernel allocates the image before it suspends devices, which may take longer than the drive's request.
	const bool ended = how == "disk" && !err && cqe->res == int(len);
	report(ended || (!err && cqe->res == -ENODEV), "a command of a ring that was under way is revoked",
	       std::to_string(err ?: cqe->res));
	io_uring_queue_exit(&ring);

	io = raw::io(file, before.out_buf_id, 0, 0, len);
	err = raw::call(dev, PEERDMA_READ, io);
	report(err == -ENODEV && io.out_reason == PEERDMA_REASON_REVOKED && !io.out_done,
	       "the buffer is gone for a read", how_it_ended(err, io));
	io = raw::io(file, before.out_buf_id, 0, 0, len);
	err = raw::call(dev, PEERDMA_WRITE, io);
	report(err == -ENODEV && io.out_reason == PEERDMA_REASON_REVOKED && !io.out_done, "and for a write",
	       how_it_ended(err, io));
	err = raw::run_command(dev, PEERDMA_URING_READ, before.out_buf_id, file_id, len, {behind, 0});
	report(err == -ENODEV, "and for a command of a ring", std::to_string(err));
	report(sigbus::given_at(mapped) && sigbus::given_at(read_to), "and for the CPU");
	err = raw::destroy(dev, before.out_buf_id) ?: raw::destroy(dev, other.out_buf_id);
	report(!err, "what is left of it is destroyed", std::to_string(err));

	const auto now = raw::provider(dev);
	report(now.out_provider_id == provider.out_provider_id && now.out_available == now.out_len,
	       "the provider is there, with all of its memory", std::to_string(now.out_available));
	const auto after = raw::alloc(dev, provider.out_provider_id, len);
	report(after.out_buf_id && holds(raw::map(dev, after, PROT_READ), Bytes(len)), "another buffer holds zeros");
	const volatile char *fresh = raw::map(dev, after, PROT_READ);
	io = raw::io(file, after.out_buf_id, 0, 0, len);
	err = raw::call(dev, PEERDMA_READ, io);
	report(!err && io.out_direct == len && holds(fresh, want), "and a read into it brings the file's bytes",
	       how_it_ended(err, io));
	err = raw::run_command(dev, PEERDMA_URING_READ, after.out_buf_id, file_id, len, {behind, 0});
	report(err == int(len) && holds(fresh, far), "as does a command of a ring, with the old file's number",
	       std::to_string(err));
	return tap::end();
}
