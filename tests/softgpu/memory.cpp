// SPDX-License-Identifier: MIT
//
// Device and host memory, and the attributes of addresses.
#include "world.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

using namespace softgpu;

namespace softgpu
{
namespace
{

constexpr size_t page = 4096, granularity = size_t{2} << 20;

char *pointer(CUdeviceptr address) { return reinterpret_cast<char *>(address); }
CUdeviceptr number(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }
size_t pages(size_t size) { return (size + page - 1) / page * page; }

// Host memory mapped at two addresses. Programs cannot access theirs unless it is managed memory.
CUresult make_of_host(Piece &piece, char *&seen)
{
	const size_t size = pages(piece.size);
	const int fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
	const bool there = fd >= 0 && !ftruncate(fd, static_cast<off_t>(size));
	const int rights = piece.kind == Kind::managed ? PROT_READ | PROT_WRITE : PROT_NONE;
	void *const program = there ? mmap(nullptr, size, rights, MAP_SHARED, fd, 0) : MAP_FAILED;
	void *const driver = there ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (program != MAP_FAILED && driver != MAP_FAILED) {
		seen = static_cast<char *>(program);
		piece.bytes = static_cast<char *>(driver);
		return CUDA_SUCCESS;
	}
	for (void *const one : {program, driver})
		if (one != MAP_FAILED)
			munmap(one, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

// A buffer of libpeerdma instead of the device driver's own memory.
CUresult make_of_device(Piece &piece, char *&seen)
{
	World &w = world();
	const uint32_t provider = w.devices[static_cast<size_t>(piece.device)]->provider;
	int rc = peerdma_buf_create(w.peer, provider, pages(piece.size), 0, &piece.buffer, nullptr);
	if (rc)
		return rc == -ENOMEM || rc == -EDQUOT ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
	void *address = nullptr;
	if (peerdma_buf_map(piece.buffer, &address)) {
		peerdma_buf_destroy(piece.buffer);
		return CUDA_ERROR_UNKNOWN;
	}
	seen = piece.bytes = static_cast<char *>(address);
	return CUDA_SUCCESS;
}

Stand *stand_of(const Piece &piece) { return world().devices[static_cast<size_t>(piece.device)]->stand.get(); }

CUresult make_of_stand(Piece &piece, char *&seen)
{
	seen = stand_of(piece)->take(piece.size);
	if (!seen)
		return CUDA_ERROR_OUT_OF_MEMORY;
	piece.bytes = stand_of(piece)->bytes(seen);
	piece.stands = seen;
	return CUDA_SUCCESS;
}

// Managed memory may be anywhere; here it is host memory, which the CPU may access at any time.
CUresult make(Piece &piece, char *&seen)
{
	World &w = world();
	if (piece.kind != Kind::managed && stand_of(piece))
		return make_of_stand(piece, seen);
	if (piece.kind == Kind::managed || !w.devices[static_cast<size_t>(piece.device)]->provider)
		return make_of_host(piece, seen);
	return make_of_device(piece, seen);
}

void unmake(const Piece &piece, char *seen)
{
	if (piece.buffer) {
		peerdma_buf_destroy(piece.buffer);
		return;
	}
	if (piece.stands) {
		stand_of(piece)->give(piece.stands);
		return;
	}
	if (piece.kind == Kind::host && !piece.own)
		return;
	munmap(seen, pages(piece.size));
	if (piece.bytes != seen)
		munmap(piece.bytes, pages(piece.size));
}

// Called with the world's lock held.
const Piece *find(CUdeviceptr address, size_t size = 0, char **base = nullptr)
{
	World &w = world();
	auto next = w.memory.upper_bound(pointer(address));
	if (next == w.memory.begin())
		return nullptr;
	const auto &[start, piece] = *std::prev(next);
	const auto offset = static_cast<size_t>(pointer(address) - start);
	if (offset >= piece.size || size > piece.size - offset)
		return nullptr;
	if (base)
		*base = start;
	return &piece;
}

// Also finds a piece that begins in the 64 KiB frame of the address. Called with the world's lock held.
const Piece *find_near(CUdeviceptr address, char *&start)
{
	constexpr CUdeviceptr frame = 65536;
	if (const Piece *const piece = find(address, 0, &start))
		return piece;
	const auto next = world().memory.lower_bound(pointer(address));
	if (next == world().memory.end() || number(next->first) / frame != address / frame)
		return nullptr;
	start = next->first;
	return &next->second;
}

bool is_sync(const Piece &piece) { return std::atomic_ref(const_cast<bool &>(piece.sync)); }

// The range that the driver reports as one: adjacent mapped pieces (580, on an H200). Called with the world's lock
// held.
std::pair<char *, size_t> range_of(char *start)
{
	const auto &memory = world().memory;
	auto first = memory.find(start), last = std::next(first);
	const auto follows = [&](auto one, auto next) {
		return one->second.mapped && next->second.mapped && one->first + one->second.size == next->first;
	};
	while (first != memory.begin() && follows(std::prev(first), first))
		--first;
	while (last != memory.end() && follows(std::prev(last), last))
		++last;
	return {first->first,
		static_cast<size_t>(std::prev(last)->first + std::prev(last)->second.size - first->first)};
}

void keep(char *seen, Piece piece)
{
	World &w = world();
	const std::lock_guard guard(w.lock);
	piece.id = ++w.next_id;
	w.memory[seen] = piece;
}

// Removes the piece that begins at this address and passes it to the caller.
template <class Which> bool take(const void *seen, Piece &piece, Which &&is_one)
{
	World &w = world();
	const std::lock_guard guard(w.lock);
	const auto found = w.memory.find(static_cast<char *>(const_cast<void *>(seen)));
	if (found == w.memory.end() || !is_one(found->second))
		return false;
	piece = found->second;
	w.memory.erase(found);
	return true;
}

CUresult alloc(CUdeviceptr *out, size_t size, Kind kind)
{
	CUcontext context = nullptr;
	if (const CUresult rc = need_context(context))
		return rc;
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	Piece piece = {size, nullptr, context->device, kind, context};
	char *seen = nullptr;
	if (const CUresult rc = make(piece, seen))
		return rc;
	keep(seen, piece);
	*out = number(seen);
	return CUDA_SUCCESS;
}

CUresult free_memory(CUdeviceptr address)
{
	Piece piece;
	if (!address)
		return CUDA_SUCCESS;
	if (!take(pointer(address), piece, [](const Piece &one) { return one.kind != Kind::host && !one.mapped; }))
		return CUDA_ERROR_INVALID_VALUE;
	unmake(piece, pointer(address));
	return CUDA_SUCCESS;
}

} // namespace

bool is_left_behind(CUdeviceptr address)
{
	const std::shared_lock guard(world().lock);
	const Piece *const piece = find(address);
	return piece && piece->kind != Kind::managed && piece->kind != Kind::host && !is_sync(*piece);
}

CUcontext owner_of(CUdeviceptr address)
{
	const std::shared_lock guard(world().lock);
	const Piece *const piece = find(address);
	if (!piece || piece->kind != Kind::device)
		return nullptr;
	return piece->context ? piece->context : primary_of(piece->device);
}

void free_memory_of(CUcontext context)
{
	std::vector<std::pair<char *, Piece>> gone;
	{
		const std::lock_guard guard(world().lock);
		for (const auto &[seen, piece] : world().memory)
			if (piece.context == context && piece.kind != Kind::unowned)
				gone.emplace_back(seen, piece);
		for (const auto &[seen, piece] : gone)
			world().memory.erase(seen);
	}
	for (const auto &[seen, piece] : gone)
		unmake(piece, seen);
}

Spans spans_at(CUdeviceptr address, size_t size, bool host_too)
{
	Spans spans;
	const std::shared_lock guard(world().lock);
	do {
		char *base = nullptr;
		const Piece *const piece = find(address, 0, &base);
		if (!piece && spans.empty() && host_too)
			return {{pointer(address), size}};
		const size_t offset = static_cast<size_t>(pointer(address) - base);
		const size_t room = piece ? piece->size - offset : 0, part = std::min(size, room);
		if (!piece || (part < size && !piece->mapped))
			return {};
		spans.push_back({piece->bytes + offset, part});
		address += part;
		size -= part;
	} while (size);
	return spans;
}

} // namespace softgpu

extern "C" {

void *fake_alloc(size_t size, int device, int kind)
{
	Piece piece = {size, nullptr, device, static_cast<Kind>(kind)};
	char *seen = nullptr;
	if (make(piece, seen))
		return nullptr;
	keep(seen, piece);
	return seen;
}

void fake_free(void *memory) { free_memory(number(memory)); }
char *fake_peek(void *memory)
{
	const Spans spans = spans_at(number(memory), 0, false);
	return spans.empty() ? nullptr : spans[0].bytes;
}

CUresult cuMemGetInfo(size_t *available, size_t *total)
{
	return call("cuMemGetInfo_v2", [&] {
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		const Device &device = *world().devices[static_cast<size_t>(context->device)];
		*available = *total = device.bytes;
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		if (device.provider && !peerdma_provider_get(world().peer, device.provider, &info))
			*available = info.available;
		return CUDA_SUCCESS;
	});
}
CUresult cuMemAlloc(CUdeviceptr *out, size_t size)
{
	return call("cuMemAlloc_v2", [&] {
		const std::shared_lock guard(driver_lock());
		return alloc(out, size, Kind::device);
	});
}
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned)
{
	return call(__func__, [&] { return alloc(out, size, Kind::managed); });
}
// Allocates at once, which is early enough for any stream.
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream)
{
	return call(__func__, [&] { return alloc(out, size, Kind::unowned); });
}
CUresult cuMemFree(CUdeviceptr memory)
{
	return call("cuMemFree_v2", [&] {
		const std::lock_guard guard(driver_lock());
		return wait_for_streams(nullptr) ? free_memory(memory) : CUDA_ERROR_DEINITIALIZED;
	});
}
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream)
{
	return call(__func__, [&] {
		const CUresult rc = cuStreamSynchronize(stream);
		return rc ? rc : free_memory(memory);
	});
}

