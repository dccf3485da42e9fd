// SPDX-License-Identifier: MIT
//
// A test fixture without a GPU: a libamdhip64.so.6 that allocates from libhsa-runtime64.so.1 (hsa.cpp), as HIP does.
// Unlike HIP it also accesses the bytes through that library.
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {

int hsa_init();
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t size, uint32_t flags, void **out);
int hsa_amd_memory_pool_free(void *memory);
char *fake_hsa_bytes(const void *address, size_t size);

int hipMalloc(void **out, size_t size)
{
	constexpr int out_of_memory = 2;
	return hsa_init() || hsa_amd_memory_pool_allocate(0, size, 0, out) ? out_of_memory : 0;
}
int hipFree(void *memory)
{
	constexpr int invalid_value = 1;
	return memory && hsa_amd_memory_pool_free(memory) ? invalid_value : 0;
}
int hipMemcpy(void *to, const void *from, size_t size, int kind)
{
	constexpr int to_device = 1, to_host = 2, invalid_value = 1;
	char *const bytes = fake_hsa_bytes(kind == to_device ? to : from, size);
	if (!bytes || (kind != to_device && kind != to_host))
		return invalid_value;
	std::memcpy(kind == to_device ? bytes : to, kind == to_device ? from : bytes, size);
	return 0;
}
int hipDeviceSynchronize() { return 0; }
}
