// SPDX-License-Identifier: MIT
#include "kernels.hpp"

#include <cstring>
#include <string>

namespace softgpu
{
namespace
{

constexpr uint64_t most_of_last = 2048, word_bits = 32, word_bytes = 4;

bool is_anothers(CUdeviceptr address, CUcontext in) { return owner_of(address) && owner_of(address) != in; }

bool overlap(CUdeviceptr a, uint64_t a_len, CUdeviceptr b, uint64_t b_len) { return a < b + b_len && b < a + a_len; }

std::string bytes_of(const Spans &from)
{
	std::string bytes;
	for (const Span &span : from)
		bytes.append(span.bytes, span.size);
	return bytes;
}

uint64_t value_at(const std::string &bytes, uint64_t bit, uint32_t bits)
{
	uint64_t value = 0;
	// Nearly always: an emulated guest would take most of its time for single bytes.
	if (bit / 8 + sizeof(value) <= bytes.size())
		std::memcpy(&value, bytes.data() + bit / 8, sizeof(value));
	else
		for (uint64_t i = 0; i < 5 && bit / 8 + i < bytes.size(); i++)
			value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[bit / 8 + i])) << (8 * i);
	return value >> bit % 8 & ((uint64_t{1} << bits) - 1);
}

} // namespace

void widen(const Widening &what, CUcontext in, bool last)
{
	if (!what.count)
		return;
	const uint64_t width = what.wide ? 8 : 4, written = what.count * width;
	const uint64_t last_element = what.skip + (what.count - 1) * what.bits;
	// The kernel reads the two words from which an element comes, though one may have all of it.
	const uint64_t touched = (last_element / word_bits + 2) * word_bytes;
	const uint64_t needed = ((last_element + what.bits - 1) / word_bits + 1) * word_bytes;
	const Spans to = spans_at(what.to, written, false), from = spans_at(what.from, touched, false);
	const bool bad = to.empty() || from.empty() || is_anothers(what.to, in) || is_anothers(what.from, in) ||
			 what.to % width || what.from % word_bytes || !what.bits || what.bits > 32 ||
			 (last ? what.count > most_of_last : overlap(what.to, written, what.from, needed));
	if (bad) {
		wrong();
		return;
	}
	const std::string packed = bytes_of(from);
	std::string wide(written, '\0');
	for (uint64_t i = 0; i < what.count; i++) {
		// 32 bits, as the kernel's register.
		const uint64_t value = value_at(packed, what.skip + i * what.bits, what.bits) << what.left & 0xffffffff;
		if (what.wide)
			std::memcpy(&wide[i * sizeof(value)], &value, sizeof(value));
		else
			std::memcpy(&wide[i * sizeof(uint32_t)], &value, sizeof(uint32_t));
	}
	copy(to, {{wide.data(), wide.size()}});
}

} // namespace softgpu
