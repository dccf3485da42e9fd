// SPDX-License-Identifier: MIT
//
// The CUDA driver's queries about memory on which libcufile and the import of dma-bufs rely, on a real GPU: do they
// succeed, and do the results mean what we assume?
//   queries
// The conversion of an address to a dma-buf is libpeerdma's own code: user/lib/pointer.cpp.
// With the stand-in driver, dma-bufs are refused unless its memory belongs to a module.
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "gpu.hpp"
#include "lib/pointer.hpp"

namespace
{

using Address = unsigned long long;

// Values of CUpointer_attribute, CUdevice_attribute and CUmemRangeHandleType.
enum {
	context_of = 1,
	type_of = 2,
	sync_memops = 6,
	buffer_id = 7,
	is_managed = 8,
	ordinal = 9,
	range_start = 11,
	range_size = 12
};
enum { with_vmm = 102, vmm_direct_rdma = 110, direct_rdma = 116, dma_buf_supported = 124 };
constexpr int device_memory = 2, dma_buf_handle = 1;
constexpr unsigned long long pcie_mapping = 1;
constexpr size_t frame = 65536, MiB = 1 << 20;

unsigned number, failures;

void check(const std::string &what, bool good)
{
	std::printf("%sok %u - %s\n", good ? "" : "not ", ++number, what.c_str());
	failures += !good;
}

struct Driver : Cuda {
	int (*ask)(void *, int, Address) = find("cuPointerGetAttribute");
	int (*tell)(const void *, int, Address) = find("cuPointerSetAttribute");
	int (*release)(Address) = find("cuMemFree_v2");
	int (*handle)(void *, Address, size_t, int, unsigned long long) = find("cuMemGetHandleForAddressRange");
	int (*attribute)(int *, int, int) = find("cuDeviceGetAttribute");
	int (*name)(char *, int, int) = find("cuDeviceGetName");
	int (*managed)(Address *, size_t, unsigned) = find("cuMemAllocManaged");
	int (*granularity)(size_t *, const void *, int) = find("cuMemGetAllocationGranularity");
	int (*create)(unsigned long long *, size_t, const void *, unsigned long long) = find("cuMemCreate");
	int (*reserve)(Address *, size_t, size_t, Address, unsigned long long) = find("cuMemAddressReserve");
	int (*map)(Address, size_t, size_t, unsigned long long, unsigned long long) = find("cuMemMap");
	int (*access)(Address, size_t, const void *, size_t) = find("cuMemSetAccess");

	uint64_t value(int what, Address at)
	{
		uint64_t answer = 0;
		return ask(&answer, what, at) ? ~uint64_t{0} : answer;
	}

