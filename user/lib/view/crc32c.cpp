// SPDX-License-Identifier: MIT
//
// libpeerdma does not link libisal, of which Debian has no static archive: a shared library that it needs would have to be
// copied into each container with it. Not linked into tests, which have user/view/crc32c.cpp.
#include "view/crc32c.hpp"

#include <cstring>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace
{

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes, uint32_t before)
{
	uint64_t crc = ~before;
	for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
		uint64_t word;
		std::memcpy(&word, bytes.data(), sizeof(word));
		crc = __builtin_ia32_crc32di(crc, word);
	}
	auto rest = static_cast<uint32_t>(crc);
	for (const std::byte byte : bytes)
		rest = __builtin_ia32_crc32qi(rest, static_cast<uint8_t>(byte));
	return ~rest;
}

// Not __builtin_cpu_supports(): that brings a static constructor.
bool has_instruction()
{
	unsigned a = 0, b = 0, c = 0, d = 0;
	return __get_cpuid(1, &a, &b, &c, &d) && c & bit_SSE4_2;
}
#endif

} // namespace

uint32_t view::crc32c(std::span<const std::byte> bytes, uint32_t before)
{
#ifdef __x86_64__
	static const bool has = has_instruction();
	if (has)
		return by_instruction(bytes, before);
#endif
	return crc32c_portable(bytes, before);
}
