// SPDX-License-Identifier: MIT
//
// A test fixture, no GPU: a libhsa-runtime64.so.1 whose memory is a quarter of the BAR of SOFTGPU_STAND. The calls and
// numbers are those of ROCm's documentation.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "stand.hpp"

namespace
{

constexpr int success = 0, invalid_argument = 0x1001, invalid_allocation = 0x1003, out_of_resources = 0x1008,
	      not_initialized = 0x100b;
constexpr size_t page = 4096;
bool initialized;

softgpu::Stand &stand()
{
	static auto *const all =
		new softgpu::Stand(std::getenv("SOFTGPU_STAND"), softgpu::stand_bytes / 2, softgpu::stand_bytes / 4);
	return *all;
}

// hsa_amd_pointer_info_t
struct Info {
	uint32_t size;
	int type;
	void *at_device, *at_host;
	size_t bytes;
	void *user;
	uint64_t owner;
};

} // namespace

extern "C" {

int hsa_init()
{
	initialized = true;
	return success;
}

// Whole pages, as from amdgpu.
int hsa_amd_memory_pool_allocate(uint64_t, size_t size, uint32_t, void **out)
{
	if (!initialized)
		return not_initialized;
	*out = stand().take((size + page - 1) / page * page);
	return *out ? success : out_of_resources;
}
int hsa_amd_memory_pool_free(void *memory)
{
	return stand().give(static_cast<char *>(memory)) ? success : invalid_allocation;
}

// As much of it as the caller knows.
int hsa_amd_pointer_info(const void *address, Info *info, void *(*)(size_t), uint32_t *, void **)
{
	if (!initialized)
		return not_initialized;
	if (!info || info->size < 8)
		return invalid_argument;
	Info all = {};
	char *start = nullptr;
	all.size = info->size < sizeof(all) ? info->size : static_cast<uint32_t>(sizeof(all));
	if (stand().find(address, start, all.bytes)) {
		all.type = 1;
		all.at_device = start;
	}
	std::memcpy(info, &all, all.size);
	return success;
}

// Of all that was allocated at once, and where in it the address is.
int hsa_amd_portable_export_dmabuf(const void *address, size_t size, int *fd, uint64_t *offset)
{
	char *start = nullptr;
	size_t bytes = 0;
	if (!fd || !offset)
		return invalid_argument;
	if (!stand().find(address, start, bytes) ||
	    size > bytes - static_cast<size_t>(static_cast<const char *>(address) - start))
		return invalid_allocation;
	*fd = stand().dma_buf(stand().bytes(start), bytes);
	*offset = static_cast<uint64_t>(static_cast<const char *>(address) - start);
	return *fd < 0 ? out_of_resources : success;
}
int hsa_amd_portable_close_dmabuf(int fd) { return close(fd) ? invalid_argument : success; }

// hip.cpp's: where the CPU gets at what is in one allocation; nullptr, it is not.
char *fake_hsa_bytes(const void *address, size_t size)
{
	char *start = nullptr;
	size_t bytes = 0;
	if (!stand().find(address, start, bytes))
		return nullptr;
	const auto from = static_cast<size_t>(static_cast<const char *>(address) - start);
	return size > bytes - from ? nullptr : stand().bytes(start) + from;
}
}
