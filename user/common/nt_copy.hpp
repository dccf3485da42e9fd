// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace peerdma_impl
{

#ifdef __SSE2__
inline constexpr bool has_nt_copy = true;
#else
inline constexpr bool has_nt_copy = false; // then nt_copy() is memcpy()
#endif

// Non-temporal memcpy(). The stores are fenced, so both a device and another thread may read the result.
inline void nt_copy(char *to, const char *from, uint64_t size)
{
#ifdef __SSE2__
	constexpr uint64_t line = 64;
	// Whole cache lines: a partial one would be read first.
	const uint64_t head = std::min<uint64_t>(-reinterpret_cast<uintptr_t>(to) % line, size);
	std::memcpy(to, from, head);
	uint64_t at = head;
	for (; size - at >= line; at += line) {
		const auto *const in = reinterpret_cast<const __m128i *>(from + at);
		auto *const out = reinterpret_cast<__m128i *>(to + at);
		const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
			      d = _mm_loadu_si128(in + 3);
		_mm_stream_si128(out, a);
		_mm_stream_si128(out + 1, b);
		_mm_stream_si128(out + 2, c);
		_mm_stream_si128(out + 3, d);
	}
	std::memcpy(to + at, from + at, size - at);
	// Non-temporal stores are unordered, also against the store that tells another thread or the GPU of them.
	_mm_sfence();
#else
	std::memcpy(to, from, size);
#endif
}

} // namespace peerdma_impl