	// This many pieces of physical memory, mapped next to each other and accessible to GPUDirect RDMA.
	Address mapped(size_t pieces, size_t &size)
	{
		struct {
			int type, handles, location, id;
			void *other;
			unsigned char compression, direct_rdma;
			unsigned short usage;
			unsigned char rest[4];
		} prop = {1, 0, 1, 0, nullptr, 0, 1, 0, {}};
		struct {
			int type, id, flags;
		} open_to = {1, 0, 3};
		size_t unit = 0;
		Address at = 0;
		must(!granularity(&unit, &prop, 0), "cuMemGetAllocationGranularity");
		size = pieces * unit;
		must(!reserve(&at, size, 0, 0, 0), "cuMemAddressReserve");
		for (size_t i = 0; i < pieces; i++) {
			unsigned long long physical = 0;
			must(!create(&physical, unit, &prop, 0) && !map(at + i * unit, unit, 0, physical, 0),
			     "cuMemMap");
		}
		must(!access(at, size, &open_to, 1), "cuMemSetAccess");
		return at;
	}
};

// Attributes of any device memory, however allocated.
void queries(Driver &cuda, const std::string &kind, Address base, size_t size, bool synchronous)
{
	bool inside = true;
	for (const size_t at : {size_t{0}, frame, size / 2 + 12345, size - 1})
		inside = inside && static_cast<int>(cuda.value(type_of, base + at)) == device_memory &&
			 static_cast<int>(cuda.value(ordinal, base + at)) == 0 &&
			 cuda.value(buffer_id, base + at) == cuda.value(buffer_id, base);
	check(kind + ": any byte of it is device memory of GPU 0, with one id", inside);
	const uint64_t start = cuda.value(range_start, base + size / 2),
		       bytes = cuda.value(range_size, base + size / 2);
	std::printf("# asked 0x%llx and %zu; range 0x%llx and %llu, id %llu\n", base, size,
		    static_cast<unsigned long long>(start), static_cast<unsigned long long>(bytes),
		    static_cast<unsigned long long>(cuda.value(buffer_id, base)));
	check(kind + ": the range holds the place that was asked for",
	      start <= base + size / 2 && bytes > base + size / 2 - start);
	const unsigned on = 1;
	const int rc = cuda.tell(&on, sync_memops, base);
	std::printf("# %s: SYNC_MEMOPS: CUresult %d\n", kind.c_str(), rc);
	if (synchronous)
		check(kind + ": its copies can be made synchronous", !rc);
}

std::string exporter(int fd)
{
	std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
	std::string line, all;
	while (std::getline(info, line))
		if (line.starts_with("exp_name") || line.starts_with("size"))
			all += " " + line;
	return all;
}

// A range of memory as a dma-buf. Returns the driver's result.
int as_dma_buf(Driver &cuda, const std::string &kind, Address at, size_t size, unsigned long long flags, bool expected)
{
	int fd = -1;
	const int rc = cuda.handle(&fd, at, size, dma_buf_handle, flags);
	const off_t bytes = rc ? 0 : lseek(fd, 0, SEEK_END);
	std::printf("# %s, %zu bytes, flags %llu: CUresult %d, size %lld%s\n", kind.c_str(), size, flags, rc,
		    static_cast<long long>(bytes), rc ? "" : exporter(fd).c_str());
	if (expected)
		check(kind + ": " + std::to_string(size) + " bytes of it are a dma-buf of that size",
		      !rc && bytes == static_cast<off_t>(size));
	else
		check(kind + ": no dma-buf", rc);
	if (!rc)
		close(fd);
	return rc;
}

void *loaded(const char *library, const char *function)
{
	void *const there = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
	return there ? dlsym(there, function) : nullptr;
}

// The same through libpeerdma: the dma-buf covers whole frames around the range.
void as_pointer(const std::string &kind, Address at, size_t size, uint32_t reason)
{
	peerdma_impl::Handle handle;
	const peerdma_impl::Pointer pointer = {{at, size}, nullptr, 4096};
	const uint32_t why = dmabuf_of(loaded, pointer, handle);
	const off_t bytes = why ? 0 : lseek(handle.fd, 0, SEEK_END);
	std::printf("# %s, %zu bytes: reason %u, result %d, from 0x%llx on %llu, size %lld\n", kind.c_str(), size, why,
		    handle.result, static_cast<unsigned long long>(handle.range.start),
		    static_cast<unsigned long long>(handle.range.len), static_cast<long long>(bytes));
	if (reason) {
		check(kind + ": libpeerdma says why there is no dma-buf", why == reason);
		return;
	}
	check(kind + ": libpeerdma has a dma-buf of the frames around it",
	      !why && handle.memory == PEERDMA_MEMORY_CUDA && handle.range.start <= at &&
		      handle.range.end() >= at + size && handle.range.len % frame == 0 && handle.ours &&
		      static_cast<uint64_t>(bytes) == handle.off + handle.range.len);
	if (!why)
		close(handle.fd);
}

void pointers(Driver &cuda, Address plain, Address mapped, size_t mapped_size, Address managed, bool able)
{
	const uint32_t good = able ? PEERDMA_REASON_NONE : PEERDMA_REASON_IMPORT_HANDLE;
	as_pointer("cuMemAlloc, all of it", plain, 8 * MiB, good);
	as_pointer("cuMemAlloc, 1000 bytes within", plain + 3 * frame + 70, 1000, good);
	as_pointer("cuMemMap, two pieces", mapped, mapped_size, good);
	as_pointer("cuMemMap, across both pieces", mapped + mapped_size / 2 - 5, 10, good);
	as_pointer("managed memory", managed, 2 * MiB, PEERDMA_REASON_IMPORT_HANDLE);
	as_pointer("beyond its end", plain + 8 * MiB - frame, 2 * frame, PEERDMA_REASON_VENDOR_ALIGN);
	std::string host(2 * frame, 'h');
	as_pointer("memory of the host's", reinterpret_cast<Address>(host.data()), 100, PEERDMA_REASON_IMPORT_UNKNOWN);
	const auto odd = reinterpret_cast<Address>(cuda.memory(100000));
	as_pointer("cuMemAlloc of 100000, its first frame", odd, 65000, good);
	as_pointer("cuMemAlloc of 100000, its end", odd + 99000, 1000, good);
	const auto little = reinterpret_cast<Address>(cuda.memory(512)),
		   next = reinterpret_cast<Address>(cuda.memory(512));
	as_pointer("cuMemAlloc of 512", little, 512, good);
	as_pointer("cuMemAlloc of 512, behind it", next, 512, good);
	// A thread without a context, as a library's thread may be.
	std::thread([&] {
		as_pointer("cuMemAlloc, without a context", plain, 8 * MiB, good);
		as_pointer("cuMemMap, without a context", mapped, mapped_size, good);
	}).join();
}

} // namespace

