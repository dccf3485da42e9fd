// SPDX-License-Identifier: MIT
//
// cufile direct|strict|bare|gone FILE ELSEWHERE: a cuFile program on the real module. The stand-in for CUDA
// (tests/softgpu) takes its device memory from the published BAR. FILE is 6 MiB of pattern 1 on the drive's ext4.
// ELSEWHERE is 256 KiB of pattern 2 on a filesystem without direct I/O. The host compares the bytes in the BAR and on
// the drive; the counters of libcufile and of the kernel tell the route.
//   direct   every family of calls and every kind of memory
//   strict   with PEERDMA_REQUIRE_DIRECT=1
//   bare     a read and a write without sysfs
//   gone     the device is unpublished while threads read and write
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>

#include "cufile.hpp"

namespace
{

constexpr size_t file_size = 6 * MiB, memory_size = 8 * MiB;

CUdeviceptr number(const void *memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// --- Setup
char *device_memory(size_t size)
{
	CUdeviceptr memory = 0;
	must(!cuMemAlloc(&memory, size), "cuMemAlloc");
	return reinterpret_cast<char *>(memory);
}

struct Setting {
	const char *path, *elsewhere;
	int fd; // opened with O_DIRECT
	CUfileHandle_t direct, cached;
	char *memory; // memory_size bytes
};

// --- Synchronous calls
void reads(const Setting &s)
{
	const struct {
		const char *what;
		CUfileHandle_t fh;
		size_t size, at, to;
	} cases[] = {{"a page", s.direct, 4 * KiB, 0, 0},
		     {"all of it", s.direct, file_size, 0, 0},
		     {"through a descriptor without O_DIRECT", s.cached, MiB, 64 * KiB, 128 * KiB},
		     {"odd bytes", s.direct, 100001, 1001, 5097},
		     {"odd bytes, without O_DIRECT", s.cached, 300 * KiB + 7, 4097, 8193}};
	for (const bool registered : {false, true}) {
		const std::string kind = registered ? ", registered" : "";
		if (registered)
			must(!cuFileBufRegister(s.memory, memory_size, 0).err, "cuFileBufRegister");
		for (const auto &io : cases) {
			fill(s.memory, memory_size, "byte:170");
			since();
			const ssize_t n = cuFileRead(io.fh, s.memory, io.size, static_cast<off_t>(io.at),
						     static_cast<off_t>(io.to));
			went_direct(std::string("a read, ") + io.what + kind, 1, io.size);
			report(n == static_cast<ssize_t>(io.size) &&
				       memory_is(s.memory + io.to, io.size, "pattern:1", io.at) &&
				       memory_is(s.memory, io.to, "byte:170") &&
				       memory_is(s.memory + io.to + io.size, memory_size - io.to - io.size, "byte:170"),
			       "what came, and what is around it", std::to_string(n) + " " + std::to_string(errno));
		}
	}
	// A pointer into the middle of registered memory counts as unregistered.
	since();
	ssize_t n = cuFileRead(s.direct, s.memory + 2 * MiB, 64 * KiB, MiB, 64 * KiB);
	went_direct("a read by a pointer into registered memory", 1, 64 * KiB);
	report(n == 64 * KiB && memory_is(s.memory + 2 * MiB + 64 * KiB, 64 * KiB, "pattern:1", MiB), "what came");
	n = cuFileRead(s.direct, s.memory, MiB, file_size - 100000, 0);
	went_direct("a read across the end of the file", 1, 100000);
	report(n == 100000 && memory_is(s.memory, 100000, "pattern:1", file_size - 100000), "is short",
	       std::to_string(n));
	report(!cuFileRead(s.direct, s.memory, MiB, file_size, 0) && !cuFileRead(s.direct, s.memory, 0, 0, 0),
	       "a read behind the end, and one of nothing");
	must(!cuFileBufDeregister(s.memory).err, "cuFileBufDeregister");
}

void writes(const Setting &s)
{
	const struct {
		const char *what;
		CUfileHandle_t fh;
		size_t size, at, from;
	} cases[] = {{"a page", s.direct, 4 * KiB, 8 * KiB, 4 * KiB},
		     {"2 MiB", s.direct, 2 * MiB, MiB, 0},
		     {"without O_DIRECT", s.cached, 512 * KiB, 3 * MiB, 64 * KiB}};
	for (const auto &io : cases) {
		fill(s.memory, memory_size, "pattern:3");
		since();
		const ssize_t n =
			cuFileWrite(io.fh, s.memory, io.size, static_cast<off_t>(io.at), static_cast<off_t>(io.from));
		went_direct(std::string("a write, ") + io.what, 1, io.size);
		report(n == static_cast<ssize_t>(io.size) && drive_has(s.fd, io.at, io.size, "pattern:3", io.from) &&
			       drive_has(s.fd, io.at - 4 * KiB, 4 * KiB, "pattern:1", io.at - 4 * KiB) &&
			       drive_has(s.fd, io.at + io.size, 4 * KiB, "pattern:1", io.at + io.size),
		       "what is on the drive, and around it", std::to_string(n) + " " + std::to_string(errno));
		fill(s.memory, io.size, "pattern:1", io.at);
		must(cuFileWrite(io.fh, s.memory, io.size, static_cast<off_t>(io.at), 0) ==
			     static_cast<ssize_t>(io.size),
		     "writing back");
	}
	report(drive_has(s.fd, 0, file_size, "pattern:1"), "all of the file, written back");
}

// Threads share a file; each has its own memory.
void threads(const Setting &s)
{
	since();
	constexpr unsigned count = 8, times = 32;
	constexpr size_t size = 64 * KiB;
	std::atomic<unsigned> good{0};
	std::vector<std::thread> all;
	for (unsigned t = 0; t < count; t++)
		all.emplace_back([&, t] {
			for (unsigned i = 0; i < times; i++)
				good += cuFileRead(i % 2 ? s.direct : s.cached, s.memory + t * 96 * KiB, size,
						   static_cast<off_t>((t * 11 + i) * size % file_size), 0) == size;
		});
	for (auto &thread : all)
		thread.join();
	bool same = good == count * times;
	for (unsigned t = 0; t < count; t++)
		same = same &&
		       memory_is(s.memory + t * 96 * KiB, size, "pattern:1", (t * 11 + times - 1) * size % file_size);
	report(same, "8 threads on one file");
	went_direct("their reads", count * times, count * times * size);
}

void vectors(const Setting &s)
{
	fill(s.memory, memory_size, "byte:170");
	const CUfileIOVec_t read[] = {
		{s.memory + 4 * MiB, 64 * KiB}, {s.memory, 0}, {s.memory + MiB, 4 * KiB}, {s.memory, MiB}};
	since();
	const size_t size = MiB + 68 * KiB;
	report(cuFileReadv(s.direct, read, 4, 32 * KiB, 0) == static_cast<ssize_t>(size) &&
		       memory_is(s.memory + 4 * MiB, 64 * KiB, "pattern:1", 32 * KiB) &&
		       memory_is(s.memory + MiB, 4 * KiB, "pattern:1", 96 * KiB) &&
		       memory_is(s.memory, MiB, "pattern:1", 100 * KiB),
	       "cuFileReadv");
	went_direct("its parts", 3, size);
	fill(s.memory, memory_size, "pattern:4");
	const CUfileIOVec_t write[] = {{s.memory + 2 * MiB, 8 * KiB}, {s.memory, 120 * KiB}};
	since();
	report(cuFileWritev(s.direct, write, 2, 2 * MiB, 0) == 128 * KiB &&
		       drive_has(s.fd, 2 * MiB, 8 * KiB, "pattern:4", 2 * MiB) &&
		       drive_has(s.fd, 2 * MiB + 8 * KiB, 120 * KiB, "pattern:4"),
	       "cuFileWritev");
	went_direct("its parts", 2, 128 * KiB);
	fill(s.memory, 128 * KiB, "pattern:1", 2 * MiB);
	must(cuFileWrite(s.direct, s.memory, 128 * KiB, 2 * MiB, 0) == 128 * KiB, "writing back");
}

// --- Batches
bool fetch(CUfileBatchHandle_t batch, unsigned count, size_t size)
{
	std::vector<bool> seen(count);
	for (unsigned done = 0; done < count;) {
		std::array<CUfileIOEvents_t, 16> events;
		unsigned some = events.size();
		if (cuFileBatchIOGetStatus(batch, 1, &some, events.data(), nullptr).err || !some)
			return false;
		for (unsigned i = 0; i < some; i++) {
			const auto which = reinterpret_cast<uintptr_t>(events[i].cookie);
			if (which >= count || seen[which] || events[i].status != CUFILE_COMPLETE ||
			    events[i].ret != size)
				return false;
			seen[which] = true;
		}
		done += some;
	}
	return true;
}

void batches(const Setting &s)
{
	constexpr unsigned count = 64;
	constexpr size_t size = 32 * KiB;
	CUfileBatchHandle_t batch = nullptr;
	must(!cuFileBatchIOSetUp(&batch, count).err, "cuFileBatchIOSetUp");
	must(!cuFileBufRegister(s.memory, memory_size, 0).err, "cuFileBufRegister");
	std::vector<CUfileIOParams_t> ios(count);
	const auto prepare = [&](CUfileOpcode_t opcode) {
		for (unsigned i = 0; i < count; i++) {
			ios[i] = {};
			ios[i].mode = CUFILE_BATCH;
			ios[i].opcode = opcode;
			ios[i].fh = i % 2 ? s.direct : s.cached;
			ios[i].cookie = reinterpret_cast<void *>(uintptr_t{i});
			ios[i].u.batch = {s.memory, static_cast<off_t>(i * size), static_cast<off_t>(i * size), size};
		}
		std::shuffle(ios.begin(), ios.end(), std::mt19937(1));
	};
	fill(s.memory, memory_size, "byte:170");
	prepare(CUFILE_READ);
	since();
	report(!cuFileBatchIOSubmit(batch, count, ios.data(), 0).err && fetch(batch, count, size) &&
		       memory_is(s.memory, count * size, "pattern:1") &&
		       memory_is(s.memory + count * size, memory_size - count * size, "byte:170"),
	       "a batch of 64 reads");
	went_direct("its reads", count, count * size);
	fill(s.memory, memory_size, "pattern:5");
	prepare(CUFILE_WRITE);
	since();
	report(!cuFileBatchIOSubmit(batch, count, ios.data(), 0).err && fetch(batch, count, size) &&
		       drive_has(s.fd, 0, count * size, "pattern:5") &&
		       drive_has(s.fd, count * size, file_size - count * size, "pattern:1", count * size),
	       "a batch of 64 writes, by the same handle");
	went_direct("its writes", count, count * size);
	fill(s.memory, count * size, "pattern:1");
	must(!cuFileBatchIOSubmit(batch, count, ios.data(), 0).err && fetch(batch, count, size), "writing back");
	cuFileBatchIODestroy(batch);
	must(!cuFileBufDeregister(s.memory).err, "cuFileBufDeregister");
}

// --- Stream order
void streams(const Setting &s)
{
	CUstream stream = nullptr;
	must(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	const CUstream both[] = {stream, nullptr};
	for (const CUstream on : both) {
		const std::string where = on ? "" : ", on the default stream";
		size_t size = MiB, written = 128 * KiB;
		off_t at = MiB, from = 0, to = 4 * MiB;
		ssize_t put = -2, got = -2;
		fill(s.memory, memory_size, "byte:170");
		since();
		// Sizes, offsets and bytes are set only when the stream reaches the call.
		must(!cuMemsetD8Async(number(s.memory), 85, 128 * KiB, on), "cuMemsetD8Async");
		must(!cuFileWriteAsync(s.direct, s.memory, &written, &at, &from, &put, on).err, "cuFileWriteAsync");
		must(!cuMemsetD8Async(number(s.memory), 17, 128 * KiB, on), "cuMemsetD8Async");
		must(!cuLaunchHostFunc(
			     on, [](void *arg) { *static_cast<size_t *>(arg) = 256 * KiB; }, &size),
		     "cuLaunchHostFunc");
		must(!cuFileReadAsync(s.direct, s.memory, &size, &at, &to, &got, on).err, "cuFileReadAsync");
		must(!cuStreamSynchronize(on), "cuStreamSynchronize");
		report(put == 128 * KiB && got == 256 * KiB && drive_has(s.fd, MiB, 128 * KiB, "byte:85") &&
			       memory_is(s.memory, 128 * KiB, "byte:17") &&
			       memory_is(s.memory + to, 128 * KiB, "byte:85") &&
			       memory_is(s.memory + to + 128 * KiB, 128 * KiB, "pattern:1", MiB + 128 * KiB),
		       "a write and a read in a stream's order" + where,
		       std::to_string(put) + " " + std::to_string(got));
		went_direct("both" + where, 2, 384 * KiB);
		fill(s.memory, 128 * KiB, "pattern:1", MiB);
		must(cuFileWrite(s.direct, s.memory, 128 * KiB, MiB, 0) == 128 * KiB, "writing back");
	}

	// A registered stream with fixed parameters, in a graph that runs twice.
	size_t size = 64 * KiB;
	off_t at = 0, to = 0;
	ssize_t got = -2;
	CUgraph graph = nullptr;
	CUgraphExec exec = nullptr;
	must(!cuFileStreamRegister(stream, CU_FILE_STREAM_FIXED_FILE_SIZE).err, "cuFileStreamRegister");
	must(!cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
	must(!cuFileReadAsync(s.direct, s.memory, &size, &at, &to, &got, stream).err, "cuFileReadAsync");
	must(!cuStreamEndCapture(stream, &graph) && !cuGraphInstantiate(&exec, graph, 0), "a graph");
	size = 1;
	since();
	bool good = true;
	for (const off_t where : {64 * KiB, 2 * MiB}) {
		at = to = where;
		good = good && !cuGraphLaunch(exec, stream) && !cuStreamSynchronize(stream) && got == 64 * KiB &&
		       memory_is(s.memory + to, 64 * KiB, "pattern:1", static_cast<uint64_t>(at));
	}
	report(good, "a read inside a graph that is launched twice");
	went_direct("both of its reads", 2, 128 * KiB);
	must(!cuGraphExecDestroy(exec) && !cuGraphDestroy(graph), "the graph's end");
	must(!cuFileStreamDeregister(stream).err && !cuStreamDestroy(stream), "the stream's end");
}

// --- Memory
// Reads the start of the file and writes it back. The driver's copies compare the bytes.
bool there_and_back(const Setting &s, char *memory, size_t size)
{
	std::vector<char> want(size), got(size);
	must(::pread(open_file(s.path, O_RDONLY), want.data(), size, 0) == static_cast<ssize_t>(size), s.path);
	return cuFileRead(s.direct, memory, size, 0, 0) == static_cast<ssize_t>(size) &&
	       !cuMemcpy(number(got.data()), number(memory), size) && got == want &&
	       cuFileWrite(s.direct, memory, size, 0, 0) == static_cast<ssize_t>(size) &&
	       drive_has(s.fd, 0, size, "pattern:1");
}

void kinds(const Setting &s)
{
	const size_t size = 256 * KiB;
	CUdeviceptr pool = 0, managed = 0;
	must(!cuMemAllocAsync(&pool, MiB, nullptr) && !cuMemAllocManaged(&managed, MiB, CU_MEM_ATTACH_GLOBAL),
	     "memory");
	since();
	report(there_and_back(s, reinterpret_cast<char *>(pool) + 4 * KiB, size), "memory of a pool");
	went_direct("it", 2, 2 * size);
	report(there_and_back(s, reinterpret_cast<char *>(managed), size), "managed memory");
	went_otherwise("it", PEERDMA_CUFILE_WHY_NOT_A_BUFFER, 2, 2 * size);
	void *pinned = nullptr;
	must(!cuMemAllocHost(&pinned, size), "cuMemAllocHost");
	report(there_and_back(s, static_cast<char *>(pinned), size), "pinned memory of the host's");
	went_otherwise("it", PEERDMA_CUFILE_WHY_HOST_MEMORY, 2, 2 * size);
	must(!cuMemFreeHost(pinned) && !cuMemFree(managed) && !cuMemFreeAsync(pool, nullptr), "the end of it");

	// One I/O across two physical pieces with adjacent addresses.
	CUmemAllocationProp prop = {};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemGenericAllocationHandle made[2];
	CUdeviceptr address = 0;
	size_t piece = 0;
	must(!cuMemGetAllocationGranularity(&piece, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
		     !cuMemAddressReserve(&address, 2 * piece, 0, 0, 0),
	     "cuMemAddressReserve");
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	for (int i = 0; i < 2; i++)
		must(!cuMemCreate(&made[i], piece, &prop, 0) &&
			     !cuMemMap(address + static_cast<size_t>(i) * piece, piece, 0, made[i], 0) &&
			     !cuMemRelease(made[i]),
		     "cuMemMap");
	must(!cuMemSetAccess(address, 2 * piece, &access, 1), "cuMemSetAccess");
	since();
	report(there_and_back(s, reinterpret_cast<char *>(address + piece) - size / 2, size),
	       "memory that is mapped in pieces");
	went_otherwise("it", PEERDMA_CUFILE_WHY_NOT_A_BUFFER, 2, 2 * size);
	must(!cuMemUnmap(address, 2 * piece) && !cuMemAddressFree(address, 2 * piece), "cuMemUnmap");

	{
		const OwnBuffer own(MiB);
		since();
		report(cuFileRead(s.direct, own.get(), size, 0, 4 * KiB) == static_cast<ssize_t>(size) &&
			       memory_is(own.get() + 4 * KiB, size, "pattern:1"),
		       "a buffer of the program's own", std::to_string(errno));
		went_direct("it", 1, size);
	}
	since();

	// Free the memory and allocate again at the same address; the file's handle learns neither.
	for (int i = 0; i < 3; i++) {
		char *const other = device_memory(MiB);
		must(there_and_back(s, other, size) && !cuMemFree(number(other)), "memory that comes and goes");
	}
	went_direct("memory that comes and goes", 6, 6 * size);
	int fd = -1;
	report(!cuMemGetHandleForAddressRange(&fd, number(s.memory) + MiB, MiB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					      0) &&
		       lseek(fd, 0, SEEK_END) == static_cast<off_t>(MiB) && !close(fd),
	       "a piece of device memory as a dma-buf");
}

// The size of the largest BAR, from sysfs.
void bar_size()
{
	std::string address(32, '\0');
	must(!cuDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), 0), "cuDeviceGetPCIBusId");
	for (char &c : address)
		c = static_cast<char>(std::tolower(c));
	uintmax_t largest = 0;
	for (int i = 0; i < 6; i++) {
		std::error_code none;
		const auto bytes = std::filesystem::file_size(
			std::string("/sys/bus/pci/devices/") + address.c_str() + "/resource" + std::to_string(i), none);
		largest = none ? largest : std::max(largest, bytes);
	}
	size_t kb = 0;
	report(!cuFileGetBARSizeInKB(0, &kb).err && kb && kb == largest / KiB, "the size of the BAR",
	       std::to_string(kb) + " KiB, " + std::to_string(largest));
}

// --- Memory and files that cannot go direct
struct peerdma_cufile_route explained(CUfileHandle_t fh, const void *memory)
{
	struct peerdma_cufile_route route = {};
	route.size = sizeof(route);
	must(!peerdma_cufile_explain(fh, memory, 4 * KiB, 0, 0, &route), "peerdma_cufile_explain");
	return route;
}

void elsewhere(const Setting &s, bool strict)
{
	const size_t size = 100 * KiB;
	const int fd = open_file(s.elsewhere, O_RDWR);
	const CUfileHandle_t fh = add_file(fd);
	auto route = explained(s.direct, s.memory);
	const bool software = raw::by_software();
	report(route.route == (software ? PEERDMA_ROUTE_HOST : PEERDMA_ROUTE_DIRECT) &&
		       route.why == (software ? PEERDMA_CUFILE_WHY_REFUSED : PEERDMA_CUFILE_WHY_NONE),
	       "this file would go direct");
	route = explained(fh, s.memory);
	// In strict mode the call fails instead.
	const uint32_t other = strict ? PEERDMA_ROUTE_NONE : PEERDMA_ROUTE_HOST;
	report(route.route == other && route.why == PEERDMA_CUFILE_WHY_REFUSED &&
		       route.reason == PEERDMA_REASON_FILESYSTEM,
	       "one on another filesystem would not, and it is said why",
	       std::to_string(route.route) + " " + std::to_string(route.reason));
	route = explained(s.direct, s.memory + 1);
	report(route.route == other && route.why == PEERDMA_CUFILE_WHY_REFUSED &&
		       route.reason == PEERDMA_REASON_BUF_ALIGN,
	       "nor what is at an odd address of the memory",
	       std::to_string(route.route) + " " + std::to_string(route.reason));
	const struct {
		const char *what;
		CUfileHandle_t fh;
		off_t at, to;
		std::string source;
		bool short_write;
	} cases[] = {{"another filesystem", fh, 4 * KiB, 64 * KiB, "pattern:2", false},
		     {"an odd address", s.direct, 64 * KiB, 64 * KiB + 1, "pattern:1", false},
		     {"less than a block", s.direct, 1000, 4 * KiB, "pattern:1", true}};
	for (const auto &io : cases) {
		// A read of less than a block stays inside the device, so only the write is tested.
		const size_t part = io.short_write ? 100 : size;
		const std::string name = io.what;
		fill(s.memory, memory_size, "byte:170");
		since();
		ssize_t n = io.short_write ? 0 : cuFileRead(io.fh, s.memory, part, io.at, io.to);
		int error = errno;
		if (strict) {
			n = io.short_write ? -1 : n;
			const bool refused = io.short_write || error == CU_FILE_IO_NOT_SUPPORTED;
			const ssize_t put = cuFileWrite(io.fh, s.memory, part, io.at, io.to);
			error = errno;
			report(n == -1 && refused && put == -1 && error == CU_FILE_IO_NOT_SUPPORTED &&
				       memory_is(s.memory, memory_size, "byte:170") &&
				       drive_has(s.fd, 0, file_size, "pattern:1"),
			       name + ": refused, and nothing is moved",
			       std::to_string(n) + " " + std::to_string(put) + " " + std::to_string(error));
			continue;
		}
		if (!io.short_write) {
			report(n == static_cast<ssize_t>(part) &&
				       memory_is(s.memory + io.to, part, io.source, static_cast<uint64_t>(io.at)) &&
				       memory_is(s.memory, static_cast<uint64_t>(io.to), "byte:170"),
			       name + ": it is read all the same", std::to_string(n) + " " + std::to_string(error));
			went_otherwise(name, PEERDMA_CUFILE_WHY_REFUSED, 1, part);
		}
		fill(s.memory + io.to, part, io.source, static_cast<uint64_t>(io.at));
		n = cuFileWrite(io.fh, s.memory, part, io.at, io.to);
		report(n == static_cast<ssize_t>(part) &&
			       (io.fh == fh ? host::run(std::string("pattern compare ") + s.elsewhere +
							" 0 262144 pattern:2") :
					      drive_has(s.fd, 0, file_size, "pattern:1")),
		       name + ": and written", std::to_string(n));
		went_otherwise(name, PEERDMA_CUFILE_WHY_REFUSED, 1, part);
	}
	report(cuFileRead(s.direct, s.memory, MiB, 0, 0) == MiB && memory_is(s.memory, MiB, "pattern:1"),
	       "what goes direct goes on");
	went_direct("that", 1, MiB);
}

// --- A program closes the libraries' descriptors and reuses their numbers for another file
std::set<int> descriptors_of(const std::string &path)
{
	std::set<int> found;
	for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
		std::error_code gone;
		if (std::filesystem::read_symlink(entry, gone) == path)
			found.insert(std::stoi(entry.path().filename()));
	}
	return found;
}

void numbers(const Setting &s)
{
	const auto before = descriptors_of(s.path);
	const int fd = open_file(s.path, O_RDWR | O_DIRECT), other = open_file(s.elsewhere, O_RDWR);
	const CUfileHandle_t fh = add_file(fd);
	must(cuFileRead(fh, s.memory, MiB, 0, 0) == MiB, "cuFileRead");
	std::set<int> taken;
	for (const int one : descriptors_of(s.path))
		if (one != fd && !before.count(one) && ::dup2(other, one) == one)
			taken.insert(one);
	fill(s.memory, memory_size, "byte:170");
	since();
	ssize_t n = cuFileRead(fh, s.memory, 128 * KiB, 64 * KiB, 0);
	report(taken.size() >= 2 && n == 128 * KiB && memory_is(s.memory, 128 * KiB, "pattern:1", 64 * KiB),
	       "a read of a file whose descriptors are another file's", std::to_string(n));
	n = cuFileWrite(fh, s.memory, 128 * KiB, 64 * KiB, 0);
	report(n == 128 * KiB && drive_has(s.fd, 0, file_size, "pattern:1") &&
		       host::run(std::string("pattern compare ") + s.elsewhere + " 0 262144 pattern:2"),
	       "a write", std::to_string(n));
	went_direct("both", 2, 256 * KiB);
	cuFileHandleDeregister(fh);
	const auto left = descriptors_of(s.elsewhere);
	report(std::includes(left.begin(), left.end(), taken.begin(), taken.end()), "the other file's stay open");
	for (const int one : taken)
		::close(one);
	::close(fd);
	::close(other);
}

// --- The device is unpublished
void gone(const Setting &s)
{
	constexpr unsigned count = 6;
	std::array<int, count> ends{};
	std::atomic<unsigned> begun{0};
	std::vector<std::thread> all;
	for (unsigned t = 0; t < count; t++)
		all.emplace_back([&, t] {
			char *const memory = s.memory + t * MiB;
			ssize_t n = 0;
			for (bool first = true; n >= 0; first = false) {
				errno = 0;
				// Each thread uses its own bytes.
				n = t % 2 ? cuFileRead(s.direct, memory, 256 * KiB, 0, 0) :
					    cuFileWrite(s.direct, memory, 64 * KiB,
							static_cast<off_t>(t * 512 * KiB + MiB), 0);
				ends[t] = n < 0 ? errno : 0;
				begun += first;
			}
		});
	while (begun < count)
		std::this_thread::yield();
	must(host::run("peerdma unpublish $(gpu_bdf)"), "peerdma unpublish");
	for (auto &thread : all)
		thread.join();
	report(std::all_of(ends.begin(), ends.end(), [](int end) { return end == ENODEV; }),
	       "the device is unpublished: 6 threads are told so",
	       std::to_string(ends[0]) + " " + std::to_string(ends[1]));

	CUfileBatchHandle_t batch = nullptr;
	CUfileIOParams_t io = {};
	io.mode = CUFILE_BATCH;
	io.opcode = CUFILE_READ;
	io.fh = s.cached;
	io.u.batch = {s.memory, 0, 0, 4 * KiB};
	CUfileIOEvents_t event = {};
	unsigned some = 1;
	must(!cuFileBatchIOSetUp(&batch, 1).err && !cuFileBatchIOSubmit(batch, 1, &io, 0).err &&
		     !cuFileBatchIOGetStatus(batch, 1, &some, &event, nullptr).err,
	     "a batch");
	report(some == 1 && event.status == CUFILE_FAILED && static_cast<ssize_t>(event.ret) == -ENODEV,
	       "a batch, of a file that had not met the device", std::to_string(static_cast<ssize_t>(event.ret)));
	cuFileBatchIODestroy(batch);

	size_t size = 4 * KiB;
	off_t zero = 0;
	ssize_t got = 0;
	must(!cuFileReadAsync(s.direct, s.memory, &size, &zero, &zero, &got, nullptr).err &&
		     !cuStreamSynchronize(nullptr),
	     "cuFileReadAsync");
	report(got == -1, "a read in a stream", std::to_string(got));
	std::vector<char> host(64 * KiB);
	report(cuFileRead(s.direct, host.data(), host.size(), 0, 0) == static_cast<ssize_t>(host.size()),
	       "what is the host's is read all the same");
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc == 4 ? argv[1] : "";
	must(what == "direct" || what == "strict" || what == "bare" || what == "gone",
	     "usage: cufile direct|strict|bare|gone FILE ELSEWHERE");
	CUdevice device = 0;
	CUcontext context = nullptr;
	must(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device) &&
		     !cuCtxSetCurrent(context),
	     "no device");
	Setting s = {argv[2], argv[3], open_file(argv[2], O_RDWR | O_DIRECT), nullptr, nullptr, nullptr};
	must(!cuFileDriverOpen().err, "cuFileDriverOpen");
	s.direct = add_file(s.fd);
	s.cached = add_file(open_file(argv[2], O_RDWR));
	s.memory = device_memory(memory_size);

	if (what == "direct") {
		reads(s);
		writes(s);
		threads(s);
		vectors(s);
		batches(s);
		streams(s);
		kinds(s);
		bar_size();
		elsewhere(s, false);
		numbers(s);
	} else if (what == "strict") {
		elsewhere(s, true);
	} else if (what == "gone") {
		gone(s);
	} else {
		since();
		report(cuFileRead(s.direct, s.memory, MiB, 0, 0) == MiB && memory_is(s.memory, MiB, "pattern:1"),
		       "a read");
		report(cuFileWrite(s.direct, s.memory, MiB, 0, 0) == MiB && drive_has(s.fd, 0, MiB, "pattern:1"),
		       "a write");
		went_direct("both", 2, 2 * MiB);
	}
	cuFileHandleDeregister(s.direct);
	cuFileHandleDeregister(s.cached);
	must(!cuFileDriverClose_v2().err && !cuMemFree(number(s.memory)), "the end");
	return tap::end();
}
