// SPDX-License-Identifier: MIT
//
// vendors DRIVE WHAT FILE: memory of several vendors in one process. Each vendor's library is one of tests/softgpu and
// is loaded when its turn comes. FILE is 2 MiB of pattern 1 on the drive's ext4. The host compares the BAR and the
// drive.
//   moves         libpeerdma finds the memory by its address; the caller names DRIVE, a PCI address
//   cufile        libcufile finds the drive itself: memory of cudaMalloc() and cuMemMap(), and other vendors' buffers
//   others        libcufile registers other vendors' memory of which no buffers exist yet
//   unpublished   none of the memory can become a buffer, and the error names the reason
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include "../../tools/guest.hpp"
#include "cuda.h"
#include "cufile.hpp"

namespace
{

constexpr size_t frame = 64 * KiB;
constexpr uintptr_t stand_base = 0x7f0000000000; // as in tests/softgpu/stand.hpp

unsigned drive_domain, drive_bdf;

uint64_t in_bar(const void *memory) { return reinterpret_cast<uintptr_t>(memory) - stand_base; }
bool holds(uint64_t at, size_t size, const std::string &source, uint64_t from = 0)
{
	return tap::gpu_is(at, size, source, from);
}
void paint(uint64_t at, size_t size, const std::string &source)
{
	must(host::run("host fill gpu0 " + std::to_string(at) + " " + std::to_string(size) + " " + source + " 0"),
	     "host fill");
}

struct Loaded {
	void *self;
	explicit Loaded(const char *name) : self(dlopen(name, RTLD_NOW | RTLD_LOCAL)) { must(self, name); }
	template <class Function> Function *get(Function *&function, const char *name) const
	{
		function = reinterpret_cast<Function *>(dlsym(self, name));
		must(function, name);
		return function;
	}
};

// --- The vendors

struct Hip {
	Loaded library{"libamdhip64.so.6"};
	int (*alloc)(void **, size_t);
	int (*free)(void *);

	Hip()
	{
		library.get(alloc, "hipMalloc");
		library.get(free, "hipFree");
	}
	char *memory(size_t size)
	{
		void *out = nullptr;
		must(!alloc(&out, size), "hipMalloc");
		return static_cast<char *>(out);
	}
};

struct LevelZero {
	struct Desc {
		uint32_t kind;
		Desc *next;
		uint32_t flags, ordinal;
	};
	Loaded library{"libze_loader.so.1"};
	int (*alloc)(void *, Desc *, size_t, size_t, void *, void **);
	int (*free)(void *, void *);
	void *(*default_context)(void *);
	void *own = nullptr, *made = nullptr, *device = nullptr;

	LevelZero()
	{
		int (*init)(uint32_t);
		int (*drivers)(uint32_t *, void **);
		int (*devices)(void *, uint32_t *, void **);
		int (*create)(void *, const Desc *, void **);
		uint32_t one = 1;
		void *driver = nullptr;
		library.get(alloc, "zeMemAllocDevice");
		library.get(free, "zeMemFree");
		library.get(default_context, "zeDriverGetDefaultContext");
		must(!library.get(init, "zeInit")(0) && !library.get(drivers, "zeDriverGet")(&one, &driver) &&
			     !library.get(devices, "zeDeviceGet")(driver, &one, &device) &&
			     !library.get(create, "zeContextCreate")(driver, nullptr, &made),
		     "Level Zero");
		own = default_context(driver);
	}
	char *memory(void *context, size_t size, bool for_export = true)
	{
		Desc wanted = {0x18, nullptr, 2, 0}, desc = {0x15, for_export ? &wanted : nullptr, 0, 0};
		void *out = nullptr;
		must(!alloc(context, &desc, size, frame, device, &out), "zeMemAllocDevice");
		return static_cast<char *>(out);
	}
};

struct CudaDriver {
	Loaded library{"libcuda.so.1"};
	decltype(&cuMemAlloc) alloc;
	decltype(&cuMemFree) free;
	decltype(&cuMemAllocManaged) alloc_managed;
	decltype(&cuMemCreate) create;
	decltype(&cuMemRelease) release;
	decltype(&cuMemAddressReserve) reserve;
	decltype(&cuMemMap) map;
	decltype(&cuMemUnmap) unmap;
	decltype(&cuMemSetAccess) set_access;
	decltype(&cuStreamSynchronize) synchronize;
	char *(*peek)(void *);
	static constexpr size_t piece = 2 * MiB;
	uint64_t origin;

