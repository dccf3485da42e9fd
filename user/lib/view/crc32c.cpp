// SPDX-License-Identifier: MIT
//
// libpeerdma sums headers only, so it does not link libisal, of which Debian has no static archive: a shared library that it
// needs would have to be copied into each container with it. Not linked into tests, which have user/view/crc32c.cpp.
#include "view/crc32c.hpp"

uint32_t view::crc32c(std::span<const std::byte> bytes, uint32_t before) { return crc32c_portable(bytes, before); }
