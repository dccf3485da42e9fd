// SPDX-License-Identifier: MIT
#include "view/pack.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "view/pack_avx2.hpp"

namespace view
{

static_assert(std::endian::native == std::endian::little, "words are stored as they are");

namespace
{

// Elements of 8 or 16 bits are integers of C++. The compiler vectorizes these loops, not those for any width.
template <class Narrow> void narrow(std::span<const uint32_t> values, std::byte *to)
{
	for (size_t i = 0; i < values.size(); i++) {
		const auto value = static_cast<Narrow>(values[i]);
		std::memcpy(to + i * sizeof(value), &value, sizeof(value));
	}
}

template <class Narrow> void widen(const std::byte *from, std::span<uint32_t> values)
{
	for (size_t i = 0; i < values.size(); i++) {
		Narrow value;
		std::memcpy(&value, from + i * sizeof(value), sizeof(value));
		values[i] = value;
	}
}

} // namespace

unsigned bits_of(std::span<const uint32_t> values)
{
	uint32_t all = 1;
	for (const uint32_t value : values)
		all |= value;
	return static_cast<unsigned>(std::bit_width(all));
}

void pack_portable(std::span<const uint32_t> values, unsigned bits, std::byte *to)
{
	if (bits == 8)
		return narrow<uint8_t>(values, to);
	if (bits == 16)
		return narrow<uint16_t>(values, to);
	uint64_t word = 0; // bits that are not stored yet
	unsigned held = 0;
	for (const uint32_t value : values) {
		word |= static_cast<uint64_t>(value) << held;
		held += bits;
		if (held >= 32) {
			std::memcpy(to, &word, 4);
			to += 4;
			word >>= 32;
			held -= 32;
		}
	}
	std::memcpy(to, &word, (held + 7) / 8);
}

void unpack_portable(const std::byte *from, unsigned bits, std::span<uint32_t> values)
{
	if (bits == 8)
		return widen<uint8_t>(from, values);
	if (bits == 16)
		return widen<uint16_t>(from, values);
	const uint32_t mask = UINT32_MAX >> (32 - bits);
	const std::byte *const end = from + packed_bytes(values.size(), bits);
	uint64_t word = 0; // bits that are not delivered yet
	unsigned held = 0;
	for (uint32_t &value : values) {
		if (held < bits) {
			uint32_t next = 0;
			const size_t bytes = end - from < 4 ? static_cast<size_t>(end - from) : 4;
			if (bytes == 4) // a size that the compiler knows: a load, not a call
				std::memcpy(&next, from, 4);
			else
				std::memcpy(&next, from, bytes);
			from += bytes;
			word |= static_cast<uint64_t>(next) << held;
			held += 32;
		}
		value = static_cast<uint32_t>(word) & mask;
		word >>= bits;
		held -= bits;
	}
}

void pack(std::span<const uint32_t> values, unsigned bits, std::byte *to)
{
	if (bits == 32) {
		std::ranges::copy(std::as_bytes(values), to);
		return;
	}
	const size_t done = pack_avx2(values, bits, to);
	pack_portable(values.subspan(done), bits, to + packed_bytes(done, bits));
}

void unpack(const std::byte *from, unsigned bits, std::span<uint32_t> values)
{
	if (bits == 32) {
		std::copy_n(from, values.size_bytes(), std::as_writable_bytes(values).begin());
		return;
	}
	const size_t done = unpack_avx2(from, bits, values);
	unpack_portable(from + packed_bytes(done, bits), bits, values.subspan(done));
}

} // namespace view