	CudaDriver()
	{
		decltype(&cuInit) init;
		decltype(&cuDevicePrimaryCtxRetain) retain;
		decltype(&cuCtxSetCurrent) set_current;
		CUcontext context = nullptr;
		library.get(alloc, "cuMemAlloc_v2");
		library.get(free, "cuMemFree_v2");
		library.get(alloc_managed, "cuMemAllocManaged");
		library.get(create, "cuMemCreate");
		library.get(release, "cuMemRelease");
		library.get(reserve, "cuMemAddressReserve");
		library.get(map, "cuMemMap");
		library.get(unmap, "cuMemUnmap");
		library.get(set_access, "cuMemSetAccess");
		library.get(synchronize, "cuStreamSynchronize");
		library.get(peek, "fake_peek");
		must(!library.get(init, "cuInit")(0) && !library.get(retain, "cuDevicePrimaryCtxRetain")(&context, 0) &&
			     !library.get(set_current, "cuCtxSetCurrent")(context),
		     "CUDA");
		char *const any = memory(frame);
		origin = number(peek(any)) - in_bar(any);
		must(!free(number(any)), "cuMemFree");
	}
	static CUdeviceptr number(const void *memory) { return reinterpret_cast<CUdeviceptr>(memory); }
	char *memory(size_t size)
	{
		CUdeviceptr out = 0;
		must(!alloc(&out, size), "cuMemAlloc");
		return reinterpret_cast<char *>(out);
	}
	// Maps `pieces` pieces of physical memory at adjacent addresses.
	char *mapped(size_t pieces)
	{
		CUdeviceptr at = 0;
		must(!reserve(&at, pieces * piece, 0, 0, 0), "cuMemAddressReserve");
		for (size_t i = 0; i < pieces; i++)
			map_one(at + i * piece);
		return reinterpret_cast<char *>(at);
	}
	void map_one(CUdeviceptr at)
	{
		CUmemAllocationProp prop = {};
		prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
		prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		CUmemGenericAllocationHandle physical = 0;
		must(!create(&physical, piece, &prop, 0) && !map(at, piece, 0, physical, 0) && !release(physical),
		     "cuMemMap");
	}
	// Offset in the BAR.
	uint64_t place(char *memory) { return number(peek(memory)) - origin; }
};

// --- By libpeerdma

int is_attached() { return guest::debug_number("expstand", "attached"); }

// The kernel returns the memory asynchronously.
bool all_given_back()
{
	for (int i = 0; i < 200 && is_attached(); i++)
		usleep(10000);
	return !is_attached();
}

struct Made {
	struct peerdma_buf *buffer = nullptr;
	struct peerdma_pointer_args args = {};
	int rc;

