// SPDX-License-Identifier: MIT
//
// Integers of k bits each, one after the other without gaps, little endian: element i has the bits [i * k, (i + 1) * k) of
// the packed bytes, bit 0 being the lowest of the first byte. Eight elements are k bytes: a group. A range of elements
// that begins with a group can therefore be packed and unpacked by itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace view
{

inline constexpr size_t group_elements = 8;
inline constexpr unsigned max_bits = 32;

// Bytes that `count` elements of `bits` bits take.
constexpr uint64_t packed_bytes(uint64_t count, unsigned bits)
{
	return count / group_elements * bits + (count % group_elements * bits + 7) / 8;
}

} // namespace view
