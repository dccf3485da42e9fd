// SPDX-License-Identifier: MIT
#include "view/pack_avx2.hpp"

#include "view/layout.hpp"

#ifdef __x86_64__
#include <algorithm>
#include <array>

#include <cpuid.h>
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

namespace view
{

namespace
{

// The processor has it, and the system keeps its registers. Not __builtin_cpu_supports(): that brings a static constructor, and
// libpeerdma has none.
bool __attribute__((target("xsave"))) detect_avx2()
{
	constexpr unsigned long long sse_and_avx = 6;
	unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE) ||
	    (_xgetbv(0) & sse_and_avx) != sse_and_avx)
		return false;
	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_AVX2);
}

bool has_avx2()
{
	static const bool has = detect_avx2();
	return has;
}

// How many groups may be done if each access touches `reach` bytes from its group's first byte.
size_t groups_within(size_t elements, unsigned bits, size_t reach)
{
	const size_t bytes = packed_bytes(elements, bits);
	const size_t groups = elements / group_elements;
	return bytes < reach ? 0 : std::min(groups, (bytes - reach) / bits + 1);
}

__m256i AVX2 load(const void *from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
__m128i AVX2 load_half(const void *from) { return _mm_loadu_si128(static_cast<const __m128i *>(from)); }
void AVX2 store(void *to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i *>(to), value); }
void AVX2 store_half(void *to, __m128i value) { _mm_storeu_si128(static_cast<__m128i *>(to), value); }

// Two groups at a time; 16 bits are whole elements of a smaller type.
size_t AVX2 pack_16(std::span<const uint32_t> values, std::byte *to)
{
	size_t i = 0;
	for (; i + 16 <= values.size(); i += 16) {
		const __m256i both = _mm256_packus_epi32(load(&values[i]), load(&values[i + 8]));
		store(to + i * 2, _mm256_permute4x64_epi64(both, 0xd8));
	}
	return i;
}

size_t AVX2 unpack_16(const std::byte *from, std::span<uint32_t> values)
{
	size_t i = 0;
	for (; i + 8 <= values.size(); i += 8)
		store(&values[i], _mm256_cvtepu16_epi32(load_half(from + i * 2)));
	return i;
}

// The byte in which element `nth` of a group begins, and the bits before it there.
constexpr unsigned byte_of(unsigned nth, unsigned bits) { return nth * bits / 8; }
constexpr unsigned shift_of(unsigned nth, unsigned bits) { return nth * bits % 8; }

// Up to 25 bits: an element lies in four bytes, whatever bit it begins at. Elements 0 to 3 are taken from the 16 bytes at the
// group's first byte, 4 to 7 from those at the byte in which element 4 begins.
size_t AVX2 unpack_narrow(const std::byte *from, unsigned bits, std::span<uint32_t> values)
{
	const unsigned second = byte_of(4, bits);
	alignas(32) std::array<uint8_t, 32> bytes;
	alignas(32) std::array<uint32_t, 8> shifts;
	for (unsigned nth = 0; nth < 8; nth++) {
		const unsigned first = byte_of(nth, bits) - (nth < 4 ? 0 : second);
		for (unsigned i = 0; i < 4; i++)
			bytes[nth * 4 + i] = static_cast<uint8_t>(first + i);
		shifts[nth] = shift_of(nth, bits);
	}
	const __m256i places = load(bytes.data()), right = load(shifts.data());
	const __m256i mask = _mm256_set1_epi32(static_cast<int>((1U << bits) - 1));
	const size_t groups = groups_within(values.size(), bits, second + 16);
	for (size_t group = 0; group < groups; group++, from += bits) {
		const __m256i there =
			_mm256_inserti128_si256(_mm256_castsi128_si256(load_half(from)), load_half(from + second), 1);
		const __m256i windows = _mm256_shuffle_epi8(there, places);
		store(&values[group * group_elements], _mm256_and_si256(_mm256_srlv_epi32(windows, right), mask));
	}
	return groups * group_elements;
}

