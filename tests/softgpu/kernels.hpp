// SPDX-License-Identifier: MIT
//
// What our kernels do, written once more from their description: element by element, on the CPU.
#pragma once

#include <cstdint>

#include "world.hpp"

namespace softgpu
{

// The parameters of peerdma_widen and peerdma_widen_last.
struct Widening {
	CUdeviceptr to, from;
	uint64_t count;
	uint32_t bits, skip, left, wide;
};

// last: the kernel that reads all elements before it writes the first. Counts as wrong what a real kernel does wrongly: memory
// of nobody or of another context, addresses that are not aligned, elements that are overwritten before they are read.
void widen(const Widening &what, CUcontext in, bool last);

// Copies between ranges of the same length, which may be split differently: copy.cpp.
void copy(Spans to, Spans from);

} // namespace softgpu