// Unmapped when it is freed, so that a later access crashes.
CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
	return call(__func__, [&] {
		constexpr unsigned known =
			CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
		if (!size || flags & ~known)
			return CUDA_ERROR_INVALID_VALUE;
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		const std::shared_lock guard(driver_lock());
		void *const made =
			mmap(nullptr, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (made == MAP_FAILED)
			return CUDA_ERROR_OUT_OF_MEMORY;
		// Programs must not rely on zeros.
		std::memset(made, 0x5a, size);
		Piece piece = {size, static_cast<char *>(made), context->device, Kind::host, context};
		piece.own = true;
		piece.flags = flags;
		keep(static_cast<char *>(made), piece);
		*out = made;
		live(1);
		return CUDA_SUCCESS;
	});
}
CUresult cuMemAllocHost(void **out, size_t size) { return cuMemHostAlloc(out, size, 0); }
CUresult cuMemFreeHost(void *memory)
{
	return call(__func__, [&] {
		const std::lock_guard guard(driver_lock());
		if (!wait_for_streams(nullptr))
			return CUDA_ERROR_DEINITIALIZED;
		Piece piece;
		if (!take(memory, piece, [](const Piece &one) { return one.kind == Kind::host && one.own; }))
			return CUDA_ERROR_INVALID_VALUE;
		unmake(piece, static_cast<char *>(memory));
		live_in(piece.context, -1);
		return CUDA_SUCCESS;
	});
}
CUresult cuMemHostRegister(void *memory, size_t size, unsigned flags)
{
	return call("cuMemHostRegister_v2", [&] {
		if (!memory || !size || flags & ~0xfu)
			return CUDA_ERROR_INVALID_VALUE;
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		{
			const std::shared_lock guard(world().lock);
			if (find(number(memory)) || find(number(memory) + size - 1))
				return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		}
		Piece piece = {size, static_cast<char *>(memory), context->device, Kind::host};
		piece.flags = flags;
		keep(static_cast<char *>(memory), piece);
		return CUDA_SUCCESS;
	});
}
CUresult cuMemHostUnregister(void *memory)
{
	return call(__func__, [&] {
		Piece piece;
		return take(memory, piece, [](const Piece &one) { return one.kind == Kind::host && !one.own; }) ?
			       CUDA_SUCCESS :
			       CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	});
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *memory, unsigned flags)
{
	return call("cuMemHostGetDevicePointer_v2", [&] {
		const std::shared_lock guard(world().lock);
		const Piece *const piece = find(number(memory));
		if (flags || !piece || piece->kind != Kind::host)
			return CUDA_ERROR_INVALID_VALUE;
		*out = number(memory);
		return CUDA_SUCCESS;
	});
}
CUresult cuMemHostGetFlags(unsigned *flags, void *memory)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		const Piece *const piece = find(number(memory));
		if (!piece || piece->kind != Kind::host)
			return CUDA_ERROR_INVALID_VALUE;
		*flags = piece->flags;
		return CUDA_SUCCESS;
	});
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr memory)
{
	return call("cuMemGetAddressRange_v2", [&] {
		const std::shared_lock guard(world().lock);
		char *start = nullptr;
		const Piece *const piece = find(memory, 0, &start);
		if (!piece)
			return CUDA_ERROR_NOT_FOUND;
		if (base)
			*base = number(start);
		if (size)
			*size = piece->size;
		return CUDA_SUCCESS;
	});
}

