// SPDX-License-Identifier: MIT
//
// CRC32C (Castagnoli), the checksum of a view's header and data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace view
{

// By libisal in peerdma-viewd and the tests, which sum whole data sets. libpeerdma, which sums a header, does without that
// library: user/lib/view/crc32c.cpp. before: of the bytes before these.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same in C++ for any processor.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before = 0);

} // namespace view
