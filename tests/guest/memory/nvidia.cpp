// SPDX-License-Identifier: MIT
//
// nvidia WHAT [ARGS]: memory of a vendor's driver as a buffer. The driver is tests/kmod/nvstand.c; nvidia.sh sets its
// behavior. foreign.hpp has the tests for all such memory. The host compares.
//
//   moves linear|scattered     every use of a buffer, by each way
//   refused REASON ERRNO       registration must fail so
//   once                       the same memory cannot be registered twice, and such a provider allocates none
//   freed                      memory is freed under a read: freeing waits, and later accesses fail
//   again                      a second callback for the same memory, and one for memory that was returned already
//   races ROUNDS               concurrent freeing, destruction, close and reads
//   early                      memory is freed while it is being registered
//   mapping                    memory is registered and freed while another thread maps memory of the driver's
//   regions GPU                registers and destroys without end for 3 s: the dmem region is there once or not at all
//   let_go HOW                 registers, reports it, waits for a line, releases the memory, reports it, and waits to
//   be killed.
//                              HOW: thread: another thread destroys it; destroy, close: a child does
//   soon                       registers as soon as possible, within 5 s, and frees the memory
//   pass                       registers, has a child read into it, reports it, waits for a line, and exits; the child
//                              reports
//                              when the memory is gone
//   unbind GPU                 unloads pin.ko and unbinds the GPU from nvstand at once
//   keep                       registers, reports it, and waits to be killed
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "foreign.hpp"