namespace
{

// Called with the world's lock held.
CUresult attribute_of(const Piece *piece, char *start, CUdeviceptr memory, CUpointer_attribute attribute, void *answer)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*static_cast<CUcontext *>(answer) = !piece || piece->kind == Kind::unowned ? nullptr :
						    piece->context                         ? piece->context :
											     primary_of(piece->device);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*static_cast<unsigned *>(answer) = !piece                    ? 0 :
						   piece->kind == Kind::host ? CU_MEMORYTYPE_HOST :
									       CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*static_cast<CUdeviceptr *>(answer) = piece ? memory : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*static_cast<void **>(answer) = piece && (piece->kind == Kind::host || piece->kind == Kind::managed) ?
							pointer(memory) :
							nullptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*static_cast<unsigned *>(answer) = piece && is_sync(*piece);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*static_cast<unsigned long long *>(answer) = piece ? piece->id : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*static_cast<unsigned *>(answer) = piece && piece->kind == Kind::managed;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*static_cast<int *>(answer) = piece ? piece->device : -2;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*static_cast<CUdeviceptr *>(answer) = piece ? number(range_of(start).first) : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*static_cast<size_t *>(answer) = piece ? range_of(start).second : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*static_cast<unsigned *>(answer) = piece != nullptr;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

} // namespace

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **answers, CUdeviceptr memory)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		char *start = nullptr;
		const Piece *const piece = find(memory, 0, &start);
		CUresult rc = CUDA_SUCCESS;
		for (unsigned i = 0; i < n && !rc; i++)
			rc = attribute_of(piece, start, memory, attributes[i], answers[i]);
		return rc;
	});
}
CUresult cuPointerGetAttribute(void *answer, CUpointer_attribute attribute, CUdeviceptr memory)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		char *start = nullptr;
		const Piece *const piece = find(memory, 0, &start);
		return piece ? attribute_of(piece, start, memory, attribute, answer) : CUDA_ERROR_INVALID_VALUE;
	});
}
// A real driver refuses this for memory mapped in pieces (580, on an H200).
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr memory)
{
	return call(__func__, [&] {
		if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
			return CUDA_ERROR_INVALID_VALUE;
		const std::shared_lock guard(world().lock);
		char *start = nullptr;
		const Piece *const piece = find(memory, 0, &start);
		if (piece && piece->mapped)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (piece)
			std::atomic_ref(world().memory.find(start)->second.sync) =
				*static_cast<const unsigned *>(value);
		return CUDA_SUCCESS;
	});
}

