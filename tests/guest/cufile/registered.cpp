// SPDX-License-Identifier: MIT
//
// registered WHAT FILE [REASON]: a cuFile program on a machine whose GPU has its own driver (tests/kmod/nvstand.c),
// from which the stand-in for CUDA takes its memory. FILE is 2 MiB of pattern 1 on the drive's ext4. The host compares
// the BAR and the drive.
//   moves     memory given to cuFileBufRegister() goes direct by each family of calls; other memory bounces
//   tensors   many threads register hundreds of ranges in one allocation; all go direct
//   whole     only the first MiB of `moves`, on any such file (Documentation/vendor.md)
//   refused   the kernel rejects the memory for REASON; the call bounces, or fails with PEERDMA_REQUIRE_DIRECT
//   lost      the driver revokes the memory during I/O, which continues through the host
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "../../tools/guest.hpp"
#include "cufile.hpp"

namespace
{

constexpr size_t file_size = 2 * MiB, frame = 64 * KiB;
constexpr uintptr_t driver_base = 0x7f0000000000; // as in nvstand.c

char *allocate(size_t size)
{
	CUdeviceptr memory = 0;
	must(!cuMemAlloc(&memory, size), "cuMemAlloc");
	return reinterpret_cast<char *>(memory);
}

uint64_t in_bar(const void *memory) { return reinterpret_cast<uintptr_t>(memory) - driver_base; }

bool holds(const void *memory, size_t size, const std::string &source, uint64_t from = 0)
{
	return tap::gpu_is(in_bar(memory), size, source, from);
}

void paint(const void *memory, size_t size, const std::string &source)
{
	must(host::run("host fill gpu0 " + std::to_string(in_bar(memory)) + " " + std::to_string(size) + " " + source +
		       " 0"),
	     "host fill");
}

int number(const std::string &what) { return guest::debug_number("nvstand", what); }

// The kernel returns the pages to the driver asynchronously.
bool all_given_back()
{
	for (int i = 0; i < 200 && number("given"); i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	return !number("given");
}

bool enroll(const void *base, size_t size) { return !cuFileBufRegister(base, size, 0).err; }
void dismiss(const void *base) { must(!cuFileBufDeregister(base).err, "cuFileBufDeregister"); }

// Reads `size` bytes to `to`, then compares them and the bytes around them.
void reads(CUfileHandle_t fh, const std::string &what, char *base, size_t size, off_t at, off_t to, bool direct = true)
{
	paint(base + to, size, "byte:170");
	since();
	const ssize_t n = cuFileRead(fh, base, size, at, to);
	report(n == static_cast<ssize_t>(size) && holds(base + to, size, "pattern:1", static_cast<uint64_t>(at)), what,
	       std::to_string(n) + " " + std::to_string(errno));
	if (direct)
		went_direct(what, 1, size);
	else
		went_otherwise(what, PEERDMA_CUFILE_WHY_NOT_A_BUFFER, 1, size);
}

void moves(CUfileHandle_t fh, int fd)
{
	char *const memory = allocate(MiB);
	reads(fh, "memory that nobody registered", memory, MiB, 0, 0, false);
	must(enroll(memory, MiB), "cuFileBufRegister");
	report(number("given") == 1, "it is registered with the kernel");
	reads(fh, "all of it", memory, MiB, 4096, 0);
	reads(fh, "a part of it", memory, 128 * KiB, MiB, 512 * KiB);
	reads(fh, "a pointer into it", memory + 3 * frame, 4 * KiB, 8 * KiB, 0);

	paint(memory, MiB, "pattern:3");
	since();
	report(cuFileWrite(fh, memory, 256 * KiB, 64 * KiB, 0) == 256 * KiB &&
		       drive_has(fd, 64 * KiB, 256 * KiB, "pattern:3") &&
		       drive_has(fd, 320 * KiB, 64 * KiB, "pattern:1", 320 * KiB),
	       "a write");
	went_direct("a write", 1, 256 * KiB);

	CUfileBatchHandle_t batch = nullptr;
	CUfileIOParams_t ios[8] = {};
	CUfileIOEvents_t events[8];
	unsigned nr = 8;
	for (unsigned i = 0; i < nr; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].opcode = CUFILE_READ;
		ios[i].fh = fh;
		ios[i].u.batch = {memory, static_cast<off_t>(MiB + i * frame), static_cast<off_t>(i * frame), frame};
	}
	paint(memory, MiB, "byte:170");
	since();
	must(!cuFileBatchIOSetUp(&batch, nr).err && !cuFileBatchIOSubmit(batch, nr, ios, 0).err &&
		     !cuFileBatchIOGetStatus(batch, nr, &nr, events, nullptr).err,
	     "a batch");
	report(nr == 8 && holds(memory, 8 * frame, "pattern:1", MiB) && holds(memory + 8 * frame, frame, "byte:170"),
	       "a batch");
	went_direct("a batch", 8, 8 * frame);
	cuFileBatchIODestroy(batch);

	size_t size = frame;
	off_t at = 0, to = 9 * frame;
	ssize_t got = 0;
	must(!cuFileReadAsync(fh, memory, &size, &at, &to, &got, nullptr).err && !cuStreamSynchronize(nullptr),
	     "cuFileReadAsync");
	report(got == static_cast<ssize_t>(frame) && holds(memory + to, frame, "pattern:1"), "in a stream");
	went_direct("in a stream", 1, frame);

	bool taken = true;
	for (int i = 0; i < 20 && taken; i++) {
		dismiss(memory);
		must(enroll(memory, MiB), "cuFileBufRegister");
		struct peerdma_cufile_route route = {};
		route.size = sizeof(route);
		taken = !peerdma_cufile_explain(fh, memory, frame, 0, 0, &route) && !route.why;
	}
	report(taken, "it is registered again at once, and again");
	dismiss(memory);
	report(all_given_back(), "the driver has it back");
	reads(fh, "once it is registered no more", memory, 64 * KiB, MiB, 0, false);
	must(!cuMemFree(reinterpret_cast<CUdeviceptr>(memory)), "cuMemFree");

	// Small allocations share a frame.
	char *const before = allocate(512), *const small = allocate(40000), *const behind = allocate(512);
	report(in_bar(small) % frame && in_bar(behind) / frame == in_bar(before) / frame, "three in one frame");
	paint(before, 512, "byte:1");
	paint(behind, 512, "byte:2");
	must(enroll(small, 40000), "cuFileBufRegister");
	reads(fh, "what begins within a frame", small, 36 * KiB, MiB, 0);
	reads(fh, "and a part of it", small, 512, 512, 39936 - 512);
	report(holds(before, 512, "byte:1") && holds(behind, 512, "byte:2"), "its neighbours have what they had");
	report(enroll(behind, 512) && number("given") == 1, "one of them is in what was taken for the other");
	reads(fh, "and goes direct as well", behind, 512, 0, 0);
	dismiss(small);
	report(number("given") == 1, "it stays as long as the second needs it");
	reads(fh, "which does", behind, 512, 512, 0);
	report(holds(before, 512, "byte:1"), "their neighbor has what it had");
	must(!cuFileDriverClose_v2().err, "cuFileDriverClose");
	report(all_given_back(), "who closes the driver has nothing registered");
}

struct Tensor {
	char *start;
	size_t size;
	off_t at; // offset in the file
};

// Each thread takes every n-th tensor, in its own order, so a tensor's neighbors belong to other threads.
bool by_threads(const std::vector<Tensor> &all, const std::function<bool(const Tensor &)> &each)
{
	constexpr size_t threads = 6;
	std::atomic<unsigned> bad{0};
	std::vector<std::thread> workers;
	for (size_t self = 0; self < threads; self++)
		workers.emplace_back([&, self] {
			std::vector<Tensor> own;
			for (size_t i = self; i < all.size(); i += threads)
				own.push_back(all[i]);
			std::shuffle(own.begin(), own.end(), std::mt19937(static_cast<unsigned>(self)));
			for (const Tensor &one : own)
				bad += !each(one);
		});
	for (auto &worker : workers)
		worker.join();
	return !bad;
}

// As in PyTorch: one allocation holds all tensors, each at a multiple of 512 bytes and registered by itself.
void tensors(CUfileHandle_t fh, int fd)
{
	constexpr size_t tensor = MiB + 512;
	char *const block = allocate(7 * MiB);
	paint(block, 7 * MiB, "byte:170");
	bool good = true;
	for (size_t i = 0; i < 6; i++)
		good = good && enroll(block + 512 + i * tensor, tensor);
	report(good && number("given") == 6, "six tensors of 1 MiB and 512 bytes", std::to_string(number("given")));
	since();
	for (size_t i = 0; i < 6; i++)
		good = good && cuFileRead(fh, block + 512 + i * tensor, tensor, static_cast<off_t>(i * 4 * KiB), 0) ==
				       static_cast<ssize_t>(tensor);
	for (size_t i = 0; i < 6; i++)
		good = good && holds(block + 512 + i * tensor, tensor, "pattern:1", i * 4 * KiB);
	report(good && holds(block, 512, "byte:170") && holds(block + 512 + 6 * tensor, 4 * KiB, "byte:170"),
	       "each has every byte of its own, and nobody has more");
	went_direct("six tensors", 6, 6 * tensor);
	for (const size_t i : {0, 2, 4, 5, 3})
		dismiss(block + 512 + i * tensor);
	paint(block, 7 * MiB, "byte:170");
	good = cuFileRead(fh, block + 512 + tensor, tensor, 512, 0) == static_cast<ssize_t>(tensor) &&
	       holds(block + 512 + tensor, tensor, "pattern:1", 512) && holds(block, 512 + tensor, "byte:170");
	report(good, "the one that stayed");
	went_direct("the one that stayed", 1, tensor);
	dismiss(block + 512 + tensor);
	report(all_given_back(), "the driver has all of it back");

	std::vector<Tensor> all;
	std::mt19937 random(1);
	for (size_t at = 0, size; at < file_size; at += size) {
		size = std::min(file_size - at, 512 * (1 + random() % (all.size() % 8 ? 16 : 60)));
		all.push_back({block + 512 + at, size, static_cast<off_t>(at)});
	}
	const std::string many = std::to_string(all.size()) + " tensors";
	paint(block, 7 * MiB, "byte:170");
	since();
	const auto moved = [&](const Tensor &one, bool write) {
		const auto n = write ? cuFileWrite(fh, one.start, one.size, one.at, 0) :
				       cuFileRead(fh, one.start, one.size, one.at, 0);
		return n == static_cast<ssize_t>(one.size);
	};
	const auto taken = [&](const Tensor &one) { return enroll(one.start, one.size) && moved(one, false); };
	const auto left = [&](const Tensor &one) { return moved(one, false) && !cuFileBufDeregister(one.start).err; };
	bool same = by_threads(all, taken);
	same = holds(block + 512, file_size, "pattern:1") && holds(block, 512, "byte:170") && same;
	report(same && holds(block + 512 + file_size, 4 * KiB, "byte:170"), many + " by six threads: every byte");
	went_direct(many, all.size(), file_size);
	same = by_threads(all, [&](const Tensor &one) { return left(one) && taken(one); });
	report(same && holds(block + 512, file_size, "pattern:1"), many + ", deregistered and registered anew");
	went_direct(many + ", anew", 2 * all.size(), 2 * file_size);
	paint(block + 512, file_size, "pattern:3");
	report(by_threads(all, [&](const Tensor &one) { return moved(one, true); }) &&
		       drive_has(fd, 0, file_size, "pattern:3"),
	       many + ", written: every byte");
	went_direct(many + ", written", all.size(), file_size);
	report(by_threads(all, left) && all_given_back(), "the driver has all of it back, again");
	report(!number("wrong"), "nothing happened that must not");
	must(!cuMemFree(reinterpret_cast<CUdeviceptr>(block)), "cuMemFree");
}

void whole(CUfileHandle_t fh)
{
	char *const memory = allocate(MiB);
	must(enroll(memory, MiB), "cuFileBufRegister");
	reads(fh, "a file", memory, MiB, 0, 0);
	dismiss(memory);
	report(all_given_back(), "the driver has it back");
}

void refused(CUfileHandle_t fh, uint32_t reason)
{
	char *const memory = allocate(4 * frame);
	report(enroll(memory, 4 * frame), "it is registered all the same");
	struct peerdma_cufile_route route = {};
	route.size = sizeof(route);
	must(!peerdma_cufile_explain(fh, memory, frame, 0, 0, &route), "peerdma_cufile_explain");
	report(route.why == PEERDMA_CUFILE_WHY_NOT_A_BUFFER && route.reason == reason, "and it is said why",
	       std::to_string(route.why) + " " + std::to_string(route.reason));
	if (!std::getenv("PEERDMA_REQUIRE_DIRECT")) {
		reads(fh, "it bounces", memory, 4 * frame, 0, 0, false);
		return;
	}
	paint(memory, frame, "byte:170");
	report(cuFileRead(fh, memory, frame, 0, 0) == -1 && errno == CU_FILE_IO_NOT_SUPPORTED &&
		       holds(memory, frame, "byte:170"),
	       "it fails, and nothing is moved", std::to_string(errno));
}

void lost(CUfileHandle_t fh)
{
	constexpr unsigned readers = 4;
	char *const memory = allocate(MiB);
	must(enroll(memory, MiB), "cuFileBufRegister");
	since();
	std::atomic<unsigned> begun{0}, bad{0};
	std::atomic<bool> over{false};
	std::vector<std::thread> all;
	for (unsigned t = 0; t < readers; t++)
		all.emplace_back([&, t] {
			const auto mine = static_cast<off_t>(t * 4 * frame);
			bool first = true;
			while (!over || first) {
				bad += cuFileRead(fh, memory, 4 * frame, mine, mine) != 4 * static_cast<ssize_t>(frame);
				begun += first;
				first = false;
			}
		});
	while (begun < readers)
		std::this_thread::yield();
	std::ofstream("/sys/kernel/debug/nvstand/free") << reinterpret_cast<uintptr_t>(memory) << std::flush;
	report(!number("given"), "the driver takes it back while " + std::to_string(readers) + " threads read");
	over = true;
	for (auto &thread : all)
		thread.join();
	report(!bad, "no read has failed", std::to_string(bad));
	paint(memory, MiB, "byte:170");
	since();
	report(cuFileRead(fh, memory, MiB, MiB / 2, 0) == MiB && holds(memory, MiB, "pattern:1", MiB / 2),
	       "afterwards it comes by way of the host");
	went_otherwise("afterwards", PEERDMA_CUFILE_WHY_REFUSED, 1, MiB);
	dismiss(memory);
	report(!number("wrong"), "nothing happened that must not");
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 2 ? argv[1] : "";
	must(what == "moves" || what == "tensors" || what == "whole" || (what == "refused" && argc == 4) ||
		     what == "lost",
	     "usage: registered moves|tensors|whole|refused|lost FILE [REASON]");
	CUcontext context = nullptr;
	must(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "no device");
	const int fd = open_file(argv[2], O_RDWR | O_DIRECT);
	const CUfileHandle_t fh = add_file(fd);
	if (what == "moves")
		moves(fh, fd);
	else if (what == "tensors")
		tensors(fh, fd);
	else if (what == "whole")
		whole(fh);
	else if (what == "refused")
		refused(fh, static_cast<uint32_t>(std::stoul(argv[3])));
	else
		lost(fh);
	return tap::end();
}
