// SPDX-License-Identifier: MIT
//
// A test fixture without a GPU: a libhsa-runtime64.so.1 whose memory is a quarter of the BAR of SOFTGPU_STAND. Calls
// and numbers follow ROCm's documentation.
#include <atomic>
#include <cstdint>
#include <cstring>

#include <unistd.h>

#include "stand.hpp"

namespace
{

constexpr int success = 0, invalid_argument = 0x1001, invalid_allocation = 0x1003, out_of_resources = 0x1008,
	      not_initialized = 0x100b;
constexpr size_t page = 4096;
std::atomic<softgpu::Stand *> stand; // nullptr before hsa_init(), and if it fails

// hsa_amd_pointer_info_t
struct Info {
	uint32_t size;
	int type;
	void *at_device, *at_host;
	size_t bytes;
	void *user;
	uint64_t owner;
};

// Wraps a call that requires hsa_init().
template <class Body> int initialized(Body &&body) noexcept
{
	return softgpu::guarded(out_of_resources, [&] {
		softgpu::Stand *const all = stand;
		return all ? body(*all) : not_initialized;
	});
}

} // namespace

extern "C" {

int hsa_init()
{
	return softgpu::guarded(out_of_resources, [] {
		static auto *const all =
			softgpu::Stand::of_environment(softgpu::stand_bytes / 2, softgpu::stand_bytes / 4);
		stand = all;
		return all ? success : out_of_resources;
	});
}

// Allocates whole pages, as amdgpu does.
int hsa_amd_memory_pool_allocate(uint64_t, size_t size, uint32_t, void **out)
{
	return initialized([&](softgpu::Stand &all) {
		*out = all.take((size + page - 1) / page * page);
		return *out ? success : out_of_resources;
	});
}
int hsa_amd_memory_pool_free(void *memory)
{
	return initialized([&](softgpu::Stand &all) {
		return all.give(static_cast<char *>(memory)) ? success : invalid_allocation;
	});
}

// Fills in the members that the caller's size covers.
int hsa_amd_pointer_info(const void *address, Info *info, void *(*)(size_t), uint32_t *, void **)
{
	return initialized([&](softgpu::Stand &all) {
		if (!info || info->size < 8)
			return invalid_argument;
		Info found = {};
		char *start = nullptr;
		found.size = info->size < sizeof(found) ? info->size : static_cast<uint32_t>(sizeof(found));
		if (all.find(address, start, found.bytes)) {
			found.type = 1;
			found.at_device = start;
		}
		std::memcpy(info, &found, found.size);
		return success;
	});
}

// Exports the whole allocation, and returns the offset of the address in it.
int hsa_amd_portable_export_dmabuf(const void *address, size_t size, int *fd, uint64_t *offset)
{
	return initialized([&](softgpu::Stand &all) {
		char *start = nullptr;
		size_t bytes = 0;
		if (!fd || !offset)
			return invalid_argument;
		if (!all.find(address, start, bytes) ||
		    size > bytes - static_cast<size_t>(static_cast<const char *>(address) - start))
			return invalid_allocation;
		*fd = all.dma_buf(all.bytes(start), bytes);
		*offset = static_cast<uint64_t>(static_cast<const char *>(address) - start);
		return *fd < 0 ? out_of_resources : success;
	});
}
int hsa_amd_portable_close_dmabuf(int fd) { return close(fd) ? invalid_argument : success; }

// For hip.cpp: the CPU address of bytes in one allocation; nullptr if they are not in one.
char *fake_hsa_bytes(const void *address, size_t size)
{
	char *at = nullptr;
	initialized([&](softgpu::Stand &all) {
		char *start = nullptr;
		size_t bytes = 0;
		if (!all.find(address, start, bytes))
			return invalid_allocation;
		const auto from = static_cast<size_t>(static_cast<const char *>(address) - start);
		if (size <= bytes - from)
			at = all.bytes(start) + from;
		return success;
	});
	return at;
}
}