// Exports all 64 KiB frames that overlap the allocation. The flag is for drivers that map over several paths.
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr memory, size_t size, CUmemRangeHandleType type,
				       unsigned long long flags)
{
	return call(__func__, [&] {
		CUcontext context = nullptr;
		if (const CUresult rc = need_context(context))
			return rc;
		if (flags)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !size || memory % page || size % page)
			return CUDA_ERROR_INVALID_VALUE;
		const std::shared_lock guard(world().lock);
		char *start = nullptr;
		const Piece *const piece = find_near(memory, start);
		if (!piece)
			return CUDA_ERROR_INVALID_VALUE;
		const auto offset = pointer(memory) - start;
		int fd = -1;
		// Two pieces may be adjacent in the address space, but not in the BAR.
		char *last_start = nullptr;
		const Piece *const last = find(memory + size - 1, 0, &last_start);
		if (piece->stands && last && last->bytes - last_start != piece->bytes - start)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (piece->stands)
			fd = stand_of(*piece)->dma_buf(piece->bytes + offset, size);
		else if (offset < 0 || static_cast<size_t>(offset) + size > pages(piece->size))
			return CUDA_ERROR_INVALID_VALUE;
		else if (piece->buffer)
			peerdma_buf_export_dmabuf(piece->buffer, static_cast<size_t>(offset), size, &fd, nullptr);
		if (fd < 0)
			return CUDA_ERROR_NOT_SUPPORTED;
		*static_cast<int *>(handle) = fd;
		return CUDA_SUCCESS;
	});
}

