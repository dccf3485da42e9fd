// SPDX-License-Identifier: MIT
#include "lib/pointer.hpp"

#include <algorithm>
#include <cstddef>

namespace peerdma_impl
{
namespace
{

constexpr uint64_t frame = 65536;

uint64_t down(uint64_t value, uint64_t unit) { return value / unit * unit; }
uint64_t up(uint64_t value, uint64_t unit) { return down(value + unit - 1, unit); }

void *address(uint64_t number) { return reinterpret_cast<void *>(static_cast<uintptr_t>(number)); }
uint64_t number(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

template <typename Function> bool get(const Find &find, const char *library, const char *name, Function &function)
{
	function = reinterpret_cast<Function>(find(library, name));
	return function;
}

// --- CUDA: the driver API. All kinds of its memory have one address space.

constexpr const char *cuda = "libcuda.so.1";
constexpr int cu_context = 1, cu_memory_type = 2, cu_ordinal = 9, cu_range_start = 11,
	      cu_range_size = 12;                 // CUpointer_attribute
constexpr unsigned cu_device_memory = 2;          // CUmemorytype
constexpr int cu_dma_buf_fd = 1;                  // CUmemRangeHandleType
constexpr unsigned long long cu_mapping_pcie = 1; // CUmemRangeFlags
constexpr int cu_not_supported = 801;

using CuAddress = unsigned long long;
using CuAttributes = int (*)(unsigned, int *, void **, CuAddress);

bool find_cuda(const Find &find, const Pointer &pointer, Range &allocation, void *&)
{
	CuAttributes attributes;
	unsigned type = 0;
	CuAddress start = 0;
	size_t size = 0;
	int which[] = {cu_memory_type, cu_range_start, cu_range_size};
	void *answers[] = {&type, &start, &size};
	if (!get(find, cuda, "cuPointerGetAttributes", attributes) ||
	    attributes(3, which, answers, pointer.asked.start) || type != cu_device_memory)
		return false;
	allocation = {start, size};
	return true;
}

// The driver exports nothing to a thread without a current context. While this object lives, the thread has the context
// of the memory, or the primary context of its device if the memory was mapped in pieces and has no context. If pushing
// it fails, the thread's own context is used.
class ScopedCudaContext
{
public:
	ScopedCudaContext(const Find &find, CuAddress at)
	{
		CuAttributes attributes;
		int (*push)(void *);
		void *context = nullptr;
		int ordinal = -1;
		int which[] = {cu_context, cu_ordinal};
		void *answers[] = {&context, &ordinal};
		if (!get(find, cuda, "cuPointerGetAttributes", attributes) ||
		    !get(find, cuda, "cuCtxPushCurrent_v2", push) || !get(find, cuda, "cuCtxPopCurrent_v2", pop_) ||
		    attributes(2, which, answers, at))
			return;
		if (!context)
			context = primary(find, ordinal);
		inside_ = context && !push(context);
	}
	ScopedCudaContext(const ScopedCudaContext &) = delete;
	ScopedCudaContext &operator=(const ScopedCudaContext &) = delete;
	~ScopedCudaContext()
	{
		void *old;
		if (inside_)
			pop_(&old);
		if (release_)
			release_(device_);
	}

private:
	void *primary(const Find &find, int ordinal)
	{
		int (*device)(int *, int);
		int (*retain)(void **, int);
		int (*release)(int);
		void *context = nullptr;
		if (!get(find, cuda, "cuDeviceGet", device) || !get(find, cuda, "cuDevicePrimaryCtxRetain", retain) ||
		    !get(find, cuda, "cuDevicePrimaryCtxRelease_v2", release) || device(&device_, ordinal) ||
		    retain(&context, device_))
			return nullptr;
		release_ = release;
		return context;
	}

	int (*pop_)(void **) = nullptr;
	int (*release_)(int) = nullptr;
	int device_ = 0;
	bool inside_ = false;
};

// Newer drivers can map over several paths, and the flag selects PCIe. Older drivers reject the flag, so it is tried
// first.
int export_cuda(const Find &find, const Pointer &pointer, void *, Handle &out)
{
	int (*handle)(void *, CuAddress, size_t, int, unsigned long long);
	if (!get(find, cuda, "cuMemGetHandleForAddressRange", handle))
		return cu_not_supported;
	const ScopedCudaContext inside(find, pointer.asked.start);
	int rc = handle(&out.fd, out.range.start, out.range.len, cu_dma_buf_fd, cu_mapping_pcie);
	if (rc)
		rc = handle(&out.fd, out.range.start, out.range.len, cu_dma_buf_fd, 0);
	out.ours = true;
	return rc;
}

// --- HSA: the runtime that HIP and the rest of ROCm allocate from.

constexpr const char *hsa = "libhsa-runtime64.so.1";
constexpr int hsa_unknown = 0, hsa_locked = 2; // hsa_amd_pointer_type_t: unknown; pinned host memory
constexpr int hsa_error = 0x1000;              // hsa_status_t
constexpr int hsa_agent_device = 17;           // hsa_agent_info_t
constexpr uint32_t hsa_cpu = 0;                // hsa_device_type_t

// The first members of hsa_amd_pointer_info_t. Its size member says how many there are.
struct HsaInfo {
	uint32_t size;
	int type;
	void *at_device, *at_host;
	size_t bytes;
	void *user;
	uint64_t owner; // hsa_agent_t
};

// Host memory that the runtime has allocated in the same way as GPU memory.
bool is_the_hosts(const Find &find, const HsaInfo &info)
{
	int (*ask)(uint64_t, int, void *);
	uint32_t kind = ~hsa_cpu;
	return info.size >= sizeof(info) && info.owner && get(find, hsa, "hsa_agent_get_info", ask) &&
	       !ask(info.owner, hsa_agent_device, &kind) && kind == hsa_cpu;
}

bool find_hsa(const Find &find, const Pointer &pointer, Range &allocation, void *&)
{
	int (*look)(const void *, HsaInfo *, void *(*)(size_t), uint32_t *, void **);
	HsaInfo info = {sizeof(info), hsa_unknown, nullptr, nullptr, 0, nullptr, 0};
	if (!get(find, hsa, "hsa_amd_pointer_info", look) ||
	    look(address(pointer.asked.start), &info, nullptr, nullptr, nullptr) || info.type == hsa_unknown ||
	    info.type == hsa_locked || is_the_hosts(find, info))
		return false;
	allocation = {number(info.at_device), info.bytes};
	return true;
}

// The dma-buf covers the whole allocation.
int export_hsa(const Find &find, const Pointer &, void *, Handle &out)
{
	int (*handle)(const void *, size_t, int *, uint64_t *);
	if (!get(find, hsa, "hsa_amd_portable_export_dmabuf", handle))
		return hsa_error;
	out.ours = true;
	return handle(address(out.range.start), out.range.len, &out.fd, &out.off);
}

// --- Level Zero. Memory belongs to a context, and contexts cannot be enumerated. The caller names one, or the driver's
// default context is used.

constexpr const char *ze = "libze_loader.so.1";
constexpr int ze_unsupported = 0x78000003;                    // ze_result_t
constexpr uint32_t ze_properties = 0x17, ze_export_fd = 0x1a; // ze_structure_type_t
constexpr uint32_t ze_dma_buf = 2;                            // ze_external_memory_type_flags_t
constexpr uint32_t ze_device_memory = 2;                      // ze_memory_type_t; shared memory is host memory to us
constexpr uint32_t most_drivers = 8;

struct ZeExportFd {
	uint32_t kind;
	const void *next;
	uint32_t flags;
	int fd;
};

struct ZeProperties {
	uint32_t kind;
	void *next;
	uint32_t type;
	uint64_t id, page_size;
};

using ZeLook = int (*)(void *context, const void *, ZeProperties *, void **device);

bool is_in(ZeLook look, void *context, const void *at)
{
	ZeProperties properties = {ze_properties, nullptr, 0, 0, 0};
	return context && !look(context, at, &properties, nullptr) && properties.type == ze_device_memory;
}

// The default context of a driver that knows the address.
void *default_context(const Find &find, ZeLook look, const void *at)
{
	int (*drivers)(uint32_t *, void **);
	void *(*context_of)(void *);
	void *all[most_drivers] = {};
	uint32_t count = most_drivers;
	if (!get(find, ze, "zeDriverGet", drivers) || !get(find, ze, "zeDriverGetDefaultContext", context_of) ||
	    drivers(&count, all))
		return nullptr;
	for (uint32_t i = 0; i < count && i < most_drivers; i++)
		if (void *context = context_of(all[i]); is_in(look, context, at))
			return context;
	return nullptr;
}

bool find_ze(const Find &find, const Pointer &pointer, Range &allocation, void *&context)
{
	ZeLook look;
	int (*range)(void *, const void *, void **, size_t *);
	const void *const at = address(pointer.asked.start);
	if (!get(find, ze, "zeMemGetAllocProperties", look) || !get(find, ze, "zeMemGetAddressRange", range))
		return false;
	context = pointer.ze_context ? pointer.ze_context : default_context(find, look, at);
	void *start = nullptr;
	size_t size = 0;
	if (!is_in(look, context, at) || range(context, at, &start, &size))
		return false;
	allocation = {number(start), size};
	return true;
}

// The descriptor belongs to the driver, which returns the same one to every caller and closes it with the memory.
int export_ze(const Find &find, const Pointer &, void *context, Handle &out)
{
	ZeLook look;
	int (*range)(void *, const void *, void **, size_t *);
	ZeExportFd fd = {ze_export_fd, nullptr, ze_dma_buf, -1};
	ZeProperties properties = {ze_properties, &fd, 0, 0, 0};
	void *start = nullptr;
	const void *const at = address(out.range.start);
	if (!get(find, ze, "zeMemGetAllocProperties", look) || !get(find, ze, "zeMemGetAddressRange", range))
		return ze_unsupported;
	size_t size = 0;
	int rc = range(context, at, &start, &size);
	if (!rc)
		rc = look(context, at, &properties, nullptr);
	out.fd = fd.fd;
	// A small allocation may be part of a larger one, at an offset that the driver does not tell.
	out.at_most = up(size, frame);
	out.off = out.range.start - number(start);
	return rc;
}

// found: passes a vendor's data from find to its export. shared: several buffers may cover the same 64 KiB frame,
// because the frames at the edges of an allocation may hold parts of other allocations.
constexpr struct {
	enum peerdma_memory memory;
	bool shared;
	bool (*find)(const Find &, const Pointer &, Range &allocation, void *&found);
	int (*hand_out)(const Find &, const Pointer &, void *found, Handle &);
} vendors[] = {{PEERDMA_MEMORY_CUDA, true, find_cuda, export_cuda},
	       {PEERDMA_MEMORY_HSA, false, find_hsa, export_hsa},
	       {PEERDMA_MEMORY_LEVEL_ZERO, false, find_ze, export_ze}};

bool holds(const Range &all, const Range &part)
{
	return part.start >= all.start && part.start - all.start <= all.len && part.len <= all.end() - part.start;
}

Range whole_frames(const Range &range)
{
	const uint64_t start = down(range.start, frame);
	return {start, up(range.end(), frame) - start};
}

} // namespace

bool frames_around(const Range &asked, const Range &allocation, uint64_t page, Range &out)
{
	const uint64_t first = up(allocation.start, page), end = down(allocation.end(), page);
	if (first > asked.start || asked.end() < asked.start || asked.end() > end)
		return false;
	// Frames are counted from the allocation's first page, so that buffers of adjacent ranges in it do not overlap.
	const uint64_t start = first + down(asked.start - first, frame);
	const uint64_t len = up(asked.end() - start, frame);
	if (len > end - first)
		return false;
	// The last frame may not extend beyond the allocation: then the whole range starts earlier.
	out = {std::min(start, end - len), len};
	return true;
}

uint32_t dmabuf_of(const Find &find, const Pointer &pointer, Handle &out)
{
	out = {};
	for (const auto &vendor : vendors) {
		Range allocation;
		void *found = nullptr;
		if (!vendor.find(find, pointer, allocation, found))
			continue;
		out.memory = vendor.memory;
		const Range room = vendor.shared ? whole_frames(allocation) : allocation;
		if (!holds(allocation, pointer.asked) || !frames_around(pointer.asked, room, pointer.page, out.range))
			return PEERDMA_REASON_VENDOR_ALIGN;
		out.result = vendor.hand_out(find, pointer, found, out);
		if (!out.result && out.fd >= 0)
			return PEERDMA_REASON_NONE;
		out.fd = -1;
		return PEERDMA_REASON_IMPORT_HANDLE;
	}
	return PEERDMA_REASON_IMPORT_UNKNOWN;
}

} // namespace peerdma_impl