	Made(struct peerdma_device *device, const void *memory, size_t size, void *context = nullptr)
	{
		args.size = sizeof(args);
		args.addr = reinterpret_cast<uintptr_t>(memory);
		args.len = size;
		args.pci_domain = drive_domain;
		args.pci_bdf = drive_bdf;
		args.ze_context = context;
		rc = peerdma_buf_from_pointer(device, &args, &buffer);
	}
	Made(const Made &) = delete;
	Made &operator=(const Made &) = delete;
	~Made() { peerdma_buf_destroy(buffer); }
	std::string said() const
	{
		return std::to_string(rc) + " " + peerdma_reason_name(args.out_reason) + " of " +
		       std::to_string(args.out_memory) + ", result " + std::to_string(args.out_result);
	}
};

void refuse(const std::string &what, const Made &made, enum peerdma_memory memory, uint32_t reason)
{
	report(made.rc == -EOPNOTSUPP && made.args.out_memory == static_cast<uint32_t>(memory) &&
		       made.args.out_reason == reason && !made.buffer,
	       what, made.said());
}

// Reads into a part of the memory, writes from another part, and compares both and their surroundings.
void goes(struct peerdma_file *file, int fd, const std::string &what, const Made &made, enum peerdma_memory memory,
	  uint64_t at, size_t size, uint64_t file_at)
{
	report(!made.rc && made.args.out_memory == static_cast<uint32_t>(memory), what + ": a buffer", made.said());
	if (made.rc)
		return;
	constexpr size_t edge = 4 * KiB;
	const uint64_t off = made.args.out_buf_off;
	struct peerdma_io_result result = {};
	result.size = sizeof(result);
	paint(at, size, "byte:170");
	int64_t n = peerdma_read_result(file, made.buffer, off + edge, size - 2 * edge, file_at, &result);
	report(n == static_cast<int64_t>(size - 2 * edge) && result.direct == size - 2 * edge &&
		       holds(at + edge, size - 2 * edge, "pattern:1", file_at) && holds(at, edge, "byte:170") &&
		       holds(at + size - edge, edge, "byte:170"),
	       what + ": a read is direct, every byte, and nothing else changes",
	       std::to_string(n) + " direct " + std::to_string(result.direct));
	paint(at, size, "pattern:3");
	result.size = sizeof(result);
	n = peerdma_write_result(file, made.buffer, off, frame, file_at, &result);
	report(n == static_cast<int64_t>(frame) && result.direct == frame &&
		       drive_has(fd, file_at, frame, "pattern:3") &&
		       drive_has(fd, file_at + frame, frame, "pattern:1", file_at + frame),
	       what + ": a write is direct, every byte, and nothing else changes",
	       std::to_string(n) + " direct " + std::to_string(result.direct));
	paint(at, size, "byte:170");
}

struct Opened {
	struct peerdma_device *device = nullptr;
	struct peerdma_file *file = nullptr;