namespace
{

using namespace foreign;
using namespace std::chrono_literals;

constexpr uint64_t addr_base = 0x7f0000000000, addr = addr_base + first * frame;

peerdma_buf_register enroll(int dev, uint64_t at = addr, uint64_t size = len)
{
	auto req = raw::sized<peerdma_buf_register>();
	req.pci_vendor = 0x10de;
	req.addr = at;
	req.len = size;
	errno = -raw::call(dev, PEERDMA_BUF_REGISTER, req);
	return req;
}

int number(const std::string &what) { return guest::debug_number("nvstand", what); }

bool poke(const std::string &what, uint64_t value)
{
	const Fd fd(::open(("/sys/kernel/debug/nvstand/" + what).c_str(), O_WRONLY | O_CLOEXEC));
	const std::string text = std::to_string(value);
	return ::write(fd, text.data(), text.size()) == ssize_t(text.size());
}

/// All registered memory was returned and the driver counted no violation.
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

/// An import of the memory's own dma-buf maps it and then finds its pages in use. DRIVE is the importing function; without
/// it there is no import.
void import_case(int dev, int dmabuf)
{
	unsigned domain, bus, device, function;
	const char *drive = std::getenv("DRIVE");
	if (!drive || std::sscanf(drive, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return;
	auto req = raw::sized<peerdma_buf_import>();
	req.fd = dmabuf;
	req.pci_domain = domain;
	req.pci_bdf = bus << 8 | device << 3 | function;
	req.len = 2 * frame;
	const int err = raw::call(dev, PEERDMA_BUF_IMPORT, req);
	report(err == -EBUSY && req.out_reason == PEERDMA_REASON_VENDOR_BUSY && !req.out_buf_id,
	       "which is no second buffer", std::to_string(err) + " reason " + std::to_string(req.out_reason));
}

void export_case(int dev, uint32_t buf)
{
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buf;
	req.len = 2 * frame;
	const int err = raw::call(dev, PEERDMA_BUF_EXPORT, req);
	report(!err && req.out_fd >= 0, "a dma-buf of it", std::to_string(err));
	if (err)
		return;
	import_case(dev, req.out_fd);
	::close(req.out_fd);
}

int moves()
{
	const Fd dev(raw::open_device());
	const auto req = enroll(dev);
	report(req.out_buf_id && number("given") == 1, "it is registered",
	       std::to_string(errno) + " reason " + std::to_string(req.out_reason));
	if (!req.out_buf_id)
		return 0;
	const auto provider = raw::provider(dev);
	report(provider.out_provider_id == req.out_provider_id && !provider.out_available,
	       "its GPU is a provider with nothing to allocate");
	use(dev, req.out_buf_id, req.out_mmap_offset);
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

int freed()
{
	const Fd dev(raw::open_device());
	const int late = number("late"); // `early` may have unpinned memory that was being freed
	const auto req = enroll(dev);
	lost_case(dev, req.out_buf_id, "nvstand", "who frees it", [] { return poke("free", addr); });
	report(!raw::destroy(dev, req.out_buf_id), "what is left of it is destroyed");
	report(number("given") == 0 && number("late") == late && number("wrong") == 0,
	       "it is not given back a second time", state());
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

/// Registers in an endless loop in several threads, each a part of its own, so that seldom nobody is registering.
[[noreturn]] void insist()
{
	constexpr uint64_t part = 2 * frame;
	std::vector<std::thread> threads;
	for (uint64_t at = addr; at < addr + len; at += part)
		threads.emplace_back([at] {
			const Fd dev(raw::open_device());
			for (;;) {
				const auto req = enroll(dev, at, part);
				if (req.out_buf_id)
					raw::destroy(dev, req.out_buf_id);
			}
		});
	for (;;)
		::pause();
}

/// The order of the threads differs from round to round.
int races(int rounds)
{
	const Fd file(open_file(pattern_file));
	bool poisoned = true;
	int n = 0, dead = 0;
	for (int i = 0; i < rounds; i++) {
		auto dev = std::make_unique<Fd>(raw::open_device());
		const std::atomic<uint32_t> id = enroll(*dev).out_buf_id;
		if (!id)
			continue;
		n++;
		bool freed = false;
		Race race;
		race.add_readers(*dev, file, id);
		race.add(i * 37 % 3000, [&] { freed = poke("free", addr); });
		race.add(i * 53 % 3000, [&] { raw::destroy(*dev, id); });
		race.run();
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
	const Fd dev(raw::open_device()), file(open_file(pattern_file));
	bool good = true;
	for (int i = 0; i < 20; i++) {
		const auto req = enroll(dev);
		if (req.out_buf_id) { // freed a little later
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

/// A thread holds mmap_lock and will want the driver's lock. A child, which has another mmap_lock, frees what is registered
/// meanwhile. That holds the driver's lock until the memory is not used any more. Registering must not want mmap_lock in
/// between.
int mapping()
{
	const Fd dev(raw::open_device()), node(::open("/dev/nvstand", O_RDWR | O_CLOEXEC));
	int error = 0;
	const pid_t freer = ::fork();
	if (freer == 0) {
		std::this_thread::sleep_for(600ms);
		poke("free", addr);
		::_exit(0);
	}
	std::thread mapper(
		[&] { error = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, node, 0) == MAP_FAILED ? errno : 0; });
	std::this_thread::sleep_for(200ms);
	const auto req = enroll(dev);
	mapper.join();
	::waitpid(freer, nullptr, 0);
	report(error == ENODEV, "no thread waits for ever", std::to_string(error));
	report(req.out_buf_id || req.out_reason == PEERDMA_REASON_VENDOR_FREED, "registered, or freed before",
	       std::to_string(req.out_reason));
	if (req.out_buf_id)
		raw::destroy(dev, req.out_buf_id);
	poke("free", addr);
	report(all_given_back(), "all is given back", state());
	return 0;
}

/// How often the kernel lists the GPU's memory as a region of the cgroup controller dmem.
int regions_of(const std::string &gpu)
{
	std::ifstream in("/sys/fs/cgroup/dmem.capacity");
	int n = 0;
	for (std::string name; in >> name;)
		n += name == "peerdma/" + gpu;
	return n;
}

int regions(const std::string &gpu)
{
	std::atomic<bool> ended = false;
	std::vector<std::thread> threads;
	for (int i = 0; i < 2; i++)
		threads.emplace_back([&, i] {
			const Fd dev(raw::open_device());
			while (!ended) {
				const auto req = enroll(dev, addr + uint64_t(i) * len);
				if (req.out_buf_id)
					raw::destroy(dev, req.out_buf_id);
			}
		});
	int most = 0, least = 2;
	for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
	     std::chrono::steady_clock::now() < end;) {
		const int n = regions_of(gpu);
		most = std::max(most, n);
		least = std::min(least, n);
	}
	ended = true;
	for (auto &thread : threads)
		thread.join();
	report(most == 1, "a region of dmem is there once", std::to_string(least) + " to " + std::to_string(most));
	report(all_given_back(), "all is given back", state());
	return 0;
}

/// Registers memory and, after a line on standard input, releases it: HOW.
int let_go(const std::string &how)
{
	const int dev = raw::open_device();
	const auto req = enroll(dev);
	auto say = [](const char *word) {
		std::printf("%s\n", word);
		std::fflush(stdout);
	};
	say(req.out_buf_id ? "registered" : "not registered");
	std::getchar();
	if (how == "thread") {
		std::thread([&] { raw::destroy(dev, req.out_buf_id); }).join();
	} else {
		const pid_t child = ::fork();
		if (!child) {
			if (how == "destroy")
				raw::destroy(dev, req.out_buf_id);
			else
				std::this_thread::sleep_for(500ms); // holds the last reference
			::_exit(0);
		}
		::close(dev);
		::waitpid(child, nullptr, 0);
	}
	say("done");
	::pause();
	return 0;
}

int soon()
{
	const Fd dev(raw::open_device());
	uint32_t id = 0;
	for (int i = 0; i < 500 && !id; i++, std::this_thread::sleep_for(1ms))
		id = enroll(dev).out_buf_id;
	std::atomic<bool> freed = false;
	std::thread([&] { freed = poke("free", addr); }).detach();
	for (int i = 0; i < 500 && !freed; i++)
		std::this_thread::sleep_for(10ms);
	report(id && freed && !number("given"), "registered again at once, and freed", state());
	return 0;
}

void read_until_gone(int dev, uint32_t buf)
{
	const Fd file(open_file(pattern_file));
	for (;;) {
		auto io = raw::io(file, buf, 0, 0, len);
		if (raw::call(dev, PEERDMA_READ, io))
			break;
	}
	std::printf("gone %d\n", errno);
	std::fflush(stdout);
}

int pass()
{
	const Fd dev(raw::open_device());
	const auto req = enroll(dev);
	if (!::fork()) {
		read_until_gone(dev, req.out_buf_id);
		::_exit(0);
	}
	std::printf("%s\n", req.out_buf_id ? "registered" : "not registered");
	std::fflush(stdout);
	std::getchar();
	return 0;
}

int unbind(const char *gpu)
{
	const Fd fd(::open("/sys/bus/pci/drivers/nvstand/unbind", O_WRONLY | O_CLOEXEC));
	const bool good = !::syscall(SYS_delete_module, "pin", O_NONBLOCK) &&
			  ::write(fd, gpu, std::strlen(gpu)) == ssize_t(std::strlen(gpu));
	return good ? 0 : 1;
}

int keep()
{
	const Fd dev(raw::open_device());
	const auto req = enroll(dev);
	std::printf("%s\n", req.out_buf_id ? "registered" : "not registered");
	std::fflush(stdout);
	read_until_gone(dev, req.out_buf_id);
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
	if (what == "insist")
		insist();
	if (what == "early")
		return early();
	if (what == "mapping")
		return mapping();
	if (what == "regions" && argc > 2)
		return regions(argv[2]);
	if (what == "let_go" && argc > 2)
		return let_go(argv[2]);
	if (what == "soon")
		return soon();
	if (what == "pass")
		return pass();
	if (what == "unbind" && argc > 2)
		return unbind(argv[2]);
	if (what == "keep")
		return keep();
	return 2;
}
