// SPDX-License-Identifier: MIT
//
// nearby WHAT FILE: a cuFile program whose memory is in the first of two GPUs. The drive of FILE reaches only the
// second. The stand-in for CUDA (tests/softgpu) has both. FILE is 6 MiB of pattern 1. The host compares the first GPU's
// BAR and the drive.
//   near      every family of calls goes through the second GPU and none through host memory
//   host      every call goes through host memory
//   refused   every call fails
#include <cerrno>
#include <cstring>
#include <thread>

#include "cufile.hpp"

namespace
{

constexpr size_t file_size = 6 * MiB, memory_size = 8 * MiB;

struct Setting {
	CUfileHandle_t fh;
	int fd;
	char *memory;
};

// Expects this many bytes in one I/O through the other GPU.
void went_near(const std::string &what, uint64_t ios, uint64_t bytes)
{
	const Counts got = since();
	report(got.ios[PEERDMA_CUFILE_WHY_REFUSED] == ios && got.near_ios == ios && got.near_bytes == bytes &&
		       got.direct + got.near == bytes && got.direct && !got.host,
	       what + ": by way of the other GPU, nothing by way of the host", got.text());
}

void went_through_host(const std::string &what, uint64_t ios, uint64_t bytes)
{
	const Counts got = since();
	report(got.ios[PEERDMA_CUFILE_WHY_REFUSED] == ios && got.bytes[PEERDMA_CUFILE_WHY_REFUSED] == bytes &&
		       !got.near_ios && !got.direct,
	       what + ": through host memory, and counted so", got.text());
}

uint32_t route(const Setting &s)
{
	struct peerdma_cufile_route route = {};
	route.size = sizeof(route);
	must(!peerdma_cufile_explain(s.fh, s.memory, 4096, 0, 0, &route), "peerdma_cufile_explain");
	return route.reason == PEERDMA_REASON_DISTANCE ? route.route : 100 + route.reason;
}

bool reads(const Setting &s, size_t size, size_t at, size_t to)
{
	fill(s.memory, memory_size, "byte:170");
	since();
	const ssize_t n = cuFileRead(s.fh, s.memory, size, static_cast<off_t>(at), static_cast<off_t>(to));
	return n == static_cast<ssize_t>(size) && memory_is(s.memory + to, size, "pattern:1", at) &&
	       memory_is(s.memory, to, "byte:170") &&
	       memory_is(s.memory + to + size, memory_size - to - size, "byte:170");
}

void near(const Setting &s)
{
	report(route(s) == PEERDMA_ROUTE_NEAR, "it is said before", std::to_string(route(s)));
	const struct {
		size_t size, at, to;
	} cases[] = {{4 * KiB, 0, 4 * KiB}, {6 * MiB, 0, 0}, {2 * MiB, 4 * KiB, 12345}, {100001, 1001, 5097}};
	for (const auto &io : cases) {
		const std::string what = "a read of " + std::to_string(io.size) + " at " + std::to_string(io.at);
		report(reads(s, io.size, io.at, io.to), what);
		went_near(what, 1, io.size);
	}
	since();
	report(cuFileRead(s.fh, s.memory, MiB, file_size - 5000, 0) == 5000, "the end of the file");
	went_near("the end of the file", 1, 5000);

	fill(s.memory, memory_size, "pattern:3");
	since();
	report(cuFileWrite(s.fh, s.memory, 3 * MiB, MiB, 64 * KiB) == 3 * MiB &&
		       drive_has(s.fd, MiB, 3 * MiB, "pattern:3", 64 * KiB) &&
		       drive_has(s.fd, MiB - 4 * KiB, 4 * KiB, "pattern:1", MiB - 4 * KiB) &&
		       drive_has(s.fd, 4 * MiB, 4 * KiB, "pattern:1", 4 * MiB),
	       "a write, and around it");
	went_near("a write", 1, 3 * MiB);
	fill(s.memory, file_size, "pattern:1");
	must(cuFileWrite(s.fh, s.memory, file_size, 0, 0) == file_size, "writing back");

	constexpr unsigned nr = 8;
	CUfileBatchHandle_t batch = nullptr;
	CUfileIOParams_t ios[nr] = {};
	CUfileIOEvents_t events[nr];
	for (unsigned i = 0; i < nr; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].opcode = CUFILE_READ;
		ios[i].fh = s.fh;
		ios[i].u.batch = {s.memory, static_cast<off_t>(i * 256 * KiB), static_cast<off_t>(i * 256 * KiB),
				  256 * KiB};
	}
	fill(s.memory, memory_size, "byte:170");
	since();
	unsigned count = nr;
	must(!cuFileBatchIOSetUp(&batch, nr).err && !cuFileBatchIOSubmit(batch, nr, ios, 0).err &&
		     !cuFileBatchIOGetStatus(batch, nr, &count, events, nullptr).err,
	     "a batch");
	report(count == nr && memory_is(s.memory, 2 * MiB, "pattern:1") &&
		       memory_is(s.memory + 2 * MiB, MiB, "byte:170"),
	       "a batch");
	went_near("a batch", nr, 2 * MiB);
	cuFileBatchIODestroy(batch);

