// SPDX-License-Identifier: MIT
//
// Packing by AVX2. Each function does whole groups, as many as it can without a byte outside of what pack() and unpack()
// may touch, and returns how many elements these are: 0 where the processor has no AVX2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace view
{

// bits: 1 to 31.
size_t pack_avx2(std::span<const uint32_t> values, unsigned bits, std::byte *to);
size_t unpack_avx2(const std::byte *from, unsigned bits, std::span<uint32_t> values);

} // namespace view
