// SPDX-License-Identifier: MIT
//
// A test fixture without a GPU: a libze_loader.so.1 with one driver, whose memory is a quarter of the BAR of
// SOFTGPU_STAND. Calls and numbers follow Level Zero's specification. Descriptors of dma-bufs stay open, as with
// Intel's driver.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include <unistd.h>

#include "stand.hpp"

namespace
{

constexpr int success = 0, uninitialized = 0x78000001, unsupported = 0x78000003, invalid_argument = 0x78000004,
	      out_of_memory = 0x70000003;
constexpr uint32_t export_desc = 0x18, export_fd = 0x1a, dma_buf = 2, device_memory = 2, queue_desc = 0xe,
		   synchronous = 1;
std::atomic<softgpu::Stand *> stand; // nullptr before zeInit(), and if it fails
char the_driver, the_device, own_context;

struct Base {
	uint32_t kind;
	Base *next;
};
// ze_external_memory_export_desc_t; with its last member ze_external_memory_export_fd_t
struct Export : Base {
	uint32_t flags;
	int fd;
};
// ze_memory_allocation_properties_t
struct Properties : Base {
	uint32_t type;
	uint64_t id, page_size;
};

// ze_command_queue_desc_t
struct Queue : Base {
	uint32_t ordinal, index, flags, mode, priority;
};

struct Memory {
	void *context;
	bool for_export;
	int fd = -1;
};

// Never destroyed: destructors of static objects call the library at the end of the process.
std::mutex &lock = *new std::mutex; // protects all
std::map<char *, Memory> &all = *new std::map<char *, Memory>;

// Wraps a call that requires zeInit().
template <class Body> int initialized(Body &&body) noexcept
{
	return softgpu::guarded(out_of_memory, [&] {
		softgpu::Stand *const made = stand;
		return made ? body(*made) : uninitialized;
	});
}
// The same, with the lock held.
template <class Body> int locked(Body &&body) noexcept
{
	return initialized([&](softgpu::Stand &made) {
		const std::lock_guard guard(lock);
		return body(made);
	});
}

// With the lock held: the CPU address of device or host memory.
void *seen(softgpu::Stand &made, void *address, size_t size)
{
	char *start = nullptr;
	size_t bytes = 0;
	if (!made.find(address, start, bytes))
		return address;
	const auto from = static_cast<size_t>(static_cast<char *>(address) - start);
	if (size > bytes - from)
		std::abort();
	return made.bytes(start) + from;
}

Export *find(Base *first, uint32_t kind)
{
	for (; first; first = first->next)
		if (first->kind == kind)
			return static_cast<Export *>(first);
	return nullptr;
}

// With the lock held. nullptr: not memory of this context.
Memory *at(softgpu::Stand &made, void *context, const void *address, char *&start, size_t &size)
{
	if (!made.find(address, start, size))
		return nullptr;
	Memory &memory = all.at(start);
	return memory.context == context ? &memory : nullptr;
}

} // namespace

extern "C" {

int zeInit(uint32_t)
{
	return softgpu::guarded(out_of_memory, [] {
		static auto *const made =
			softgpu::Stand::of_environment(softgpu::stand_bytes / 4 * 3, softgpu::stand_bytes / 4);
		stand = made;
		return made ? success : uninitialized;
	});
}
int zeDriverGet(uint32_t *count, void **drivers)
{
	return initialized([&](const softgpu::Stand &) {
		if (*count && drivers)
			*drivers = &the_driver;
		*count = 1;
		return success;
	});
}
void *zeDriverGetDefaultContext(void *driver) { return driver == &the_driver ? &own_context : nullptr; }
int zeDeviceGet(void *, uint32_t *count, void **devices)
{
	return initialized([&](const softgpu::Stand &) {
		if (*count && devices)
			*devices = &the_device;
		*count = 1;
		return success;
	});
}
int zeContextCreate(void *, const Base *, void **out)
{
	return initialized([&](const softgpu::Stand &) {
		*out = new char;
		return success;
	});
}
int zeContextDestroy(void *context)
{
	delete static_cast<char *>(context);
	return success;
}

int zeMemAllocDevice(void *context, Base *desc, size_t size, size_t, void *, void **out)
{
	const Export *const wanted = find(desc, export_desc);
	return locked([&](softgpu::Stand &made) {
		char *const start = made.take(size);
		if (!start)
			return out_of_memory;
		try {
			all[start] = {context, wanted && wanted->flags & dma_buf};
		} catch (const std::bad_alloc &) {
			made.give(start);
			return out_of_memory;
		}
		*out = start;
		return success;
	});
}
int zeMemFree(void *, void *memory)
{
	return locked([&](softgpu::Stand &made) {
		const auto found = all.find(static_cast<char *>(memory));
		if (found == all.end())
			return invalid_argument;
		if (found->second.fd >= 0)
			close(found->second.fd);
		all.erase(found);
		made.give(static_cast<char *>(memory));
		return success;
	});
}

int zeMemGetAddressRange(void *context, const void *address, void **base, size_t *bytes)
{
	return locked([&](softgpu::Stand &made) {
		char *start = nullptr;
		size_t size = 0;
		if (!at(made, context, address, start, size))
			return invalid_argument;
		if (base)
			*base = start;
		if (bytes)
			*bytes = size;
		return success;
	});
}
int zeMemGetAllocProperties(void *context, const void *address, Properties *out, void **device)
{
	return locked([&](softgpu::Stand &made) {
		char *start = nullptr;
		size_t size = 0;
		Memory *const memory = at(made, context, address, start, size);
		out->type = memory ? device_memory : 0;
		if (device)
			*device = memory ? &the_device : nullptr;
		Export *const wanted = find(out->next, export_fd);
		if (!wanted)
			return success;
		if (!memory || !memory->for_export || wanted->flags != dma_buf)
			return unsupported;
		if (memory->fd < 0)
			memory->fd = made.dma_buf(made.bytes(start), size);
		wanted->fd = memory->fd;
		return memory->fd < 0 ? unsupported : success;
	});
}

// A list that executes each command at once.
int zeCommandListCreateImmediate(void *, void *device, const Queue *queue, void **out)
{
	return initialized([&](const softgpu::Stand &) {
		if (device != &the_device || queue->kind != queue_desc || queue->mode != synchronous)
			return invalid_argument;
		*out = new char;
		return success;
	});
}
int zeCommandListDestroy(void *list)
{
	delete static_cast<char *>(list);
	return success;
}
int zeCommandListAppendMemoryCopy(void *, void *to, const void *from, size_t size, void *, uint32_t, void **)
{
	return locked([&](softgpu::Stand &made) {
		std::memcpy(seen(made, to, size), seen(made, const_cast<void *>(from), size), size);
		return success;
	});
}
}