int main()
{
	Driver cuda;
	char name[128] = {};
	cuda.name(name, sizeof(name), 0);
	int has[4] = {};
	const int asked[4] = {with_vmm, vmm_direct_rdma, direct_rdma, dma_buf_supported};
	for (int i = 0; i < 4; i++)
		cuda.attribute(&has[i], asked[i], 0);
	std::printf("# %s: VMM %d, VMM with GPUDirect RDMA %d, GPUDirect RDMA %d, dma-buf %d\n", name, has[0], has[1],
		    has[2], has[3]);

	const Address plain = reinterpret_cast<Address>(cuda.memory(8 * MiB));
	queries(cuda, "cuMemAlloc", plain, 8 * MiB, true);
	check("cuMemAlloc: at a multiple of 64 KiB", plain % frame == 0);
	const uint64_t id = cuda.value(buffer_id, plain);
	must(!cuda.release(plain), "cuMemFree");
	const Address again = reinterpret_cast<Address>(cuda.memory(8 * MiB));
	std::printf("# freed and allocated again: %s place\n", plain == again ? "the same" : "another");
	check("memory at the place of what was freed has another id", cuda.value(buffer_id, again) != id);

	size_t size = 0;
	const Address one = cuda.mapped(1, size);
	queries(cuda, "cuMemMap, one piece", one, size, false);
	size_t both = 0;
	const Address two = cuda.mapped(2, both);
	std::printf("# two pieces: ids %llu and %llu, ranges %llu and %llu\n",
		    static_cast<unsigned long long>(cuda.value(buffer_id, two)),
		    static_cast<unsigned long long>(cuda.value(buffer_id, two + both / 2)),
		    static_cast<unsigned long long>(cuda.value(range_size, two)),
		    static_cast<unsigned long long>(cuda.value(range_size, two + both / 2)));

	Address managed = 0;
	must(!cuda.managed(&managed, 2 * MiB, 1), "cuMemAllocManaged");
	check("managed memory says that it is", static_cast<unsigned char>(cuda.value(is_managed, managed)) == 1);

	const bool able = has[3];
	as_dma_buf(cuda, "cuMemAlloc", again, 8 * MiB, 0, able);
	as_dma_buf(cuda, "cuMemAlloc, 64 KiB in its middle", again + 17 * frame, frame, 0, able);
	as_dma_buf(cuda, "cuMemMap, one piece", one, size, 0, able);
	as_dma_buf(cuda, "cuMemMap, two pieces", two, both, 0, able);
	as_dma_buf(cuda, "managed memory", managed, 2 * MiB, 0, false);
	as_dma_buf(cuda, "half a page", again, 2048, 0, false);
	int fd = -1;
	std::printf("# with the flag of a mapping over PCIe: CUresult %d\n",
		    cuda.handle(&fd, again, 8 * MiB, dma_buf_handle, pcie_mapping));
	pointers(cuda, again, two, both, managed, able);
	std::printf("1..%u\n", number);
	return failures != 0;
}
