// SPDX-License-Identifier: MIT
#include "cufile/path/nt_copy.hpp"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace cufile
{
namespace
{

#ifdef __SSE2__
constexpr bool built_in = true;
#else
constexpr bool built_in = false;
#endif

} // namespace

void nt_copy(char *to, const char *from, uint64_t size)
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

int64_t NtReader::read(File &file, char *to, uint64_t size, uint64_t offset, Share share)
{
	constexpr uint64_t least = 32 * 1024;
	if (!built_in || share == Share::none || size < least || !file.copied())
		return file.read(to, size, offset);
	if (!memory_)
		memory_.reset(static_cast<char *>(std::aligned_alloc(4096, bytes)));
	if (!memory_)
		return file.read(to, size, offset);
	uint64_t done = 0;
	bool by_it = true;
	while (done < size) {
		const uint64_t part = std::min(size - done, bytes);
		const int64_t n = file.read(by_it ? memory_.get() : to + done, part, offset + done);
		if (n < 0)
			return n;
		if (by_it)
			nt_copy(to + done, memory_.get(), static_cast<uint64_t>(n));
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < part)
			break;
		by_it = share == Share::all || !by_it;
	}
	return static_cast<int64_t>(done);
}

} // namespace cufile
