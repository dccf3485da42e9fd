// SPDX-License-Identifier: MIT
//
// Packs and unpacks integers (layout.hpp). On x86 by AVX2, if the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "view/layout.hpp"

namespace view
{

// The fewest bits, 1 or more, that hold each of the values.
unsigned bits_of(std::span<const uint32_t> values);

// Packs the values, each of which has to fit into `bits` (1 to 32), to packed_bytes(values.size(), bits) bytes of `to`. No
// byte behind these is written. Unused bits of the last byte are 0.
void pack(std::span<const uint32_t> values, unsigned bits, std::byte *to);

// The opposite. Reads packed_bytes(values.size(), bits) bytes of `from` and none behind them.
void unpack(const std::byte *from, unsigned bits, std::span<uint32_t> values);

// The same in C++ for any processor.
void pack_portable(std::span<const uint32_t> values, unsigned bits, std::byte *to);
void unpack_portable(const std::byte *from, unsigned bits, std::span<uint32_t> values);

} // namespace view