	explicit Opened(int fd)
	{
		must(!peerdma_open(&device, PEERDMA_OPEN_REQUIRE_DIRECT) && !peerdma_file_from_fd(device, fd, &file),
		     "/dev/peerdma");
	}
	Opened(const Opened &) = delete;
	Opened &operator=(const Opened &) = delete;
	~Opened()
	{
		peerdma_file_close(file);
		peerdma_close(device);
	}
};

void moves(int fd)
{
	const Opened all(fd);
	struct peerdma_device *const device = all.device;
	constexpr size_t size = 4 * frame;
	char *const first = reinterpret_cast<char *>(stand_base);
	refuse("no library: nobody knows the address", Made(device, first, size), PEERDMA_MEMORY_UNKNOWN,
	       PEERDMA_REASON_IMPORT_UNKNOWN);

	LevelZero ze;
	char *const of_ze = ze.memory(ze.own, size), *const of_made = ze.memory(ze.made, size);
	char *const not_for_export = ze.memory(ze.own, size, false);
	{
		const Made made(device, of_ze, size);
		goes(all.file, fd, "Level Zero", made, PEERDMA_MEMORY_LEVEL_ZERO, in_bar(of_ze), size, 0);
		// GPU memory is not zeroed on allocation.
		paint(in_bar(of_made), 4 * frame, "byte:0");
		const Made part(device, of_made + frame, 2 * frame, ze.made);
		goes(all.file, fd, "Level Zero, a part, of another context", part, PEERDMA_MEMORY_LEVEL_ZERO,
		     in_bar(of_made) + frame, 2 * frame, 4 * frame);
		report(holds(in_bar(of_made), frame, "byte:0") && holds(in_bar(of_made) + 3 * frame, frame, "byte:0"),
		       "what is beside it has what it had");
	}
	refuse("Level Zero, another context, and nobody says which", Made(device, of_made, size),
	       PEERDMA_MEMORY_UNKNOWN, PEERDMA_REASON_IMPORT_UNKNOWN);
	refuse("Level Zero, not allocated for that", Made(device, not_for_export, size), PEERDMA_MEMORY_LEVEL_ZERO,
	       PEERDMA_REASON_IMPORT_HANDLE);

	Hip hip;
	char *const of_hip = hip.memory(2 * size);
	{
		const Made made(device, of_hip + 2 * frame, size);
		report(made.args.out_buf_off == 0, "HIP: from where it is in its allocation");
		goes(all.file, fd, "HIP", made, PEERDMA_MEMORY_HSA, in_bar(of_hip) + 2 * frame, size, 8 * frame);
	}

	CudaDriver cuda;
	char *const of_cuda = cuda.memory(size), *const mapped = cuda.mapped(2);
	CUdeviceptr managed = 0;
	must(!cuda.alloc_managed(&managed, size, 1), "cuMemAllocManaged");
	refuse("CUDA, managed", Made(device, reinterpret_cast<void *>(managed), size), PEERDMA_MEMORY_CUDA,
	       PEERDMA_REASON_IMPORT_HANDLE);

	// All vendors at once.
	const Made a(device, of_ze, size), b(device, of_hip, 2 * size), c(device, of_cuda, size),
		d(device, mapped + CudaDriver::piece - 2 * frame, size);
	goes(all.file, fd, "CUDA, with the others", c, PEERDMA_MEMORY_CUDA, in_bar(of_cuda), size, 12 * frame);
	goes(all.file, fd, "CUDA, across two pieces", d, PEERDMA_MEMORY_CUDA,
	     cuda.place(mapped + CudaDriver::piece - 2 * frame), size, 16 * frame);
	goes(all.file, fd, "HIP, with the others", b, PEERDMA_MEMORY_HSA, in_bar(of_hip), size, 20 * frame);
	goes(all.file, fd, "Level Zero, with the others", a, PEERDMA_MEMORY_LEVEL_ZERO, in_bar(of_ze), size,
	     24 * frame);
	const Made again(device, of_hip + frame, frame);
	report(again.rc == -EBUSY && again.args.out_reason == PEERDMA_REASON_VENDOR_BUSY, "some of it a second time",
	       again.said());
	report(is_attached() == 4, "each is attached", std::to_string(is_attached()));
}

// --- By libcufile

void reads(CUfileHandle_t fh, const std::string &what, char *base, uint64_t place, size_t size, off_t at,
	   int why = PEERDMA_CUFILE_WHY_NONE)
{
	paint(place, size, "byte:170");
	since();
	const ssize_t n = cuFileRead(fh, base, size, at, 0);
	report(n == static_cast<ssize_t>(size) && holds(place, size, "pattern:1", static_cast<uint64_t>(at)),
	       what + ": every byte", std::to_string(n) + " " + std::to_string(errno));
	if (why)
		went_otherwise(what, static_cast<enum peerdma_cufile_why>(why), 1, size);
	else
		went_direct(what, 1, size);
}

std::string why_not(CUfileHandle_t fh, const void *base)
{
	struct peerdma_cufile_route route = {};
	route.size = sizeof(route);
	must(!peerdma_cufile_explain(fh, base, frame, 0, 0, &route), "peerdma_cufile_explain");
	return peerdma_reason_name(route.reason);
}

void by_cufile(int fd)
{
	constexpr size_t size = 4 * frame, piece = CudaDriver::piece;
	const CUfileHandle_t fh = add_file(fd);
	CudaDriver cuda;
	char *const plain = cuda.memory(size), *const mapped = cuda.mapped(2);
	must(!cuFileBufRegister(plain, size, 0).err && !cuFileBufRegister(mapped, 2 * piece, 0).err,
	     "cuFileBufRegister");
	report(is_attached() == 2, "both are dma-bufs", std::to_string(is_attached()) + " " + why_not(fh, mapped));
	reads(fh, "cuMemAlloc", plain, in_bar(plain), size, 4096);
	reads(fh, "cuMemMap", mapped, cuda.place(mapped), MiB, 0);
	reads(fh, "cuMemMap, across its pieces", mapped + piece - frame, cuda.place(mapped + piece - frame), 2 * frame,
	      512);
	paint(cuda.place(mapped), frame, "pattern:3");
	since();
	report(cuFileWrite(fh, mapped, frame, frame, 0) == static_cast<ssize_t>(frame) &&
		       drive_has(fd, frame, frame, "pattern:3") &&
		       drive_has(fd, 2 * frame, frame, "pattern:1", 2 * frame),
	       "cuMemMap: a write");
	went_direct("cuMemMap: a write", 1, frame);

	// Replace one mapped piece by another: the kernel still holds the old one.
	const uint64_t old = cuda.place(mapped + piece);
	paint(old, frame, "byte:7");
	char *const between = cuda.memory(frame);
	must(!cuda.unmap(CudaDriver::number(mapped + piece), piece), "cuMemUnmap");
	char *const taken = cuda.memory(frame); // the first freed frame
	cuda.map_one(CudaDriver::number(mapped + piece));
	paint(old, frame, "byte:7");
	report(cuda.place(mapped + piece) != old, "another one is elsewhere");
	reads(fh, "the new piece", mapped + piece, cuda.place(mapped + piece), frame, MiB,
	      PEERDMA_CUFILE_WHY_NOT_A_BUFFER);
	report(holds(old, frame, "byte:7"), "the old one has what it had");
	reads(fh, "the piece that stayed", mapped, cuda.place(mapped), frame, MiB);
	must(!cuFileBufDeregister(mapped).err && !cuFileBufDeregister(plain).err, "cuFileBufDeregister");
	report(all_given_back(), "all is given back", std::to_string(is_attached()));
	must(!cuda.free(CudaDriver::number(between)) && !cuda.free(CudaDriver::number(taken)), "cuMemFree");

	// Only the first half of a reserved range is mapped at registration; the second half follows.
	CUdeviceptr reserved = 0;
	must(!cuda.unmap(CudaDriver::number(mapped), 2 * piece), "cuMemUnmap");
	must(!cuda.reserve(&reserved, 2 * piece, 0, 0, 0), "cuMemAddressReserve");
	char *const grows = reinterpret_cast<char *>(reserved);
	cuda.map_one(reserved);
	report(!cuFileBufRegister(grows, 2 * piece, 0).err, "what is mapped in part is registered");
	reads(fh, "what was mapped then", grows + piece - MiB, cuda.place(grows + piece - MiB), MiB, 2 * frame);
	cuda.map_one(reserved + piece);
	reads(fh, "what was mapped since", grows + piece, cuda.place(grows + piece), MiB, 4 * frame);
	report(is_attached() == 2, "both are dma-bufs", std::to_string(is_attached()));
	must(!cuFileBufDeregister(grows).err && !cuda.unmap(reserved, 2 * piece), "cuMemUnmap");
	report(all_given_back(), "all is given back", std::to_string(is_attached()));

	// A small allocation that shares its frame with others.
	char *const before = cuda.memory(512), *const small = cuda.memory(40000);
	paint(in_bar(before), 512, "byte:1");
	must(!cuFileBufRegister(small, 40000, 0).err, "cuFileBufRegister");
	reads(fh, "what begins within a frame", small, in_bar(small), 36 * KiB, MiB);
	report(in_bar(small) % frame && holds(in_bar(before), 512, "byte:1"), "its neighbour has what it had");
	must(!cuFileBufDeregister(small).err, "cuFileBufDeregister");

	// Other vendors' memory, by the address of a libpeerdma buffer.
	LevelZero ze;
	Hip hip;
	const Opened all(fd);
	char *const of_ze = ze.memory(ze.own, size), *const of_hip = hip.memory(size);
	const Made a(all.device, of_ze, size), b(all.device, of_hip, size);
	void *by_ze = nullptr, *by_hip = nullptr;
	must(!a.rc && !b.rc && !peerdma_buf_map(a.buffer, &by_ze) && !peerdma_buf_map(b.buffer, &by_hip),
	     "peerdma_buf_map");
	reads(fh, "Level Zero's", static_cast<char *>(by_ze), in_bar(of_ze), size, MiB + 4096);
	reads(fh, "HIP's", static_cast<char *>(by_hip), in_bar(of_hip), size, MiB + 8192);
	must(!cuFileDriverClose_v2().err, "cuFileDriverClose");
}

// --- By libcufile alone

// Reads into a part, writes from another, reads two parts in a batch, and compares what is around them.
void goes_by_cufile(CUfileHandle_t fh, int fd, const std::string &what, char *base, uint64_t place, size_t size,
		    off_t at)
{
	constexpr size_t edge = 4 * KiB;
	const auto from = static_cast<uint64_t>(at);
	paint(place, size, "byte:170");
	since();
	ssize_t n = cuFileRead(fh, base, size - 2 * edge, at, edge);
	report(n == static_cast<ssize_t>(size - 2 * edge) && holds(place + edge, size - 2 * edge, "pattern:1", from) &&
		       holds(place, edge, "byte:170") && holds(place + size - edge, edge, "byte:170"),
	       what + ": a read, every byte, and nothing else changes",
	       std::to_string(n) + " " + std::to_string(errno));
	went_direct(what + ": a read", 1, size - 2 * edge);
	paint(place, size, "byte:170");
	n = cuFileRead(fh, base + 2 * edge, edge, at, 0);
	report(n == static_cast<ssize_t>(edge) && holds(place + 2 * edge, edge, "pattern:1", from) &&
		       holds(place, 2 * edge, "byte:170") && holds(place + 3 * edge, size - 3 * edge, "byte:170"),
	       what + ": a pointer into it", std::to_string(n) + " " + std::to_string(errno));
	went_direct(what + ": a pointer into it", 1, edge);

	CUfileIOParams_t ios[2] = {};
	for (size_t i = 0; i < 2; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].fh = fh;
		ios[i].opcode = CUFILE_READ;
		ios[i].u.batch = {base, at + static_cast<off_t>(i * frame), static_cast<off_t>(i * frame), frame};
	}
	CUfileBatchHandle_t batch = nullptr;
	CUfileIOEvents_t events[2];
	unsigned count = 2;
	must(!cuFileBatchIOSetUp(&batch, 2).err && !cuFileBatchIOSubmit(batch, 2, ios, 0).err &&
		     !cuFileBatchIOGetStatus(batch, 2, &count, events, nullptr).err,
	     "a batch");
	report(count == 2 && holds(place, 2 * frame, "pattern:1", from), what + ": a batch", std::to_string(count));
	went_direct(what + ": a batch", 2, 2 * frame);
	cuFileBatchIODestroy(batch);