// 26 to 31 bits: an element lies in five bytes, and is taken from eight.
size_t AVX2 unpack_wide(const std::byte *from, unsigned bits, std::span<uint32_t> values)
{
	alignas(32) std::array<std::array<uint64_t, 4>, 2> shifts;
	std::array<unsigned, 8> at;
	for (unsigned nth = 0; nth < 8; nth++) {
		at[nth] = byte_of(nth, bits);
		shifts[nth / 4][nth % 4] = shift_of(nth, bits);
	}
	const __m256i mask = _mm256_set1_epi64x((1LL << bits) - 1);
	// The low half of each 64-bit lane.
	const __m256i low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
	const size_t groups = groups_within(values.size(), bits, at[7] + 8);
	for (size_t group = 0; group < groups; group++, from += bits) {
		__m128i elements[2];
		for (unsigned half = 0; half < 2; half++) {
			long long windows[4];
			for (unsigned i = 0; i < 4; i++)
				__builtin_memcpy(&windows[i], from + at[half * 4 + i], 8);
			const __m256i four = _mm256_setr_epi64x(windows[0], windows[1], windows[2], windows[3]);
			const __m256i right = _mm256_srlv_epi64(four, load(shifts[half].data()));
			elements[half] = _mm256_castsi256_si128(
				_mm256_permutevar8x32_epi32(_mm256_and_si256(right, mask), low_halves));
		}
		store_half(&values[group * group_elements], elements[0]);
		store_half(&values[group * group_elements + 4], elements[1]);
	}
	return groups * group_elements;
}

} // namespace

// Joins neighbours three times: pairs of elements in each 64-bit lane, pairs of these in each 128-bit half, and both halves in
// memory, the second stored over the zeros behind the first. If `bits` is odd the halves meet inside a byte.
size_t AVX2 pack_avx2(std::span<const uint32_t> values, unsigned bits, std::byte *to)
{
	// The portable loop of 8 bits is 1.2 times as fast: Documentation/results/pack-h200-2026-11-30.txt.
	if (!has_avx2() || bits == 8)
		return 0;
	if (bits == 16)
		return pack_16(values, to);
	const auto count = static_cast<long long>(bits);
	const unsigned second = byte_of(4, bits);
	const int in_byte = static_cast<int>(shift_of(4, bits)); // 0 or 4
	const __m256i low_word = _mm256_set1_epi64x(0xffffffff);
	const __m256i low_lane = _mm256_setr_epi64x(-1, 0, -1, 0);
	const __m128i by_bits = _mm_cvtsi64_si128(count);
	// A shift by 64 gives 0.
	const __m256i left = _mm256_setr_epi64x(2 * count, 64, 2 * count, 64);
	const __m256i right = _mm256_setr_epi64x(64, 64 - 2 * count, 64, 64 - 2 * count);
	const __m128i half_byte = _mm_cvtsi32_si128(in_byte), rest = _mm_cvtsi32_si128(64 - in_byte);
	// Brings the byte in which the halves meet to the front.
	const __m128i meeting = _mm_setr_epi8(in_byte ? static_cast<char>(second) : -1, -1, -1, -1, -1, -1, -1, -1, -1,
					      -1, -1, -1, -1, -1, -1, -1);
	const size_t groups = groups_within(values.size(), bits, second + 16);
	for (size_t group = 0; group < groups; group++, to += bits) {
		const __m256i eight = load(&values[group * group_elements]);
		const __m256i pairs = _mm256_or_si256(_mm256_and_si256(eight, low_word),
						      _mm256_sll_epi64(_mm256_srli_epi64(eight, 32), by_bits));
		const __m256i swapped = _mm256_shuffle_epi32(pairs, 0x4e);
		const __m256i fours = _mm256_or_si256(
			_mm256_or_si256(_mm256_and_si256(pairs, low_lane), _mm256_sllv_epi64(swapped, left)),
			_mm256_srlv_epi64(pairs, right));
		const __m128i first = _mm256_castsi256_si128(fours), last = _mm256_extracti128_si256(fours, 1);
		// Left by 0 or 4 bits, across both lanes.
		const __m128i moved =
			_mm_or_si128(_mm_sll_epi64(last, half_byte), _mm_slli_si128(_mm_srl_epi64(last, rest), 8));
		store_half(to, first);
		store_half(to + second, _mm_or_si128(moved, _mm_shuffle_epi8(first, meeting)));
	}
	return groups * group_elements;
}

size_t AVX2 unpack_avx2(const std::byte *from, unsigned bits, std::span<uint32_t> values)
{
	if (!has_avx2())
		return 0;
	if (bits == 16)
		return unpack_16(from, values);
	return bits <= 25 ? unpack_narrow(from, bits, values) : unpack_wide(from, bits, values);
}

} // namespace view

#else

namespace view
{

size_t pack_avx2(std::span<const uint32_t>, unsigned, std::byte *) { return 0; }
size_t unpack_avx2(const std::byte *, unsigned, std::span<uint32_t>) { return 0; }

} // namespace view

#endif
