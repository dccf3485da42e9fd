// SPDX-License-Identifier: MIT
#include "allocations.hpp"

#include <cstdlib>
#include <new>

thread_local int allocations_left = -1;

void *operator new(size_t bytes)
{
	if (allocations_left == 0)
		throw std::bad_alloc();
	allocations_left -= allocations_left > 0;
	void *p = std::malloc(bytes ? bytes : 1);
	if (!p)
		throw std::bad_alloc();
	return p;
}
void operator delete(void *p) noexcept { std::free(p); }
void operator delete(void *p, size_t) noexcept { std::free(p); }