	paint(place, size, "pattern:3");
	n = cuFileWrite(fh, base, frame, at, 0);
	report(n == static_cast<ssize_t>(frame) && drive_has(fd, from, frame, "pattern:3") &&
		       drive_has(fd, from + frame, frame, "pattern:1", from + frame),
	       what + ": a write, every byte, and nothing else changes",
	       std::to_string(n) + " " + std::to_string(errno));
	went_direct(what + ": a write", 1, frame);
}

void is_refused(const std::string &what, const void *base, size_t size)
{
	const int before = is_attached();
	const CUfileOpError rc = cuFileBufRegister(base, size, 0).err;
	report(rc == CU_FILE_GPU_MEMORY_PINNING_FAILED && is_attached() == before &&
		       cuFileBufDeregister(base).err == CU_FILE_MEMORY_NOT_REGISTERED,
	       what + ": is not registered", std::to_string(rc));
}

// Tensors in one allocation, each registered by itself.
void side_by_side(CUfileHandle_t fh, char *block)
{
	constexpr size_t tensor = 2 * frame + 512, from = 10 * frame; // nothing has been written there
	const int before = is_attached();
	bool good = true;
	paint(in_bar(block), 16 * frame, "byte:170");
	since();
	for (const size_t i : {0, 1, 4, 3, 2, 5})
		good = good && !cuFileBufRegister(block + 512 + i * tensor, tensor, 0).err;
	for (size_t i = 0; i < 6; i++)
		good = good && cuFileRead(fh, block + 512 + i * tensor, tensor, static_cast<off_t>(from + i * tensor),
					  0) == static_cast<ssize_t>(tensor);
	report(good && holds(in_bar(block) + 512, 6 * tensor, "pattern:1", from) &&
		       holds(in_bar(block), 512, "byte:170") &&
		       holds(in_bar(block) + 512 + 6 * tensor, frame, "byte:170"),
	       "six tensors side by side: every byte");
	went_direct("six tensors side by side", 6, 6 * tensor);
	for (const size_t i : {2, 0, 1, 5, 4, 3})
		good = good && !cuFileBufDeregister(block + 512 + i * tensor).err;
	for (int i = 0; i < 200 && is_attached() > before; i++)
		usleep(10000);
	report(good && is_attached() <= before, "all of them are given back", std::to_string(is_attached()));
}

