// SPDX-License-Identifier: MIT
//
// Memory of the devices' and of the host's, and what the driver says of an address.
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

// Memory of the host's, at two addresses: programs cannot touch theirs, unless it is managed.
CUresult make_of_host(Piece &piece, char *&seen)
{
	const int fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, static_cast<off_t>(pages(piece.size))))
		std::abort();
	const int rights = piece.kind == Kind::managed ? PROT_READ | PROT_WRITE : PROT_NONE;
	seen = static_cast<char *>(mmap(nullptr, pages(piece.size), rights, MAP_SHARED, fd, 0));
	piece.bytes = static_cast<char *>(mmap(nullptr, pages(piece.size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	close(fd);
	return CUDA_SUCCESS;
}

// A buffer of libpeerdma's, where the device's own driver would have memory of its own.
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

// Managed memory may lie anywhere: here it lies with the host, where the CPU uses it as it likes.
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
	munmap(seen, pages(piece.size));
	munmap(piece.bytes, pages(piece.size));
}

// With the world's lock.
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

// Or one that begins in the frame of that address. With the world's lock.
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

// What is one to the driver: pieces that are mapped one behind the other are (580, on an H200). With the world's lock.
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
	std::lock_guard guard(w.lock);
	piece.id = ++w.next_id;
	w.memory[seen] = piece;
}

// The piece that begins there, which is the caller's from now on.
bool take(const void *seen, Piece &piece)
{
	World &w = world();
	std::lock_guard guard(w.lock);
	const auto found = w.memory.find(static_cast<char *>(const_cast<void *>(seen)));
	if (found == w.memory.end())
		return false;
	piece = found->second;
	w.memory.erase(found);
	return true;
}

CUresult alloc(CUdeviceptr *out, size_t size, Kind kind)
{
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	Piece piece = {size, nullptr, current()->device, kind, current()};
	char *seen = nullptr;
	const CUresult rc = make(piece, seen);
	if (rc)
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
	if (!take(pointer(address), piece))
		return CUDA_ERROR_INVALID_VALUE;
	unmake(piece, pointer(address));
	return CUDA_SUCCESS;
}

} // namespace

CUcontext owner_of(CUdeviceptr address)
{
	std::lock_guard guard(world().lock);
	const Piece *const piece = find(address);
	if (!piece || piece->kind != Kind::device)
		return nullptr;
	return piece->context ? piece->context : primary_of(piece->device);
}

void free_memory_of(CUcontext context)
{
	std::vector<std::pair<char *, Piece>> gone;
	{
		std::lock_guard guard(world().lock);
		for (const auto &[seen, piece] : world().memory)
			if (piece.context == context && piece.kind != Kind::unowned)
				gone.emplace_back(seen, piece);
		for (const auto &[seen, piece] : gone)
			world().memory.erase(seen);
	}
	for (const auto &[seen, piece] : gone)
		if (piece.kind == Kind::host)
			std::free(seen);
		else
			unmake(piece, seen);
}

Spans spans_at(CUdeviceptr address, size_t size, bool host_too)
{
	Spans spans;
	std::lock_guard guard(world().lock);
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
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	const Device &device = *world().devices[static_cast<size_t>(current()->device)];
	*available = *total = device.bytes;
	struct peerdma_provider_info info = {};
	info.size = sizeof(info);
	if (device.provider && !peerdma_provider_get(world().peer, device.provider, &info))
		*available = info.available;
	return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *out, size_t size)
{
	const CUresult rc = begin(__func__);
	const std::shared_lock guard(driver_lock());
	return rc ? rc : alloc(out, size, Kind::device);
}
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned)
{
	const CUresult rc = begin(__func__);
	return rc ? rc : alloc(out, size, Kind::managed);
}
// At once, which is early enough for any stream.
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream)
{
	const CUresult rc = begin(__func__);
	return rc ? rc : alloc(out, size, Kind::unowned);
}
CUresult cuMemFree(CUdeviceptr memory)
{
	const CUresult rc = begin(__func__);
	if (rc)
		return rc;
	const std::lock_guard guard(driver_lock());
	cuCtxSynchronize();
	return free_memory(memory);
}
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream)
{
	const CUresult rc = cuStreamSynchronize(stream);
	return rc ? rc : free_memory(memory);
}