// --- Virtual memory management
namespace
{

// Drops a handle or a mapping. The memory exists as long as either does.
void drop(uint64_t id)
{
	Piece gone;
	{
		World &w = world();
		const std::lock_guard guard(w.lock);
		const auto found = w.made.find(id);
		if (--found->second.references)
			return;
		gone = found->second.piece;
		w.made.erase(found);
	}
	if (gone.buffer || gone.stands)
		unmake(gone, nullptr);
	else
		munmap(gone.bytes, gone.size);
}

} // namespace

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
	return call(__func__, [&] {
		*out = granularity;
		return CUDA_SUCCESS;
	});
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	return call(__func__, [&] {
		if (!size || size % granularity || flags || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    check_device(prop->location.id))
			return CUDA_ERROR_INVALID_VALUE;
		Piece piece = {size, nullptr, prop->location.id, Kind::unowned};
		char *seen = nullptr;
		if (const CUresult rc = make(piece, seen))
			return rc;
		if (!piece.buffer && !piece.stands)
			munmap(seen, size); // the address itself is not used
		piece.mapped = true;
		World &w = world();
		const std::lock_guard guard(w.lock);
		*out = ++w.next_id;
		w.made[*out] = {piece, 1};
		return CUDA_SUCCESS;
	});
}
CUresult cuMemRelease(CUmemGenericAllocationHandle memory)
{
	return call(__func__, [&] {
		{
			const std::shared_lock guard(world().lock);
			if (!world().made.contains(memory))
				return CUDA_ERROR_INVALID_VALUE;
		}
		drop(memory);
		return CUDA_SUCCESS;
	});
}
// Returns the handle of the memory mapped there, with another reference.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	return call(__func__, [&] {
		const std::lock_guard guard(world().lock);
		const Piece *const piece = find(number(address));
		if (!piece || !piece->mapped)
			return CUDA_ERROR_INVALID_VALUE;
		world().made.at(piece->id).references++;
		*out = piece->id;
		return CUDA_SUCCESS;
	});
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle memory)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		const auto found = world().made.find(memory);
		if (found == world().made.end())
			return CUDA_ERROR_INVALID_VALUE;
		*prop = {};
		prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
		prop->location = {CU_MEM_LOCATION_TYPE_DEVICE, found->second.piece.device};
		return CUDA_SUCCESS;
	});
}
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr, unsigned long long)
{
	return call(__func__, [&] {
		const size_t align = alignment ? alignment : granularity;
		void *const all =
			mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (all == MAP_FAILED)
			return CUDA_ERROR_OUT_OF_MEMORY;
		const CUdeviceptr start = number(all), good = (start + align - 1) / align * align;
		if (good > start)
			munmap(all, good - start);
		munmap(pointer(good + size), start + align - good);
		*out = good;
		return CUDA_SUCCESS;
	});
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	return call(__func__, [&] {
		munmap(pointer(address), size);
		return CUDA_SUCCESS;
	});
}
// The CPU cannot access the address: a program's mappings are for the device.
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle memory,
		  unsigned long long flags)
{
	return call(__func__, [&] {
		World &w = world();
		const std::lock_guard guard(w.lock);
		const auto found = w.made.find(memory);
		if (found == w.made.end() || offset || flags || size != found->second.piece.size ||
		    address % granularity || find(address))
			return CUDA_ERROR_INVALID_VALUE;
		Piece piece = found->second.piece;
		piece.id = memory;
		w.memory[pointer(address)] = piece;
		found->second.references++;
		return CUDA_SUCCESS;
	});
}
CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	return call(__func__, [&] {
		if (!wait_for_streams(nullptr))
			return CUDA_ERROR_DEINITIALIZED;
		for (CUdeviceptr at = address; at < address + size;) {
			Piece piece;
			if (!take(pointer(at), piece, [](const Piece &one) { return one.mapped; }))
				return CUDA_ERROR_INVALID_VALUE;
			drop(piece.id);
			at += piece.size;
		}
		return CUDA_SUCCESS;
	});
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t, const CUmemAccessDesc *, size_t)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		return find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	});
}
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	return call(__func__, [&] {
		const std::shared_lock guard(world().lock);
		const Piece *const piece = find(address);
		if (!piece || location->type != CU_MEM_LOCATION_TYPE_DEVICE || check_device(location->id))
			return CUDA_ERROR_INVALID_VALUE;
		*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	});
}
}