void others(int fd)
{
	constexpr size_t size = 4 * frame;
	const CUfileHandle_t fh = add_file(fd);
	std::vector<char> host(size);
	const auto is_the_hosts = [&](const std::string &when) {
		must(!cuFileBufRegister(host.data(), size, 0).err, "cuFileBufRegister");
		report(cuFileRead(fh, host.data(), size, MiB, 0) == static_cast<ssize_t>(size) && !is_attached(),
		       "the host's memory is that, " + when, std::to_string(is_attached()));
		must(!cuFileBufDeregister(host.data()).err, "cuFileBufDeregister");
	};
	is_the_hosts("without any vendor's library");
	LevelZero ze;
	Hip hip;
	is_the_hosts("with them");
	char *const of_ze = ze.memory(ze.own, size), *const of_hip = hip.memory(2 * size);
	must(!cuFileBufRegister(of_ze, size, 0).err && !cuFileBufRegister(of_hip + 2 * frame, size, 0).err,
	     "cuFileBufRegister");
	report(is_attached() == 2, "both are dma-bufs", std::to_string(is_attached()));
	goes_by_cufile(fh, fd, "Level Zero", of_ze, in_bar(of_ze), size, 0);
	goes_by_cufile(fh, fd, "HIP", of_hip + 2 * frame, in_bar(of_hip) + 2 * frame, size, 8 * frame);
	paint(in_bar(of_hip) + 6 * frame, frame, "byte:9");
	report(cuFileRead(fh, of_hip + 5 * frame, 2 * frame, 0, 0) == -1 && errno == CU_FILE_INVALID_MAPPING_RANGE &&
		       holds(in_bar(of_hip) + 6 * frame, frame, "byte:9"),
	       "HIP, beyond what is registered", std::to_string(errno));
	must(!cuFileBufRegister(of_hip + 5 * frame + 512, 2 * frame, 0).err, "cuFileBufRegister");
	report(is_attached() == 3, "HIP, in frames of the other's: what is missing", std::to_string(is_attached()));
	paint(in_bar(of_hip) + 5 * frame, 3 * frame, "byte:170");
	since();
	report(cuFileRead(fh, of_hip + 5 * frame + 512, 2 * frame, 10 * frame, 0) == 2 * static_cast<ssize_t>(frame) &&
		       holds(in_bar(of_hip) + 5 * frame + 512, 2 * frame, "pattern:1", 10 * frame) &&
		       holds(in_bar(of_hip) + 5 * frame, 512, "byte:170") &&
		       holds(in_bar(of_hip) + 7 * frame + 512, frame - 512, "byte:170"),
	       "HIP, in frames of the other's");
	went_direct("HIP, in frames of the other's", 1, 2 * frame);
	must(!cuFileBufDeregister(of_hip + 5 * frame + 512).err, "cuFileBufDeregister");
	for (char *const block : {hip.memory(16 * frame), ze.memory(ze.own, 16 * frame)})
		side_by_side(fh, block);
	is_refused("Level Zero, not allocated for that", ze.memory(ze.own, size, false), size);
	is_refused("HIP, less than a frame", hip.memory(4 * KiB), 4 * KiB);

	// Beside memory of CUDA's, and in stream order.
	CudaDriver cuda;
	char *const plain = cuda.memory(size);
	must(!cuFileBufRegister(plain, size, 0).err, "cuFileBufRegister");
	report(is_attached() == 3, "CUDA's is one, too", std::to_string(is_attached()));
	goes_by_cufile(fh, fd, "CUDA, with the others", plain, in_bar(plain), size, 16 * frame);
	goes_by_cufile(fh, fd, "HIP, with CUDA", of_hip + 2 * frame, in_bar(of_hip) + 2 * frame, size, 20 * frame);
	size_t bytes = frame;
	off_t from = 24 * frame, to = frame;
	ssize_t done = 0;
	paint(in_bar(of_ze), size, "byte:170");
	since();
	must(!cuFileReadAsync(fh, of_ze, &bytes, &from, &to, &done, nullptr).err && !cuda.synchronize(nullptr),
	     "cuFileReadAsync");
	report(done == static_cast<ssize_t>(frame) && holds(in_bar(of_ze) + frame, frame, "pattern:1", 24 * frame) &&
		       holds(in_bar(of_ze), frame, "byte:170") && holds(in_bar(of_ze) + 2 * frame, frame, "byte:170"),
	       "Level Zero, in a stream of CUDA's", std::to_string(done));
	went_direct("Level Zero, in a stream of CUDA's", 1, frame);
	must(!cuFileBufDeregister(of_ze).err && !cuFileBufDeregister(plain).err &&
		     !cuFileBufDeregister(of_hip + 2 * frame).err,
	     "cuFileBufDeregister");
	report(all_given_back(), "all is given back", std::to_string(is_attached()));
	must(!cuFileBufRegister(of_hip, 2 * size, 0).err, "cuFileBufRegister");
	must(!cuFileDriverClose_v2().err, "cuFileDriverClose");
}