	// libcufile must not copy here: Documentation/cufile.md, "Stream order".
	size_t size = MiB;
	off_t at = 2 * MiB, to = MiB;
	ssize_t n = 0;
	fill(s.memory, memory_size, "byte:170");
	since();
	must(!cuFileReadAsync(s.fh, s.memory, &size, &at, &to, &n, nullptr).err && !cuStreamSynchronize(nullptr),
	     "cuFileReadAsync");
	report(n == static_cast<ssize_t>(MiB) && memory_is(s.memory + MiB, MiB, "pattern:1", 2 * MiB), "in a stream");
	went_through_host("in a stream", 1, MiB);

	std::atomic<unsigned> good{0};
	std::vector<std::thread> threads;
	fill(s.memory, memory_size, "byte:170");
	since();
	for (unsigned t = 0; t < 12; t++)
		threads.emplace_back([&, t] {
			const size_t place = t * 512 * KiB;
			for (int i = 0; i < 4; i++)
				good += cuFileRead(s.fh, s.memory, 512 * KiB, static_cast<off_t>(place),
						   static_cast<off_t>(place)) == 512 * KiB;
		});
	for (auto &thread : threads)
		thread.join();
	report(good == 48 && memory_is(s.memory, file_size, "pattern:1"), "12 threads");
	went_near("12 threads", 48, 24 * MiB);
}

void by_host(const Setting &s)
{
	report(route(s) == PEERDMA_ROUTE_HOST, "it is said before", std::to_string(route(s)));
	report(reads(s, 2 * MiB, 4096, 12288), "a read");
	went_through_host("a read", 1, 2 * MiB);
}

void refused(const Setting &s)
{
	fill(s.memory, memory_size, "byte:170");
	const ssize_t n = cuFileRead(s.fh, s.memory, MiB, 0, 0);
	report(n < 0 && memory_is(s.memory, memory_size, "byte:170"),
	       "who wants all to go directly gets an error, and no byte",
	       std::to_string(n) + " " + std::to_string(errno));
	report(since().near_ios == 0, "and it is counted as none");
}

} // namespace

int main(int argc, char **argv)
{
	must(argc == 3, "usage: nearby WHAT FILE");
	const std::string what = argv[1];
	int devices = 0;
	CUcontext context = nullptr;
	CUdeviceptr memory = 0;
	must(!cuInit(0) && !cuDeviceGetCount(&devices) && devices == 2 && !cuDevicePrimaryCtxRetain(&context, 0) &&
		     !cuCtxPushCurrent(context) && !cuMemAlloc(&memory, memory_size),
	     "two GPUs");
	const int fd = open_file(argv[2], O_RDWR | O_DIRECT);
	must(!cuFileDriverOpen().err, "cuFileDriverOpen");
	const Setting s = {add_file(fd), fd, reinterpret_cast<char *>(memory)};
	if (what == "near")
		near(s);
	else if (what == "host")
		by_host(s);
	else if (what == "refused")
		refused(s);
	else
		must(false, what);
	cuFileHandleDeregister(s.fh);
	cuFileDriverClose();
	return 0;
}
