// SPDX-License-Identifier: MIT
//
// A test fixture, no GPU: a libamdhip64.so.6 that has its memory from libhsa-runtime64.so.1, as HIP has: hsa.cpp.
#include <cstddef>
#include <cstdint>

extern "C" {

int hsa_init();
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t size, uint32_t flags, void **out);
int hsa_amd_memory_pool_free(void *memory);

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
}