// --- Memory that cannot become a buffer

void unpublished(int fd)
{
	constexpr size_t size = 4 * frame;
	const CUfileHandle_t fh = add_file(fd);
	CudaDriver cuda;
	LevelZero ze;
	Hip hip;
	const Opened all(fd);
	char *const plain = cuda.memory(size);
	refuse("CUDA", Made(all.device, plain, size), PEERDMA_MEMORY_CUDA, PEERDMA_REASON_VENDOR_UNPUBLISHED);
	refuse("HIP", Made(all.device, hip.memory(size), size), PEERDMA_MEMORY_HSA, PEERDMA_REASON_VENDOR_UNPUBLISHED);
	refuse("Level Zero", Made(all.device, ze.memory(ze.own, size), size), PEERDMA_MEMORY_LEVEL_ZERO,
	       PEERDMA_REASON_VENDOR_UNPUBLISHED);
	is_refused("HIP", hip.memory(size), size);
	is_refused("Level Zero", ze.memory(ze.own, size), size);
	must(!cuFileBufRegister(plain, size, 0).err, "cuFileBufRegister");
	report(why_not(fh, plain) == "VENDOR_UNPUBLISHED", "libcufile says so as well", why_not(fh, plain));
	reads(fh, "it bounces", plain, in_bar(plain), size, MiB, PEERDMA_CUFILE_WHY_NOT_A_BUFFER);
	must(!cuFileDriverClose_v2().err, "cuFileDriverClose");
}

} // namespace

int main(int argc, char **argv)
{
	unsigned bus, slot, function;
	must(argc == 4 && std::sscanf(argv[1], "%x:%x:%x.%x", &drive_domain, &bus, &slot, &function) == 4,
	     "usage: vendors DRIVE moves|cufile|others|unpublished FILE");
	drive_bdf = bus << 8 | slot << 3 | function;
	const std::string what = argv[2];
	const int fd = open_file(argv[3], O_RDWR | O_DIRECT);
	if (what == "moves")
		moves(fd);
	else if (what == "cufile")
		by_cufile(fd);
	else if (what == "others")
		others(fd);
	else
		unpublished(fd);
	report(all_given_back(), "nothing is attached any more", std::to_string(is_attached()));
	return tap::end();
}