CUresult cuMemHostAlloc(void **out, size_t size, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	const std::shared_lock guard(driver_lock());
	*out = std::aligned_alloc(page, pages(size));
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	// Nobody may count on zeros.
	std::memset(*out, 0x5a, size);
	keep(static_cast<char *>(*out),
	     {size, static_cast<char *>(*out), current() ? current()->device : 0, Kind::host, current()});
	live(1);
	return CUDA_SUCCESS;
}
CUresult cuMemAllocHost(void **out, size_t size) { return cuMemHostAlloc(out, size, 0); }
CUresult cuMemFreeHost(void *memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	const std::lock_guard guard(driver_lock());
	cuCtxSynchronize();
	Piece piece;
	if (!take(memory, piece))
		return CUDA_ERROR_INVALID_VALUE;
	std::free(memory);
	live(-1);
	return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void *memory, size_t size, unsigned)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	keep(static_cast<char *>(memory),
	     {size, static_cast<char *>(memory), current() ? current()->device : 0, Kind::host});
	return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void *memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	Piece piece;
	return take(memory, piece) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *memory, unsigned)
{
	*out = number(memory);
	return begin(__func__);
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::lock_guard guard(world().lock);
	char *start = nullptr;
	const Piece *piece = find(memory, 0, &start);
	if (!piece)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = number(start);
	if (size)
		*size = piece->size;
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **answers, CUdeviceptr memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::lock_guard guard(world().lock);
	char *start = nullptr;
	const Piece *piece = find(memory, 0, &start);
	for (unsigned i = 0; i < n; i++) {
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_CONTEXT:
			*static_cast<CUcontext *>(answers[i]) = !piece || piece->kind == Kind::unowned ? nullptr :
								piece->context ? piece->context :
										 primary_of(piece->device);
			break;
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*static_cast<unsigned *>(answers[i]) = !piece                    ? 0 :
							       piece->kind == Kind::host ? CU_MEMORYTYPE_HOST :
											   CU_MEMORYTYPE_DEVICE;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
			*static_cast<CUdeviceptr *>(answers[i]) = piece ? memory : 0;
			break;
		case CU_POINTER_ATTRIBUTE_HOST_POINTER:
			*static_cast<void **>(answers[i]) =
				piece && (piece->kind == Kind::host || piece->kind == Kind::managed) ? pointer(memory) :
												       nullptr;
			break;
		case CU_POINTER_ATTRIBUTE_BUFFER_ID:
			*static_cast<unsigned long long *>(answers[i]) = piece ? piece->id : 0;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*static_cast<unsigned *>(answers[i]) = piece && piece->kind == Kind::managed;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*static_cast<int *>(answers[i]) = piece ? piece->device : -2;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
			*static_cast<CUdeviceptr *>(answers[i]) = piece ? number(range_of(start).first) : 0;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
			*static_cast<size_t *>(answers[i]) = piece ? range_of(start).second : 0;
			break;
		case CU_POINTER_ATTRIBUTE_MAPPED:
			*static_cast<unsigned *>(answers[i]) = piece != nullptr;
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *answer, CUpointer_attribute attribute, CUdeviceptr memory)
{
	unsigned type = 0;
	CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	void *to = &type;
	CUresult rc = cuPointerGetAttributes(1, &which, &to, memory);
	if (!rc && !type)
		rc = CUDA_ERROR_INVALID_VALUE;
	return rc ? rc : cuPointerGetAttributes(1, &attribute, &answer, memory);
}
// Every copy is over when its call or its stream is: there is nothing to make synchronous. Of what is mapped in pieces a real
// driver does not take it (580, on an H200).
CUresult cuPointerSetAttribute(const void *, CUpointer_attribute attribute, CUdeviceptr memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	std::lock_guard guard(world().lock);
	const Piece *const piece = find(memory);
	return piece && piece->mapped ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// Of all the frames that an allocation has some of. The flag is for drivers that know several ways to the memory.
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr memory, size_t size, CUmemRangeHandleType type,
				       unsigned long long flags)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (flags)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !size || memory % page || size % page)
		return CUDA_ERROR_INVALID_VALUE;
	std::lock_guard guard(world().lock);
	char *start = nullptr;
	const Piece *const piece = find_near(memory, start);
	if (!piece)
		return CUDA_ERROR_INVALID_VALUE;
	const auto offset = pointer(memory) - start;
	int fd = -1;
	// Two pieces may be one behind the other in the address space, and not in the BAR.
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
}

// --- Memory that is made, and mapped where it is wanted
CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
	*out = granularity;
	return begin(__func__);
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	if (!size || size % granularity || flags || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    check_device(prop->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	Piece piece = {size, nullptr, prop->location.id, Kind::unowned};
	char *seen = nullptr;
	if (const CUresult rc = make(piece, seen))
		return rc;
	if (!piece.buffer && !piece.stands)
		munmap(seen, size); // its own address is not wanted
	piece.mapped = true;
	World &w = world();
	std::lock_guard guard(w.lock);
	*out = ++w.next_id;
	w.made[*out] = {piece, 1};
	return CUDA_SUCCESS;
}

namespace
{

// The end of a handle or of a mapping: memory lasts as long as there is either.
void drop(uint64_t id)
{
	Piece gone;
	{
		World &w = world();
		std::lock_guard guard(w.lock);
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

CUresult cuMemRelease(CUmemGenericAllocationHandle memory)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	{
		std::lock_guard guard(world().lock);
		if (!world().made.contains(memory))
			return CUDA_ERROR_INVALID_VALUE;
	}
	drop(memory);
	return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr, unsigned long long)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	const size_t align = alignment ? alignment : granularity;
	void *const all = mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const CUdeviceptr start = number(all), good = (start + align - 1) / align * align;
	if (good > start)
		munmap(all, good - start);
	munmap(pointer(good + size), start + align - good);
	*out = good;
	return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	munmap(pointer(address), size);
	return begin(__func__);
}
// The address stays one that nobody can touch: a program's are for the device.
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle memory,
		  unsigned long long flags)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	World &w = world();
	std::lock_guard guard(w.lock);
	const auto found = w.made.find(memory);
	if (found == w.made.end() || offset || flags || size != found->second.piece.size || address % granularity ||
	    find(address))
		return CUDA_ERROR_INVALID_VALUE;
	Piece piece = found->second.piece;
	piece.id = memory;
	w.memory[pointer(address)] = piece;
	found->second.references++;
	return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	cuCtxSynchronize();
	for (const CUdeviceptr end = address + size; address < end;) {
		Piece piece;
		if (!take(pointer(address), piece))
			return CUDA_ERROR_INVALID_VALUE;
		drop(piece.id);
		address += piece.size;
	}
	return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t, const CUmemAccessDesc *, size_t)
{
	if (const CUresult rc = begin(__func__))
		return rc;
	std::lock_guard guard(world().lock);
	return find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}
